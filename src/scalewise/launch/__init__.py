"""Start the processes of a run.

A ``Launcher`` first says exactly what will be executed, as a value; only then
does it execute it. The launcher's own name for what it started is kept in the
run folder (``job.json``), so that any later process can ask about it.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from scalewise.record.rank_tail import newest_attempt
from scalewise.record.write import write_bytes, write_json, write_text
from scalewise.spec import RunSpec
from scalewise.validate import check_environment_name

PORT_PLACEHOLDER = "\0port\0"
"""Placeholder in a planned command for a free port, which is found when the command starts.

No path, argument or variable can hold a null character, so only our own placeholder is replaced.
"""


@dataclass(frozen=True, slots=True)
class Command:
    """One process: its arguments, and what it adds to the environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The command as a shell would take it; a port that is not known yet is ``{port}``."""
        for name in self.env:
            check_environment_name("env", name)
        variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.env.items())]
        return " ".join([*variables, shlex.join(self.argv)]).replace(PORT_PLACEHOLDER, "{port}")

    @property
    def needs_port(self) -> bool:
        """Whether a free port is to be filled in."""
        return any(PORT_PLACEHOLDER in word for word in (*self.argv, *self.env.values()))

    def with_port(self, port: int) -> "Command":
        """Return the command with this port filled in."""
        return Command(
            tuple(word.replace(PORT_PLACEHOLDER, str(port)) for word in self.argv),
            {name: value.replace(PORT_PLACEHOLDER, str(port)) for name, value in self.env.items()},
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Exactly what will happen: files to write, then commands to start."""

    runs: tuple[RunSpec, ...]
    folder: Path
    """The study's folder; each run has one of its own in it, named by its id."""
    commands: tuple[Command, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """Text by path, relative to the folder; the first is the script that starts it all."""


@dataclass(frozen=True, slots=True)
class Job:
    """Something a launcher started, in the launcher's own words."""

    folder: Path
    """The run's folder."""
    attempt: int
    world: int
    name: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """Where a job is: running, ended, or stuck and to be cancelled."""

    phase: Literal["running", "ended", "stuck"]
    cause: str = ""
    """What the launcher knows of a failure; the ranks' own words say more."""
    killed: Mapping[int, str] = field(default_factory=dict)
    """Signals that ended processes, by process id."""
    exits: Mapping[int, int] = field(default_factory=dict)
    """Exit codes of processes that did not end with 0, by process id."""
    note: str = ""
    """What else there is to say of it: why it has not started, for example."""
    job: Job | None = None
    """The job with what was found out about it, where its ``job.json`` does not say that yet."""


def write_job(job: Job) -> Job:
    """Write down what was started, or is about to be: any later process can ask about it."""
    write_json(job.folder / "job.json", {"attempt": job.attempt, "world": job.world, **job.name})
    return job


@contextmanager
def job_files_written(jobs: Sequence[Job], *, undo_on: type[BaseException]) -> Iterator[None]:
    """Write jobs down before they start; restore what was there if they certainly did not."""
    paths = [job.folder / "job.json" for job in jobs]
    before = [path.read_bytes() if path.exists() else None for path in paths]
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
    """Write the plan's files, and what every run is asked for."""
    for path, text in plan.files.items():
        write_text(plan.folder / path, text)
    for run in plan.runs:
        write_json(plan.folder / run.id / "spec.json", run.to_dict())


def next_attempt(home: Path) -> int:
    """Return a number that no earlier attempt at the run in ``home`` has had."""
    taken = [int(path.stem.partition("-")[2]) for path in home.glob("failure-*.json")]
    for name in ("job.json", "outcome.json"):
        if (home / name).exists():
            found = re.search(r'"attempt": (\d+)', (home / name).read_text(encoding="utf-8"))
            taken.append(int(found[1]) if found else 0)
    return newest_attempt(home, max(taken, default=0)) + 1


class Launcher(Protocol):
    """Something that can start runs; made from the study's ``[launcher]`` table."""

    at_once: float
    """How many runs it takes at a time."""

    def request_summary(self, runs: Sequence[RunSpec]) -> str:
        """Say what these runs would take of a shared machine; refuse more than is allowed."""
        ...

    def max_device_hours(self, runs: Sequence[RunSpec]) -> float | None:
        """Return the device-hours that these runs can take at most; nothing without a limit."""
        ...

    def billed_devices(self, run: RunSpec, among: Sequence[RunSpec]) -> int:
        """Return the devices that are paid for while a run goes that is started with others."""
        ...

    def together(self, runs: Sequence[RunSpec]) -> list[list[RunSpec]]:
        """Return which runs are planned and started as one."""
        ...

    def plan(self, runs: Sequence[RunSpec], folder: Path) -> Plan:
        """Say what would be executed, without executing it."""
        ...

    def prepare(self, plan: Plan) -> None:
        """Write what the plan's commands read."""
        ...

    def submit(self, plan: Plan) -> list[Job]:
        """Execute the plan and return at once, with a job for each run."""
        ...

    def poll(self, job: Job) -> State:
        """Say where the job is; change nothing."""
        ...

    def cancel(self, job: Job, *, stuck: bool = False) -> None:
        """End it, and everything it started; of a stuck one ask the stacks first."""
        ...
