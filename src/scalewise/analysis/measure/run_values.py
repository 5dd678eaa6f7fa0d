"""What one run measured, alone: its metrics, and its series by step and by epoch."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scalewise.analysis.measure.cached_value import cached_value
from scalewise.analysis.measure.energy import NodeSamples
from scalewise.analysis.measure.metrics import Repeats
from scalewise.analysis.measure.point import Point, measure_point
from scalewise.analysis.measure.window import epoch_seconds
from scalewise.record.read import RunRecord

Series = Mapping[str, Sequence[tuple[int, float]]]
"""By name, pairs of a step (or epoch, from 0) and a value; values that are not known are absent."""


def measure_run(record: RunRecord, nodes: NodeSamples | None = None) -> Point:
    """Return the metrics of one run. Its throughput and time are those that the mean over repeats
    is made of; its intervals are from its own steps.
    """
    return measure_point(Repeats([record], nodes or {}), ())


@cached_value("step series")
def step_series(record: RunRecord) -> Series:
    """Return ``seconds`` (mean over ranks) and ``samples`` (of all ranks) of each recorded step."""
    index = record.ranks[0].steps.index
    steps = [r.steps for r in record.ranks if np.array_equal(r.steps.index, index)]
    if not len(index):
        return {}
    columns = {"seconds": np.mean([columns.seconds for columns in steps], axis=0)}
    if len(steps) == len(record.ranks):
        columns["samples"] = np.sum([columns.samples for columns in steps], axis=0)
    numbers = index.tolist()
    return {name: list(zip(numbers, column.tolist())) for name, column in columns.items()}


def epoch_series(record: RunRecord) -> Series:
    """Return ``seconds``, training ``loss``, ``accuracy`` and ``validation_loss`` of each epoch."""
    series: dict[str, list[tuple[int, float]]] = {"seconds": [*enumerate(epoch_seconds(record))]}
    for line in sorted(epoch_lines(record), key=lambda line: int(line["epoch"])):
        for name, value in _qualities(line).items():
            if value is not None and math.isfinite(value):
                series.setdefault(name, []).append((int(line["epoch"]), float(value)))
    return {name: values for name, values in series.items() if values}


@cached_value("epoch lines")
def epoch_lines(record: RunRecord) -> list[dict[str, Any]]:
    """Return the lines of rank 0 about losses and validation, one for each epoch."""
    # Spans have an epoch too, but no loss.
    lines = record.ranks[0].lines
    return [dict(line) for line in lines if "epoch" in line and "span" not in line]


def _qualities(line: Mapping[str, Any]) -> dict[str, float | None]:
    validation = line.get("validation") or {}
    return {
        "loss": line.get("loss"),
        "accuracy": validation.get("accuracy"),
        "validation_loss": validation.get("loss"),
    }
