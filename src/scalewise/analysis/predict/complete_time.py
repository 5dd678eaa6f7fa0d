"""The complete time of a job, part by part: what its records say of each span of its life.

The training itself follows the throughput. Every other part is what it is:

    seconds(N) = fixed + growing log2 N + shared / N

A launch is mostly fixed, a rendezvous grows, a validation is shared by all devices.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.measure import Estimate, Point, ScalingCurve
from scalewise.analysis.measure.curve import SAME_WORK_TOLERANCE
from scalewise.analysis.measure.estimate import student_t_quantile
from scalewise.analysis.number_format import format_number
from scalewise.analysis.predict.forecast import forecast
from scalewise.analysis.predict.laws import nonnegative
from scalewise.analysis.predict.series import Floats, series

LEAST = 0.05
"""How far the start of a job varies at least, as a share: no two launches are alike."""


@dataclass(frozen=True, slots=True)
class Part:
    """One span of a job's life against devices, in seconds."""

    name: str
    fixed: float
    growing: float
    shared: float

    @property
    def any(self) -> bool:
        """Whether it takes any time at all."""
        return self.fixed + self.growing + self.shared > 1e-6

    def seconds(self, at: Floats) -> Floats:
        return np.asarray(self.fixed + self.growing * np.log2(at) + self.shared / at)

    def __str__(self) -> str:
        terms = {"": self.fixed, " log2 N": self.growing, "/N": self.shared}
        told = [f"{format_number(size)}{term}" for term, size in terms.items() if size > 1e-6]
        return f"{self.name} {' + '.join(told)}"


@dataclass(frozen=True)
class Life:
    """The complete time at each count that was asked for, and the law of every part."""

    times: tuple[Estimate, ...]
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        told = [str(part) for part in self.parts if part.any]
        return "T(N) = training + " + " + ".join(told) + " seconds"


def life(curve: ScalingCurve, at: Floats) -> Life | None:
    """Return the complete time from the spans of the records, or nothing without them."""
    points = [point for point in curve.points if "train" in point.complete and point.time]
    if len({point.devices for point in points}) < 2:
        return None
    counts = np.array([float(point.devices) for point in points])
    training = _training(curve, points, at)
    if training is None:
        return None
    parts = tuple(_part(name, counts, points) for name in _names(points))
    rest = np.sum([part.seconds(at) for part in parts], axis=0) if parts else np.zeros_like(at)
    spread = _spread(parts, counts, points)
    times = []
    for (value, low, high), others, count in zip(training, map(float, rest), at):
        beyond = max(0.0, math.log2(count / counts[-1]))
        half = math.hypot(LEAST, spread) * math.sqrt(1 + beyond)
        down = math.hypot(value - low, -others * math.expm1(-half))
        up = math.hypot(high - value, others * math.expm1(half))
        whole = value + others
        times.append(Estimate(whole, whole - down, whole + up, len(points)))
    return Life(tuple(times), parts)


def _training(
    curve: ScalingCurve, points: Sequence[Point], at: Floats
) -> list[tuple[float, float, float]] | None:
    """Return value, low and high of the seconds of training; none where the work is unclear.

    The cost of a sample is what is predicted: in seconds per sample it is the
    same thing as a throughput.
    """
    work = work_at(points, at)
    if work is None:
        return None
    rates = {
        point.devices: point.samples / point.complete["train"].value
        for point in reversed(points)
        if point.samples and point.complete["train"].value > 0
    }
    counts = sorted(rates)
    per_node, rule = curve.devices_per_node, curve.scaling
    speeds = series(counts, [rates[count] for count in counts], "throughput", rule, per_node)
    made = forecast(speeds, at)
    seconds = [work * np.exp(each) / at for each in (made.middle, made.low, made.high)]
    return [(float(v), float(low), float(high)) for v, low, high in zip(*seconds)]


def work_at(points: Sequence[Point], at: Floats) -> Floats | None:
    """Return the samples of a job at these counts: as many on any, or as many per device."""
    samples = {point.devices: point.samples for point in points}
    known = {devices: float(count) for devices, count in samples.items() if count}
    if len(known) < len(samples) or not known:
        return None
    counts, totals = np.array(list(known), float), np.array(list(known.values()))
    for shares in (totals, totals / counts):
        if np.ptp(shares) <= SAME_WORK_TOLERANCE * shares.max():
            return np.asarray(shares.mean() * (np.ones_like(at) if shares is totals else at))
    return None


def _names(points: Sequence[Point]) -> list[str]:
    found = dict.fromkeys(name for point in points for name in point.complete)
    return [name for name in found if name != "train"]


def _seconds(name: str, points: Sequence[Point]) -> Floats:
    return np.array([p.complete[name].value if name in p.complete else 0.0 for p in points])


def _part(name: str, counts: Floats, points: Sequence[Point]) -> Part:
    """Fit one part; with two points it is fixed, or shared, whichever is nearer."""
    seconds = _seconds(name, points)
    if seconds.max() <= 0:
        return Part(name, max(float(seconds.mean()), 0.0), 0.0, 0.0)
    terms = [np.ones_like(counts), np.log2(counts), 1 / counts]
    floor = np.maximum(seconds, 0.01 * seconds.max())
    columns = np.stack(terms, axis=1)
    found = nonnegative(columns if len(counts) > 3 else columns[:, :2], floor)
    fixed, growing, shared = (*map(float, found), 0.0)[:3]
    return Part(name, fixed, growing, shared)


def _spread(parts: Sequence[Part], counts: Floats, points: Sequence[Point]) -> float:
    """Return how far all parts together are off at the measured points, as a share, at 90 %."""
    told = sum((part.seconds(counts) for part in parts), np.zeros_like(counts))
    seen = sum((_seconds(part.name, points) for part in parts), np.zeros_like(counts))
    if len(counts) < 3 or seen.min() <= 0:
        return 0.0
    return student_t_quantile(len(counts) - 2) * float(np.sqrt(np.square(told / seen - 1).mean()))
