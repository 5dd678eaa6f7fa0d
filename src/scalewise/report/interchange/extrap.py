"""Extra-P's JSON lines: a measurement per line, with the number of devices as its parameter.

The call tree is the life of a job: the curve, the parts of its complete time, the step in training.
Extra-P ignores keys that it does not know; they tell other readers where a value comes from.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from scalewise.errors import SpecError, parameter
from scalewise.report.interchange.contents import (
    ExportedCurve,
    ExportedPoint,
    ExportedRun,
    interval,
)


def render(curves: Sequence[ExportedCurve]) -> str:
    """Return a line for each value of each run; of a table, for each value of a row. Extra-P wants
    each metric on each number of devices: a metric that one of them lacks is left out.
    """
    _refuse_different_counts(curves)
    lines = [line for curve in curves for line in _curve_lines(curve)]
    counts: dict[tuple[str, str], set[int]] = {}
    for line in lines:
        counts.setdefault(_key(line), set()).add(line["params"]["devices"])
    needed = max(map(len, counts.values()), default=0)
    complete = [line for line in lines if len(counts[_key(line)]) == needed]
    return "".join(f"{json.dumps(line)}\n" for line in complete)


def _key(line: dict[str, Any]) -> tuple[str, str]:
    return line["callpath"], line["metric"]


def _refuse_different_counts(curves: Sequence[ExportedCurve]) -> None:
    first = curves[0]
    for curve in curves[1:]:
        if _counts(curve) != _counts(first):
            raise SpecError(
                "Extra-P reads curves of one file only if they have the same numbers of devices: "
                f"{first.name} has {', '.join(map(str, _counts(first)))}, "
                f"{curve.name} has {', '.join(map(str, _counts(curve)))}",
                hint=f"write a file for each study, or choose {parameter('as', 'openmetrics')}",
            )


def _counts(curve: ExportedCurve) -> list[int]:
    return sorted({point.devices for point in curve.points})


def _curve_lines(curve: ExportedCurve) -> Iterator[dict[str, Any]]:
    entries: Sequence[ExportedRun | ExportedPoint] = curve.runs or curve.points
    parts = dict.fromkeys(name for entry in entries for name in entry.parts)
    for entry in entries:
        source = _source_keys(curve, entry)
        for line in _measurements(curve, entry, list(parts)):
            yield {"params": {"devices": entry.devices}, **line, **source}


def _measurements(
    curve: ExportedCurve, entry: ExportedRun | ExportedPoint, parts: Sequence[str]
) -> Iterator[dict[str, Any]]:
    root = curve.name.replace("->", "→")  # Extra-P splits call paths there.
    for name, estimate in entry.values.items():
        yield {"callpath": root, "metric": name, "value": estimate.value, **interval(estimate)}
    for name in parts:
        # A part that a run does not have took no time. The unexplained part may be just below 0.
        seconds = max(entry.parts[name].value, 0.0) if name in entry.parts else 0.0
        yield {"callpath": f"{root}->{name}", "metric": "time", "value": seconds}
    rate, batch = entry.values.get("throughput"), entry.values.get("global_batch")
    if rate and batch:
        seconds = batch.value / rate.value
        yield {"callpath": f"{root}->train->step", "metric": "time", "value": seconds}


def _source_keys(curve: ExportedCurve, entry: ExportedRun | ExportedPoint) -> dict[str, Any]:
    keys: dict[str, Any] = {"study": curve.study, "unit": curve.unit}
    if entry.nodes:
        keys["nodes"] = entry.nodes
    if isinstance(entry, ExportedRun):
        keys |= {"run": entry.id, "repeat": entry.repeat}
    if codes := curve.doubt_codes(entry.devices):
        keys["doubts"] = codes
    return keys
