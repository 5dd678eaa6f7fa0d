"""Start runs: a ``Plan`` says what to execute; ``job.json`` lets later commands find the run."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from scalewise.errors import SpecError
from scalewise.files import read_file
from scalewise.record.rank_tail import RankTail, newest_attempt, read_tail
from scalewise.record.run_clock import RunClock
from scalewise.record.write import write_bytes, write_json, write_text
from scalewise.spec import RunSpec
from scalewise.validate import check_environment_name

PORT_PLACEHOLDER = "\0port\0"
"""Stands for a free port, chosen when the command starts. No real argument has a null character."""


@dataclass(frozen=True, slots=True)
class Command:
    """One process: its arguments, and the variables that are added to its environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The command as a shell line; a port that is not known yet is ``{port}``."""
        for name in self.env:
            check_environment_name("env", name)
        variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.env.items())]
        return " ".join([*variables, shlex.join(self.argv)]).replace(PORT_PLACEHOLDER, "{port}")

    @property
    def needs_port(self) -> bool:
        """Whether the command has a placeholder for a port."""
        return any(PORT_PLACEHOLDER in value for value in (*self.argv, *self.env.values()))

    def with_port(self, port: int) -> "Command":
        """Return the command with this port filled in."""
        return Command(
            tuple(argument.replace(PORT_PLACEHOLDER, str(port)) for argument in self.argv),
            {name: value.replace(PORT_PLACEHOLDER, str(port)) for name, value in self.env.items()},
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Exactly what will happen: files to write, then commands to start."""

    runs: tuple[RunSpec, ...]
    folder: Path
    """The study's folder; each run has a subfolder, named by its id."""
    commands: tuple[Command, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts by path relative to ``folder``. The first file is the script that starts the runs."""


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt at a run that a launcher has started; ``job.json`` holds all but ``folder``."""

    folder: Path
    """The run's folder."""
    attempt: int
    world: int
    """The number of ranks."""
    details: Mapping[str, Any]
    """How this launcher finds the job again: the other keys of ``job.json``."""

    def tails(self) -> list[RankTail]:
        """Return the last lines of each rank in this attempt."""
        return [read_tail(self.folder, rank, self.attempt) for rank in range(self.world)]


@dataclass(frozen=True, slots=True)
class State:
    """The state of a job, as a launcher reports it."""

    phase: Literal["running", "ended", "stuck"]
    """``running`` includes queued; a ``stuck`` job must be cancelled: it never ends by itself."""
    cause: str = ""
    """Why the job failed, as far as the launcher knows; the ranks' records may say more."""
    killed: Mapping[int, str] = field(default_factory=dict)
    """Signals that ended processes, by process id."""
    exits: Mapping[int, int] = field(default_factory=dict)
    """Exit codes of processes that did not end with 0, by process id."""
    note: str = ""
    """A remark for the user: why the job has not started, for example."""
    queued: bool = False
    """Whether a ``running`` job waits in a queue."""
    job: Job | None = None
    """The job with details that are still missing in its ``job.json``; None if none are missing."""


def clock_of(job: Job) -> RunClock:
    """Return the clock by which the launcher measures a job: of a local run, that of its ranks."""
    return RunClock.from_text(job.details.get("clock"))


def seconds_since_submission(job: Job) -> float | None:
    """Return for how long a job has been in a scheduler's queue; None if it was not submitted."""
    submitted = job.details.get("submitted")
    clock = RunClock.from_text(job.details.get("submit_clock"))
    return max(0.0, clock.now() - submitted) if submitted else None


def write_job(job: Job) -> Job:
    """Write ``job.json`` for a job that was started, or is about to be; return the job."""
    write_json(job.folder / "job.json", {"attempt": job.attempt, "world": job.world, **job.details})
    return job


@contextmanager
def job_files_written(jobs: Sequence[Job], *, undo_on: type[BaseException]) -> Iterator[None]:
    """Write ``job.json`` files before the block; restore the old ones if it raises ``undo_on``."""
    paths = [job.folder / "job.json" for job in jobs]
    before = [read_file(path) if path.exists() else None for path in paths]
    for job in jobs:
        write_job(job)
    try:
        yield
    except undo_on:
        for path, content in zip(paths, before):
            if content is None:
                path.unlink(missing_ok=True)
            else:
                write_bytes(path, content)
        raise


def write_plan_files(plan: Plan) -> None:
    """Write the plan's files, and the ``spec.json`` of every run."""
    for path, text in plan.files.items():
        write_text(plan.folder / path, text)
    for run in plan.runs:
        write_json(plan.folder / run.id / "spec.json", run.to_dict())


def next_attempt(home: Path) -> int:
    """Return the number of the next attempt at the run in ``home``; no number is used twice."""
    numbers = (path.stem.partition("-")[2] for path in home.glob("failure-*.json"))
    used = [int(number) for number in numbers if number.isdecimal()]
    for name in ("job.json", "outcome.json"):
        with suppress(OSError):
            # A regular expression finds the number even if the JSON is damaged.
            match = re.search(rb'"attempt": (\d{1,9})\b', read_file(home / name))
            used.append(int(match[1]) if match else 0)
    return newest_attempt(home, max(used, default=0)) + 1


class Launcher(Protocol):
    """Starts runs; made from the study's ``[launcher]`` table."""

    at_once: float
    """How many runs may be active at a time; infinity if the launcher sets no limit."""

    def request_summary(self, runs: Sequence[RunSpec]) -> str:
        """Describe the device-hours that these runs request; refuse more than is allowed."""

    def request_warnings(self, runs: Sequence[RunSpec]) -> list[SpecError]:
        """Return a warning, with a hint, for each setting that these runs need and lack."""

    def max_device_hours(self, runs: Sequence[RunSpec]) -> float | None:
        """Return the most device-hours that these runs can take; None without a time limit."""

    def billed_devices(self, run: RunSpec, among: Sequence[RunSpec]) -> int:
        """Return devices billed while ``run`` trains; ``among``: runs that may share its job."""

    def together(self, runs: Sequence[RunSpec]) -> list[list[RunSpec]]:
        """Return groups of runs that are planned and started together."""

    def plan(self, runs: Sequence[RunSpec], folder: Path) -> Plan:
        """Return what would be executed, without executing it."""

    def prepare(self, plan: Plan) -> None:
        """Write the files that the plan's commands read."""

    def submit(self, plan: Plan) -> list[Job]:
        """Execute the plan and return at once, with a job for each run."""

    def poll(self, job: Job) -> State:
        """Return the state of the job, without changing it."""

    def cancel(self, job: Job, *, stuck: bool = False) -> None:
        """End the job and every process of it; ``stuck``: print the ranks' stacks first."""
