"""Curves from (devices, value) pairs that scalewise did not measure."""

import math
from collections.abc import Iterable
from typing import SupportsFloat, SupportsIndex

from scalewise.analysis.measure.curve import ScalingCurve, compare
from scalewise.analysis.measure.energy import JOULES_PER_UNIT
from scalewise.analysis.measure.estimate import Estimate
from scalewise.analysis.measure.point import Point
from scalewise.analysis.measure.table_layout import HEADER_HINT
from scalewise.analysis.measure.table_numbers import MAX_DEVICES, MAX_VALUE, MIN_VALUE
from scalewise.errors import SpecError, shown


def curve_from_numbers(
    throughputs: Iterable[tuple[int, float]] = (),
    *,
    times: Iterable[tuple[int, float]] = (),
    name: str = "curve",
    scaling: str | None = None,
    devices_per_node: int | None = None,
    samples: Iterable[tuple[int, float]] = (),
    energies: Iterable[tuple[int, float]] = (),
) -> ScalingCurve:
    """Return the curve of (devices, value) pairs, in samples per second, seconds, samples and kWh.

    >>> curve = curve_from_numbers([(1, 240.0), (2, 464.0)], scaling="weak")
    >>> round(curve.points[1].efficiency.value, 3)
    0.967
    """
    columns = {
        "throughput": _checked_column("throughput", throughputs),
        "time": _checked_column("time", times),
        "samples": _checked_column("samples", samples),
        "energy": _checked_column("energy", energies),
    }
    check_table_options(scaling, devices_per_node)
    device_counts = sorted({*columns["throughput"], *columns["time"]})
    if not device_counts:
        raise SpecError("a curve needs at least one number", hint=HEADER_HINT)
    points = []
    for devices in device_counts:
        nodes = -(-devices // devices_per_node) if devices_per_node else None  # Rounded up.
        rate, seconds, work, kwh = (column.get(devices) for column in columns.values())
        points.append(
            make_point(
                devices,
                nodes,
                throughput=Estimate(rate) if rate else None,
                time=Estimate(seconds) if seconds else None,
                samples=work,
                energy=Estimate(kwh * JOULES_PER_UNIT["kWh"]) if kwh else None,
            )
        )
    curve = ScalingCurve(
        study=name, points=tuple(points), scaling=scaling, devices_per_node=devices_per_node
    )
    return compare(curve)  # Adds speedup and efficiency relative to the first point.


def check_table_options(scaling: str | None, devices_per_node: int | None) -> None:
    """Refuse a wrong scaling or number of devices per node."""
    if scaling not in (None, "weak", "strong"):
        raise SpecError(
            f"scaling must be weak or strong, got {shown(scaling)}", hint="leave it out if unknown"
        )
    if devices_per_node is not None and not 1 <= devices_per_node <= MAX_DEVICES:
        limit = "at least 1" if devices_per_node < 1 else f"at most {MAX_DEVICES:,}"
        raise SpecError(
            f"devices per node must be {limit}, got {shown(devices_per_node)}",
            hint="leave it out if unknown",
        )


def make_point(  # noqa: PLR0913 - one parameter per quantity
    devices: int,
    nodes: int | None,
    *,
    throughput: Estimate | None,
    time: Estimate | None,
    samples: float | None,
    energy: Estimate | None,
    epoch_time: Estimate | None = None,
    global_batch: float | None = None,
) -> Point:
    """Return a point, not yet compared; its throughput follows from time and samples if needed."""
    if throughput is None and time and samples:
        work = samples
        throughput = time.through(lambda seconds: work / seconds)
    watts = energy.value / (time.value * devices) if energy and time else None
    return Point(
        devices=devices,
        nodes=nodes,
        throughput=throughput,
        throughput_per_device=throughput and throughput.through(lambda rate: rate / devices),
        time=time,
        epoch_time=epoch_time,
        samples=round(samples) if samples else None,
        energy=energy,
        energy_covers="as given" if energy else None,
        power=Estimate(watts) if watts else None,
        global_batch=round(global_batch) if global_batch else None,
    )


def _checked_column(name: str, pairs: Iterable[tuple[int, float]]) -> dict[int, float]:
    column: dict[int, float] = {}
    for devices, value in pairs:
        if not _is_number(devices) or devices != int(devices) or devices < 1:
            raise SpecError(
                f"devices must be a whole number from 1 up, got {shown(devices)}",
                hint="for example (8, 1668.0)",
            )
        if devices in column:
            raise SpecError(
                f"devices = {devices} appears twice", hint="keep one row per number of devices"
            )
        if not _is_number(value) or not MIN_VALUE <= value <= MAX_VALUE:
            is_above = _is_number(value) and value > 0
            limit = f" from {MIN_VALUE:g} to {MAX_VALUE:g}" if is_above else " above 0"
            raise SpecError(
                f"{name} on {devices} devices must be a number{limit}, got {shown(value)}",
                hint="leave a point out where it is not known",
            )
        column[int(devices)] = float(value)
    return column


def _is_number(value: object) -> bool:
    """Say whether a value is a finite number of a Python or numpy type."""
    return (
        isinstance(value, (SupportsFloat, SupportsIndex))
        and not isinstance(value, (bool, str))
        and math.isfinite(float(value))
    )
