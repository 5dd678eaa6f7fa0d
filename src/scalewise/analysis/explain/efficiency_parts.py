"""Parts of the ideal speed: what is left as efficiency, and what each cause takes."""

import math

from scalewise.analysis.explain.breakdown import Breakdown
from scalewise.record.schema import UNEXPLAINED

EFFICIENCY = "efficiency"
MIN_SHARE = 1e-9
"""Smaller parts are rounding errors."""


def efficiency_parts(breakdown: Breakdown) -> dict[str, float]:
    """Return ``efficiency`` and, by cause, the share of ideal scaling that the cause takes.

    The parts sum to 1, or to the efficiency if that is above 1. Efficiency is a product of factors,
    so the loss 1 − E is divided in proportion to −ln(factor). Causes that improved on the baseline
    take nothing. What no known factor explains is ``unexplained``. Empty if E is unknown.
    """
    efficiency = breakdown.efficiency
    if efficiency is None or not 0 < efficiency < math.inf:
        return {}
    losses = {
        cause: -math.log(factor)
        for cause, factor in breakdown.factors.items()
        if factor is not None and factor > 0
    }
    losses[UNEXPLAINED] = -math.log(efficiency) - sum(losses.values())
    positive = {cause: loss for cause, loss in losses.items() if loss > MIN_SHARE}
    total = sum(positive.values())
    lost = max(1 - efficiency, 0.0)
    shares = {cause: lost * loss / total for cause, loss in positive.items()} if lost else {}
    return {EFFICIENCY: efficiency} | {c: share for c, share in shares.items() if share > MIN_SHARE}
