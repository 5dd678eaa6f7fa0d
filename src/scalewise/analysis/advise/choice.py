"""How many devices to use for a purpose: the best scale, its neighbours and the reason.

A scale is a number of devices with its expected time, cost and energy.

    device-hours = devices × time / 3600        cost = device-hours × price

A scale serves a purpose if its expected values meet all limits; the goal ranks such scales.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real

from scipy.special import ndtr

from scalewise.analysis.advise.break_even import BreakEven, break_even
from scalewise.analysis.advise.candidates import candidate_scales
from scalewise.analysis.advise.conditions import Conditions, ResolvedConditions
from scalewise.analysis.advise.diminishing_returns import (
    DiminishingReturns,
    find_diminishing_returns,
)
from scalewise.analysis.advise.packing import Packing, pack_runs
from scalewise.analysis.advise.purpose import GOALS, Limit, Purpose
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.cost.energy_use import Power, power_of
from scalewise.analysis.cost.rates import Rate, price_of, same_money
from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.measure.estimate import student_t_quantile
from scalewise.analysis.predict import Prediction, predict
from scalewise.errors import NotEnoughData, SpecError, parameter

DOUBLINGS_AHEAD = 2
"""Doublings beyond the largest measurement that are candidates by default."""
TIE_TOLERANCE = 0.01
"""Scales within this fraction of the best are equally good: the smallest of them is chosen."""
INTERVAL_SIGMAS = student_t_quantile(10**6)  # So many degrees of freedom: a normal distribution.
"""Standard deviations from the middle of a 90 % interval to its end."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The scale to use for a purpose, with everything it was chosen from."""

    purpose: Purpose
    prediction: Prediction
    scales: tuple[Scale, ...]
    """All candidates, from few devices to many."""
    chosen: Scale | None
    """The scale that serves the purpose best; None if no candidate meets all limits."""
    closest: Scale
    """The chosen scale or, if there is none, the one that misses limits by the smallest factor."""
    returns: DiminishingReturns
    """Where more devices stop paying, and why."""
    conditions: ResolvedConditions
    """What was assumed about the quality target, interruptions and the queue."""
    power: Power | None = None
    """The power model used for energy; None where unknown."""
    rate: Rate | None = None
    """The price of one device-hour and its source."""
    worth: BreakEven | None = None
    """What would make ``worth`` devices worthwhile; None if the user did not ask."""
    runs: Packing | None = None
    """How to place ``runs`` equal runs on the devices; None if the user did not ask."""
    reason: str = ""
    """Why this scale was chosen. ``api.advise`` fills in this and the next two fields."""
    sentences: tuple[str, ...] = ()
    """The reason, the neighbours, where returns diminish, and what to measure next."""
    warnings: tuple[str, ...] = ()
    """What limits the trust in this advice."""

    @property
    def price(self) -> float | None:
        """The price of one device-hour as a plain number."""
        return self.rate.per_device_hour if self.rate else None

    @property
    def curve(self) -> ScalingCurve:
        return self.prediction.curve

    @property
    def not_correct(self) -> tuple[str, ...]:
        """What is wrong in the measured training, by the checks of `explain`; empty if nothing."""
        return self.curve.not_correct

    @property
    def smaller(self) -> Scale | None:
        """The candidate with the next fewer devices than ``closest``."""
        return next((s for s in self.scales[::-1] if s.devices < self.closest.devices), None)

    @property
    def larger(self) -> Scale | None:
        """The candidate with the next more devices than ``closest``."""
        return next((s for s in self.scales if s.devices > self.closest.devices), None)

    @property
    def pareto(self) -> tuple[Scale, ...]:
        """Scales that no other scale equals or beats in both time and device-hours."""
        pairs = {scale.devices: (scale.slowness, scale.device_time) for scale in self.scales}
        return tuple(
            scale
            for scale in self.scales
            if not any(
                slowness <= scale.slowness and device_time <= scale.device_time
                # Scales with the same pair of values do not exclude each other.
                for slowness, device_time in set(pairs.values()) - {pairs[scale.devices]}
            )
        )

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def advise(  # noqa: PLR0913 - one parameter per question
    curve: ScalingCurve,
    purpose: Purpose,
    at: Iterable[int] = (),
    *,
    price: Rate | float | str | None = None,
    watts: float | None = None,
    device: str | None = None,
    whole_nodes: bool = False,
    conditions: Conditions | None = None,
    worth: int | None = None,
    runs: int | None = None,
    exactly: Iterable[int] = (),
) -> Advice:
    """Return how many devices serve a purpose best; ``api.advise`` explains the parameters.
    If ``exactly`` is given, only these numbers of devices are considered.
    """
    rate = None if price is None else price_of(price)
    prediction = predict(curve, list(exactly) or _candidate_counts(curve, list(at)))
    resolved = (conditions or Conditions()).resolve(prediction)
    power = power_of(curve, watts, device)
    candidates = candidate_scales(prediction, resolved, rate, power, whole_nodes=whole_nodes)
    for limit in purpose.limits:
        _require_quantity(limit, candidates, rate)
    scales = tuple(replace(scale, chance=_chance(scale, purpose)) for scale in candidates)
    feasible = [scale for scale in scales if _excess(scale, purpose) <= 0]
    if feasible:
        goal = GOALS[purpose.objective(scales)]
        best = min(map(goal, feasible))
        ties = [scale for scale in feasible if goal(scale) <= best * (1 + TIE_TOLERANCE)]
        closest = min(ties, key=lambda scale: scale.devices)
    else:
        closest = min(scales, key=lambda scale: _excess(scale, purpose))
    return Advice(
        purpose=purpose,
        prediction=prediction,
        scales=scales,
        chosen=closest if feasible else None,
        closest=closest,
        returns=find_diminishing_returns(prediction, scales, same_job=resolved.same_job),
        conditions=resolved,
        power=power,
        rate=rate,
        worth=None if worth is None else break_even(curve, worth, purpose),
        runs=None if runs is None else pack_runs(runs, scales),
    )


def stop_advice(
    curve: ScalingCurve, purpose: Purpose, larger: Sequence[int], *, price: Rate | None = None
) -> Advice | None:
    """Return the advice if measuring can stop. Return None if fewer than two scales were measured,
    or if the advice chooses one of the ``larger`` numbers of devices, which were not measured.
    """
    measured = {point.devices for point in curve.points}
    if len(measured) < 2:
        return None
    advice = advise(curve, purpose, exactly=[*measured, *larger], price=price)
    # Measuring can also stop if no scale, measured or predicted, serves the purpose.
    return None if advice.chosen and not advice.chosen.measured else advice


def _candidate_counts(curve: ScalingCurve, at: Sequence[int]) -> list[int]:
    """Return the measured counts, ``at``, and doublings from the largest measured up to ``at``."""
    measured = {point.devices for point in curve.points}
    if len(measured) < 2:
        raise NotEnoughData(
            f"advice needs measurements on 2 numbers of devices, got {len(measured)}",
            hint="measure one more, twice as large as the largest",
        )
    largest = max(measured)
    # Values of ``at`` that are no counts are refused later, by predict().
    finite_at = [int(count) for count in at if isinstance(count, Real) and math.isfinite(count)]
    last_count = max(finite_at, default=largest * 2**DOUBLINGS_AHEAD)
    # bit_length() is log2, rounded down, + 1: the end of the range is excluded.
    doublings = [largest * 2**step for step in range(1, (last_count // largest).bit_length())]
    return [*measured, *doublings, *at]


def _require_quantity(limit: Limit, scales: Sequence[Scale], rate: Rate | None) -> None:
    """Refuse a limit on a quantity that is unknown for some scale."""
    require_price(limit, rate)
    if all(limit.quantity(scale) is not None for scale in scales):
        return
    if limit.name == "energy" and all(scale.time for scale in scales):
        raise SpecError(
            f"{limit} cannot be checked: no energy was measured",
            hint=f"give {parameter('watts', 700)}, or {parameter('device', 'h100')}",
        )
    # Throughput and efficiency have lower bounds; the other limited quantities need a time.
    if limit.kind.is_lower_bound:
        problem, remedy = "there is no throughput for some scale", "add a `throughput` column"
    else:
        problem = "there is no time for some scale, or the scales did not do the same work"
        remedy = "measure equal epochs, add a `time` column"
    raise SpecError(
        f"{limit} cannot be checked: {problem}", hint=f"{remedy}, or choose another purpose"
    )


def require_price(limit: Limit, rate: Rate | None) -> None:
    """Refuse a limit on money without a price, or with a price in another currency."""
    if limit.kind.quantity == "cost" and rate is None:
        raise SpecError(
            f"{limit} needs the price of one device for one hour",
            hint=f"give {parameter('price', 2.5)} or {parameter('price', 'aws:p5.48xlarge')}",
        )
    currency = rate.currency if rate else None
    if limit.unit and rate and currency and not same_money(limit.unit, currency):
        raise SpecError(
            f"{limit} is not in {currency}, the currency of the price of {rate.name}",
            hint=f"there are no exchange rates: give the cost in {currency}",
        )


def _excess(scale: Scale, purpose: Purpose) -> float:
    """Return the log of the largest factor by which a scale misses a limit; ≤ 0 if it meets all."""
    excess = -math.inf
    for limit in purpose.limits:
        value = limit.quantity(scale)
        assert value is not None  # _require_quantity() refused unknown quantities.
        log_ratio = math.log(value.value / limit.bound)
        excess = max(excess, -log_ratio if limit.kind.is_lower_bound else log_ratio)
    return excess


def _chance(scale: Scale, purpose: Purpose) -> float | None:
    """Return the chance to meet all limits: that of the hardest, as they mostly fail together."""
    chances = [
        chance(value, limit.bound, is_lower_bound=limit.kind.is_lower_bound)
        for limit in purpose.limits
        if (value := limit.quantity(scale))
    ]
    known_chances = [limit_chance for limit_chance in chances if limit_chance is not None]
    return min(known_chances, default=None) if len(known_chances) == len(chances) else None


def chance(value: Estimate, bound: float, *, is_lower_bound: bool) -> float | None:
    """Return the chance that a log-normal value meets a limit; None if it has no interval.

    >>> round(chance(Estimate(100.0, 80.0, 125.0), 125.0, is_lower_bound=False), 3)
    0.95
    """
    if value.low is None or value.high is None or value.low <= 0:
        return None
    margin = math.log(bound / value.value)
    # The interval may be asymmetric: take the half on the side of the bound.
    half_width = math.log(value.high / value.value if margin > 0 else value.value / value.low)
    if half_width <= 0:  # The value has no error on this side.
        return float(margin <= 0 if is_lower_bound else margin >= 0)
    chance_below = float(ndtr(margin * INTERVAL_SIGMAS / half_width))
    return 1 - chance_below if is_lower_bound else chance_below
