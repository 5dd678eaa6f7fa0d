"""The target of a training, and the work (in samples) after which recorded runs reached it.

The training loss is averaged over blocks of steps, at most ten per epoch; the validation accuracy
is recorded once per epoch. Between these values, the loss or accuracy is interpolated linearly.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from scalewise.analysis.advise.durations import NUMBER
from scalewise.analysis.measure.run_values import epoch_lines
from scalewise.analysis.number_format import format_count, format_number
from scalewise.errors import NotEnoughData, SpecError, parameter, shown
from scalewise.record.read import RunRecord
from scalewise.validate import suggest_name

EXAMPLES = {
    "epochs": "epochs=90 at 256",
    "samples": "samples=115e6 at 256",
    "loss": "loss=2.1",
    "accuracy": "accuracy=0.75",
}
"""An example of every kind of target; ``at 256`` is the global batch."""
WORK_TARGETS = ("epochs", "samples")
"""Targets that state the amount of work; the others state the quality to reach."""
MIN_BOUND, MAX_BOUND = 1e-6, 1e18
"""Numbers outside this range are refused as typos."""
MAX_BLOCKS_PER_EPOCH = 10
MIN_STEPS_PER_BLOCK = 10
"""The loss of a single step is mostly noise."""
WorkAtBatches = tuple[tuple[float, float, int], ...]
"""Rows of (global batch, mean samples to target, number of runs), smallest batch first."""
Trace = list[tuple[float, float]]
"""Rows of (samples processed so far, training loss or validation accuracy at that moment)."""


@dataclass(frozen=True, slots=True)
class Target:
    """When a training is done: after an amount of work, or at a loss or an accuracy."""

    name: str
    bound: float
    """Epochs, samples, loss or accuracy, as ``name`` says."""
    batch: float | None
    """The global batch at which that work suffices, if stated."""
    text: str
    """The target as the user wrote it."""

    @property
    def is_work(self) -> bool:
        """Whether the work is stated, instead of read from the records."""
        return self.name in WORK_TARGETS

    def reached_by(self, quality: float) -> bool:
        """Return whether a loss is low enough, or an accuracy high enough."""
        return quality <= self.bound if self.name == "loss" else quality >= self.bound

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, value: str) -> "Target":
        """Parse ``epochs=90 at 256``, ``samples=115e6 at 256``, ``loss=2.1`` or ``accuracy=75%``.

        >>> Target.parse("epochs=90 at 256")
        Target(name='epochs', bound=90.0, batch=256.0, text='epochs=90 at 256')
        >>> Target.parse("accuracy=75%").bound
        0.75
        """
        every_example = f"one of {'; '.join(EXAMPLES.values())}"
        if not isinstance(value, str):
            raise SpecError(f"a target is text, got {shown(value)}", hint=every_example)
        text = " ".join(value.split())
        name, _, amount = (part.strip() for part in text.partition("="))
        if name not in EXAMPLES:
            hint = suggest_name(name, EXAMPLES) or every_example
            raise SpecError(f"not a target: {shown(value)}", hint=hint)
        example = f"for example {EXAMPLES[name]}"
        match = re.fullmatch(rf"{NUMBER}\s*(%?)(?:\s+at\s+{NUMBER})?", amount)
        if not match or (match[2] and name != "accuracy"):
            raise SpecError(f"{name} needs a number, got {shown(value)}", hint=example)
        bound = float(match[1]) * (0.01 if match[2] else 1)  # match[2] is the percent sign.
        batch = float(match[3]) if match[3] else None
        if problem := _range_problem(name, bound, batch):
            raise SpecError(f"{problem}, got {shown(value)}", hint=example)
        return cls(name, bound, batch, text)


def _range_problem(name: str, bound: float, batch: float | None) -> str:
    if not MIN_BOUND <= bound <= MAX_BOUND:
        return f"{name} must lie from {MIN_BOUND:g} to {MAX_BOUND:g}"
    if name == "accuracy" and bound > 1:
        return "an accuracy is a share from 0 to 1"
    if batch is not None and name not in WORK_TARGETS:
        return f"{name} takes no global batch (at N)"
    if batch is not None and not 1 <= batch <= MAX_BOUND:
        return "a global batch is at least 1"
    return ""


@dataclass(frozen=True, slots=True)
class MissedBatch:
    """A global batch at which not all runs reached the target, so the work is unknown."""

    batch: int
    runs: int
    missed: int
    """How many of these runs did not reach the target."""
    worlds: tuple[int, ...]
    """The numbers of devices of these runs."""


def work_to_reach(
    target: Target, records: Iterable[RunRecord]
) -> tuple[WorkAtBatches, tuple[MissedBatch, ...]]:
    """Return the work at each batch whose runs all reached the target, and the other batches."""
    by_batch: dict[int, list[RunRecord]] = {}
    for record in sorted(records, key=lambda record: record.spec.topology.world):
        if not record.spec.program:  # The loss of a user's program is not recorded.
            by_batch.setdefault(record.spec.global_batch, []).append(record)
    points, missed, qualities = [], [], []
    for batch, runs in sorted(by_batch.items()):
        traces = [quality_trace(run, target.name) for run in runs]
        qualities += [(quality, run) for run, trace in zip(runs, traces) for _, quality in trace]
        works = [_first_reached(trace, target) for trace in traces]
        reached = [work for work in works if work is not None]
        if len(reached) == len(runs):
            points.append((batch, float(np.mean(reached)), len(reached)))
        else:
            worlds = tuple(sorted({run.spec.topology.world for run in runs}))
            missed.append(MissedBatch(batch, len(runs), len(runs) - len(reached), worlds))
    if not points:
        problem = f"no run recorded its {target.name}, so none is known to reach {target}"
        if qualities:
            best = min if target.name == "loss" else max
            quality, run = best(qualities, key=lambda pair: pair[0])
            devices = format_count(run.spec.topology.world)
            problem = f"no run reached {target}: the best is {format_number(quality)}, on {devices}"
        hint = f"train longer, or state the work: {parameter('target', 'epochs=90 at 256')}"
        raise NotEnoughData(problem, hint=hint)
    return tuple(points), tuple(missed)


def quality_trace(record: RunRecord, name: str) -> Trace:
    """Return the trace of a run's training ``loss`` or validation ``accuracy``."""
    samples_per_epoch = sum(rank.outline.seen for rank in record.ranks)  # Read by each rank.
    trace = []
    for line in sorted(epoch_lines(record), key=lambda line: line["epoch"]):
        if name == "loss":
            values = _block_losses(line)
        else:
            accuracy = (line.get("validation") or {}).get("accuracy")
            values = [] if accuracy is None else [(1.0, float(accuracy))]
        trace += [((line["epoch"] + share) * samples_per_epoch, value) for share, value in values]
    return [(samples, value) for samples, value in trace if math.isfinite(value)]


def _block_losses(line: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return for each block of steps the share of the epoch at its end, and its mean loss."""
    losses = np.array(line.get("losses") or [], float)
    steps = len(losses)
    if not steps:
        return [(1.0, float(line["loss"]))] if line.get("loss") is not None else []
    blocks = max(1, min(MAX_BLOCKS_PER_EPOCH, steps // MIN_STEPS_PER_BLOCK))
    ends = np.linspace(0, steps, blocks + 1).astype(int)
    return [(last / steps, float(losses[first:last].mean())) for first, last in pairwise(ends)]


def _first_reached(trace: Trace, target: Target) -> float | None:
    """Return the samples after which the target was first reached; None if it never was."""
    index = next((i for i, (_, quality) in enumerate(trace) if target.reached_by(quality)), None)
    if index is None:
        return None
    samples, quality = trace[index]
    if index == 0:
        return samples
    samples_before, quality_before = trace[index - 1]
    gap, gain = quality_before - target.bound, quality_before - quality
    return samples_before + (samples - samples_before) * gap / gain
