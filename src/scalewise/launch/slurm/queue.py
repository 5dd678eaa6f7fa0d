"""Ask Slurm: submit, look, cancel. Every answer is bounded in time."""

import getpass
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from scalewise.errors import LaunchError, OutOfReach

TIMEOUT_SECONDS = 60.0
"""Seconds that a question to the controller may take."""
PENDING_STATES = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SUSPENDED",
           "STOPPED", "SPECIAL_EXIT", "RESV_DEL_HOLD")  # fmt: skip
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
"""What a state says of a job that did not end by itself."""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A job as Slurm has it."""

    state: str
    reason: str = ""
    """Why it waits."""
    start: str = ""
    """When it started, or is expected to."""
    nodes: str = ""
    end: str = ""
    """When it ended."""

    @property
    def waits(self) -> bool:
        """Whether it has still to start."""
        return self.state in PENDING_STATES

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state not in (*PENDING_STATES, *RUNNING_STATES)

    def ended_within(self, seconds: float) -> bool:
        """Say whether it ended at most so long ago; not where nobody knows when."""
        try:
            return time.time() - datetime.fromisoformat(self.end).timestamp() < seconds
        except ValueError:
            return False


class SubmissionRefused(LaunchError):
    """Slurm has not taken a job, and that is certain."""


def submit(path: Path, token: str, options: Sequence[str] = ()) -> str:
    """Hand a script in; return the job's id. By its ``token`` it can be found again."""
    said = _run_command("sbatch", "--parsable", comment_option(token), *options, str(path))
    if not said.returncode:
        return said.stdout.strip().splitlines()[-1].partition(";")[0]
    # A controller that answers too late may have taken it all the same.
    if "timed out" in said.stderr.lower():
        if number := find_job(token):
            return number
        raise LaunchError(
            f"sbatch got no answer: {_error_message(said.stderr)}",
            hint="if the job was taken all the same, `scalewise status` finds it",
        )
    raise SubmissionRefused(
        f"sbatch refused the job: {_error_message(said.stderr)}",
        hint=f"the script is {path}; `sinfo` shows what there is",
    )


def comment_option(token: str) -> str:
    """Return the option of sbatch by which a job carries its token."""
    return f"--comment={token}"


def find_job(token: str, user: str | None = None) -> str | None:
    """Return the number of the job that ``user`` submitted with this token, if Slurm has it."""
    owner = user or getpass.getuser()
    said = _run_command("squeue", "--noheader", "--states=all", f"--user={owner}", "--format=%F|%k")
    if said.returncode:
        raise LaunchError(f"squeue does not answer: {_error_message(said.stderr)}")
    found = (line.strip().partition("|") for line in said.stdout.splitlines())
    return next((number for number, _, comment in found if comment == token), None)


def load_entries(ids: Iterable[str]) -> dict[str, QueueEntry]:
    """Return every job that Slurm still knows, by id."""
    wanted = set(ids)
    entries = _load_queued(f"--user={getpass.getuser()}", wanted)
    # Another user may have submitted a job of the study.
    if missing := wanted - entries.keys():
        entries |= _load_queued(f"--jobs={','.join(sorted(missing))}", missing)
    if missing := wanted - entries.keys():
        entries |= _load_ended(missing)
    return entries


def _load_queued(chosen: str, wanted: set[str]) -> dict[str, QueueEntry]:
    """Return those of the wanted jobs that the queue still has among the chosen ones."""
    columns = "--format=%i|%T|%r|%S|%N|%e"
    said = _run_command("squeue", "--noheader", "--array", "--states=all", chosen, columns)
    if said.returncode and "invalid job id" not in said.stderr.lower():
        raise LaunchError(f"squeue does not answer: {_error_message(said.stderr)}")
    entries = {}
    for line in said.stdout.splitlines():
        number, _, rest = line.strip().partition("|")
        if number in wanted and rest.count("|") >= 3:
            entries[number] = QueueEntry(*rest.split("|")[:5])
    return entries


def _load_ended(ids: set[str]) -> dict[str, QueueEntry]:
    """Return jobs that are gone from the queue: from accounting, or the log of ended jobs."""
    chosen = f"--jobs={','.join(sorted(ids))}"
    for source in ((), ("--completion",)):
        columns = "JobID,State,NodeList,End"
        said = _run_command(
            "sacct", *source, "--allusers", "--noheader", "--parsable2", chosen,
            f"--format={columns}",
        )  # fmt: skip
        rows = [line.split("|") for line in said.stdout.splitlines() if line.count("|") >= 2]
        found = {
            row[0]: QueueEntry(row[1].split()[0], nodes=row[2], end="".join(row[3:4]))
            for row in rows
            if row[0] in ids
        }
        if found:
            return found
    return {}


def down_nodes(nodes: str) -> list[str]:
    """Return those of a job's nodes that do not answer any more."""
    states = "--states=down,fail,no_respond,unknown"
    said = _run_command("sinfo", "--noheader", "--Node", f"--nodes={nodes}", states, "--format=%N")
    return sorted(set(said.stdout.split()))


def cancel(number: str) -> None:
    """End a job; one that has ended is fine."""
    said = _run_command("scancel", number)
    if said.returncode and "denied" in said.stderr.lower():
        raise OutOfReach(
            f"job {number} was not cancelled: {_error_message(said.stderr)}",
            hint="ask the user who submitted it",
        )


def _run_command(*argv: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except FileNotFoundError as missing:
        raise SubmissionRefused(
            f"there is no {argv[0]} on this machine",
            hint="run on a login node of the cluster, or with --launcher local",
        ) from missing
    except subprocess.TimeoutExpired as slow:
        raise LaunchError(f"{argv[0]} gave no answer within {TIMEOUT_SECONDS:.0f} s") from slow


def _error_message(words: str) -> str:
    """Return the last thing a program of Slurm complained of, without its name."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    told = [re.sub(r"^\w+: (?:error|fatal): ", "", line) for line in lines]
    useful = [line for line in told if not line.startswith("Batch job submission failed")]
    return "; ".join(dict.fromkeys([*useful[-1:], *told[-1:]])) or "it gave no reason"
