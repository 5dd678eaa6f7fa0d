"""Sentences about measured curves: how they were measured, and faults in their training."""

from collections.abc import Sequence

from scalewise.analysis.measure import Point, ScalingCurve
from scalewise.analysis.number_format import format_count, format_rounded
from scalewise.report.tables import number
from scalewise.report.text.doubts import warning_text

COVERAGE_TEXT = {
    "accelerators": "energy is that of the accelerators alone, without their hosts",
    "processors": "energy is that of the hosts' processors, with all that ran on them",
    "as given": "energy is as the table gives it",
}
"""By value of ``Point.energy_covers``: the sentence that says what an energy includes."""


def curve_lines(curve: ScalingCurve) -> list[str]:
    """Return how a curve was measured, what it is compared with, and what its metrics cover."""
    fixed = {"weak": "batch per device fixed", "strong": "global batch fixed"}
    scaling = (
        f"{curve.scaling} scaling ({fixed[curve.scaling]})" if curve.scaling else "scaling unknown"
    )
    work = curve.work or ("as given" if curve.baseline.samples else "taken as equal")
    lines = [
        f"{scaling}; work: {work}",
        f"compared with {format_count(curve.baseline.devices, 'device')}; intervals are 90 %",
    ]
    if not has_efficiency([curve]):  # The study compares kinds of devices, not their number.
        lines = [f"work: {work}", "intervals are 90 %"]
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
    return [*lines, *_metric_lines(curve.points)]


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


def correctness_alerts(curve: ScalingCurve) -> list[str]:
    """Return lines to print before a result if the training of its runs was not correct."""
    lines = [f"not correct: {sentence}" for sentence in curve.not_correct]
    return [*lines, "  hint: fix this first; `scalewise explain` shows how"] if lines else []


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
