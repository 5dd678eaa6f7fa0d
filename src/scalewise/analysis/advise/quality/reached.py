"""When recorded runs reached a loss or an accuracy: the measured work to target.

The training loss is the mean of a block of steps, at most ten blocks per epoch; the
validation accuracy is recorded once per epoch. In between it is interpolated linearly, so
the work is known to a fraction of an epoch.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from scalewise.analysis.advise.quality.target import Target
from scalewise.analysis.number_format import format_count, format_number
from scalewise.errors import NotEnoughData, parameter
from scalewise.record.read import RunRecord

MAX_BLOCKS_PER_EPOCH = 10
MIN_STEPS_PER_BLOCK = 10
"""The loss of a single step is mostly noise."""
WorkAtBatches = tuple[tuple[float, float, int], ...]
"""Global batch, mean samples to target, runs; the smallest batch first."""
Trace = list[tuple[float, float]]
"""Samples processed so far, and the quality at that moment."""


@dataclass(frozen=True, slots=True)
class MissedBatch:
    """A global batch at which not all runs reached the target: its work is unknown."""

    batch: int
    runs: int
    missed: int
    """Runs that did not reach it."""
    worlds: tuple[int, ...]
    """Numbers of devices of the runs."""


def work_to_reach(
    target: Target, records: Iterable[RunRecord]
) -> tuple[WorkAtBatches, tuple[MissedBatch, ...]]:
    """Return the work at each batch whose runs all reached a target, and the other batches."""
    by_batch: dict[int, list[RunRecord]] = {}
    for record in sorted(records, key=lambda record: record.spec.topology.world):
        if not record.spec.program:  # The loss of a user's program is not recorded.
            by_batch.setdefault(record.spec.global_batch, []).append(record)
    points, missed, qualities = [], [], []
    for batch, runs in sorted(by_batch.items()):
        traces = [quality_trace(run, target.name) for run in runs]
        qualities += [(quality, run) for run, trace in zip(runs, traces) for _, quality in trace]
        works = [_first_reached(trace, target) for trace in traces]
        done = [work for work in works if work is not None]
        if len(done) == len(runs):
            points.append((batch, float(np.mean(done)), len(done)))
        else:
            worlds = tuple(sorted({run.spec.topology.world for run in runs}))
            missed.append(MissedBatch(batch, len(runs), len(runs) - len(done), worlds))
    if not points:
        raise NotEnoughData(
            _best_quality(target, qualities),
            hint=f"train longer, or state the work: {parameter('target', 'epochs=90 at 256')}",
        )
    return tuple(points), tuple(missed)


def quality_trace(record: RunRecord, name: str) -> Trace:
    """Return the training ``loss`` or the validation ``accuracy`` of a run against samples."""
    lines = [line for line in record.ranks[0].lines if "epoch" in line and "span" not in line]
    per_epoch = sum(rank.outline.seen for rank in record.ranks)
    trace = []
    for line in sorted(lines, key=lambda line: line["epoch"]):
        if name == "loss":
            parts = _losses(line)
        else:
            accuracy = (line.get("validation") or {}).get("accuracy")
            parts = [] if accuracy is None else [(1.0, float(accuracy))]
        trace += [((line["epoch"] + share) * per_epoch, value) for share, value in parts]
    return [(samples, value) for samples, value in trace if math.isfinite(value)]


def _losses(line: Mapping[str, Any]) -> Trace:
    """Return the mean loss of each block, with the share of the epoch done at its end."""
    losses = np.array(line.get("losses") or [], float)
    steps = len(losses)
    if not steps:
        return [(1.0, float(line["loss"]))] if line.get("loss") is not None else []
    blocks = max(1, min(MAX_BLOCKS_PER_EPOCH, steps // MIN_STEPS_PER_BLOCK))
    ends = np.linspace(0, steps, blocks + 1).astype(int)
    return [(last / steps, float(losses[first:last].mean())) for first, last in pairwise(ends)]


def _first_reached(trace: Trace, target: Target) -> float | None:
    """Return the samples after which a target was first reached; None if it never was."""
    index = next((k for k, (_, quality) in enumerate(trace) if target.reached_by(quality)), None)
    if index is None:
        return None
    samples, quality = trace[index]
    if index == 0:
        return samples
    before, worse = trace[index - 1]
    return before + (samples - before) * (worse - target.bound) / (worse - quality)


def _best_quality(target: Target, qualities: Sequence[tuple[float, RunRecord]]) -> str:
    if not qualities:
        return f"no run recorded its {target.name}, so none is known to reach {target}"
    best = min if target.name == "loss" else max
    quality, run = best(qualities, key=lambda pair: pair[0])
    where = format_count(run.spec.topology.world)
    return f"no run reached {target}: the best is {format_number(quality)}, on {where}"
