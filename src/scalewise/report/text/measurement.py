"""Sentences about measured curves: how they were measured, and faults in their training."""

from collections.abc import Sequence

from scalewise.analysis.measure import Point, ScalingCurve
from scalewise.analysis.measure.curve import time_efficiency
from scalewise.analysis.number_format import format_count, format_percent, format_rounded
from scalewise.errors import parameter
from scalewise.report.tables import number
from scalewise.report.text.doubts import warning_text
from scalewise.report.text.read_as import read_as_lines

COVERAGE_TEXT = {
    "accelerators": "energy is that of the accelerators alone, without their hosts",
    "processors": "energy is that of the hosts' processors, with all that ran on them",
    "as given": "energy is as the table gives it",
}
"""By value of ``Point.energy_covers``: the sentence that says what an energy includes."""

MIN_EFFICIENCY_DIFFERENCE = 0.05
"""Efficiencies by throughput and by complete time that differ by less are not both named."""
INTERVAL_NOTE = "± is half of the 90 % interval"


def curve_lines(curve: ScalingCurve, *, intervals: bool = True) -> list[str]:
    """Return how a curve was measured, what it is compared with, and what its metrics cover.

    ``intervals`` says whether its tables show any.
    """
    fixed = {"weak": "batch per device fixed", "strong": "global batch fixed"}
    scaling = (
        f"{curve.scaling} scaling ({fixed[curve.scaling]})" if curve.scaling else "scaling unknown"
    )
    work = curve.work or ("as given" if curve.baseline.samples else "taken as equal")
    baseline = f"compared with {format_count(curve.baseline.devices, 'device')}"
    lines = [f"{scaling}; work: {work}", baseline]
    if not has_efficiency([curve]):  # The study compares kinds of devices, not their number.
        lines = [f"work: {work}"]
    elif efficiencies := two_efficiencies(curve):
        lines.append(efficiencies)
    if intervals:
        lines.append(INTERVAL_NOTE)
    if line := full_run_line(curve):
        lines.append(line)
    one_node = [point.devices for point in curve.points if point.nodes == 1]
    several = [point.devices for point in curve.points if point.nodes and point.nodes > 1]
    if one_node and several:
        largest = format_count(max(one_node), "device")
        lines.append(f"up to {largest} on one node, from {min(several)} on several")
    if curve.baseline.overhead is not None:
        basis = "" if curve.baseline.complete else " (from time = fixed + work/throughput)"
        turn = curve.turns_at
        dominates = (
            f"dominates from {format_count(turn, 'device')} on" if turn else "never dominates here"
        )
        lines.append(f"overhead {dominates}{basis}")
    return [*lines, *_metric_lines(curve.points), *read_as_lines(curve)]


def full_run_line(curve: ScalingCurve) -> str | None:
    """Return for which training the times are; None for those of the measured runs."""
    base, full_run = curve.baseline, curve.full_run
    if full_run is None:
        return rehearsal_line(curve) if curve.rehearsal else None
    samples = f"{base.samples:,} {curve.unit}" if base.samples else ""
    if full_run.unit == "steps":
        samples = (
            f"of {base.global_batch:,} {curve.unit}, as on {format_count(base.devices)}: {samples} "
            "on any number"
        )
    text = full_run.text
    if full_run.unit == "x":
        text = f"{text.removesuffix('x')} times the measured work"
    length = f"{text} ({samples})" if samples and full_run.unit != "samples" else text
    basis = "start-up once, then the measured rate"
    if any(doubt.kind == "start unknown" for doubt in curve.doubts):
        basis = (
            "at the measured rate, without start-up, which is not known"
            if any(point.complete for point in curve.points)
            else "the table's times are multiplied as they are, because their start-up is not known"
        )
    return f"times are for the full run of {length}: {basis}"


def rehearsal_line(curve: ScalingCurve) -> str:
    """Return that the runs were rehearsals, and what their times are for."""
    rehearsal = curve.rehearsal
    assert rehearsal is not None  # Only called for a rehearsal.
    share = rehearsal.start_share
    start = f"; start-up {format_percent(share, 0)} of the time" if share else ""
    unit = curve.unit_of_work
    times = f"per {unit}, without start-up" if unit else "those of the rehearsal"
    length = "90 epochs" if curve.samples_per_epoch else f"1e9 {curve.unit}"
    example = parameter("full_run", length)
    return (
        f"these runs were rehearsals ({rehearsal.work}{start}): times are {times}; for the whole "
        f"training add {example}"
    )


def _metric_lines(points: Sequence[Point]) -> list[str]:
    """Return what energy covers, and which peak MFU is a share of, or why MFU is unknown."""
    covered = dict.fromkeys(point.energy_covers for point in points if point.energy)
    lines = [COVERAGE_TEXT[coverage] for coverage in covered if coverage]
    peaks = dict.fromkeys((p.peak, p.peak_source) for p in points if p.peak)
    lines += [
        f"MFU is a share of {number(peak / 1e12)} TFLOP/s, {source}" for peak, source in peaks
    ]
    unknown = dict.fromkeys(warning_text(p.mfu_unknown) for p in points if p.mfu_unknown)
    lines += [f"MFU is not known: {reason}" for reason in unknown]
    return lines


def has_efficiency(curves: Sequence[ScalingCurve]) -> bool:
    """Return whether any curve has several numbers of devices to compare."""
    return any(point.efficiency for curve in curves for point in curve.points)


def has_throughput(curve: ScalingCurve) -> bool:
    """Return whether throughput is known; if not, efficiency is by complete time."""
    return any(point.throughput for point in curve.points)


def efficiency_basis(curve: ScalingCurve) -> str:
    """Say what efficiency is computed from."""
    return f"efficiency is by {'throughput' if has_throughput(curve) else 'complete time'}"


def two_efficiencies(curve: ScalingCurve, devices: int | None = None) -> str:
    """Return the efficiency by throughput and by complete time, on ``devices`` or else on the most;
    empty if they hardly differ.
    """
    for point in reversed(curve.points):
        by_time = time_efficiency(curve, point)
        if not (has_throughput(curve) and point.efficiency and by_time):
            continue
        if devices not in (None, point.devices):
            continue
        steps, complete = point.efficiency.value, by_time.value
        if abs(steps - complete) < MIN_EFFICIENCY_DIFFERENCE:
            return ""
        time = "complete time (with start-up)"
        if curve.unit_of_work:
            time = f"time per {curve.unit_of_work} (with validation and checkpoints)"
        return (
            f"on {format_count(point.devices)}, efficiency is {format_percent(steps)} by "
            f"throughput (training steps alone) and {format_percent(complete)} by {time}"
        )
    return ""


def acceleration_lines(curves: Sequence[ScalingCurve]) -> list[str]:
    """Return how much faster one kind of device is than another, and a baseline CPU's threads."""
    compared = [point for curve in curves for point in curve.points if point.acceleration]
    lines = [
        f"acceleration {format_rounded(point.acceleration.value)} x: {point.device_label} against "
        f"{point.accelerated_from}, by throughput"
        for point in compared
        if point.acceleration
    ]
    baselines = {point.accelerated_from for point in compared}
    threads = {
        curve.conditions.get("threads")
        for curve in curves
        if any(p.device_name == "cpu" and p.device_label in baselines for p in curve.points)
    }
    lines += [f"the CPU used {format_count(count, 'thread')}" for count in threads if count]
    return lines
