"""What a device does of the model's own operations, in a sentence."""

from scalewise.analysis.measure import Point
from scalewise.analysis.measure.mfu import flops_unit
from scalewise.analysis.number_format import format_rounded


def mfu_sentence(point: Point) -> str | None:
    """Say how many operations a device does, and which share of its peak that is."""
    if point.flops_per_second is None:
        return point.mfu_unknown
    size, unit = flops_unit(point.flops_per_second.value)
    who = "a device" if point.devices == 1 else f"each of {point.devices:,} devices"
    done = (
        f"{who} does {format_rounded(point.flops_per_second.value / size)} {unit} of the model's "
        "own "
        "operations"
    )
    if point.mfu is None or point.peak is None:
        return f"{done}; MFU is not known: {point.mfu_unknown}"
    size, unit = flops_unit(point.peak)
    return (
        f"{done}, {100 * point.mfu.value:.1f} % of its {format_rounded(point.peak / size)} {unit} "
        "(MFU; "
        f"{point.peak_source})"
    )
