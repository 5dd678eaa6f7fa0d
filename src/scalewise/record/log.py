"""Read a run's log: the program's own lines, and what torchrun and Slurm report about its end."""

import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scalewise.errors import RecordError
from scalewise.files import MEBIBYTE, open_regular
from scalewise.record.json_files import read_json

MAX_LOG_BYTES = 256 * MEBIBYTE
"""How much of the end of a log is read."""
OURS = "scalewise: "
"""Prefix of the lines that scalewise itself writes into a job's log."""
BEGINS = f"{OURS}attempt "
"""Prefix of the line that a job writes into its log when it begins an attempt."""
SHARED_LOG = "in-turn.txt"
"""The log of a job of several runs, in the study's folder."""
JOB_BEGINS = f"{OURS}job {{}} begins"
"""The line that such a job writes into it when it begins, also after a requeue."""
_SRUN = re.compile(r"(srun|slurmstepd\S*): ")
_SRUN_REASON = re.compile(r"srun: (error|fatal): (?!\*\*\*|.*\btasks? [\d,-]+: )")
"""An error of srun itself. Lines with a task's number are excluded: they report a process's end."""
_CANCELLED = re.compile(
    r"\*\*\* (JOB|STEP) \S+ ON (\S+) CANCELLED AT \S+(?: DUE TO ([^*,]+?)(?:,[^*]*)?)? \*"
)
"""The line that Slurm writes into the log when it ends a job or a step."""
_TASKS_END = re.compile(r"srun: error: (\S+): tasks? ([\d,-]{1,9999}): (.+?)(?: \(core dumped\))?$")
_EXIT_CODE = re.compile(r"Exited with exit code (\d{1,9})$")
_SRUN_KILLED = re.compile(
    r": line \d+: +(\d+) (\w.*?)(?: \(core dumped\))? +srun --kill-on-bad-exit"
)
"""What bash writes about an srun that a signal has killed."""
_SRUN_ENDED = re.compile(r"srun: forcing job termination")
_STEP_ENDED = re.compile(
    r"srun: (?:Job step aborted|Force Terminated|.*Terminating StepId)|slurmstepd\S*: error: \*{3} "
)
"""What srun and Slurm write when they end what is left of a step."""
TRACEBACK = "Traceback (most recent call last):"
_AGENT = re.compile(r"[IWEF]\d{4} [\d:.]+ \d+ .*torch/distributed/(elastic|launcher|run)")
"""A line of torchrun's own log."""
_AGENT_ENDS = re.compile(r"torch\.distributed\.elastic\.\S+\.(ChildFailedError|SignalException)\b")
"""The last line of torchrun's own traceback after a process has failed."""
_RULE = re.compile(r"={20,}$")  # A horizontal line in torchrun's list of failures.


def all_lines(folder: Path) -> list[str]:
    """Return the lines of the last attempt in the log, without empty lines and scalewise's own."""
    try:
        start = int(read_json(folder / "job.json").get("log", 0))
    except (RecordError, ValueError, TypeError):
        start = 0
    lines = _read_text(folder / "log.txt", start).splitlines()
    return [line for line in lines if line.strip() and not line.startswith(OURS)]


def _read_text(log: Path, start: int) -> str:
    """Return a log from byte ``start`` on; empty if the file cannot be read."""
    return _read_end(log, start)[1].decode("utf-8", errors="replace")


def _read_end(log: Path, start: int = 0) -> tuple[int, bytes]:
    """Return from which byte a log is read, ``start`` or later, and its bytes from there on."""
    try:
        with open_regular(log, within=log.parent.parent) as file:
            size = file.seek(0, os.SEEK_END)
            skipped = file.seek(max(0, start, size - MAX_LOG_BYTES))
            return skipped, file.read(MAX_LOG_BYTES)
    except OSError:
        return 0, b""


def own_lines(folder: Path) -> list[str]:
    """Return the program's own lines of the log, without the lines of torchrun."""
    lines = all_lines(folder)
    own: list[str] = []
    start = 0
    while start < len(lines):
        end = _traceback_end(lines, start) if lines[start].endswith(TRACEBACK) else start + 1
        if _AGENT_ENDS.match(lines[end - 1]):
            # torchrun's list of failures follows, between two rules.
            if end < len(lines) and _RULE.match(lines[end]):
                closing = (i for i in range(end + 1, len(lines)) if _RULE.match(lines[i]))
                end = next(closing, len(lines) - 1) + 1
        elif not _AGENT.match(lines[start]):
            own += lines[start:end]
        start = end
    return own


def last_line(folder: Path) -> str:
    """Return the most useful line of the log: srun's first error, or the program's last line."""
    if not (folder / "log.txt").exists():
        return "(there is no log)"
    lines = own_lines(folder) or all_lines(folder)
    program_lines = [line for line in lines if not _SRUN.match(line)]
    srun_errors = [line for line in lines if _SRUN_REASON.match(line)]
    candidates = srun_errors[:1] or program_lines[-1:] or lines[-1:]
    return candidates[0].strip() if candidates else "(it is empty)"


def first_traceback(lines: Sequence[str], message: str = "") -> str:
    """Return the first traceback, with all lines of its error's ``message``."""
    start = next((i for i, line in enumerate(lines) if line.endswith(TRACEBACK)), None)
    if start is None:
        return ""
    end = _traceback_end(lines, start)
    margin = len(lines[start]) - len(TRACEBACK)
    for line in filter(str.strip, message.split("\n")[1:]):
        # A line of the log may be cut short.
        if end >= len(lines) or not line.startswith(lines[end][margin:]):
            break
        end += 1
    return "\n".join(lines[start:end])


def attempt_offset(log: Path, attempt: int) -> int:
    """Return the byte at which an attempt begins in the log; a job may have several attempts."""
    skipped, content = _read_end(log)
    found = content.rfind(f"{BEGINS}{attempt} on ".encode())
    return skipped + found if found >= 0 else 0


def read_process_ends(log: Path, start: int = 0) -> tuple[dict[int, str], dict[int, int]]:
    """Return two mappings from process ids, in torchrun's order: to signals, and to exit codes."""
    text = _read_text(log, start)
    failed_first = re.findall(r"failed \(exitcode: (-?\d+)\) local_rank: \d+ \(pid: (\d+)\)", text)
    signals = [(-int(code), int(pid)) for code, pid in failed_first if int(code) < 0]
    # After a failure, torchrun's agent sends the others SIGTERM, then SIGKILL: these are no causes.
    closed_by_agent = re.findall(r"Sending process (\d+) closing signal", text)
    for number, pid in re.findall(r"Signal (\d+) \(\S+\) received by PID (\d+)", text):
        sent_by_agent = failed_first and int(number) == signal.SIGTERM
        if pid not in closed_by_agent and not sent_by_agent:
            signals.append((int(number), int(pid)))
    killed = {pid: signal_name(number) for number, pid in signals}
    return killed, {int(pid): int(code) for code, pid in failed_first if int(code) > 0}


@dataclass(frozen=True)
class TaskEnd:
    """How a task of srun ended, as srun says."""

    host: str
    signal: str | None = None
    """The name of the signal that killed it."""
    code: int = 0


@dataclass(frozen=True)
class StepEnd:
    """What srun says about the end of the step in which it started the ranks."""

    tasks: Mapping[int, TaskEnd] = field(default_factory=dict)
    """By task: the ends that srun did not cause itself, in order."""
    srun: str = ""
    """How srun itself was ended, if that came first; else empty."""


def read_step_end(log: Path, start: int = 0) -> StepEnd:
    """Return what a job's log says about the end of its srun and of srun's tasks."""
    tasks: dict[int, TaskEnd] = {}
    for line in _read_text(log, start).splitlines():
        if match := _SRUN_KILLED.search(line):
            name = _signal_named(match[2])
            return StepEnd({}, f"srun (process {match[1]}) was killed by {name}" if name else "")
        if match := _TASKS_END.match(line):
            code = _EXIT_CODE.match(match[3])
            end = TaskEnd(match[1], _signal_named(match[3]), int(code[1]) if code else 0)
            tasks |= {task: end for task in _task_numbers(match[2]) if task not in tasks}
        elif _SRUN_ENDED.match(line) and not tasks:
            return StepEnd({}, "srun was told by a signal to end its ranks")
        elif _STEP_ENDED.match(line):
            break  # From here on srun or Slurm ends the other tasks.
    return StepEnd(tasks)


def _task_numbers(text: str) -> list[int]:
    """Return the numbers in a list of Slurm's.

    >>> _task_numbers("0-2,5")
    [0, 1, 2, 5]
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            numbers += range(int(first), int(last if last.isdecimal() else first) + 1)
    return numbers


def _signal_named(description: str) -> str | None:
    """Return the signal that a shell or srun describes, as in "Segmentation fault"."""
    for number in range(1, signal.NSIG):
        if signal.strsignal(number) == description:
            return signal_name(number)
    return None


def ranks_by_pid(folder: Path) -> dict[int, int]:
    """Return the ranks of the failed processes in torchrun's summary, by process id."""
    text = "\n".join(all_lines(folder))
    listed = re.findall(
        r"rank +: (\d+) \(local_rank: \d+\)\s+exitcode +: -?\d+ \(pid: (\d+)\)", text
    )
    return {int(pid): int(rank) for rank, pid in listed}


USUAL_REASONS = {
    "SIGKILL": "often out of memory",
    "SIGBUS": "often too little shared memory in /dev/shm, or a full disk",
    "SIGSEGV": "a crash in compiled code, often libraries whose versions do not fit",
    "SIGABRT": "compiled code stopped itself; the log may say why",
    "SIGILL": "often compiled for another processor",
    "SIGXCPU": "over its limit of processor time",
}
"""Why a process usually gets a signal."""


def signal_name(number: int) -> str:
    """Return the name of a signal; most real-time signals have none.

    >>> signal_name(9), signal_name(35)
    ('SIGKILL', 'signal 35')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def usual_reason(name: str) -> str:
    """Return why a process usually gets a signal, in brackets; empty if there is no usual reason.

    >>> usual_reason("SIGKILL"), usual_reason("SIGUSR1")
    (' (often out of memory)', '')
    """
    return f" ({USUAL_REASONS[name]})" if name in USUAL_REASONS else ""


def cancel_reason(log: Path, start: int = 0) -> str:
    """Return why Slurm ended the job or its step, if Slurm wrote that into the log; else empty."""
    for scope, node, reason in _CANCELLED.findall(_read_text(log, start)):
        if scope == "JOB" or reason:  # Without a reason, a step was ended because its ranks ended.
            due = f" due to {reason.lower()}" if reason else ""
            return f"the job on {node} was cancelled{due}"
    return ""


def job_cancel_reason(folder: Path, job_id: str | None) -> str:
    """Return why Slurm ended a job of several runs, one of them in ``folder``; else empty.

    It writes that into the job's own log, not into the run's.
    """
    log = folder.parent / SHARED_LOG
    skipped, content = _read_end(log)
    begin = content.rfind(JOB_BEGINS.format(job_id).encode())
    return cancel_reason(log, skipped + begin) if begin >= 0 else ""


def _traceback_end(lines: Sequence[str], start: int) -> int:
    """Return the index after a traceback and the first line of its message."""
    margin = len(lines[start]) - len(TRACEBACK)  # torchrun may prefix each line with a rank.
    unindented = (i for i in range(start + 1, len(lines)) if not lines[i][margin:].startswith(" "))
    return next(unindented, len(lines) - 1) + 1
