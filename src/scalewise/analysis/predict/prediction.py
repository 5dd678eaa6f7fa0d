"""A prediction: estimates at larger counts, why, how far they reach, what to measure next."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from scalewise import plugins
from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.predict import prediction_text
from scalewise.analysis.predict.complete_time import life
from scalewise.analysis.predict.forecast import Forecast, forecast
from scalewise.analysis.predict.laws import Fit
from scalewise.analysis.predict.next_measurement import Worth, worth
from scalewise.analysis.predict.outliers import Odd, odd
from scalewise.analysis.predict.series import Series, need, of_curve
from scalewise.errors import NotEnoughData, SpecError

MOST = 2**31 - 1
DIGITS = 100
"""No number of devices is longer, and Python reads none of some thousand digits."""
SIMULATE = "--simulate --devices-per-node 8 --link-inside 200GB/s,5us --link-between 25GB/s,20us"
"""How one run alone is asked, its links as an example."""


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What is expected on one number of devices."""

    devices: int
    nodes: int | None = None
    throughput: Estimate | None = None
    time: Estimate | None = None
    reach: str = ""
    """How far beyond the measurements this is, and what they cannot show."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What more devices would give; every interval is meant to hold nine of ten."""

    curve: ScalingCurve
    points: tuple[Ahead, ...]
    law: str
    """The rule behind the estimates, in one line."""
    sentences: tuple[str, ...]
    """How they came about, to be checked by hand; then what to measure next."""
    laws: tuple[Fit, ...]
    """The laws of the textbooks, fitted to the same points; of each metric, the closest first."""
    next: Worth | None
    """The measurement that would make the farthest prediction surest."""
    odd: tuple[Odd, ...] = ()
    """Measured rows that the others do not explain."""

    def at(self, devices: int) -> Ahead:
        """Return what was predicted for this many devices."""
        for point in self.points:
            if point.devices == devices:
                return point
        asked = ", ".join(str(point.devices) for point in self.points)
        raise SpecError(
            f"{devices} devices were not asked for; there are: {asked}",
            hint=f"predict(curve, at=[{devices}])",
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to beware of."""
        told = [prediction_text.unexplained(each, self.curve.unit) for each in self.odd]
        return (*self.curve.warnings, *told)

    @property
    def not_correct(self) -> tuple[str, ...]:
        """Why the training that was measured is not correct, if a guard says so."""
        return self.curve.not_correct

    def __str__(self) -> str:
        return "\n".join([self.law, *self.sentences])


def predict(curve: ScalingCurve, at: Iterable[int]) -> Prediction:
    """Return what to expect of a curve on these numbers of devices."""
    _refuse_kinds(curve)
    counts = _counts(curve, at)
    wanted = np.array(counts, float)
    rates, times = of_curve(curve, "throughput"), of_curve(curve, "time")
    usable = [each for each in (rates, times) if each and len(each.devices) > 1]
    main = usable[0] if usable else rates or times
    assert main is not None  # A curve has a point, and a point has a number.
    _refuse_one(curve, main)
    whole = life(curve, wanted)
    made = {each.metric: forecast(each, wanted) for each in usable}
    ahead = worth(main, max(counts))
    measured = {point.devices: point for point in reversed(curve.points)}

    def point(place: int, count: int) -> Ahead:
        seen = measured.get(count)
        time = whole.times[place] if whole else _estimate(times, made.get("time"), place)
        rate = _estimate(rates, made.get("throughput"), place)
        return Ahead(
            devices=count,
            nodes=int(main.nodes(wanted)[place]) if main.per_node else None,
            throughput=_held(rate, seen.throughput) if seen else rate,
            time=_held(time, seen.time) if seen else time,
            reach=prediction_text.reach(main, count),
        )

    told = [each for each in usable if each.metric == "throughput" or not whole]
    blind = prediction_text.unseen(main, max(counts))
    return Prediction(
        curve=curve,
        points=tuple(point(place, count) for place, count in enumerate(counts)),
        law="; ".join(
            [prediction_text.formula(each, made[each.metric]) for each in told]
            + [str(whole)] * bool(whole)
        ),
        sentences=(
            *(
                line
                for each in told
                for line in prediction_text.choice(each, made[each.metric], curve.unit)
            ),
            *([f"{blind[0].upper()}{blind[1:]}."] if blind else []),
            *([str(ahead)] if ahead else []),
        ),
        laws=tuple(fit for each in usable for fit in _laws(each)),
        next=ahead,
        odd=tuple(found for each in told for found in odd(each)),
    )


def _refuse_kinds(curve: ScalingCurve) -> None:
    """Refuse points on several kinds of device: what they differ in is no law of their number."""
    kinds = list(dict.fromkeys(point.device_name for point in curve.points if point.device_name))
    if len(kinds) > 1:
        raise NotEnoughData(
            f"{curve.name} was measured on several kinds of device: {', '.join(kinds)}",
            hint="measure every scale on one kind; `scalewise measure` shows the acceleration",
        )


def _refuse_one(curve: ScalingCurve, points: Series) -> None:
    """Refuse a single count; where it was recorded, name the way that needs no more."""
    try:
        need(points, 2, "a prediction")
    except NotEnoughData as one:
        if curve.baseline.steps:
            one.hint += f"; or simulate from this run: {SIMULATE}"
        raise


def beyond(curve: ScalingCurve, text: str) -> list[int]:
    """Read ``16,32,64``: counts from the largest measurement on."""
    largest = max(point.devices for point in curve.points)
    asked = counts(text, largest)
    for count in asked:
        if count < largest:
            raise SpecError(
                f"--at {count} is below the {largest} devices that were measured",
                hint=f"for example --at {2 * largest}; `scalewise measure` shows the others",
            )
    return asked


def counts(text: str, largest: int = 8) -> list[int]:
    """Read ``16,32,64``: whole numbers, not yet held against what was measured."""
    hint = f"for example --at {2 * largest},{4 * largest}"
    asked = []
    for word in text.split(","):
        if not word.strip().isdecimal() or not word.isascii() or len(word) > DIGITS:
            raise SpecError(f"--at takes whole numbers of devices, got {text!r}", hint=hint)
        asked.append(int(word))
    return asked


def _counts(curve: ScalingCurve, at: Iterable[int]) -> list[int]:
    """Return the counts, each once and in order; refuse those that are no prediction."""
    asked = list(at)
    measured = [point.devices for point in curve.points]
    example = f"for example --at {2 * max(measured)}, or at=[{2 * max(measured)}] in Python"
    if not asked:
        raise SpecError("no number of devices was asked for", hint=example)
    for count in asked:
        number = isinstance(count, (int, float, np.number)) and not isinstance(count, bool)
        if not number or not math.isfinite(count) or count != int(count):
            raise SpecError(f"a number of devices must be whole, got {count!r}", hint=example)
        if not 1 <= count <= MOST:
            raise SpecError(
                f"a number of devices must be from 1 to {MOST:,}, got {count!r}", hint=example
            )
        if count < max(measured) and count not in measured:
            raise SpecError(
                f"{count} devices are fewer than the {max(measured)} that were measured",
                hint=f"ask for more than {max(measured)}, or measure it",
            )
    return sorted({int(count) for count in asked})


def _estimate(points: Series | None, made: Forecast | None, place: int) -> Estimate | None:
    """Return a forecast of one count as throughput or time."""
    if points is None or made is None:
        return None
    at = made.at[place : place + 1]
    ends = [made.low[place], made.middle[place], made.high[place]]
    low, value, high = sorted(float(points.back(at, np.exp([end]))[0]) for end in ends)
    return Estimate(value, low, high, len(points.devices))


def _held(told: Estimate | None, seen: Estimate | None) -> Estimate | None:
    """Return the measurement where there is one, within an interval that holds both."""
    if told is None or seen is None:
        return told
    ends = [each for each in (told.low, told.high, seen.value, seen.low, seen.high) if each]
    return Estimate(seen.value, min(ends), max(ends), told.count)


def _laws(points: Series) -> Sequence[Fit]:
    """Return every law that can be fitted to these points, the closest first."""
    found = []
    for name in plugins.available("laws"):
        try:
            found.append(plugins.load("laws", name)(points))
        except NotEnoughData:
            continue
    return sorted(found, key=lambda fit: fit.error)
