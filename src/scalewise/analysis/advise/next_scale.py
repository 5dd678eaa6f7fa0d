"""Whether the next larger scale of a study still serves its purpose, or the study may stop.

By expected values: a larger scale pays while it would be chosen over all that
were measured, by the purpose's own goal. Where no scale meets the purpose, none
pays.
"""

from collections.abc import Sequence

from scalewise.analysis.advise import advice_text
from scalewise.analysis.advise.choice import Advice, among
from scalewise.analysis.advise.purpose import Purpose
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.number_format import format_count, format_estimate


def enough(
    curve: ScalingCurve, purpose: Purpose, ahead: Sequence[int], *, price: Rate | None = None
) -> str:
    """Say why no scale ``ahead`` would serve better than what was measured; nothing if one would.

    All of them are larger than what was measured. Two measured scales are needed to
    tell; with fewer, the study goes on.
    """
    measured = {point.devices for point in curve.points}
    if len(measured) < 2:
        return ""
    found = among(curve, purpose, [*measured, *ahead], price=price)
    if found.chosen and not found.chosen.measured:
        return ""
    return _why(found, max(measured))


def _why(found: Advice, largest: int) -> str:
    """Say what the next scale would give, and what serves the purpose instead."""
    following = next(scale for scale in found.scales if scale.devices > largest)
    before = next(scale for scale in found.scales if scale.devices == largest)
    time = _change(following.slowness / before.slowness)
    spent = _change(following.spent / before.spent)
    if following.time:
        gives = f"take {format_estimate(following.time)} s, {time}, for {spent} device-hours"
    else:
        assert following.throughput is not None  # One of the two is what a scale is weighed by.
        rate = f"{format_estimate(following.throughput)} {found.curve.unit} per second"
        gives = f"do {rate}, in {time} time for {spent} device-hours of the same work"
    if following.efficiency:
        gives += f", at an efficiency of {advice_text.percent(following.efficiency.value)}"
    return (
        f"{found.curve.name}: stopped after {format_count(largest)}: {following.devices:,} are "
        f"predicted to {gives}{advice_text.odds(following)}. {found.reason}"
    )


def _change(ratio: float) -> str:
    """Return a ratio as a person would say it.

    >>> _change(0.97), _change(1.93)
    ('3 % less', '93 % more')
    """
    return f"{advice_text.percent(abs(ratio - 1), 0)} {'less' if ratio < 1 else 'more'}"
