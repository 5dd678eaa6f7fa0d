"""How many devices to use for a purpose: the scale that serves it, its neighbours, the reason.

Every scale that was measured or can be predicted is weighed by what it takes:

    device-hours = devices × time / 3600        cost = device-hours × price

A scale serves a purpose if its expected values keep all limits; the chance that
it really does is read from its interval, taken as log-normal.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real

from scipy.special import ndtr

from scalewise.analysis.advise import words
from scalewise.analysis.advise.purpose import Limit, Purpose
from scalewise.analysis.advise.returns import Returns, returns
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.measure.estimate import quantile
from scalewise.analysis.predict import Ahead, Prediction, predict
from scalewise.analysis.predict.series import of_curve
from scalewise.checks import positive
from scalewise.errors import NotEnoughData, SpecError

AHEAD = 2
"""Doublings beyond the largest measurement that are weighed if nothing else is asked."""
ALIKE = 0.01
"""Of scales that differ by less in their goal, the one with fewer devices is preferred."""
SURE = quantile(10**6)
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
    price: float | None = None

    @property
    def curve(self) -> ScalingCurve:
        return self.prediction.curve

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
        told = [self.reason]
        told += [
            words.instead(way, other, self.closest)
            for other, way in ((self.smaller, "Fewer"), (self.larger, "More"))
            if other
        ]
        told += self.returns.sentences
        if self.prediction.next and not self.closest.measured:
            told.append(str(self.prediction.next))
        return tuple(told)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to beware of."""
        return (*self.prediction.warnings, *self.returns.warnings)

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def advise(
    curve: ScalingCurve,
    purpose: Purpose,
    at: Iterable[int] = (),
    *,
    price: float | None = None,
    whole_nodes: bool = False,
) -> Advice:
    """Return how many devices serve a purpose best.

    Weighed are the measured numbers of devices and doublings beyond them: up to
    ``at``, or two. ``price`` is that of one device for one hour; ``whole_nodes``
    charges a node that is used in part as if all of it were.
    """
    counts = _counts(curve, list(at))
    return among(curve, purpose, counts, price=price, whole_nodes=whole_nodes)


def among(
    curve: ScalingCurve,
    purpose: Purpose,
    counts: Iterable[int],
    *,
    price: float | None = None,
    whole_nodes: bool = False,
) -> Advice:
    """Return which of these numbers of devices serves a purpose best, and weigh no others."""
    if price is not None:
        positive("price", price, example=2.5)
    found = predict(curve, counts)
    scales = _scales(found, price, whole_nodes=whole_nodes)
    for limit in purpose.limits:
        _known(limit, scales, price)
    judged = tuple(replace(scale, chance=_chance(scale, purpose)) for scale in scales)
    fit = [scale for scale in judged if all(_off(scale, limit) <= 0 for limit in purpose.limits)]
    chosen = _best(fit, purpose) if fit else None
    closest = chosen or min(judged, key=lambda scale: max(_offs(scale, purpose)))
    return Advice(
        purpose=purpose,
        prediction=found,
        scales=judged,
        chosen=chosen,
        closest=closest,
        reason=words.reason(chosen, purpose, judged)
        if chosen
        else words.missed(closest, purpose, judged),
        returns=returns(found, judged),
        price=price,
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


def _scales(found: Prediction, price: float | None, *, whole_nodes: bool) -> list[Scale]:
    """Return every scale that can be weighed; by time, or by throughput where times say nothing."""
    alike = of_curve(found.curve, "time") is not None  # Times of unlike work say nothing.
    by_time = alike and all(point.time for point in found.points)
    points = {point.devices: point for point in reversed(found.curve.points)}
    per_node = found.curve.devices_per_node
    if whole_nodes and per_node is None:
        raise SpecError(
            "whole nodes cannot be charged: the devices per node are not known",
            hint="--devices-per-node 4, or devices_per_node=4 in Python",
        )

    def scale(ahead: Ahead) -> Scale:
        seen = points.get(ahead.devices)
        nodes = seen.nodes if seen else ahead.nodes
        charged = nodes * per_node if whole_nodes and nodes and per_node else ahead.devices
        time = ahead.time if by_time else None
        hours = time * (charged / 3600) if time else None
        return Scale(
            devices=ahead.devices,
            nodes=nodes,
            charged=charged,
            measured=seen is not None,
            throughput=ahead.throughput,
            time=time,
            efficiency=_efficiency(ahead, found),
            device_hours=hours,
            cost=hours * price if hours and price else None,
        )

    return [scale(ahead) for ahead in found.points if by_time or ahead.throughput]


def _efficiency(ahead: Ahead, found: Prediction) -> Estimate | None:
    """Return the efficiency against the baseline: by throughput, or by time if that is all."""
    base = found.curve.baseline
    growth = ahead.devices / base.devices
    if growth == 1:
        return Estimate(1.0, 1.0, 1.0, len(found.curve.points))
    if base.throughput and ahead.throughput:
        return ahead.throughput * (1 / (base.throughput.value * growth))
    if base.throughput or not (base.time and ahead.time):
        return None
    whole = base.time.value / growth
    return ahead.time.through(lambda seconds: whole / seconds)


def _known(limit: Limit, scales: Sequence[Scale], price: float | None) -> None:
    """Refuse a limit on what this curve does not tell."""
    if limit.name == "cost" and price is None:
        raise SpecError(
            f"{limit} needs the price of one device for one hour",
            hint="--price 2.50, or price=2.5 in Python",
        )
    if any(_value(scale, limit) is None for scale in scales):
        missing = "throughput" if limit.floor else "time of equal work"
        equal = "" if limit.floor else "equal epochs give it, "
        raise SpecError(
            f"{limit} cannot be told: there is no {missing} for every scale",
            hint=f"{equal}add a column {missing.partition(' ')[0]}, or choose another purpose",
        )


def _value(scale: Scale, limit: Limit) -> Estimate | None:
    """Return the quantity that a limit bounds."""
    held: dict[str, Estimate | None] = {
        "deadline": scale.time,
        "efficiency": scale.efficiency,
        "budget": scale.device_hours,
        "cost": scale.cost,
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


def _best(fit: Sequence[Scale], purpose: Purpose) -> Scale:
    """Return the best scale by the purpose's goal; of those alike, the one with fewer devices."""
    by: dict[str, Callable[[Scale], float]] = {
        "device-hours": lambda scale: scale.spent,
        "time": lambda scale: scale.slowness,
        "balanced": lambda scale: scale.spent * scale.slowness,
    }
    least = min(map(by[purpose.goal], fit))
    alike = [scale for scale in fit if by[purpose.goal](scale) <= least * (1 + ALIKE)]
    return min(alike, key=lambda scale: scale.devices)
