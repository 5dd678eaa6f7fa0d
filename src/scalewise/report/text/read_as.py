"""The sentence that says how a table was read."""

from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.measure.table_reading import TableReading
from scalewise.analysis.number_format import format_count, join_with_and

ROLE_TEXT = {
    "devices_per_node": "devices per node",
    "throughput_per_device": "throughput per device",
    "steps_per_second": "steps per second",
    "epoch_time": "time per epoch",
    "step_time": "time per step",
    "global_batch": "global batch",
    "batch_per_device": "batch per device",
}
DECIMAL_RULE_TEXT = {
    "with plain numbers": "a {other} separates thousands, because smaller numbers have none",
    "closer decimals": "a {mark} taken as the decimal mark, because the values are then closer "
    "together",
    "closer thousands": "a {other} separates thousands, because the values are then closer "
    "together",
    "whole devices": "a {other} separates thousands, because a number of devices is whole",
    "semicolons": "commas taken as decimal marks, because semicolons separate the cells",
    "thousands": "a comma before three digits taken as a thousands separator",
    "decimal point": "a point before three digits taken as the decimal mark",
}
"""By value of ``TableReading.decimal_rule``."""
REMARK_TEXT = {
    "spread": "± taken as the interval",
    "interval": "[low, high] taken as the interval",
    "merged cells": "an empty number of devices is that of the row above",
    "growing batch": "a batch that grows with the devices is the global batch",
    "brackets": "what stands in brackets left out",
    "minutes:seconds": "2:30 taken as minutes and seconds",
    "hours:minutes": "2:30 taken as hours and minutes",
    "per device": "multiplied by the devices",
    "relative": "only relative to the baseline: no absolute throughput or time is known",
    "steps": "throughput is steps per second times the batch",
    "one epoch": "time is that of one epoch",
    "no value": "rows without a throughput, time or speedup left out",
}
"""By kind of remark of ``TableReading``."""
MAX_IMPORTED_LINES = 8


def read_as_lines(curve: ScalingCurve) -> list[str]:
    """Return how the curve's table was read, and from which logs; empty if it is a plain one."""
    if curve.read_as is None:
        return []
    imported = [f"Imported: {line}" for line in curve.read_as.imported]
    if len(imported) > MAX_IMPORTED_LINES:
        more = len(imported) - MAX_IMPORTED_LINES
        imported[MAX_IMPORTED_LINES:] = [f"Imported: {more} more, see the comments of the table."]
    return [read_as_sentence(curve.read_as), *imported]


def read_as_sentence(reading: TableReading) -> str:
    """Return how a table was read, as a sentence.

    >>> read_as_sentence(TableReading(columns={"devices": "#GPUs", "throughput": "img/sec"},
    ...                               units={"throughput": "images"}, delimiter="commas"))
    'Read as: devices from "#GPUs", throughput from "img/sec" (images/s).'
    """
    columns = [
        f'{ROLE_TEXT.get(role, role)} from "{title}"{_unit_text(role, reading)}'
        for role, title in reading.columns.items()
    ]
    fewest, most = reading.repeats
    if most > 1:
        count = str(most) if fewest == most else f"{fewest} to {most}"
        columns.append(f"{count} repeats per number of devices")
    clauses = [", ".join(columns)]
    if reading.delimiter != "commas":
        clauses.append(f"cells between {reading.delimiter}")
    if reading.transposed:
        clauses.append("one column per number of devices")
    if reading.decimal_rule:
        mark, other = ("point", "comma") if reading.decimal_mark == "." else ("comma", "point")
        clauses.append(DECIMAL_RULE_TEXT[reading.decimal_rule].format(mark=mark, other=other))
    elif reading.decimal_mark == ",":
        clauses.append("decimal commas")
    clauses += [REMARK_TEXT[remark] for remark in reading.remarks]
    if reading.compared:
        clauses.append(f"{_quoted(reading.compared)} only compared with the computed values")
    if reading.missing:
        clauses.append(f"{_quoted(reading.missing)} taken as unknown")
    if reading.skipped_lines:
        clauses.append(f"{format_count(reading.skipped_lines, 'other line')} left out")
    if reading.ignored:
        clauses.append(f"{_quoted(reading.ignored)} ignored")
    return f"Read as: {'; '.join(clauses)}."


def _unit_text(role: str, reading: TableReading) -> str:
    unit = reading.units.get(role)
    if not unit:
        return ""
    is_rate = role in ("throughput", "throughput_per_device")
    return f" ({unit}/s)" if is_rate else f" ({unit})"


def _quoted(titles: tuple[str, ...]) -> str:
    return join_with_and([f'"{title}"' for title in titles])
