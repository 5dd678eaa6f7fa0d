"""From the record of a small run to what a simulation needs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewise.analysis.measure.ledger import Ledger, build_ledger
from scalewise.analysis.measure.window import steady_window
from scalewise.analysis.simulate.rank_work import BUCKET_MB, FIRST_MB, Bucket, Work, bundled, evenly
from scalewise.analysis.simulate.spread import Spread, apart, beside
from scalewise.errors import NotEnoughData
from scalewise.record.read import RunRecord

PACKED = {"fp16": 0.5, "bf16": 0.5}
"""Which share of fp32 gradients is left by these ways to compress them."""
WIDTHS = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number."""


@dataclass(frozen=True)
class Inputs:
    """What a run tells a simulation."""

    work: Work
    spread: Spread
    notes: tuple[str, ...] = ()
    """What was not recorded, and is assumed."""


def inputs(record: RunRecord, gradients: float | None = None) -> Inputs:
    """Return the mean work of a rank, and the spread of ranks, from a run on one or few.

    ``gradients`` are their bytes, where they were not recorded or shall be others.
    """
    window = steady_window(record)
    found = build_ledger(record, window.first)
    columns = [rank.steps.phases for rank in record.ranks]
    if found is None or not all({"forward", "backward"} <= set(each) for each in columns):
        raise NotEnoughData(
            f"{record.folder} does not tell forward and backward apart",
            hint="simulate from a run with the strategy ddp, on one device or few",
        )
    buckets, notes = _buckets(record, gradients)
    accumulate = record.spec.accumulate
    work = Work(
        forward=_mean(record, "forward", window.first) / accumulate,
        backward=_mean(record, "backward", window.first) / accumulate,
        buckets=buckets,
        optimizer=_mean(record, "optimizer", window.first),
        input=_mean(record, "input", window.first),
        other=max(0.0, float(found.other.mean())),
        accumulate=accumulate,
        samples=window.samples / (window.steps * len(record.ranks)),
    )
    if len(record.ranks) > 1:
        notes += (
            f"computation was measured beside the exchange of {len(record.ranks)} ranks: what "
            "they slow each other by is in it",
        )
    return Inputs(work, _spread(found), notes)


def together(records: Sequence[RunRecord]) -> tuple[float, Spread]:
    """Return seconds of a step, and the spread, of copies that ran at once and exchanged nothing.

    Over the seconds of one copy alone they are the ``sharing`` of so many devices.
    The median step of each counts: at the edges some ran without the others.
    """
    rows = [_seconds(record) for record in records]
    return float(np.mean([np.median(row) for row in rows])), apart(rows)


def _seconds(record: RunRecord) -> NDArray[np.float64]:
    steps = record.ranks[0].steps
    return steps.seconds[steps.index >= steady_window(record).first]


def _mean(record: RunRecord, phase: str, first: int) -> float:
    """Return the seconds of a phase in the steps from ``first`` on, mean of all ranks."""
    means = [
        float(rank.steps.phases[phase][rank.steps.index >= first].mean())
        for rank in record.ranks
        if phase in rank.steps.phases
    ]
    return sum(means) / len(record.ranks)


def _spread(found: Ledger) -> Spread:
    own = found.own
    return beside(own) if len(own) > 1 else apart([own[0]])


def _buckets(
    record: RunRecord, gradients: float | None
) -> tuple[tuple[Bucket, ...], tuple[str, ...]]:
    """Return the buckets of a run's gradients, and what was assumed for them."""
    options = record.spec.options
    later = float(options.get("bucket_mb") or BUCKET_MB)
    # DDP has a small first bucket only where nobody sets the size of the others.
    first = float(options.get("first_bucket_mb") or options.get("bucket_mb") or FIRST_MB)
    packed, notes = _packed(record)
    arrivals = record.ranks[0].notes.gradient_arrivals
    if arrivals and gradients is None:
        came = (Bucket(size, share) for size, share in arrivals)
        return _smaller(bundled(came, first, later), packed), notes
    size = _gradients(record) if gradients is None else gradients
    if not size:
        return (), (*notes, "the bytes of gradients were not recorded: nothing is exchanged")
    assumed = "when each gradient came was not recorded: they are taken to come at an even pace"
    return _smaller(evenly(size, (first, later)), packed), (*notes, assumed)


def _gradients(record: RunRecord) -> float | None:
    """Return the bytes of a model's gradients: as they were held, or as large as its parameters.

    Of a user's own script its parameters are known; of shards, only one.
    """
    state = record.ranks[0].notes.state_bytes
    if state and state.gradients:
        return float(state.gradients)
    facts = record.ranks[0].notes.facts
    width = WIDTHS.get(facts.get("dtype") or "")
    if width is None or facts.get("sharded") or facts.get("split"):
        return None
    return float(width * facts.get("parameters", 0)) or None


def _packed(record: RunRecord) -> tuple[float, tuple[str, ...]]:
    """Return which share of the gradients' bytes is exchanged."""
    if seen := record.ranks[0].notes.compression:
        return seen.sent_bytes / seen.gradient_bytes, ()
    kind = record.spec.options.get("compression", "none")
    if kind in ("none", *PACKED):
        return PACKED.get(kind, 1.0), ()
    return 1.0, (f"what {kind} saves was not recorded: gradients are taken to go whole",)


def _smaller(buckets: Iterable[Bucket], share: float) -> tuple[Bucket, ...]:
    return tuple(Bucket(each.size * share, each.ready) for each in buckets)
