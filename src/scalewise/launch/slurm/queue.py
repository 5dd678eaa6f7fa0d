"""Slurm's commands: submit, query and cancel jobs. Every command has a timeout."""

import getpass
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from scalewise.errors import LaunchError, OutOfReach, parameter
from scalewise.record.log import signal_name

TIMEOUT_SECONDS = 60.0
"""Seconds that a Slurm command may take."""
PAUSED_STATES = ("SUSPENDED", "STOPPED")
WAITING_STATES = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
                  "SPECIAL_EXIT", "RESV_DEL_HOLD", *PAUSED_STATES)  # fmt: skip
"""States of a job that is queued (also after a requeue), or paused after it started."""
RUNNING_STATES = ("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "RESIZING")
END_REASONS = {
    "TIMEOUT": "its time limit was reached",
    "NODE_FAIL": "a node was lost",
    "CANCELLED": "it was cancelled",
    "PREEMPTED": "it was preempted",
    "OUT_OF_MEMORY": "its memory was used up",
    "BOOT_FAIL": "its nodes did not start",
    "DEADLINE": "its deadline passed",
}
"""Why Slurm ended a job, by state. COMPLETED and FAILED are missing: such jobs end themselves."""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A job in Slurm's queue or accounting."""

    state: str
    reason: str = ""
    """Why the job waits, as Slurm says."""
    start: str = ""
    """When the job started, or is expected to start."""
    nodes: str = ""
    """Its nodes, as Slurm lists them: ``node[01-04]``."""
    end: str = ""
    """When it ended, or will reach its time limit."""

    @property
    def is_waiting(self) -> bool:
        """Whether it is queued or paused."""
        return self.state in WAITING_STATES

    @property
    def is_paused(self) -> bool:
        """Whether it was stopped for a while after it started."""
        return self.state in PAUSED_STATES

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.state not in (*WAITING_STATES, *RUNNING_STATES)

    def ended_within(self, seconds: float) -> bool:
        """Return whether it ended within the last ``seconds``; False if the end is unknown."""
        try:
            return time.time() - datetime.fromisoformat(self.end).timestamp() < seconds
        except ValueError:
            return False


class SubmissionRefused(LaunchError):
    """Slurm has certainly not accepted the job: sbatch refused it, or is not installed here.

    Only then may the caller restore ``job.json``: after any other error the job may exist.
    """


def submit(path: Path, token: str, options: Sequence[str] = ()) -> str:
    """Submit a script and return the job's id; ``find_job`` finds the job again by its token."""
    result = _run_command("sbatch", "--parsable", comment_option(token), *options, str(path))
    if not result.returncode:  # sbatch has printed ID, or ID;CLUSTER.
        return result.stdout.strip().splitlines()[-1].partition(";")[0]
    # A controller that answers too late may have accepted the job.
    if "timed out" in result.stderr.lower():
        if job_id := find_job(token):
            return job_id
        hint = "if the job was accepted nevertheless, `scalewise status` finds it"
        raise LaunchError(f"sbatch got no answer: {_error_message(result.stderr)}", hint=hint)
    hint = f"the script is {path}; `sinfo` lists partitions and nodes"
    raise SubmissionRefused(f"sbatch refused the job: {_error_message(result.stderr)}", hint=hint)


def comment_option(token: str) -> str:
    """Return the sbatch option that stores a token with the job."""
    return f"--comment={token}"


def find_job(token: str, user: str | None = None) -> str | None:
    """Return the id of the job that ``user`` submitted with this token; None if unknown."""
    lines = _squeue(f"--user={user or getpass.getuser()}", "--format=%F|%k")  # Id, comment.
    rows = (line.partition("|") for line in lines)
    return next((job_id for job_id, _, comment in rows if comment == token), None)


def load_entries(ids: Iterable[str]) -> dict[str, QueueEntry]:
    """Return the jobs that Slurm still knows, by id."""
    job_ids = set(ids)
    entries = _load_queued(f"--user={getpass.getuser()}", job_ids)
    # The jobs that are missing may have been submitted by another user.
    if missing := job_ids - entries.keys():
        entries |= _load_queued(f"--jobs={','.join(sorted(missing))}", missing)
    if missing := job_ids - entries.keys():
        entries |= _load_ended(missing)
    return entries


def _load_queued(selection: str, job_ids: set[str]) -> dict[str, QueueEntry]:
    """Return those of ``job_ids`` that squeue lists with the option ``selection``."""
    entries = {}
    for line in _squeue("--array", selection, "--format=%i|%T|%r|%S|%N|%e"):
        job_id, *columns = line.split("|")
        if job_id in job_ids and len(columns) >= 4:
            entries[job_id] = QueueEntry(*columns[:5])  # Columns are in the order of its fields.
    return entries


def _squeue(*options: str) -> list[str]:
    """Return the lines that squeue prints; an unknown job id is no error."""
    result = _run_command("squeue", "--noheader", "--states=all", *options)
    if result.returncode and "invalid job id" not in result.stderr.lower():
        raise LaunchError(f"squeue does not answer: {_error_message(result.stderr)}")
    return [line.strip() for line in result.stdout.splitlines()]


def _load_ended(ids: set[str]) -> dict[str, QueueEntry]:
    """Return ended jobs, from Slurm's accounting or its completion log."""
    selection = f"--jobs={','.join(sorted(ids))}"
    output = ("--allusers", "--noheader", "--parsable2", "--format=JobID,State,NodeList,End")
    for source in ((), ("--completion",)):
        result = _run_command("sacct", *source, *output, selection)
        rows = [line.split("|") for line in result.stdout.splitlines() if line.count("|") >= 2]
        entries = {
            # The state may be "CANCELLED by UID"; the column End may be missing.
            row[0]: QueueEntry(row[1].split()[0], nodes=row[2], end="".join(row[3:4]))
            for row in rows
            if row[0] in ids
        }
        if entries:
            return entries
    return {}


def script_signal(job_id: str) -> str:
    """Return the name of the signal that killed a job's batch script; empty if none did."""
    shown = _run_command("scontrol", "--oneliner", "show", "job", job_id).stdout
    match = re.search(r"\bExitCode=\d+:(\d+)\b", shown)
    return signal_name(int(match[1])) if match and int(match[1]) else ""


def down_nodes(nodes: str) -> list[str]:
    """Return which of a job's ``nodes``, such as ``node[01-04]``, are down."""
    options = ("--noheader", "--Node", f"--nodes={nodes}", "--format=%N")
    result = _run_command("sinfo", *options, "--states=down,fail,no_respond,unknown")
    return sorted(set(result.stdout.split()))


def cancel(job_id: str) -> None:
    """Cancel a job; a job that has ended already is no error."""
    result = _run_command("scancel", job_id)
    if result.returncode and "denied" in result.stderr.lower():
        raise OutOfReach(  # The job of another user.
            f"job {job_id} was not cancelled: {_error_message(result.stderr)}",
            hint="ask the user who submitted it",
        )


def cancel_steps(job_id: str) -> None:
    """End what a job has started with srun; its batch script goes on."""
    listed = _squeue("--steps", f"--jobs={job_id}", "--format=%i")
    if steps := [step for step in listed if step.rpartition(".")[2].isdecimal()]:
        _run_command("scancel", *steps)


def _run_command(*argv: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except FileNotFoundError as missing:
        # A machine without one of the commands is assumed to have no Slurm: nothing was submitted.
        hint = f"run on a login node of the cluster, or with {parameter('launcher', 'local')}"
        raise SubmissionRefused(f"there is no {argv[0]} on this machine", hint=hint) from missing
    except subprocess.TimeoutExpired as slow:
        raise LaunchError(f"{argv[0]} gave no answer within {TIMEOUT_SECONDS:.0f} s") from slow


def _error_message(stderr: str) -> str:
    """Return a command's last error line, preceded by the last line that names a reason."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    messages = [re.sub(r"^\w+: (?:error|fatal): ", "", line) for line in lines]
    specific = [line for line in messages if not line.startswith("Batch job submission failed")]
    return "; ".join(dict.fromkeys([*specific[-1:], *messages[-1:]])) or "it gave no reason"
