"""The work of a rank and the spread of its step times, from the record of a small run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scalewise.analysis.measure.ledger import steady_ledger
from scalewise.analysis.measure.window import steady_window
from scalewise.analysis.simulate.rank_work import (
    BUCKET_MB,
    FIRST_BUCKET_MB,
    Bucket,
    Work,
    even_buckets,
    make_buckets,
)
from scalewise.analysis.simulate.spread import Spread, independent_spread, synchronized_spread
from scalewise.errors import NotEnoughData
from scalewise.record.read import RunRecord

COMPRESSION_RATIOS = {"none": 1.0, "fp16": 0.5, "bf16": 0.5}
"""Compressed bytes / fp32 bytes of gradients, for the methods with a fixed ratio."""
DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


NoteCode = Literal[
    "exchanging ranks", "no gradient bytes", "even pace", "no compression ratio", "not simulated",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Note:
    """An assumption in place of missing records, or a measured scale that was not simulated."""

    code: NoteCode
    values: tuple[str, ...] = ()
    """Texts that ``report.text.simulation`` inserts into its sentence for this code."""


@dataclass(frozen=True)
class SimulationInputs:
    """What a simulation needs of a recorded run."""

    work: Work
    spread: Spread
    notes: tuple[Note, ...] = ()


def load_inputs(record: RunRecord, gradients: float | None = None) -> SimulationInputs:
    """Return a rank's mean work and the spread of ranks; ``gradients`` overrides recorded bytes."""
    window = steady_window(record)
    ledger = steady_ledger(record)
    phases = [set(rank.steps.phases) for rank in record.ranks]
    if ledger is None or not all({"forward", "backward"} <= names for names in phases):
        raise NotEnoughData(
            f"{record.folder} does not record forward and backward separately",
            hint="simulate from a run with the strategy ddp, on one device or few",
        )
    buckets, notes = _gradient_buckets(record, gradients)
    accumulate = record.spec.accumulate
    work = Work(
        forward=_mean_seconds(record, "forward", window.first) / accumulate,
        backward=_mean_seconds(record, "backward", window.first) / accumulate,
        buckets=buckets,
        optimizer=_mean_seconds(record, "optimizer", window.first),
        input=_mean_seconds(record, "input", window.first),
        other=max(0.0, float(ledger.other.mean())),
        accumulate=accumulate,
        samples=window.samples / (window.steps * len(record.ranks)),
    )
    if len(record.ranks) > 1:
        notes += (Note("exchanging ranks", (str(len(record.ranks)),)),)
    rows = ledger.own  # A row per rank: seconds of each step without input and communication.
    spread = synchronized_spread(rows) if len(rows) > 1 else independent_spread([rows[0]])
    return SimulationInputs(work, spread, notes)


def concurrent_steps(records: Sequence[RunRecord]) -> tuple[float, Spread]:
    """Return the mean seconds of a step and the spread of runs that share a node but do not
    communicate. The seconds divided by those of a run alone are a factor in ``Machine.sharing``.
    """
    rows = []
    for record in records:
        steps = record.ranks[0].steps
        rows.append(steps.seconds[steps.index >= steady_window(record).first])
    # Medians: in its first and last steps a run may have had the node to itself.
    return float(np.mean([np.median(row) for row in rows])), independent_spread(rows)


def _mean_seconds(record: RunRecord, phase: str, first: int) -> float:
    """Return the mean seconds of a phase over all ranks, in steps from index ``first`` on."""
    means = [
        float(rank.steps.phases[phase][rank.steps.index >= first].mean())
        for rank in record.ranks
        if phase in rank.steps.phases
    ]
    return sum(means) / len(record.ranks)


def _gradient_buckets(
    record: RunRecord, gradients: float | None
) -> tuple[tuple[Bucket, ...], tuple[Note, ...]]:
    """Return the buckets of a run's gradients, and notes on the assumptions about them."""
    options = record.spec.options
    bucket_mb = float(options.get("bucket_mb") or BUCKET_MB)
    # If bucket_mb is set, DDP's first bucket has that size too; by default it is smaller.
    first_mb = float(options.get("first_bucket_mb") or options.get("bucket_mb") or FIRST_BUCKET_MB)
    notes: tuple[Note, ...] = ()
    method = options.get("compression", "none")
    if recorded := record.ranks[0].notes.compression:
        ratio = recorded.sent_bytes / recorded.gradient_bytes
    elif method in COMPRESSION_RATIOS:
        ratio = COMPRESSION_RATIOS[method]
    else:
        ratio, notes = 1.0, (Note("no compression ratio", (method,)),)
    arrivals = record.ranks[0].notes.gradient_arrivals
    if arrivals and gradients is None:
        gradients_in_order = (Bucket(size, share) for size, share in arrivals)
        buckets = make_buckets(gradients_in_order, first_mb, bucket_mb)
    else:
        size = _gradient_bytes(record) if gradients is None else gradients
        if not size:
            return (), (*notes, Note("no gradient bytes"))
        buckets = even_buckets(size, (first_mb, bucket_mb))
        notes += (Note("even pace"),)
    return tuple(Bucket(bucket.size * ratio, bucket.ready) for bucket in buckets), notes


def _gradient_bytes(record: RunRecord) -> float | None:
    """Return a rank's bytes of gradients; if not recorded, of parameters; None if unknown."""
    notes = record.ranks[0].notes
    if notes.state_bytes and notes.state_bytes.gradients:
        return float(notes.state_bytes.gradients)
    facts = notes.facts
    width = DTYPE_BYTES.get(facts.dtype or "")
    if width is None or facts.sharded or facts.split:  # Sharded or split: a rank has only a part.
        return None
    return float(width * facts.parameters) or None
