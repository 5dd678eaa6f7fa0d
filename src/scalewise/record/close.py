"""Close an attempt: write ``outcome.json`` if every rank succeeded, else ``failure-<n>.json``."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from scalewise.errors import RecordError, ScalewiseError
from scalewise.record.failure_cause import Cause, ProcessEnds, find_cause, program_fault
from scalewise.record.json_files import read_json
from scalewise.record.line_sums import first_sum, last_sum
from scalewise.record.log import StepEnd, attempt_offset, last_line, own_lines, read_step_end
from scalewise.record.rank_tail import RankTail, read_tail
from scalewise.record.schema import Failure
from scalewise.record.write import rank_file, write_json
from scalewise.spec import RunSpec


def close(  # noqa: PLR0913 - all that a launcher may know
    folder: Path,
    *,
    attempt: int,
    world: int,
    ended: float | None,
    reason: str = "",
    killed: Mapping[int, str] | None = None,
    exits: Mapping[int, int] | None = None,
    launched: float | None = None,
) -> str:
    """Close the attempt; return an empty string if it succeeded, else why it failed.

    ``ended`` is when the launcher saw the last process end; if None, times from the ranks' files
    are used. ``reason`` is why the launcher ended the run. ``killed`` maps process ids to signals,
    ``exits`` to exit codes. ``launched`` is used if no rank recorded the time of the launch.
    """
    step = _step_end(folder, attempt)
    ends = ProcessEnds(killed or {}, exits or {}, step.tasks)
    tails = [read_tail(folder, rank, attempt) for rank in range(world)]
    fault = _rival_fault(folder, attempt, tails) or program_fault(tails, world, ends)
    lost = {rank for tail in tails if tail.ended for rank in tail.end.lost_ranks}
    if all(tail.ended or tail.rank in lost for tail in tails) and not fault:
        _write_outcome(folder, attempt, tails, ended, lost)
        return ""
    cause = _cause(folder, tails, ends, reason or step.srun, fault)
    started = min((at for tail in tails if (at := tail.launched)), default=launched)
    if any(tail.notes.simulated for tail in tails):
        ended = max((at for tail in tails if (at := tail.latest)), default=ended)
    if ended is None:  # Use the last time at which the run wrote something.
        files = [folder / "log.txt", *(rank_file(folder, rank) for rank in range(world))]
        ended = max((path.stat().st_mtime for path in files if path.exists()), default=None)
    rank, host = (cause.tail.rank, cause.tail.notes.host) if cause.tail else (None, None)
    failure = Failure(attempt, cause.sentence, rank, host, time.time(), started, ended)
    write_json(folder / f"failure-{attempt}.json", asdict(failure))
    return cause.sentence


RANKS_ARE_TASKS = ("srun", "plain", "direct")
"""The values of ``start`` with which srun starts the ranks themselves, and no agents."""


def _step_end(folder: Path, attempt: int) -> StepEnd:
    """Return what srun wrote about the end of a Slurm job's ranks."""
    try:
        if read_json(folder / "job.json").get("launcher") != "slurm":
            return StepEnd()
        spec = RunSpec.from_dict(read_json(folder / "spec.json"))
    except (ScalewiseError, KeyError, TypeError):
        return StepEnd()
    log = folder / "log.txt"
    step = read_step_end(log, attempt_offset(log, attempt))
    return step if spec.started_by in RANKS_ARE_TASKS else StepEnd(srun=step.srun)


def _write_outcome(
    folder: Path, attempt: int, tails: Sequence[RankTail], ended: float | None, lost: set[int]
) -> None:
    rank_ends = [tail.end for tail in tails if tail.ended]
    later = sum(name.endswith(LATER) for name in _rival_names(folder, attempt))
    use_rank_times = ended is None or any(end.simulated for end in rank_ends)
    write_json(
        folder / "outcome.json",
        {
            "attempt": attempt,
            "started": min(end.launched or 0.0 for end in rank_ends),
            "ended": max(end.ended or 0.0 for end in rank_ends) if use_rank_times else ended,
            "ranks": len(tails),
            "run": folder.name,
            "sums": _sums(folder, attempt, len(tails)),
            **({"lost": sorted(lost)} if lost else {}),
            **({"later": later} if later else {}),
        },
    )


def _sums(folder: Path, attempt: int, world: int) -> dict[str, str]:
    """Return the sum after the last line of each file of ranks and nodes, by its name."""
    sums = {}
    for path in (*(rank_file(folder, rank) for rank in range(world)), *folder.glob("node-*.jsonl")):
        with suppress(OSError):
            total = last_sum(path, attempt)
            if total not in (None, first_sum(path, attempt)):
                sums[path.name] = f"{total:08x}"
    return sums


def _cause(
    folder: Path, tails: Sequence[RankTail], ends: ProcessEnds, reason: str, fault: str
) -> Cause:
    """Return why the attempt failed; if no reason is known, with the last line of the log."""
    left_after = [tail.end.left_after_step for tail in tails]
    if tails and None not in left_after and not fault:
        fault = f"a stop was requested: the run wrote a checkpoint after step {left_after[0]}"
    if reason or fault:
        unfinished = [tail for tail in tails if tail.lines and not tail.ended]
        only_unfinished = unfinished[0] if len(unfinished) == 1 else None
        lines = own_lines(folder) if ends.codes and not reason else []
        more = f"; the log ends: {lines[-1].strip()}" if lines else ""
        return Cause((reason or fault) + more, only_unfinished)
    cause = find_cause(folder, tails, ends)
    if cause.names_reason:
        return cause
    return Cause(f"{cause.sentence}; the log ends: {last_line(folder)}", cause.tail)


def closed(folder: Path, attempt: int) -> bool:
    """Return whether the end of this attempt is recorded, or a later attempt succeeded."""
    if (folder / f"failure-{attempt}.json").exists():
        return True
    try:
        succeeded = read_json(folder / "outcome.json").get("attempt")
    except RecordError:
        return False
    return isinstance(succeeded, int) and succeeded >= attempt


LATER = "-later"
"""How the name of a file of ``rivals_folder`` ends if the first process had ended already."""


def rivals_folder(folder: Path, attempt: int) -> Path:
    """Return the folder in which a process notes that another process trains as the same rank."""
    return folder / "rivals" / str(attempt)


def _rival_names(folder: Path, attempt: int) -> list[str]:
    """Return the names, RANK-PID, of processes that found another one training as their rank."""
    notes = rivals_folder(folder, attempt)
    return sorted(path.name for path in notes.iterdir()) if notes.exists() else []


def _rival_fault(folder: Path, attempt: int, tails: Sequence[RankTail]) -> str:
    """Return a sentence if several processes of a program trained as the same rank; else empty."""
    names = [name for name in _rival_names(folder, attempt) if not name.endswith(LATER)]
    if not names or any("failed" in tail.last for tail in tails):
        return ""
    rank = names[0].partition("-")[0]
    count = 1 + sum(name.startswith(f"{rank}-") for name in names)
    return f"{count} processes trained as rank {rank}, each alone: they are not distributed"
