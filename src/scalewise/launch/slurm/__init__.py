"""Run a study on a cluster: each run a job of Slurm's.

``script`` is pure text, ``queue`` asks the controller, ``settings`` is what a
study or a site says. A job closes its own record when it ends, so nobody needs
to watch it; whoever does learns from Slurm why a job died.
"""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scalewise.errors import LaunchError, SpecError
from scalewise.launch import Command, Job, Plan, State, next_attempt, parcel
from scalewise.launch.slurm import queue
from scalewise.launch.slurm.script import script
from scalewise.launch.slurm.settings import Settings, seconds
from scalewise.record.close import last_word, newest_attempt
from scalewise.record.log import ends_in, start_in, told_to_end
from scalewise.record.write import write_json, write_text
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
        self._submitted: list[str] = []
        self._asked: dict[str, None] = {}
        self._known: dict[str, queue.Entry] = {}
        self._looked = self._answered = -math.inf
        self._unknown: dict[str, float] = {}
        """When a job was first not known to Slurm."""

    def asks(self, runs: Sequence[RunSpec]) -> str:
        """Say how many device-hours these runs may take; refuse more than is allowed."""
        limit, most = self.settings.time, self.settings.max_device_hours
        devices = sum(run.topology.world for run in runs)
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

    def plan(self, runs: Sequence[RunSpec], folder: Path) -> Plan:
        """Say what would be submitted."""
        if len(runs) != 1:
            raise LaunchError(f"the slurm launcher plans one run at a time, got {len(runs)}")
        (run,) = runs
        path = folder / run.id / "plan" / "job.sh"
        attempt = next_attempt(folder / run.id)
        text = script(run, folder, self.settings, attempt=attempt)
        command = Command(("sbatch", "--parsable", str(path)))
        return Plan((run,), folder, (command,), {f"{run.id}/plan/job.sh": text})

    def prepare(self, plan: Plan) -> None:
        """Write what the jobs read: scripts, specs and the worker's half."""
        for path, text in plan.files.items():
            write_text(plan.folder / path, text)
        parcel.pack(plan.folder)
        for run in plan.runs:
            write_json(plan.folder / run.id / "spec.json", run.to_dict())

    def submit(self, plan: Plan) -> Job:
        """Hand the job in and return at once."""
        (run,) = plan.runs
        home = plan.folder / run.id
        self.prepare(plan)
        log = home / "log.txt"
        earlier = log.stat().st_size if log.exists() else 0
        number = queue.submit(home / "plan" / "job.sh", self._turn())
        self._submitted.append(number)
        name = {"launcher": "slurm", "job": number, "log": earlier, "submitted": time.time()}
        job = Job(home, next_attempt(home), run.topology.world, name)
        write_json(home / "job.json", {"attempt": job.attempt, "world": job.world, **name})
        return job

    def _turn(self) -> list[str]:
        """Return the option by which a job waits for its turn, where not all may run at once."""
        most = self.settings.throttle
        if most is None or len(self._submitted) < most:
            return []
        return [f"--dependency=afterany:{self._submitted[-most]}"]

    def poll(self, job: Job) -> State:
        """Say where the job is; change nothing."""
        number = job.name["job"]
        self._ask(number)
        entry = self._known.get(number)
        if entry is None:
            since = self._unknown.setdefault(number, time.monotonic())
            gone = time.monotonic() - since > FORGOTTEN
            return State("ended" if gone else "running")
        if entry.waits:
            soon = f", expected to start {entry.start}" if entry.start not in ("", "N/A") else ""
            return State("running", note=f"pending: {entry.reason}{soon}")
        if not entry.ended:
            return State("running")
        log = job.folder / "log.txt"
        start = start_in(log, newest_attempt(job.folder, job.attempt)) or job.name["log"]
        killed, exits = ends_in(log, start)
        return State("ended", _why(job, entry) or told_to_end(log, start), killed, exits)

    def cancel(self, job: Job, *, stuck: bool = False) -> None:
        """End the job."""
        queue.cancel(job.name["job"])

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
