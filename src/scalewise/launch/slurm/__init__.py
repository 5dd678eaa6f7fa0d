"""Run a study on a cluster: each run a job of Slurm's.

``script`` is pure text, ``queue`` asks the controller, ``here`` does without it in
an allocation that is there already, ``settings`` is what a study or a site says. A
job closes its own record when it ends, so nobody needs to watch it; whoever does
learns from Slurm why a job died.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scalewise.errors import LaunchError, SpecError
from scalewise.launch import Command, Job, Plan, State, lay_out, next_attempt, parcel
from scalewise.launch.slurm import here, queue
from scalewise.launch.slurm.script import Request, array, in_turn, script
from scalewise.launch.slurm.settings import Settings, seconds
from scalewise.record.close import closed, last_word, newest_attempt
from scalewise.record.log import ends_in, start_in, told_to_end
from scalewise.record.write import write_json
from scalewise.spec import RunSpec

EVERY = 2.0
"""Seconds between two questions to the controller, about all jobs at once."""
SILENCE = 600.0
"""Seconds that a controller may be away, once it has answered; jobs go on meanwhile."""
FORGOTTEN = 10.0
"""Seconds after which a job that Slurm does not know counts as ended."""


class SlurmLauncher:
    """Runs as jobs; its settings are in docs/guides/slurm.md."""

    at_once = math.inf

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        self.settings = Settings.of(given or {})
        self._inside = here.allocation()
        self._in_turn = self.settings.jobs == "one" or self._inside is not None
        self._submitted: list[str] = []
        self._asked: dict[str, None] = {}
        self._known: dict[str, queue.Entry] = {}
        self._looked = self._answered = -math.inf
        self._unknown: dict[str, float] = {}
        """When a job was first not known to Slurm."""

    def asks(self, runs: Sequence[RunSpec]) -> str:
        """Say how many device-hours these runs may take; refuse more than is allowed."""
        if self._inside:
            return f"in the allocation of job {self._inside}"
        limit, most = self.settings.time, self.settings.max_device_hours
        devices = sum(run.topology.world for run in runs)
        if self._in_turn and runs:
            asked = Request.of(runs, self.settings)
            devices = asked.nodes * asked.devices
        if limit is None:
            if most is not None:
                raise SpecError(
                    "max_device_hours means nothing without a time limit",
                    hint='for example time = "00:30:00" in [launcher]',
                )
            return "device-hours are as long as the cluster's default limit"
        hours = devices * seconds(limit) / 3600
        if most is not None and hours > most:
            raise SpecError(
                f"the study asks for up to {hours:,.1f} device-hours, "
                f"and max_device_hours allows {most:,.1f}",
                hint="lower time, repeats or the devices, or raise max_device_hours",
            )
        return f"up to {hours:,.1f} device-hours"

    def together(self, runs: Sequence[RunSpec]) -> list[list[RunSpec]]:
        """Return which runs share a job, or an array of jobs."""
        if self._in_turn:
            return [list(runs)] if runs else []
        if self.settings.jobs == "each":
            return [[run] for run in runs]
        alike: dict[Request, list[RunSpec]] = {}
        for run in runs:
            alike.setdefault(Request.of([run], self.settings), []).append(run)
        return list(alike.values())

    def plan(self, runs: Sequence[RunSpec], folder: Path) -> Plan:
        """Say what would be submitted."""
        files = {
            f"{run.id}/plan/job.sh": script(
                run,
                folder,
                self.settings,
                attempt=next_attempt(folder / run.id),
                within=self._in_turn,
            )
            for run in runs
        }
        if self._in_turn:
            self._refuse_larger(runs)
            files = {"in-turn.sh": in_turn(runs, folder, self.settings), **files}
        elif self.settings.jobs == "array":
            name = f"array-{runs[0].id}.sh"
            files = {name: array(runs, folder, self.settings), **files}
        start = ("bash",) if self._inside else ("sbatch", "--parsable")
        command = Command((*start, str(folder / next(iter(files)))))
        return Plan(tuple(runs), folder, (command,), files)

    def _refuse_larger(self, runs: Sequence[RunSpec]) -> None:
        """Refuse runs for which the allocation that we are in has not enough nodes."""
        there = int(os.environ.get("SLURM_JOB_NUM_NODES", 0)) if self._inside else 0
        for run in runs:
            if there and run.topology.nodes > there:
                raise LaunchError(
                    f"{run.topology} needs {run.topology.nodes} nodes, "
                    f"and the allocation of job {self._inside} has {there}",
                    hint="leave the allocation to submit jobs of their own, or ask for more nodes",
                )

    def prepare(self, plan: Plan) -> None:
        """Write what the jobs read: scripts, specs and the worker's half."""
        lay_out(plan)
        parcel.pack(plan.folder)

    def submit(self, plan: Plan) -> list[Job]:
        """Hand the job in and return at once."""
        self.prepare(plan)
        homes = [plan.folder / run.id for run in plan.runs]
        before = [(next_attempt(home), _size(home / "log.txt")) for home in homes]
        name = self._start(plan.folder / next(iter(plan.files)))
        jobs = []
        for place, (run, home, (attempt, size)) in enumerate(zip(plan.runs, homes, before)):
            own = {**name, "log": size}
            if self.settings.jobs == "array" and not self._in_turn:
                own["job"] = f"{name['job']}_{place}"
            jobs.append(Job(home, attempt, run.topology.world, own))
            write_json(home / "job.json", {"attempt": attempt, "world": jobs[-1].world, **own})
        return jobs

    def _start(self, path: Path) -> dict[str, Any]:
        """Hand a script in, or carry it out here; return how to find it again."""
        name: dict[str, Any] = {"launcher": "slurm", "submitted": time.time()}
        if self._in_turn:
            name["shared"] = True
        if self._inside:
            started = here.submit(path, path.with_suffix(".txt"))
            return {**name, "job": self._inside, "process": started}
        number = queue.submit(path, self._turn())
        self._submitted.append(number)
        return {**name, "job": number}

    def _turn(self) -> list[str]:
        """Return the option by which a job waits for its turn, where not all may run at once."""
        most = self.settings.throttle
        if most is None or self.settings.jobs != "each" or len(self._submitted) < most:
            return []
        return [f"--dependency=afterany:{self._submitted[-most]}"]

    def poll(self, job: Job) -> State:
        """Say where the job is; change nothing."""
        entry = self._entry(job)
        if entry is None:
            since = self._unknown.setdefault(job.name["job"], time.monotonic())
            gone = time.monotonic() - since > FORGOTTEN
            return State("ended" if gone else "running")
        if entry.waits:
            soon = f", expected to start {entry.start}" if entry.start not in ("", "N/A") else ""
            return State("running", note=f"pending: {entry.reason}{soon}")
        log = job.folder / "log.txt"
        if not entry.ended and not _over(job):
            waits = "shared" in job.name and _size(log) == job.name["log"]
            note = f"waits for its turn in job {job.name['job']}" if waits else ""
            return State("running", note=note)
        start = start_in(log, newest_attempt(job.folder, job.attempt)) or job.name["log"]
        killed, exits = ends_in(log, start)
        return State("ended", _why(job, entry) or told_to_end(log, start), killed, exits)

    def cancel(self, job: Job, *, stuck: bool = False) -> None:
        """End the job; one that others share goes on for them, when its run is over."""
        if _over(job):
            return
        if "process" in job.name:
            here.cancel(job.name["process"])
        else:
            queue.cancel(job.name["job"])

    def _entry(self, job: Job) -> queue.Entry | None:
        """Return the job as Slurm has it, or nothing if it does not know it."""
        if "process" in job.name:
            return here.look(job.name["process"])
        self._ask(job.name["job"])
        return self._known.get(job.name["job"])

    def _ask(self, number: str) -> None:
        """Ask about all jobs at once, now and then."""
        new = number not in self._asked
        self._asked[number] = None
        if not new and time.monotonic() - self._looked < EVERY:
            return
        self._looked = time.monotonic()
        try:
            self._known = queue.look(self._asked)
            self._answered = self._looked
        except LaunchError:
            if self._looked - self._answered > SILENCE:
                raise


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _over(job: Job) -> bool:
    """Say whether a run has ended whose job goes on, with others."""
    return "shared" in job.name and closed(job.folder, newest_attempt(job.folder, job.attempt))


def _why(job: Job, entry: queue.Entry) -> str:
    """Say why Slurm ended a job, if it did; of a lost node, which, and who was there."""
    said = queue.SAYS.get(entry.state, "")
    if not said:
        return ""
    if entry.state == "NODE_FAIL" and (lost := queue.lost(entry.nodes)):
        attempt = newest_attempt(job.folder, job.attempt)
        words = [last_word(job.folder, rank, attempt) for rank in range(job.world)]
        there = [f"rank {word.rank}" for word in words if word.find("host") in lost]
        said = f"node {', '.join(lost)} was lost, and {', '.join(there) or 'no rank'} with it"
        left = [word for word in words if word.lines and word.find("host") not in lost]
        if left:
            said += f"; rank {left[0].rank} on {left[0].find('host')} stood {left[0].place}"
    return f"job {job.name['job']} on {entry.nodes or 'no node'}: {said}"
