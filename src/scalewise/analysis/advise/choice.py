"""How many devices to use for a purpose: the best scale, its neighbours and the reason.

A scale is a number of devices with its expected time, cost and energy.

    device-hours = devices × time / 3600        cost = device-hours × price

A scale serves a purpose if its expected values meet all limits; the goal ranks such scales. Only
measured scales are recommended. The best predicted scale is reported beside them if users ask.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from scipy.special import ndtr

from scalewise.analysis.advise.best_scale import best_scale, excess, pareto_front
from scalewise.analysis.advise.break_even import BreakEven, break_even
from scalewise.analysis.advise.candidates import batch_limit, candidate_counts, candidate_scales
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
from scalewise.analysis.full_run import per_unit_of_work
from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.measure.estimate import student_t_quantile
from scalewise.analysis.predict import Prediction, predict
from scalewise.errors import SpecError, parameter

WHOLE_JOB_QUANTITIES = ("time", "device_hours", "cost", "energy")
"""Quantities of a purpose that grow with the length of the training."""
INTERVAL_SIGMAS = student_t_quantile(10**6)  # So many degrees of freedom: a normal distribution.
"""Standard deviations from the middle of a 90 % interval to its end."""


@dataclass(frozen=True, kw_only=True)
class Beyond:
    """A predicted scale that would serve the purpose better than every measured one."""

    scale: Scale
    saved: Estimate
    """Share of the time of ``Advice.closest`` that it saves; below 0 if it takes longer."""
    added_device_hours: float
    """Device-hours that it takes more than ``Advice.closest``, as a share of those."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The scale to use for a purpose, with everything it was chosen from."""

    purpose: Purpose
    prediction: Prediction
    scales: tuple[Scale, ...]
    """All candidates, from few devices to many."""
    choices: tuple[Scale, ...]
    """The candidates that may be chosen: the measured ones."""
    chosen: Scale | None
    """The choice that serves the purpose best; None if no choice meets all limits."""
    beyond: Beyond | None = None
    """The predicted scale that would serve the purpose better than all choices, if there is one."""
    batch_limit: int | None = None
    """The most devices that the global batch can feed, one sample each; None if unknown."""
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
        return pareto_front(self.scales, lambda scale: scale.device_time)

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def advise(  # noqa: PLR0913 - one parameter per question
    curve: ScalingCurve,
    purpose: Purpose,
    at: Iterable[int] = (),
    *,
    up_to: int | None = None,
    price: Rate | float | str | None = None,
    watts: float | None = None,
    device: str | None = None,
    whole_nodes: bool = False,
    conditions: Conditions | None = None,
    worth: int | None = None,
    runs: int | None = None,
    exactly: Iterable[int] = (),
    as_measured: bool = False,
) -> Advice:
    """Return how many devices serve a purpose best; ``api.advise`` explains the parameters.
    If ``exactly`` is given, only these numbers of devices are considered, and predicted ones may be
    chosen like measured ones. A rehearsal without a full run is answered per unit of work, unless
    ``as_measured``.
    """
    rate = None if price is None else price_of(price)
    conditions = conditions or Conditions()
    measured_curve = curve
    if not as_measured and conditions.target is None:  # A target has its own amount of work.
        curve = per_unit_of_work(curve)
        if curve.unit_of_work:
            require_full_run(purpose, conditions)
    fed, exact_counts = batch_limit(curve, conditions.records), list(exactly)
    prediction = predict(curve, exact_counts or candidate_counts(curve, at, up_to, fed))
    resolved = conditions.resolve(prediction)
    power = power_of(curve, watts, device)
    candidates = candidate_scales(prediction, resolved, rate, power, whole_nodes=whole_nodes)
    for limit in purpose.limits:
        _require_quantity(limit, candidates, rate)
    scales = tuple(replace(scale, chance=_chance(scale, purpose)) for scale in candidates)
    choices = tuple(scale for scale in scales if scale.measured or exact_counts)
    goal = GOALS[purpose.objective(scales)]
    chosen = best_scale(choices, purpose, goal)
    closest = chosen or min(choices, key=lambda scale: excess(scale, purpose))
    # Of equally good scales the smallest is taken: a predicted one must be better by a margin.
    best = best_scale(scales, purpose, goal)
    return Advice(
        purpose=purpose,
        prediction=prediction,
        scales=scales,
        choices=choices,
        chosen=chosen,
        beyond=_beyond(best, closest) if best and best not in choices else None,
        batch_limit=fed,
        closest=closest,
        returns=find_diminishing_returns(prediction, scales, same_job=resolved.same_job),
        conditions=resolved,
        power=power,
        rate=rate,
        worth=None if worth is None else break_even(measured_curve, worth, purpose),
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
    advice = advise(curve, purpose, exactly=[*measured, *larger], price=price, as_measured=True)
    # Measuring can also stop if no scale, measured or predicted, serves the purpose.
    return None if advice.chosen and not advice.chosen.measured else advice


def _beyond(scale: Scale, measured: Scale) -> Beyond:
    """Compare a predicted scale with the measured one that is advised, or closest."""
    time = scale.time or scale.throughput
    assert time is not None  # Every scale has a time or a throughput.
    if scale.time is None:
        time = time.through(lambda rate: 1 / rate)
    return Beyond(
        scale=scale,
        saved=time.through(lambda seconds: 1 - seconds / measured.slowness),
        added_device_hours=scale.device_time / measured.device_time - 1,
    )


def require_full_run(purpose: Purpose, conditions: Conditions | None = None) -> None:
    """Refuse what needs the length of the whole training, which a rehearsal does not have."""
    asked = [str(limit) for limit in purpose.limits if limit.kind.quantity in WHOLE_JOB_QUANTITIES]
    waits = ("wait", "interrupted_every") if conditions else ()
    asked += [parameter(name) for name in waits if getattr(conditions, name) is not None]
    if asked:
        raise SpecError(
            f"{asked[0]} is about a whole training, and these runs were rehearsals of one",
            hint=f"say how long it is, for example {parameter('full_run', '90 epochs')}",
        )


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
