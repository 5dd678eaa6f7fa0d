"""Tables of curves, as values: what they say is decided here, how they look is not."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from scalewise.analysis.measure import Estimate, Point, ScalingCurve, condition_differences
from scalewise.analysis.measure.energy import COVERAGE_TEXT, JOULES_PER_UNIT, energy_unit
from scalewise.analysis.measure.mfu import flops_unit
from scalewise.analysis.measure.point import Column, TableName, columns_of
from scalewise.analysis.number_format import format_count, format_rounded
from scalewise.record.spans import in_order_of_life

NONE = "–"
"""Stands for what is not known."""
BESIDE = 3
"""Curves that find room beside each other; more of them stand below each other."""


@dataclass(frozen=True, slots=True)
class Table:
    """Words in rows and columns."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Everything there is to say of one curve, or of several side by side."""

    title: str
    lines: tuple[str, ...]
    tables: tuple[Table, ...]
    warnings: tuple[str, ...]


Cell = Callable[[Point], str]


class Warned(Protocol):
    """Something known of one number of devices, with what to beware of."""

    @property
    def devices(self) -> int: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


Row = TypeVar("Row", bound=Warned)


def sections(curves: Sequence[ScalingCurve]) -> list[Section]:
    """Return a section for each curve, and one for all of them side by side."""
    found = [_section(curve) for curve in curves]
    if len(curves) > 1:
        found.append(_side_by_side(curves))
    if told := _accelerations(curves):
        found.append(told)
    return found


def _section(curve: ScalingCurve) -> Section:
    unit = f"{curve.unit}/s"
    tables = (
        by_devices(curve.points, "Scaling" if _judged([curve]) else "Speed", [
            ("nodes", lambda p: whole(p.nodes)),
            ("runs", lambda p: _first_count(p)),
            (unit, lambda p: value(p.throughput)),
            ("±", lambda p: spread(p.throughput)),
            ("per device", lambda p: value(p.throughput_per_device)),
            ("ideal", lambda p: value(p.ideal)),
            ("speedup", lambda p: value(p.speedup)),
            ("efficiency", lambda p: percent(p.efficiency)),
            ("±", lambda p: points(p.efficiency)),
            ("gain per doubling", lambda p: percent(p.gain)),
            ("added", lambda p: number(p.gain_absolute)),
            ("serial fraction", lambda p: percent(p.serial_fraction)),
            ("acceleration", lambda p: value(p.acceleration)),
            *_declared("scaling"),
        ]),
        by_devices(curve.points, "Time", [
            ("epoch s", lambda p: value(p.epoch_time)),
            ("first epoch s", lambda p: value(p.first_epoch_time)),
            ("complete s", lambda p: value(p.time)),
            ("±", lambda p: spread(p.time)),
            ("speedup by epoch", lambda p: value(p.speedup_epoch)),
            ("by complete time", lambda p: value(p.speedup_time)),
            ("saved vs previous", lambda p: percent(p.saved_previous)),
            ("saved vs baseline", lambda p: percent(p.saved_baseline)),
            ("overhead", lambda p: percent(p.overhead)),
            ("regime", lambda p: p.regime or NONE),
            *_declared("time"),
        ]),
        by_devices(curve.points, "Where the complete time went, in seconds", [
            (name, _part(name))
            for name in in_order_of_life(name for p in curve.points for name in p.complete)
        ]),
        by_devices(curve.points, "Operations of the model", _operations(curve.points)),
        by_devices(curve.points, "Energy", _energy(curve.points)),
        by_devices(curve.points, "Work, memory, quality", [
            *_declared("work"), *_declared("memory"), *_declared("quality"),
        ]),
    )  # fmt: skip
    return Section(
        title=curve.name,
        lines=tuple(_lines(curve)),
        tables=tuple(table for table in tables if len(table.header) > 1),
        warnings=(*curve.warnings, *warnings_of(curve.points)),
    )


def _declared(table: TableName) -> list[tuple[str, Cell]]:
    """Return the columns that metrics declare for a table, as fields of ``Point``."""
    columns: list[tuple[str, Cell]] = []
    for name, column in columns_of(table):
        columns.append((column.heading, partial(_metric_cell, name, column)))
        if column.spread:
            columns.append(("±", partial(_spread_cell, name, column)))
    return columns


def _metric_cell(name: str, column: Column, point: Point) -> str:
    metric = getattr(point, name)
    if column.part:
        metric = (metric or {}).get(column.part)
    if column.format == "text":
        return metric or NONE
    if column.format == "count":
        return whole(metric)
    if column.format == "share":
        return percent(metric)
    return value(metric and metric * column.scale)


def _spread_cell(name: str, column: Column, point: Point) -> str:
    estimate = getattr(point, name)
    return points(estimate) if column.format == "share" else spread(estimate)


def _operations(every: Sequence[Point]) -> list[tuple[str, Cell]]:
    """Return the columns of the operations, in a unit that is not too small for the fastest."""
    rates = [point.flops_per_second.value for point in every if point.flops_per_second]
    size, unit = flops_unit(max(rates, default=0.0))

    def told(rate: Estimate | None) -> str:
        return value(rate and rate * (1 / size))

    return [
        ("GFLOP/sample", lambda p: number(p.flops and p.flops / 1e9)),
        (f"{unit} per device", lambda p: told(p.flops_per_second)),
        ("±", lambda p: spread(p.flops_per_second)),
        ("MFU", lambda p: percent(p.mfu)),
        ("±", lambda p: points(p.mfu)),
    ]


def _energy(points: Sequence[Point]) -> list[tuple[str, Cell]]:
    """Return the columns of the energy, in a unit that is not too small for the largest."""
    largest = max((p.energy.value for p in points if p.energy), default=0.0)
    unit = energy_unit(largest)
    apart = any(p.energy_covers != "processors" for p in points if p.energy_hosts)

    def told(energy: Estimate | None) -> str:
        return value(energy and energy * (1 / JOULES_PER_UNIT[unit]))

    return [
        (unit, lambda p: told(p.energy)),
        ("±", lambda p: spread(p.energy)),
        ("W per device", lambda p: value(p.power)),
        ("J per sample", lambda p: number(_per_sample(p))),
        (f"hosts' processors {unit}", lambda p: told(p.energy_hosts) if apart else NONE),
    ]


def _per_sample(point: Point) -> float | None:
    return point.energy.value / point.samples if point.energy and point.samples else None


def _lines(curve: ScalingCurve) -> list[str]:
    held = {"weak": "batch per device fixed", "strong": "global batch fixed"}
    rule = (
        f"{curve.scaling} scaling ({held[curve.scaling]})" if curve.scaling else "scaling unknown"
    )
    work = curve.work or ("as given" if curve.baseline.samples else "taken as equal")
    lines = [
        f"{rule}; work: {work}",
        f"compared with {format_count(curve.baseline.devices, 'device')}; intervals are 90 %",
    ]
    if not _judged([curve]):  # It is one of several kinds of devices, and not of numbers of them.
        lines = [f"work: {work}", "intervals are 90 %"]
    if edge := _edge(curve.points):
        lines.append(edge)
    if curve.baseline.overhead is not None:
        approximately = "" if curve.baseline.complete else " (from time = fixed + work/throughput)"
        turn = curve.turns_at
        where = (
            f"dominates from {format_count(turn, 'device')} on" if turn else "never dominates here"
        )
        lines.append(f"overhead {where}{approximately}")
    covered = dict.fromkeys(point.energy_covers for point in curve.points if point.energy)
    lines += [COVERAGE_TEXT[each] for each in covered if each]
    peaks = dict.fromkeys((p.peak, p.peak_source) for p in curve.points if p.peak)
    lines += [f"MFU is of {number(peak / 1e12)} TFLOP/s, {source}" for peak, source in peaks]
    unknown = dict.fromkeys(p.mfu_unknown for p in curve.points if p.mfu_unknown)
    lines += [f"MFU is not known: {why}" for why in unknown]
    return lines


def _judged(curves: Sequence[ScalingCurve]) -> bool:
    """Say whether any point has an efficiency."""
    return any(point.efficiency for curve in curves for point in curve.points)


def _edge(points: Sequence[Point]) -> str:
    """Say between which numbers of devices the node ends and the network begins."""
    inside = [point.devices for point in points if point.nodes == 1]
    beyond = [point.devices for point in points if point.nodes and point.nodes > 1]
    if not inside or not beyond:
        return ""
    return f"up to {format_count(max(inside), 'device')} on one node, from {min(beyond)} on several"


def not_correct(curve: ScalingCurve) -> list[str]:
    """Return the lines that come before an answer from runs whose training is not correct."""
    lines = [f"not correct: {sentence}" for sentence in curve.not_correct]
    return [*lines, "  hint: mend it first; `scalewise explain` says how"] if lines else []


def warnings_of(points: Sequence[Warned]) -> list[str]:
    """Return the warnings of all points, each with its number of devices."""
    return [
        f"{format_count(point.devices, 'device')}: {text}"
        for point in points
        for text in point.warnings
    ]


def by_devices(
    points: Sequence[Row], title: str, columns: Sequence[tuple[str, Callable[[Row], str]]]
) -> Table:
    """Return a table of points without the columns of which nothing is known."""
    shown = []
    for name, cell in columns:
        cells = [cell(point) for point in points]
        if any(text != NONE for text in cells):
            shown.append((name, cells))
    devices = [f"{point.devices}{' !' if point.warnings else ''}" for point in points]
    return Table(
        title,
        ("devices", *(name for name, _ in shown)),
        tuple(zip(devices, *(cells for _, cells in shown))),
    )


def _side_by_side(curves: Sequence[ScalingCurve]) -> Section:
    title = "Speed and efficiency" if _judged(curves) else "Speed"
    table = (_beside if len(curves) <= BESIDE else _below)(curves, title)
    return Section(
        "Side by side", (), (table, *_exchange(curves)), tuple(condition_differences(curves))
    )


def _beside(curves: Sequence[ScalingCurve], title: str) -> Table:
    """Return a table with some columns for each curve."""
    counts = sorted({point.devices for curve in curves for point in curve.points})
    header, columns = ["devices"], [[str(count) for count in counts]]
    for curve in curves:
        found = {point.devices: point for point in reversed(curve.points)}
        cells_of: dict[str, Cell] = {
            f"{curve.unit}/s": lambda p: value(p.throughput),
            "complete s": lambda p: value(p.time),
            "efficiency": lambda p: percent(p.efficiency),
        }
        for name, cell in cells_of.items():
            cells = [cell(found[count]) if count in found else NONE for count in counts]
            if any(text != NONE for text in cells):
                header.append(f"{curve.name}: {name}")
                columns.append(cells)
    return Table(title, tuple(header), tuple(zip(*columns)))


def _below(curves: Sequence[ScalingCurve], title: str) -> Table:
    """Return a table with a row for each point of each curve."""
    names, every = _every(curves)
    return by_devices(every, title, [
        ("curve", lambda p: names[id(p)]),
        (f"{curves[0].unit}/s", lambda p: value(p.throughput)),
        ("±", lambda p: spread(p.throughput)),
        ("complete s", lambda p: value(p.time)),
        ("efficiency", lambda p: percent(p.efficiency)),
        ("accuracy", lambda p: percent(p.accuracy)),
    ])  # fmt: skip


def _every(curves: Sequence[ScalingCurve]) -> tuple[dict[int, str], list[Point]]:
    """Return the points of all curves, few devices first, and the curve of each."""
    names = {id(point): curve.name for curve in curves for point in curve.points}
    return names, sorted((p for c in curves for p in c.points), key=lambda p: p.devices)


def _accelerations(curves: Sequence[ScalingCurve]) -> Section | None:
    """Return how many times faster some devices are than others, if kinds of them were compared."""
    every = [(curve.name, point) for curve in curves for point in curve.points]
    faster = [point for _, point in every if point.acceleration]
    against = {point.accelerated_from for point in faster}
    shown = [(name, p) for name, p in every if p.acceleration or p.named in against]
    names = {id(point): name for name, point in shown}
    table = by_devices([point for _, point in shown], "Kinds of devices", [
        ("curve", lambda p: names[id(p)] if len(curves) > 1 else NONE),
        ("device", lambda p: p.device_name or NONE),
        (f"{curves[0].unit}/s", lambda p: value(p.throughput)),
        ("first epoch s", lambda p: value(p.first_epoch_time)),
        ("epoch s", lambda p: value(p.epoch_time)),
        ("acceleration", lambda p: value(p.acceleration)),
        ("±", lambda p: spread(p.acceleration)),
        ("by epoch", lambda p: value(p.acceleration_epoch)),
        ("by first epoch", lambda p: value(p.acceleration_first)),
    ])  # fmt: skip
    lines = [
        f"acceleration {format_rounded(point.acceleration.value)} x: {point.named} against "
        f"{point.accelerated_from}, by throughput"
        for point in faster
        if point.acceleration
    ]
    threads = {
        curve.conditions.get("threads")
        for curve in curves
        if any(p.device_name == "cpu" and p.named in against for p in curve.points)
    }
    lines += [f"a CPU here has {format_count(each, 'thread')}" for each in threads if each]
    return Section("Acceleration", tuple(lines), (table,), ()) if faster else None


def _exchange(curves: Sequence[ScalingCurve]) -> list[Table]:
    """Return what each curve holds, sends and waits for, a row per point, if that is known."""
    names, every = _every(curves)
    table = by_devices(every, "Memory and communication", [
        ("curve", lambda p: names[id(p)]),
        (f"{curves[0].unit}/s", lambda p: value(p.throughput)),
        ("memory MiB", lambda p: value(p.memory and p.memory * (1 / 2**20))),
        ("model MiB", lambda p: value(p.held and p.held * (1 / 2**20))),
        ("sent MiB/step", lambda p: value(p.sent and p.sent * (1 / 2**20))),
        ("exposed", lambda p: percent(p.exposed)),
    ])  # fmt: skip
    return [table] if any(point.sent for point in every) else []


def _part(name: str) -> Cell:
    return lambda point: value(point.complete.get(name))


def _first_count(point: Point) -> str:
    found = point.throughput or point.time
    return whole(found.count if found and point.steps else None)


def whole(count: int | None) -> str:
    """Return a count with its thousands apart."""
    return NONE if count is None else f"{count:,}"


def number(value: float | None) -> str:
    """Return a number with about four figures.

    >>> number(12345.6), number(0.01234), number(16.66)
    ('12,346', '0.01234', '16.66')
    """
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if not -6 < size < 12:
        return f"{value:.1e}"
    return f"{value:,.{max(0, 3 - size)}f}"


def value(estimate: Estimate | None) -> str:
    """Return the number itself."""
    return number(estimate.value if estimate else None)


def percent(share: Estimate | float | None) -> str:
    """Return a share in percent.

    >>> percent(0.9667)
    '96.7 %'
    """
    found = share.value if isinstance(share, Estimate) else share
    if found is None or not math.isfinite(100 * found):
        return NONE
    return f"{100 * found:.1f} %".replace("-0.0 %", "0.0 %")


def spread(estimate: Estimate | None) -> str:
    """Return the interval's half-width, relative to the number."""
    half = _half(estimate)
    return NONE if half is None or estimate is None else f"{100 * half / estimate.value:.1f} %"


def points(estimate: Estimate | None) -> str:
    """Return the interval's half-width in percentage points."""
    half = _half(estimate)
    return NONE if half is None else f"{100 * half:.1f}"


def _half(estimate: Estimate | None) -> float | None:
    if estimate is None or estimate.low is None or estimate.high is None:
        return None
    return (estimate.high - estimate.low) / 2
