"""Whether a larger scale of a study can still serve its purpose better, or the study may stop.

By expected values: a larger scale pays if it would be chosen over all measured scales, by
the goal of the purpose. Where no scale meets the purpose, none pays.
"""

from collections.abc import Sequence

from scalewise.analysis.advise import advice_text
from scalewise.analysis.advise.choice import among
from scalewise.analysis.advise.purpose import Purpose
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.measure import ScalingCurve


def stop_reason(
    curve: ScalingCurve, purpose: Purpose, ahead: Sequence[int], *, price: Rate | None = None
) -> str:
    """Say why no scale ``ahead`` would serve better than the measured ones; empty if one would.

    All numbers of devices ``ahead`` are larger than the measured ones. The answer needs two
    measured scales; with fewer, the study continues.
    """
    measured = {point.devices for point in curve.points}
    if len(measured) < 2:
        return ""
    advice = among(curve, purpose, [*measured, *ahead], price=price)
    if advice.chosen and not advice.chosen.measured:
        return ""
    return advice_text.stop_sentence(advice, max(measured))
