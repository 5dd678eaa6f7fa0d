"""When runs reached a loss or an accuracy: the work to target, as it was recorded.

The training loss is the mean of a block of steps, at most ten blocks an epoch; the
validation accuracy is there once an epoch. Between two of them it is taken as a straight
line, so the work is known to a part of an epoch, and no better.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from scalewise.analysis.advise.quality.aim import Aim
from scalewise.analysis.number_format import format_count, format_number, join_with_and
from scalewise.errors import NotEnoughData
from scalewise.record.read import RunRecord

BLOCKS = 10
"""Parts of an epoch whose mean loss is looked at."""
STEPS = 10
"""Losses in the smallest block: single ones are mostly noise."""
Trace = list[tuple[float, float]]
"""Samples done so far, and the quality then."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Work to target at each global batch whose runs all reached it, in samples."""

    points: tuple[tuple[int, float, int], ...]
    """Global batch, mean samples, runs; the smallest batch first."""
    missed: tuple[str, ...]
    """What was left out, in words."""


def reached(records: Iterable[RunRecord], aim: Aim) -> Reached:
    """Return when the runs reached an aim; a batch counts if all of its runs did."""
    by_batch: dict[int, list[RunRecord]] = {}
    for record in sorted(records, key=lambda each: each.spec.topology.world):
        if not record.spec.program:  # Nobody sees the loss of a program.
            by_batch.setdefault(record.spec.global_batch, []).append(record)
    points, missed, best = [], [], []
    for batch, runs in sorted(by_batch.items()):
        traces = [trace(run, aim.name) for run in runs]
        best += [(quality, run) for run, found in zip(runs, traces) for _, quality in found]
        works = [_crossing(found, aim) for found in traces]
        done = [work for work in works if work is not None]
        if len(done) == len(runs):
            points.append((batch, float(np.mean(done)), len(done)))
        else:
            worlds = sorted({run.spec.topology.world for run in runs})
            where = join_with_and([*map(str, worlds[:-1]), format_count(worlds[-1])])
            missed.append(
                f"{len(runs) - len(done)} of {len(runs)} runs on {where} "
                f"(global batch {batch:,}) never reached {aim}: the work at that batch is not known"
            )
    if not points:
        raise NotEnoughData(
            _none(aim, best), hint="train longer, or state the work: --target 'epochs=90 at 256'"
        )
    return Reached(tuple(points), tuple(missed))


def trace(record: RunRecord, name: str) -> Trace:
    """Return the training loss or the validation accuracy of a run against samples."""
    lines = [line for line in record.ranks[0].lines if "epoch" in line and "span" not in line]
    per_epoch = sum(rank.outline.seen for rank in record.ranks)
    found = []
    for line in sorted(lines, key=lambda each: each["epoch"]):
        parts = _losses(line) if name == "loss" else _accuracy(line)
        found += [((line["epoch"] + share) * per_epoch, value) for share, value in parts]
    return [(samples, value) for samples, value in found if math.isfinite(value)]


def _losses(line: Mapping[str, Any]) -> Trace:
    """Return the mean losses of an epoch's blocks, each with the share of the epoch done then."""
    every = np.array(line.get("losses") or [], float)
    if not len(every):
        return [(1.0, float(line["loss"]))] if line.get("loss") is not None else []
    count = max(1, min(BLOCKS, len(every) // STEPS))
    ends = np.linspace(0, len(every), count + 1).astype(int)
    return [(last / len(every), float(every[first:last].mean())) for first, last in pairwise(ends)]


def _accuracy(line: Mapping[str, Any]) -> Trace:
    found = line.get("validation") or {}
    return [(1.0, float(found["accuracy"]))] if found.get("accuracy") is not None else []


def _crossing(found: Trace, aim: Aim) -> float | None:
    """Return the samples after which an aim was first met, or nothing."""
    place = next((k for k, (_, quality) in enumerate(found) if aim.met(quality)), None)
    if place is None:
        return None
    samples, quality = found[place]
    if not place:
        return samples
    before, worse = found[place - 1]
    return before + (samples - before) * (worse - aim.bound) / (worse - quality)


def _none(aim: Aim, best: Sequence[tuple[float, RunRecord]]) -> str:
    if not best:
        return f"no run recorded its {aim.name}, so none is known to reach {aim}"
    ends = min if aim.name == "loss" else max
    quality, run = ends(best, key=lambda each: each[0])
    where = format_count(run.spec.topology.world)
    return f"no run reached {aim}: the best is {format_number(quality)}, on {where}"
