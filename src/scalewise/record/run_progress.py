"""How far a run has come, from the last lines of its first rank."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalewise.record.rank_tail import read_tail
from scalewise.record.schema import Failure, Outcome, RankNotes

RECENT_SECONDS = 10.0
"""The rate is that of the last steps that took so long together."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The optimizer steps of a run, and its time; None means unknown."""

    done: int | None = 0
    """Steps done, including those before the checkpoint from which it resumed."""
    total: int | None = None
    """Steps that it will have done at its end."""
    samples_per_second: float | None = None
    """Of all ranks, in the last steps of a run that is running."""
    elapsed: float | None = None
    """Seconds since its launch; in a queue, since its submission; at the end, in total."""

    @property
    def share(self) -> float | None:
        """The share of the steps that are done."""
        return self.done / self.total if self.done is not None and self.total else None


def read_progress(
    folder: Path,
    attempt: int,
    ranks: int,
    launched: float | None = None,
    now: float | None = None,
) -> RunProgress:
    """Return the progress of an attempt that runs; one rank's file shows it for all ``ranks``.

    ``launched`` is used if the rank has not recorded the time of the launch; ``now`` is the time by
    the run's clock, if that is known.
    """
    tail = read_tail(folder, 0, attempt)
    notes = tail.notes
    resumed = notes.resumed or 0
    launched = tail.launched or launched
    rate = recent_rate(tail.lines)
    return RunProgress(
        done=resumed + (notes.steps[1] if notes.steps else 0),
        total=_total_steps(notes, resumed),
        samples_per_second=rate and _over_ranks(rate, notes, ranks),
        elapsed=max(0.0, (now or time.time()) - launched) if launched else None,
    )


def read_ended_progress(folder: Path, end: Outcome | Failure) -> RunProgress:
    """Return how far an attempt came that has ended."""
    progress = read_progress(folder, end.attempt, ranks=1)
    elapsed = None
    if end.started is not None and end.ended is not None:
        elapsed = max(0.0, end.ended - end.started)
    if isinstance(end, Failure):
        return replace(progress, samples_per_second=None, elapsed=elapsed)
    steps = progress.done or None  # None if the rank's file is gone.
    return RunProgress(done=steps, total=steps, elapsed=elapsed)


def recent_rate(newest_first: Iterable[Mapping[str, Any]]) -> float | None:
    """Return one rank's samples per second in its last steps; None if samples are not known.

    >>> recent_rate([{"steps": [5, 9], "samples": 64, "seconds": 2.0}, {"span": "build"}])
    32.0
    """
    samples, seconds = 0, 0.0
    for line in newest_first:
        if "steps" in line:
            samples, seconds = samples + line["samples"], seconds + line["seconds"]
            if seconds >= RECENT_SECONDS:
                break
    return samples / seconds if samples and seconds else None


def _total_steps(notes: RankNotes, resumed: int) -> int | None:
    if notes.planned_steps is not None:
        return resumed + notes.planned_steps
    # A program whose length was not known writes its outline at its end.
    return notes.outline.steps * (notes.outline.epochs or 1) if notes.outline else None


def _over_ranks(rate: float, notes: RankNotes, ranks: int) -> float | None:
    """Return the rate of all ranks from that of one; None if ranks may share their samples."""
    if notes.facts.split:
        return None
    outline = notes.outline
    if outline and outline.together and outline.seen:
        return rate * outline.together / outline.seen
    return rate * ranks
