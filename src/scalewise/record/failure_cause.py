"""Find out which rank of an attempt failed first, and describe why in one sentence."""

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scalewise.errors import RecordError
from scalewise.record.json_files import read_json
from scalewise.record.log import TaskEnd, ranks_by_pid, signal_name, usual_reason
from scalewise.record.rank_tail import RankTail

LAST_STANDARD_SIGNAL = 31
"""Signals with a higher number are real-time signals, which no system sends by itself."""
_LOADER_END = re.compile(
    r"DataLoader worker \(pid\S* [\d, ]+\) (?:is killed by signal: ([^.]+)|exited unexpectedly)"
)
"""PyTorch's message after it has lost a process that loads data."""
NO_STEP = "the program ended before its first training step"
NOT_DISTRIBUTED = "the program is not distributed: every process trains alone"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an attempt failed."""

    sentence: str
    tail: RankTail | None = None
    """The last lines of the rank that failed first; None if that rank is unknown."""
    names_reason: bool = True
    """Whether the sentence gives the reason; if not, the log's last line is added to it."""


@dataclass(frozen=True)
class ProcessEnds:
    """Signals and exit codes of ended processes, as the launcher observed them."""

    signals: Mapping[int, str] = field(default_factory=dict)
    """By process id, in the order of observation: the signal that killed the process."""
    codes: Mapping[int, int] = field(default_factory=dict)
    """By process id: the exit code, if it was not 0."""
    tasks: Mapping[int, TaskEnd] = field(default_factory=dict)
    """By rank, where srun started the ranks: the ends that it saw, in order."""

    @property
    def has_signals(self) -> bool:
        """Whether the launcher saw a signal kill a process."""
        return bool(self.signals) or any(end.signal for end in self.tasks.values())

    @property
    def first_task(self) -> int | None:
        """The rank that srun saw end first, if it saw any."""
        return next(iter(self.tasks), None)

    def signal_of(self, tail: RankTail) -> str | None:
        """Return the signal that killed a rank, or None."""
        task = self.tasks.get(tail.rank)
        return self.signals.get(tail.notes.pid or 0) or (task.signal if task else None)

    def code_of(self, tail: RankTail) -> int | None:
        """Return the exit code of a rank, or None if the code was 0 or is unknown."""
        task = self.tasks.get(tail.rank)
        return self.codes.get(tail.notes.pid or 0) or (task.code if task else 0) or None

    @property
    def first_code(self) -> int | None:
        """The first exit code that was not 0."""
        codes = (end.code for end in self.tasks.values() if end.code)
        return next(iter(self.codes.values()), None) or next(codes, None)


def program_fault(tails: Sequence[RankTail], world: int, ends: ProcessEnds) -> str:
    """Return what is wrong with a program whose ranks reported no failure; empty if nothing."""
    rank_ends = [tail.end for tail in tails if tail.ended and tail.end.watched]
    never_began = sum(not tail.lines for tail in tails)
    none_failed = len(rank_ends) + never_began == len(tails) and not (ends.codes or ends.signals)
    if rank_ends and none_failed and rank_ends[0].trains_alone:
        return NOT_DISTRIBUTED
    if len(rank_ends) < len(tails):
        return ""
    ranks, devices = max(end.world for end in rank_ends), rank_ends[0].devices or 0
    requested = rank_ends[0].requested_devices
    if ranks > world:
        return f"the program started {ranks} ranks, but {world} were requested"
    if requested is not None and devices > requested:
        return f"the program used {devices} devices, but {requested} were requested"
    if any(end.trains_alone for end in rank_ends):
        return NOT_DISTRIBUTED
    if ends.codes:
        return f"the program ended with code {ends.first_code}"
    if not any(end.steps for end in rank_ends):
        return "no training step of the program was observed"
    return ""


def find_cause(folder: Path, tails: Sequence[RankTail], ends: ProcessEnds) -> Cause:
    """Return the rank that failed first, and why, from the first function that finds a cause."""
    return (
        _task_killed_before_first_line(tails, ends)
        or _killed_before_first_line(folder, tails, ends)
        or _died_silently(tails, ends)
        or _reported(tails, ends)
        or _never_began(folder, tails, ends)
    )


def _killed_before_first_line(
    folder: Path, tails: Sequence[RankTail], ends: ProcessEnds
) -> Cause | None:
    """Return the rank that the first signal killed, if that rank had written no line."""
    # Only the first signal counts: the others may be consequences of that process's death.
    pid, name = next(iter(ends.signals.items()), (None, ""))
    if pid is None or any(tail.notes.pid == pid for tail in tails):
        return None
    rank_failed = any(tail.failure_kind not in (None, "terminated") for tail in tails)
    if rank_failed and name in ("SIGTERM", "SIGABRT"):  # That failure may have caused the signal.
        return None
    lineless = [tail for tail in tails if not tail.lines]
    known = {**_launched_ranks(folder), **ranks_by_pid(folder)}
    rank = known.get(pid, lineless[0].rank if len(lineless) == 1 else None)
    tail = next((tail for tail in lineless if tail.rank == rank), None)
    process = f"rank {tail.rank} (process {pid})" if tail else f"process {pid}"
    reason = usual_reason(name)
    return Cause(f"{process} was killed by {name} before it recorded anything{reason}", tail)


def _task_killed_before_first_line(tails: Sequence[RankTail], ends: ProcessEnds) -> Cause | None:
    """Return the rank that srun saw end first, by a signal, if that rank had written no line."""
    end = ends.tasks.get(-1 if ends.first_task is None else ends.first_task)
    tail = next((tail for tail in tails if tail.rank == ends.first_task), None)
    if not end or not end.signal or not tail or tail.lines:
        return None
    how = f"was killed by {end.signal} before it recorded anything{usual_reason(end.signal)}"
    return Cause(f"rank {tail.rank} on {end.host} {how}", tail)


def _launched_ranks(folder: Path) -> dict[int, int]:
    """Return which rank each process is that the launcher started itself, from ``job.json``."""
    try:
        job = read_json(folder / "job.json")
        return {process["pid"]: rank for process, rank in zip(job["processes"], job["ranks"])}
    except (RecordError, KeyError, TypeError):
        return {}


def _died_silently(tails: Sequence[RankTail], ends: ProcessEnds) -> Cause | None:
    """Return the first rank that ended without recording its end."""
    unfinished = [tail for tail in tails if tail.lines and not tail.ended]
    silent = [tail for tail in unfinished if "failed" not in tail.last]
    if any(tail.notes.watched for tail in unfinished) and len(silent) < len(unfinished):
        # After a failure torchrun ends the other ranks by SIGTERM, which they do not catch.
        silent = [tail for tail in silent if ends.signal_of(tail) not in (None, "SIGTERM")]
    if not silent:
        return None
    # A rank's death may kill other ranks, so the rank whose end was observed first is the cause.
    order = {pid: index for index, pid in enumerate(ends.signals)}
    tasks = {rank: index for index, rank in enumerate(ends.tasks)}
    last = len(order) + len(tasks)

    def observed(tail: RankTail) -> int:
        return order.get(tail.notes.pid or 0, tasks.get(tail.rank, last))

    first = min(silent, key=observed)
    signal, code = ends.signal_of(first), ends.code_of(first)
    stalled = next((tail.notes.stall for tail in tails if tail.failure_kind == "stalled"), None)
    if stalled and not signal:  # It stood still, and was killed when the others gave up.
        waited = f"the others waited {stalled.seconds:.0f} s"
        return Cause(f"{_rank_name(first)} made no progress {first.position}: {waited}", first)
    if signal:
        ended = f"was killed by {signal}"
    else:
        ended = f"ended with {_exit_code(code)}" if code else "ended without an error message"
    reason = usual_reason(signal or "")
    has_reason = ends.has_signals  # A signal explains the end; a code does not.
    return Cause(f"{_rank_name(first)} {ended} {first.position}{reason}", first, has_reason)


def _reported(tails: Sequence[RankTail], ends: ProcessEnds) -> Cause | None:
    """Return the rank to blame among those that recorded their own failure."""
    failed = [tail for tail in tails if tail.failure_kind]
    if any(not tail.lines for tail in tails):
        # Ranks that got SIGTERM are not the cause if another rank has not even begun.
        failed = [tail for tail in failed if tail.failure_kind != "terminated"]
    if not failed:
        return None

    def blame_order(tail: RankTail) -> tuple[bool, int, int, float]:
        """Sort by time of failure; but stalled ranks by progress, and terminated ranks last."""
        stall = tail.notes.stall if tail.failure_kind == "stalled" else None
        progress = (stall.steps, stall.laps) if stall else (-1, -1)
        # Nothing that srun saw ended the rank that it saw end first: somebody else did.
        was_ended = tail.failure_kind == "terminated" and tail.rank != ends.first_task
        return was_ended, *progress, tail.last["at"]

    failed.sort(key=blame_order)
    first = failed[0]
    if first.failure_kind == "stalled" and first.notes.stall:
        # A terminated rank without a recorded stall was stopped, or its node was: it is the cause.
        terminated = (tail for tail in failed if tail.failure_kind == "terminated")
        if stopped := next((tail for tail in terminated if not tail.notes.stall), None):
            waited = f"the others waited {first.notes.stall.seconds:.0f} s"
            position = f"made no progress {stopped.position}"
            return Cause(f"{_rank_name(stopped)} {position}: {waited}", stopped)
    if loader := _loader_end(first):
        return Cause(loader, first)
    code = ends.code_of(first)
    ended = f" (code {code})" if code and first.notes.watched else ""
    sentence = f"{_rank_name(first)} failed {first.position}: {first.last['failed']}{ended}"
    return Cause(sentence + _left_early(tails, first), first)


def _loader_end(tail: RankTail) -> str:
    """Return how a data loader worker of a rank was killed, if that ended the rank; else empty."""
    match = _LOADER_END.search(str(tail.last.get("failed", "")))
    if not match:
        return ""
    name = next((each.name for each in signal.Signals if _described(each) == match[1]), "")
    how = f"was killed by {name or match[1]}" if match[1] else "ended unexpectedly"
    worker = f"a data loader worker of {_rank_name(tail)}"
    return f"{worker} {how} {tail.position}{usual_reason(name)}"


def _described(number: signal.Signals) -> str:
    """Return a signal as PyTorch writes it, "Segmentation fault"."""
    return signal.strsignal(number) or ""


def _never_began(folder: Path, tails: Sequence[RankTail], ends: ProcessEnds) -> Cause:
    """Return the first rank without any line."""
    lineless = [tail for tail in tails if not tail.lines]
    code = f"a process ended with {_exit_code(ends.first_code)}" if ends.first_code else ""
    has_reason = ends.has_signals
    if len(lineless) == len(tails):
        began = "no rank started"
        if _is_program(folder):  # Its ranks write their first line at their first step.
            began = NO_STEP
        sentence = f"{began}: {code}" if code else began
        return Cause(sentence, None, has_reason)
    terminated = next((tail for tail in tails if tail.failure_kind == "terminated"), None)
    also = f", and rank {terminated.rank} was {terminated.last['failed']}" if terminated else ""
    sentence = f"rank {lineless[0].rank} wrote nothing{also}{'; ' if code else ''}{code}"
    return Cause(sentence, lineless[0], has_reason)


def _is_program(folder: Path) -> bool:
    """Return whether a run is of a user's program."""
    try:
        return bool(read_json(folder / "spec.json").get("program"))
    except RecordError:
        return False


def _left_early(tails: Sequence[RankTail], failed: RankTail) -> str:
    """Return which rank left its loop early, so that the failed rank waited for it; else empty."""
    for tail in tails:
        if not (tail.ended and tail.end.watched and failed.notes.steps):
            continue
        if tail.end.steps <= failed.notes.steps[1]:
            return (
                f"; rank {tail.rank} had left its loop after {tail.end.steps} steps: "
                "every rank must make the same number of steps"
            )
    return ""


def _exit_code(code: int) -> str:
    """Return an exit code, with the signal if the code is a signal's number + 128, as in shells.

    >>> _exit_code(3), _exit_code(137)
    ('code 3', 'code 137: SIGKILL (often out of memory)')
    """
    number = -code if code < 0 else code - 128
    if number <= 0 or (code > 0 and number > LAST_STANDARD_SIGNAL):
        return f"code {code}"
    name = signal_name(number)
    return f"code {code}: {name}{usual_reason(name)}"


def _rank_name(tail: RankTail) -> str:
    host = tail.notes.host
    return f"rank {tail.rank}" + (f" on {host} (process {tail.notes.pid})" if host else "")
