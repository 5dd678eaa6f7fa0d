"""Doubts about numbers of devices that were not measured: their batch, and how far they lie beyond
the measurements.
"""

import math
from collections.abc import Collection

from scalewise.analysis.measure import Doubt, ScalingCurve
from scalewise.analysis.measure.curve import partly_filled_nodes
from scalewise.analysis.measure.doubt import UNKNOWN_ERROR

ERROR_PER_DOUBLING = 0.05
"""Relative error added for each doubling beyond what the measurements carry."""


def extrapolation_doubts(curve: ScalingCurve, counts: Collection[int]) -> tuple[Doubt, ...]:
    """Return the doubts about predicting these numbers of devices from a curve."""
    measured = {point.devices for point in curve.points}
    span = max(measured) / min(measured)
    batch = fixed_global_batch(curve)
    doubts = []
    for count in sorted(counts):
        if count in measured:
            continue
        reach = count / max(measured)
        if batch and count > batch:
            doubts.append(Doubt("batch too small", {"batch": batch, "predicted": count}, count))
        elif batch and batch % count:
            figures = {"batch": batch, "predicted": count}
            doubts.append(Doubt("uneven batch", figures, count, UNKNOWN_ERROR))
        # Measurements from 1 to N devices carry a prediction up to N times N.
        if reach > max(span, 1.0):
            error = ERROR_PER_DOUBLING * math.log2(reach / span)
            distance = {"predicted": count, "reach": reach, "span": span}
            doubts.append(Doubt("far extrapolation", distance, count, error))
    beyond = [count for count in sorted(counts) if count not in measured]
    return (*doubts, *partly_filled_nodes(curve.devices_per_node, beyond))


def fixed_global_batch(curve: ScalingCurve) -> int | None:
    """Return the global batch of strong scaling, which all devices share; None if it is unknown, or
    if measured points have less than one sample per device, as ranks that split a model do.
    """
    batch = curve.baseline.global_batch
    is_split = any(
        point.global_batch and point.global_batch < point.devices for point in curve.points
    )
    return batch if curve.scaling == "strong" and batch and not is_split else None
