"""How many devices to use for a purpose: the scale that serves it, its neighbours, the reason.

Every scale that was measured or can be predicted is weighed by what it takes:

    device-hours = devices × time / 3600        cost = device-hours × price
    energy: as it was measured, or as ``power`` has it

A scale serves a purpose if its expected values keep all limits; the chance that
it really does is read from its interval, taken as log-normal.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real

from scipy.special import ndtr

from scalewise.analysis.advise import advice_text
from scalewise.analysis.advise.break_even import Worthwhile, worthwhile
from scalewise.analysis.advise.candidates import scales_of
from scalewise.analysis.advise.conditions import Conditions, Settled
from scalewise.analysis.advise.diminishing_returns import Returns, returns
from scalewise.analysis.advise.packing import Runs, many_runs
from scalewise.analysis.advise.purpose import Limit, Purpose
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.cost.energy_use import Power, power_of
from scalewise.analysis.cost.rates import Rate, price_of, same_money
from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.measure.estimate import student_t_quantile
from scalewise.analysis.number_format import format_count
from scalewise.analysis.predict import Prediction, predict
from scalewise.analysis.predict.prediction_text import next_measurement
from scalewise.errors import NotEnoughData, SpecError

AHEAD = 2
"""Doublings beyond the largest measurement that are weighed if nothing else is asked."""
ALIKE = 0.01
"""Of scales that differ by less in their goal, the one with fewer devices is preferred."""
SURE = student_t_quantile(10**6)
"""Standard deviations from the middle of a 90 % interval to its end."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to use for a purpose, with everything it was chosen from."""

    purpose: Purpose
    prediction: Prediction
    scales: tuple[Scale, ...]
    """All that were weighed, from few devices to many."""
    chosen: Scale | None
    """The scale that serves the purpose, or nothing where none does."""
    closest: Scale
    """The chosen scale; where there is none, the one that misses the purpose by least."""
    reason: str
    returns: Returns
    """Where more devices stop paying, and why."""
    conditions: Settled
    """What else the scales were weighed under: a target, interruptions, a queue."""
    power: Power | None = None
    """What energy follows from, where it is known."""
    rate: Rate | None = None
    """What one device costs for one hour, and where that is from."""
    worth: Worthwhile | None = None
    """What would make a number of devices worthwhile, where that was asked."""
    runs: Runs | None = None
    """Where many equal runs would best be placed, where that was asked."""

    @property
    def price(self) -> float | None:
        """The number alone."""
        return self.rate.per_device_hour if self.rate else None

    @property
    def curve(self) -> ScalingCurve:
        return self.prediction.curve

    @property
    def not_correct(self) -> tuple[str, ...]:
        """Why the training that was measured is not correct, if a guard says so."""
        return self.curve.not_correct

    @property
    def smaller(self) -> Scale | None:
        """The next choice with fewer devices."""
        below = [scale for scale in self.scales if scale.devices < self.closest.devices]
        return below[-1] if below else None

    @property
    def larger(self) -> Scale | None:
        """The next choice with more devices."""
        above = [scale for scale in self.scales if scale.devices > self.closest.devices]
        return above[0] if above else None

    @property
    def pareto(self) -> tuple[Scale, ...]:
        """Scales that no other beats in time and device-hours at once."""
        return tuple(
            each
            for each in self.scales
            if not any(
                other.slowness <= each.slowness
                and other.spent <= each.spent
                and (other.slowness, other.spent) != (each.slowness, each.spent)
                for other in self.scales
            )
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """The reason, the neighbours, where returns diminish, and what would make it surer."""
        told = [self.reason, *self.conditions.sentences(self.closest)]
        told += [
            advice_text.instead(way, other, self.closest)
            for other, way in ((self.smaller, "Fewer"), (self.larger, "More"))
            if other
        ]
        told += self.returns.sentences
        told += self.worth.sentences if self.worth else ()
        told += [self.runs.sentence(self.closest.devices)] if self.runs else []
        if self.power:
            told.append(self.power.says)
        if self.rate and self.rate.name:
            told.append(f"A price of {self.rate}.")
        if self.prediction.next and not self.closest.measured:
            told.append(next_measurement(self.prediction.next))
        return tuple(told)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to beware of."""
        return (
            *self.prediction.warnings,
            *self.returns.warnings,
            *self.conditions.warnings,
            *self.conditions.left_out(self.scales),
            *self._in_part(),
        )

    def _in_part(self) -> tuple[str, ...]:
        """Warn of a cost that no seller would charge: instances are rented whole."""
        whole = self.rate.devices if self.rate else None
        if not self.rate or not whole or not self.closest.charged % whole:
            return ()
        return (
            f"{self.rate.name} is rented whole, with {format_count(whole)}: {self.closest} are "
            "charged "
            "as a part of it",
        )

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def advise(  # noqa: PLR0913 - each is a question
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
) -> Advice:
    """Return how many devices serve a purpose best.

    Weighed are the measured numbers of devices and doublings beyond them: up to
    ``at``, or two. ``price`` is that of one device for one hour, or a name of
    the price list; ``watts`` is what a device draws, or ``device`` names one of the
    catalog, where no energy was measured; ``whole_nodes`` charges a node that is used
    in part as if all of it were. ``conditions`` are what else there is: a target,
    interruptions, a queue. ``worth`` asks what would make so many devices worthwhile,
    ``runs`` where so many equal runs are best placed.
    """
    return among(
        curve,
        purpose,
        _counts(curve, list(at)),
        price=price,
        watts=watts,
        device=device,
        whole_nodes=whole_nodes,
        conditions=conditions,
        worth=worth,
        runs=runs,
    )


def among(  # noqa: PLR0913 - each is a question
    curve: ScalingCurve,
    purpose: Purpose,
    counts: Iterable[int],
    *,
    price: Rate | float | str | None = None,
    watts: float | None = None,
    device: str | None = None,
    whole_nodes: bool = False,
    conditions: Conditions | None = None,
    worth: int | None = None,
    runs: int | None = None,
) -> Advice:
    """Return which of these numbers of devices serves a purpose best, and weigh no others."""
    rate = None if price is None else price_of(price)
    found = predict(curve, counts)
    settled = (conditions or Conditions()).settled(found)
    power = power_of(curve, watts, device)
    scales = scales_of(found, settled, rate, power, whole_nodes=whole_nodes)
    for limit in purpose.limits:
        _known(limit, scales, rate)
    judged = tuple(replace(scale, chance=_chance(scale, purpose)) for scale in scales)
    fit = [scale for scale in judged if all(_off(scale, limit) <= 0 for limit in purpose.limits)]
    by_energy = all(scale.energy for scale in scales)
    chosen = _best(fit, purpose, by_energy=by_energy) if fit else None
    closest = chosen or min(judged, key=lambda scale: max(_offs(scale, purpose)))
    return Advice(
        purpose=purpose,
        prediction=found,
        scales=judged,
        chosen=chosen,
        closest=closest,
        reason=advice_text.reason(chosen, purpose, judged)
        if chosen
        else advice_text.missed(closest, purpose, judged),
        returns=returns(found, judged, same_job=settled.same_job),
        conditions=settled,
        power=power,
        rate=rate,
        worth=None if worth is None else worthwhile(curve, worth, purpose),
        runs=None if runs is None else many_runs(runs, judged),
    )


def _counts(curve: ScalingCurve, at: Sequence[int]) -> list[int]:
    """Return the measured numbers of devices, what is asked for, and doublings on the way."""
    measured = {point.devices for point in curve.points}
    if len(measured) < 2:
        raise NotEnoughData(
            f"advice needs 2 numbers of devices, got {len(measured)}",
            hint="measure one more, twice as large as the largest",
        )
    largest = max(measured)
    numbers = [int(count) for count in at if isinstance(count, Real) and math.isfinite(count)]
    end = max(numbers, default=largest * 2**AHEAD)
    doublings = [largest * 2**step for step in range(1, (end // largest).bit_length())]
    return [*measured, *doublings, *at]


def _known(limit: Limit, scales: Sequence[Scale], rate: Rate | None) -> None:
    """Refuse a limit on what this curve does not tell."""
    refuse_unpriced(limit, rate)
    timed = all(scale.time for scale in scales)
    if limit.name == "energy" and timed and any(scale.energy is None for scale in scales):
        raise SpecError(
            f"{limit} cannot be told: no energy was measured",
            hint="advise takes --watts 700, or --device h100 for what it may draw at most",
        )
    if any(_value(scale, limit) is None for scale in scales):
        missing = "throughput" if limit.floor else "time of equal work"
        equal = "" if limit.floor else "equal epochs give it, "
        raise SpecError(
            f"{limit} cannot be told: there is no {missing} for every scale",
            hint=f"{equal}add a column {missing.partition(' ')[0]}, or choose another purpose",
        )


def refuse_unpriced(limit: Limit, rate: Rate | None) -> None:
    """Refuse a limit on money without a price, or with one in other money."""
    if limit.name == "cost" and rate is None:
        raise SpecError(
            f"{limit} needs the price of one device for one hour",
            hint="--price 2.50 or --price aws:p5.48xlarge; price=2.5 in Python",
        )
    money = rate.currency if rate else None
    if limit.unit and rate and money and not same_money(limit.unit, money):
        raise SpecError(
            f"{limit} and the price of {rate.name}, which is in {money}, are different money",
            hint=f"there are no exchange rates: give the cost in {money}, or the price as a number",
        )


def _value(scale: Scale, limit: Limit) -> Estimate | None:
    """Return the quantity that a limit bounds."""
    held: dict[str, Estimate | None] = {
        "deadline": scale.time,
        "efficiency": scale.efficiency,
        "budget": scale.device_hours,
        "cost": scale.cost,
        "energy": scale.energy,
        "throughput": scale.throughput,
    }
    return held[limit.name]


def _off(scale: Scale, limit: Limit) -> float:
    """Return how far a scale is beyond a limit, in logarithms; at most 0 where it keeps it."""
    value = _value(scale, limit)
    assert value is not None  # Limits on what is not known are refused.
    beyond = math.log(value.value / limit.bound)
    return -beyond if limit.floor else beyond


def _offs(scale: Scale, purpose: Purpose) -> list[float]:
    return [_off(scale, limit) for limit in purpose.limits]


def _chance(scale: Scale, purpose: Purpose) -> float | None:
    """Return the chance to keep all limits: the least of each, for they mostly fail together."""
    values = [(limit, _value(scale, limit)) for limit in purpose.limits]
    found = [chance(value, limit.bound, floor=limit.floor) for limit, value in values if value]
    known = [each for each in found if each is not None]
    return min(known) if known and len(known) == len(found) else None


def chance(value: Estimate, bound: float, *, floor: bool) -> float | None:
    """Return the chance to keep one limit: log-normal, each side of the interval for itself.

    >>> round(chance(Estimate(100.0, 80.0, 125.0), 125.0, floor=False), 3)
    0.95
    """
    if value.low is None or value.high is None or value.low <= 0:
        return None
    room = math.log(bound / value.value)
    half = math.log(value.high / value.value if room > 0 else value.value / value.low)
    if half <= 0:
        return float(room <= 0 if floor else room >= 0)
    below = float(ndtr(room * SURE / half))
    return 1 - below if floor else below


def _best(fit: Sequence[Scale], purpose: Purpose, *, by_energy: bool) -> Scale:
    """Return the best scale by the purpose's goal; of those alike, the one with fewer devices."""

    def taken(scale: Scale) -> float:
        return scale.energy.value if by_energy and scale.energy else scale.spent

    by: dict[str, Callable[[Scale], float]] = {
        "device-hours": lambda scale: scale.spent,
        "time": lambda scale: scale.slowness,
        "balanced": lambda scale: taken(scale) * scale.slowness,
    }
    least = min(map(by[purpose.goal], fit))
    alike = [scale for scale in fit if by[purpose.goal](scale) <= least * (1 + ALIKE)]
    return min(alike, key=lambda scale: scale.devices)
