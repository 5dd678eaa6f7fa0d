"""Run a study on a cluster: each run a job of Slurm's.

``script`` is pure text, ``queue`` asks the controller, ``here`` does without it in
an allocation that is there already, ``settings`` is what a study or a site says. A
job closes its own record when it ends, so nobody needs to watch it; whoever does
learns from Slurm why a job died.
"""

import getpass
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from scalewise.errors import LaunchError, OutOfReach, SpecError
from scalewise.launch import (
    Command,
    Job,
    Plan,
    State,
    job_files_written,
    next_attempt,
    processes,
    worker_zip,
    write_job,
    write_plan_files,
)
from scalewise.launch.interpreters import Interpreters
from scalewise.launch.slurm import inside_allocation, queue
from scalewise.launch.slurm.batch_script import (
    ResourceRequest,
    array_script,
    may_requeue,
    run_script,
    sequential_script,
)
from scalewise.launch.slurm.settings import Settings, parse_time_limit
from scalewise.record.close import closed
from scalewise.record.log import ends_in, start_in, told_to_end
from scalewise.record.rank_tail import newest_attempt, read_tail
from scalewise.spec import RunSpec

POLL_SECONDS = 2.0
"""Seconds between two questions to the controller, about all jobs at once."""
CONTROLLER_SILENCE_SECONDS = 600.0
"""Seconds that a controller may be away, once it has answered; jobs go on meanwhile."""
UNKNOWN_JOB_SECONDS = 10.0
"""Seconds after which a job that Slurm does not know counts as ended."""
OUTCOME_SECONDS = 90.0
"""Seconds after which this machine shows what a compute node wrote; NFS caches for up to 60."""
SUBMIT_SECONDS = 300.0
"""Seconds for which a submission from a machine that we cannot see may be under way."""


class SlurmLauncher:
    """Runs as jobs; its settings are in docs/guides/slurm.md."""

    at_once = math.inf

    def __init__(
        self, given: Mapping[str, Any] | None = None, engines: Interpreters | None = None
    ) -> None:
        found = Settings.of(given or {})
        named = {**found.engines, **(engines.named if engines else {})}
        self.settings = replace(found, engines=named)
        self._inside = inside_allocation.current_job_id()
        self._in_turn = self.settings.jobs == "one" or self._inside is not None
        self._submitted: list[str] = []
        self._asked: dict[str, None] = {}
        self._known: dict[str, queue.QueueEntry] = {}
        self._looked = self._answered = -math.inf
        self._unknown: dict[str, float] = {}
        """When a job was first not known to Slurm."""
        self._searched: dict[str, float] = {}
        """When a job was last searched for by its token."""

    def request_summary(self, runs: Sequence[RunSpec]) -> str:
        """Say how many device-hours these runs may take; refuse more than is allowed."""
        if self._inside:
            return f"in the allocation of job {self._inside}"
        hours, most = self.max_device_hours(runs), self.settings.max_device_hours
        if hours is None:
            if most is not None:
                raise SpecError(
                    "max_device_hours means nothing without a time limit",
                    hint='for example time = "00:30:00" in [launcher]',
                )
            return "device-hours are as long as the cluster's default limit"
        if most is not None and hours > most:
            raise SpecError(
                f"the study asks for up to {hours:,.1f} device-hours, "
                f"and max_device_hours allows {most:,.1f}",
                hint="lower time, repeats or the devices, or raise max_device_hours",
            )
        again = any(may_requeue(run, self.settings) for run in runs)
        each = ", each time its jobs are put back into the queue" if again else ""
        return f"up to {hours:,.2f} device-hours{each}"

    def max_device_hours(self, runs: Sequence[RunSpec]) -> float | None:
        """Return the device-hours that these runs can take by the time limit of their jobs."""
        if self._inside or self.settings.time is None:
            return None
        devices = sum(run.topology.world for run in runs)
        if self._in_turn and runs:
            asked = ResourceRequest.of(runs, self.settings)
            devices = asked.nodes * asked.devices
        return devices * parse_time_limit(self.settings.time) / 3600

    def billed_devices(self, run: RunSpec, among: Sequence[RunSpec]) -> int:
        """Return the run's own devices, or those of the allocation that it shares."""
        if not self._in_turn:
            return run.topology.world
        asked = ResourceRequest.of(among, self.settings)
        nodes = inside_allocation.node_count() if self._inside else math.inf
        return asked.devices * (asked.nodes if math.isinf(nodes) else int(nodes))

    def together(self, runs: Sequence[RunSpec]) -> list[list[RunSpec]]:
        """Return which runs share a job, or an array of jobs."""
        if self._in_turn:
            small = [run for run in runs if not self._too_large(run)]
            large = [[run] for run in runs if self._too_large(run)]
            return [small, *large] if small else large
        if self.settings.jobs == "each":
            return [[run] for run in runs]
        alike: dict[ResourceRequest, list[RunSpec]] = {}
        for run in runs:
            alike.setdefault(ResourceRequest.of([run], self.settings), []).append(run)
        return list(alike.values())

    def plan(self, runs: Sequence[RunSpec], folder: Path) -> Plan:
        """Say what would be submitted."""
        _refuse_ssh(runs)
        files = {
            f"{run.id}/plan/job.sh": run_script(
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
            files = {"in-turn.sh": sequential_script(runs, folder, self.settings), **files}
        elif self.settings.jobs == "array":
            name = f"array-{runs[0].id}.sh"
            files = {name: array_script(runs, folder, self.settings), **files}
        start = ("bash",) if self._inside else ("sbatch", "--parsable")
        command = Command((*start, str(folder / next(iter(files)))))
        return Plan(tuple(runs), folder, (command,), files)

    def _refuse_larger(self, runs: Sequence[RunSpec]) -> None:
        """Refuse runs for which the allocation that we are in has not enough nodes."""
        for run in filter(self._too_large, runs):
            raise LaunchError(
                f"{run.topology} needs {run.topology.nodes} nodes, "
                f"and the allocation of job {self._inside} has {inside_allocation.node_count()}",
                hint="leave the allocation to submit jobs of their own, or ask for more nodes",
            )

    def _too_large(self, run: RunSpec) -> bool:
        """Say whether the allocation that we are in has too few nodes for a run."""
        return self._inside is not None and run.topology.nodes > inside_allocation.node_count()

    def prepare(self, plan: Plan) -> None:
        """Write what the jobs read: scripts, specs and the worker's half."""
        write_plan_files(plan)
        worker_zip.pack(plan.folder)

    def submit(self, plan: Plan) -> list[Job]:
        """Hand the job in and return at once."""
        self.prepare(plan)
        name: dict[str, Any] = {"launcher": "slurm", "submitted": time.time(), "job": None}
        name |= {"token": uuid4().hex, "user": getpass.getuser(), "machine": processes.machine_id()}
        if self._in_turn:
            name["shared"] = True
        jobs = []
        for place, run in enumerate(plan.runs):
            home = plan.folder / run.id
            own = {**name, "log": _file_size(home / "log.txt")}
            if self.settings.jobs == "array" and not self._in_turn:
                own["place"] = place
            jobs.append(Job(home, next_attempt(home), run.ranks, own))
        # Whatever happens from here on, a job that Slurm has taken can be found again.
        with job_files_written(jobs, undo_on=queue.SubmissionRefused):
            try:
                started = self._start(plan.folder / next(iter(plan.files)), name["token"])
            except KeyboardInterrupt:
                with suppress(LaunchError):
                    self.cancel(jobs[0])  # One submission, one job for all of them.
                raise
        return [write_job(_with_job_id(job, started)) for job in jobs]

    def _start(self, path: Path, token: str) -> dict[str, Any]:
        """Hand a script in, or carry it out here; return how to find it again."""
        if self._inside:
            process = inside_allocation.submit(path, path.with_suffix(".txt"), token)
            return {"job": self._inside, "process": process}
        number = queue.submit(path, token, self._turn())
        self._submitted.append(number)
        return {"job": number}

    def _turn(self) -> list[str]:
        """Return the option by which a job waits for its turn, where not all may run at once."""
        most = self.settings.throttle
        if most is None or self.settings.jobs != "each" or len(self._submitted) < most:
            return []
        return [f"--dependency=afterany:{self._submitted[-most]}"]

    def poll(self, job: Job) -> State:
        """Say where the job is; change nothing."""
        if job.name["job"] is None:  # The process that submitted it was killed at that moment.
            return self._poll_unconfirmed(job)
        entry = self._entry(job)
        if entry is None:
            return self._poll_unknown(job)
        if entry.waits:
            soon = f", expected to start {entry.start}" if entry.start not in ("", "N/A") else ""
            return State("running", note=f"pending: {entry.reason}{soon}")
        log = job.folder / "log.txt"
        if not entry.ended and not _run_ended(job):
            waits = "shared" in job.name and _file_size(log) == job.name["log"]
            note = f"waits for its turn in job {job.name['job']}" if waits else ""
            return State("running", note=note)
        if (
            entry.state == "COMPLETED"
            and not _is_closed(job)
            and entry.ended_within(OUTCOME_SECONDS)
        ):
            return State("running", note="it has ended, and its outcome is not visible here yet")
        start = start_in(log, newest_attempt(job.folder, job.attempt)) or job.name["log"]
        killed, exits = ends_in(log, start)
        return State("ended", _end_cause(job, entry) or told_to_end(log, start), killed, exits)

    def _poll_unconfirmed(self, job: Job) -> State:
        """Say where a job is whose number nobody has written down."""
        unconfirmed = State("running", note="its submission is not confirmed yet")
        looked = self._searched.get(job.name["token"], -math.inf)
        if time.monotonic() - looked < POLL_SECONDS:
            return unconfirmed
        self._searched[job.name["token"]] = time.monotonic()
        # Look for sbatch before asking Slurm: a job that is submitted in between is then found.
        submitting = _submission_under_way(job)
        found = self._found(job)
        if found is not None:
            job = _with_job_id(job, found)
            return replace(self.poll(job), job=job)
        if submitting or (_of_another_user(job) and not _is_closed(job)):  # Slurm may hide it.
            return unconfirmed
        return State("ended", "it was not submitted")

    def _found(self, job: Job) -> dict[str, Any] | None:
        """Return how to ask for a job that is known by its token alone, if it was started."""
        if process := inside_allocation.find_script(job.name["token"]):
            return {"job": self._inside, "process": process}
        number = queue.find_job(job.name["token"], job.name.get("user"))
        return {"job": number} if number else None

    def _poll_unknown(self, job: Job) -> State:
        """Say where a job is that Slurm does not know: it has ended, after a while."""
        if _is_closed(job):
            return State("ended")
        if _of_another_user(job):  # Slurm may hide it.
            return State("running", note=f"Slurm does not show job {job.name['job']}")
        since = self._unknown.setdefault(job.name["job"], time.monotonic())
        gone = time.monotonic() - since > UNKNOWN_JOB_SECONDS
        return State("ended" if gone else "running")

    def cancel(self, job: Job, *, stuck: bool = False) -> None:
        """End the job; one that others share goes on for them, when its run is over."""
        found = {} if job.name["job"] else self._found(job)
        entry = None if found is None else self._entry(_with_job_id(job, found))
        if entry is None and found is not None and _of_another_user(job) and not _is_closed(job):
            raise OutOfReach(
                f"Slurm does not show job {job.name['job']} of user {job.name['user']}",
                hint=f"ask {job.name['user']} to cancel it, or delete {job.folder}",
            )
        if found is None or entry is None or (_run_ended(job) and not entry.waits):
            return
        job = _with_job_id(job, found)
        if "process" in job.name:
            inside_allocation.cancel(job.name["process"])
        else:
            queue.cancel(job.name["job"])

    def _entry(self, job: Job) -> queue.QueueEntry | None:
        """Return the job as Slurm has it, or nothing if it does not know it."""
        if "process" in job.name:
            return inside_allocation.script_entry(job.name["process"])
        self._ask(job.name["job"])
        return self._known.get(job.name["job"])

    def _ask(self, number: str) -> None:
        """Ask about all jobs at once, now and then."""
        new = number not in self._asked
        self._asked[number] = None
        if not new and time.monotonic() - self._looked < POLL_SECONDS:
            return
        try:
            self._known = queue.load_entries(self._asked)
            self._answered = time.monotonic()
        except LaunchError:
            if time.monotonic() - self._answered > CONTROLLER_SILENCE_SECONDS:
                raise
        finally:
            self._looked = time.monotonic()


def _refuse_ssh(runs: Sequence[RunSpec]) -> None:
    """Refuse runs whose starter would want to log in to the other nodes."""
    if any(run.started_by == "horovodrun" and run.topology.world > 1 for run in runs):
        raise LaunchError(
            "horovodrun starts ranks on other nodes by ssh, which a job does without",
            hint='write start = "srun", or "mpirun"',
        )


def _submission_under_way(job: Job) -> bool:
    """Say whether sbatch may still be submitting the job, though its caller is gone."""
    if job.name.get("machine") == processes.machine_id() and not _of_another_user(job):
        return processes.has_argument(queue.comment_option(job.name["token"]))
    return time.time() - float(job.name["submitted"]) < SUBMIT_SECONDS


def _with_job_id(job: Job, found: Mapping[str, Any]) -> Job:
    """Return the job with the number that Slurm knows it by; a task of an array has its place."""
    name = {**job.name, **found}
    if "place" in name and "_" not in str(name["job"]):
        name["job"] = f"{name['job']}_{name['place']}"
    return replace(job, name=name)


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _run_ended(job: Job) -> bool:
    """Say whether a run has ended whose job goes on, with others."""
    return "shared" in job.name and _is_closed(job)


def _is_closed(job: Job) -> bool:
    """Say whether the job's last attempt was closed, well or not."""
    return closed(job.folder, newest_attempt(job.folder, job.attempt))


def _of_another_user(job: Job) -> bool:
    """Say whether somebody else submitted the job."""
    return bool(job.name.get("user", getpass.getuser()) != getpass.getuser())


def _end_cause(job: Job, entry: queue.QueueEntry) -> str:
    """Say why Slurm ended a job, if it did; of a lost node, which, and who was there."""
    said = queue.END_REASONS.get(entry.state, "")
    if not said:
        return ""
    if entry.state == "NODE_FAIL" and (lost := queue.down_nodes(entry.nodes)):
        attempt = newest_attempt(job.folder, job.attempt)
        words = [read_tail(job.folder, rank, attempt) for rank in range(job.world)]
        there = [f"rank {word.rank}" for word in words if word.notes.host in lost]
        said = f"node {', '.join(lost)} was lost, and {', '.join(there) or 'no rank'} with it"
        left = [word for word in words if word.lines and word.notes.host not in lost]
        if left:
            said += f"; rank {left[0].rank} on {left[0].notes.host} stood {left[0].position}"
    return f"job {job.name['job']} on {entry.nodes or 'no node'}: {said}"
