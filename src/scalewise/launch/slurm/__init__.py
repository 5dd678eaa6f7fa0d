"""Run a study on a Slurm cluster. At its end, a job closes its run: it writes the run's outcome."""

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
    seconds_since_submission,
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
from scalewise.launch.slurm.missing_settings import missing_settings
from scalewise.launch.slurm.settings import Settings, parse_time_limit
from scalewise.record.close import closed
from scalewise.record.log import attempt_offset, cancel_reason, job_cancel_reason, read_process_ends
from scalewise.record.rank_tail import newest_attempt, read_last_line
from scalewise.record.run_clock import RunClock
from scalewise.spec import RunSpec

POLL_SECONDS = 2.0
"""Seconds between two queries of the controller, each about all jobs."""
RANK_SECONDS = 5.0
"""Seconds between two looks whether all ranks of a running job have ended."""
CONTROLLER_SILENCE_SECONDS = 600.0
"""Seconds without an answer of Slurm's controller after which polling fails."""
UNKNOWN_JOB_SECONDS = 10.0
"""Seconds after which a job that Slurm does not list counts as ended; a new job may lag."""
OUTCOME_SECONDS = 90.0
"""Seconds until this machine surely sees what a compute node wrote; NFS caches for up to 60."""
SUBMIT_SECONDS = 300.0
"""Seconds that a submission may take if its process is hidden, on another machine for example."""


class SlurmLauncher:
    """Submits runs as Slurm jobs; docs/guides/slurm.md documents the settings."""

    at_once = math.inf  # Slurm's queue limits how many runs are active at a time.

    def __init__(
        self, table: Mapping[str, Any] | None = None, interpreters: Interpreters | None = None
    ) -> None:
        settings = Settings.of(table or {})
        pythons = {**settings.engines, **(interpreters.by_framework if interpreters else {})}
        self.settings = replace(settings, engines=pythons)
        self._allocation_id = inside_allocation.current_job_id()
        """The job whose allocation we run in; None outside of one."""
        self._shared = self.settings.jobs == "one" or self._allocation_id is not None
        """Whether all runs share one job or allocation, where they run one after another."""
        self._submitted_ids: list[str] = []
        self._polled_ids: dict[str, None] = {}  # An ordered set.
        self._entries: dict[str, queue.QueueEntry] = {}
        self._last_query = self._last_answer = -math.inf
        self._unknown_since: dict[str, float] = {}
        """By job id: when Slurm first did not know the job."""
        self._ended_at: dict[Path, float] = {}
        """By run folder: when we first saw that a job had ended."""
        self._all_ended: dict[Path, tuple[float, float]] = {}
        """By run folder: when its ranks were last read, and since when all of them have ended."""
        self._searched_at: dict[str, float] = {}
        """By token: when its job was last searched for."""

    def request_summary(self, runs: Sequence[RunSpec]) -> str:
        """Describe the device-hours that these runs request; refuse more than is allowed."""
        if self._allocation_id:
            return f"in the allocation of job {self._allocation_id}"
        hours, allowed = self.max_device_hours(runs), self.settings.max_device_hours
        if hours is None:
            if allowed is not None:
                hint = 'for example time = "00:30:00" in [launcher]'
                raise SpecError("max_device_hours needs a time limit", hint=hint)
            return "device-hours are limited only by the cluster's default time limit"
        if allowed is not None and hours > allowed:
            raise SpecError(
                f"the study asks for up to {hours:,.1f} device-hours, "
                f"and max_device_hours allows {allowed:,.1f}",
                hint="lower time, repeats or the devices, or raise max_device_hours",
            )
        requeued = any(may_requeue(run, self.settings) for run in runs)
        requeue_note = ", and as many again each time a job is requeued" if requeued else ""
        return f"up to {hours:,.2f} device-hours{requeue_note}"

    def request_warnings(self, runs: Sequence[RunSpec]) -> list[SpecError]:
        """Return which settings these runs lack on this cluster; asks Slurm, for seconds."""
        return [] if self._allocation_id else missing_settings(self.settings, runs)

    def max_device_hours(self, runs: Sequence[RunSpec]) -> float | None:
        """Return the device-hours that the time limit of the jobs allows; None without a limit."""
        if self._allocation_id or self.settings.time is None:
            return None
        devices = sum(run.topology.world for run in runs)
        if self._shared and runs:  # One job, as large as its largest run needs.
            request = ResourceRequest.of(runs, self.settings)
            devices = request.nodes * request.devices_per_node
        return devices * parse_time_limit(self.settings.time) / 3600

    def billed_devices(self, run: RunSpec, among: Sequence[RunSpec]) -> int:
        """Return the run's own devices, or those of the allocation that it shares."""
        if not self._shared:
            return run.topology.world
        request = ResourceRequest.of(among, self.settings)
        nodes = inside_allocation.node_count() if self._allocation_id else request.nodes
        return request.devices_per_node * (request.nodes if math.isinf(nodes) else int(nodes))

    def together(self, runs: Sequence[RunSpec]) -> list[list[RunSpec]]:
        """Return groups of runs; the runs of a group share a job or a job array."""
        if self._shared:
            fitting = [run for run in runs if not self._is_too_large(run)]
            # ``plan`` refuses a group with a run that is too large: keep such a run by itself.
            too_large = [[run] for run in runs if self._is_too_large(run)]
            return [fitting, *too_large] if fitting else too_large
        if self.settings.jobs == "each":
            return [[run] for run in runs]
        by_request: dict[ResourceRequest, list[RunSpec]] = {}
        for run in runs:
            by_request.setdefault(ResourceRequest.of([run], self.settings), []).append(run)
        return list(by_request.values())

    def plan(self, runs: Sequence[RunSpec], folder: Path) -> Plan:
        """Return what would be submitted."""
        if any(run.started_by == "horovodrun" and run.topology.world > 1 for run in runs):
            raise LaunchError(
                "horovodrun starts ranks on other nodes by ssh, which jobs cannot rely on",
                hint='write start = "srun", or "mpirun"',
            )
        files = {}
        for run in runs:
            attempt = next_attempt(folder / run.id)
            script = run_script(run, folder, self.settings, attempt=attempt, shared=self._shared)
            files[f"{run.id}/plan/job.sh"] = script
        if self._shared:
            if too_large := next(filter(self._is_too_large, runs), None):
                raise LaunchError(
                    f"{too_large.topology} needs {too_large.topology.nodes} nodes, and the "
                    f"allocation of job {self._allocation_id} has {inside_allocation.node_count()}",
                    hint="leave the allocation to submit separate jobs, or request more nodes",
                )
            files = {"in-turn.sh": sequential_script(runs, folder, self.settings), **files}
        elif self.settings.jobs == "array":
            name = f"array-{runs[0].id}.sh"
            files = {name: array_script(runs, folder, self.settings), **files}
        start = ("bash",) if self._allocation_id else ("sbatch", "--parsable")
        command = Command((*start, str(folder / next(iter(files)))))
        return Plan(tuple(runs), folder, (command,), files)

    def _is_too_large(self, run: RunSpec) -> bool:
        """Return whether the allocation that we are in has too few nodes for a run."""
        is_inside = self._allocation_id is not None
        return is_inside and run.topology.nodes > inside_allocation.node_count()

    def prepare(self, plan: Plan) -> None:
        """Write what the jobs read: scripts, specs and the worker zip."""
        write_plan_files(plan)
        worker_zip.pack(plan.folder)

    def submit(self, plan: Plan) -> list[Job]:
        """Submit the job and return at once."""
        self.prepare(plan)
        token = uuid4().hex
        details: dict[str, Any] = {"launcher": "slurm", "submitted": time.time(), "job": None}
        details["submit_clock"] = str(RunClock.start())
        details |= {"token": token, "user": getpass.getuser(), "machine": processes.machine_id()}
        if self._shared:
            details["shared"] = True
        jobs = []
        for index, run in enumerate(plan.runs):
            home = plan.folder / run.id
            run_details = {**details, "log": _file_size(home / "log.txt")}
            if self.settings.jobs == "array" and not self._shared:
                run_details["place"] = index  # The index of the run's array task.
            jobs.append(Job(home, next_attempt(home), run.ranks, run_details))
        # If we are killed while Slurm accepts the job, a later command finds it by its token.
        with job_files_written(jobs, undo_on=queue.SubmissionRefused):
            try:
                new_details = self._submit_script(plan.folder / next(iter(plan.files)), token)
            except KeyboardInterrupt:
                with suppress(LaunchError):
                    self.cancel(jobs[0])  # One submission started all of them.
                raise
        return [write_job(_with_job_id(job, new_details)) for job in jobs]

    def _submit_script(self, path: Path, token: str) -> dict[str, Any]:
        """Submit a script, or run it in our allocation; return job details to find it again."""
        if self._allocation_id:
            process = inside_allocation.submit(path, path.with_suffix(".txt"), token)
            return {"job": self._allocation_id, "process": process}
        options: list[str] = []
        limit = self.settings.throttle
        if limit and self.settings.jobs == "each" and len(self._submitted_ids) >= limit:
            # Start after the job that was submitted ``limit`` jobs before this one.
            options.append(f"--dependency=afterany:{self._submitted_ids[-limit]}")
        job_id = queue.submit(path, token, options)
        self._submitted_ids.append(job_id)
        return {"job": job_id}

    def poll(self, job: Job) -> State:
        """Return the state of the job, without changing it."""
        if job.details["job"] is None:  # The submitting process was killed meanwhile.
            return self._poll_unconfirmed(job)
        entry = self._entry(job)
        if entry is None:
            return self._poll_unknown(job)
        if entry.is_waiting:
            is_start_known = entry.start not in ("", "N/A")
            expected = f", expected to start {entry.start}" if is_start_known else ""
            if entry.is_paused:
                return State("running", note=f"{entry.state.lower()}: {entry.reason}")
            reason = "" if entry.reason == "None" else entry.reason  # Slurm has not looked yet.
            return State("running", note=f"{reason}{expected}".lstrip(", "), queued=True)
        log = job.folder / "log.txt"
        if not entry.ended and not _ended_in_shared_job(job):
            # In a shared job, a run whose log has not grown has not begun.
            queued = "shared" in job.details and _file_size(log) == job.details["log"]
            if not queued and self._waits_in_vain(job):
                return State("stuck")
            return State("running", note="waits for its turn" if queued else "", queued=queued)
        lacks_outcome = entry.state == "COMPLETED" and not _is_closed(job)
        seen_at = self._ended_at.setdefault(job.folder, time.monotonic())
        is_recent = time.monotonic() - seen_at < OUTCOME_SECONDS  # Even if the clock was set back.
        if lacks_outcome and is_recent and entry.ended_within(OUTCOME_SECONDS):
            return State("running", note="it has ended, and its outcome is not visible here yet")
        offset = attempt_offset(log, newest_attempt(job.folder, job.attempt)) or job.details["log"]
        killed, exits = read_process_ends(log, offset)
        cause = _end_cause(job, entry) or cancel_reason(log, offset)
        if "shared" in job.details:
            cause = cause or job_cancel_reason(job.folder, job.details["job"])
        cause = cause or _script_end(job, entry)
        return State("ended", cause, killed, exits)

    def _waits_in_vain(self, job: Job) -> bool:
        """Return whether all ranks have ended for so long that srun cannot have seen their end.

        It waits for ever where slurmstepd was killed, which starts the processes of a node.
        """
        now = time.monotonic()
        read_at, since = self._all_ended.get(job.folder, (-math.inf, math.inf))
        if now - read_at > RANK_SECONDS:
            attempt = newest_attempt(job.folder, job.attempt)
            last = (read_last_line(job.folder, rank, attempt) for rank in range(job.world))
            have_ended = all("ended" in line or "failed" in line for line in last)
            since = min(since, now) if have_ended else math.inf
            self._all_ended[job.folder] = now, since
        return now - since > self.settings.patience

    def _poll_unconfirmed(self, job: Job) -> State:
        """Return the state of a job whose submitter was killed before it wrote the job id."""
        unconfirmed = State("running", note="its submission is not confirmed yet", queued=True)
        last_search = self._searched_at.get(job.details["token"], -math.inf)
        if time.monotonic() - last_search < POLL_SECONDS:
            return unconfirmed
        self._searched_at[job.details["token"]] = time.monotonic()
        # sbatch may still be submitting the job after its caller has ended. Look for sbatch first,
        # for the job second: in the other order, a job submitted in between would be missed.
        if job.details.get("machine") == processes.machine_id() and not _of_another_user(job):
            submitting = processes.has_argument(queue.comment_option(job.details["token"]))
        else:
            submitting = (seconds_since_submission(job) or 0.0) < SUBMIT_SECONDS
        new_details = self._find_by_token(job)
        if new_details is not None:
            job = _with_job_id(job, new_details)
            return replace(self.poll(job), job=job)
        if submitting or (_of_another_user(job) and not _is_closed(job)):  # Maybe hidden.
            return unconfirmed
        return State("ended", "it was not submitted")

    def _find_by_token(self, job: Job) -> dict[str, Any] | None:
        """Return the details by which the job with this token is found; None if there is none."""
        if process := inside_allocation.find_script(job.details["token"]):
            return {"job": self._allocation_id, "process": process}
        job_id = queue.find_job(job.details["token"], job.details.get("user"))
        return {"job": job_id} if job_id else None

    def _poll_unknown(self, job: Job) -> State:
        """Return the state of a job that Slurm does not know, or does not know yet."""
        if _is_closed(job):
            return State("ended")
        if _of_another_user(job):  # Slurm may hide jobs of other users.
            return State("running", note=f"Slurm does not show job {job.details['job']}")
        since = self._unknown_since.setdefault(job.details["job"], time.monotonic())
        return State("ended" if time.monotonic() - since > UNKNOWN_JOB_SECONDS else "running")

    def cancel(self, job: Job, *, stuck: bool = False) -> None:
        """End the job, unless its run has ended: a shared job goes on. ``stuck``: only its srun."""
        new_details = {} if job.details["job"] else self._find_by_token(job)
        if new_details is None:
            return
        entry = self._entry(_with_job_id(job, new_details))
        if entry is None and _of_another_user(job) and not _is_closed(job):
            raise OutOfReach(
                f"Slurm does not show job {job.details['job']} of user {job.details['user']}",
                hint=f"ask {job.details['user']} to cancel it, or delete {job.folder}",
            )
        if entry is None or (_ended_in_shared_job(job) and not entry.is_waiting):
            return
        job = _with_job_id(job, new_details)
        if stuck:
            queue.cancel_steps(job.details["job"])
        elif "process" in job.details:
            inside_allocation.cancel(job.details["process"])
        else:
            queue.cancel(job.details["job"])

    def _entry(self, job: Job) -> queue.QueueEntry | None:
        """Return the job's entry in Slurm's queue; None if Slurm does not know it."""
        if "process" in job.details:
            return inside_allocation.script_entry(job.details["process"])
        job_id = job.details["job"]
        is_new = job_id not in self._polled_ids
        self._polled_ids[job_id] = None
        # One query is about all jobs; between two queries, polls use the last answer.
        if is_new or time.monotonic() - self._last_query >= POLL_SECONDS:
            try:
                self._entries = queue.load_entries(self._polled_ids)
                self._last_answer = time.monotonic()
            except LaunchError:
                if time.monotonic() - self._last_answer > CONTROLLER_SILENCE_SECONDS:
                    raise
            finally:
                self._last_query = time.monotonic()
        return self._entries.get(job_id)


def _with_job_id(job: Job, new_details: Mapping[str, Any]) -> Job:
    """Return the job with its Slurm id; the id of an array task ends in its index."""
    details = {**job.details, **new_details}
    if "place" in details and "_" not in str(details["job"]):
        details["job"] = f"{details['job']}_{details['place']}"
    return replace(job, details=details)


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _ended_in_shared_job(job: Job) -> bool:
    """Return whether the run has ended in a job that may continue with other runs."""
    return "shared" in job.details and _is_closed(job)


def _is_closed(job: Job) -> bool:
    """Return whether the outcome of the job's last attempt is written."""
    return closed(job.folder, newest_attempt(job.folder, job.attempt))


def _of_another_user(job: Job) -> bool:
    """Return whether another user submitted the job."""
    return bool(job.details.get("user", getpass.getuser()) != getpass.getuser())


def _script_end(job: Job, entry: queue.QueueEntry) -> str:
    """Return which signal killed the script of a job before it closed its run; else empty."""
    if _is_closed(job):
        return ""
    if process := job.details.get("process"):
        name, job_id = inside_allocation.script_signal(process), job.details["job"]
        return f"the script in the allocation of job {job_id} was killed by {name}" if name else ""
    name = queue.script_signal(job.details["job"]) if entry.state == "FAILED" else ""
    where = f"job {job.details['job']} on {entry.nodes}"
    return f"{where}: its batch script was killed by {name}" if name else ""


def _end_cause(job: Job, entry: queue.QueueEntry) -> str:
    """Return why Slurm ended a job, with lost nodes and ranks; empty if it ended by itself."""
    reason = queue.END_REASONS.get(entry.state, "")
    if not reason:
        return ""
    if entry.state == "NODE_FAIL" and (lost := queue.down_nodes(entry.nodes)):
        ranks = replace(job, attempt=newest_attempt(job.folder, job.attempt)).tails()
        lost_ranks = [f"rank {rank.rank}" for rank in ranks if rank.notes.host in lost]
        names = ", ".join(lost_ranks) or "no rank"
        reason = f"node {', '.join(lost)} was lost, and {names} with it"
        survivors = (rank for rank in ranks if rank.lines and rank.notes.host not in lost)
        if survivor := next(survivors, None):
            reason += f"; rank {survivor.rank} on {survivor.notes.host} stopped {survivor.position}"
    return f"job {job.details['job']} on {entry.nodes or 'no node'}: {reason}"
