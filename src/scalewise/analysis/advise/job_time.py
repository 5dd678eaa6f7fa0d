"""A job of any length: what starts it, and what each sample then takes.

    time = start + samples × (1 / throughput + between)

``start`` is what more work does not lengthen (launch, data, build, compile), ``between``
what comes again with every epoch (validation, checkpoints), per sample. Records have both
in their spans. A table with throughput and time has the start in its law,

    T(N) = start + work / X(N) + growing log2 N

and one with times alone in T(N) = start + work / N + growing log2 N.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.predict import Prediction
from scalewise.analysis.predict.complete_time import CompleteTime, predict_complete_time, samples_at
from scalewise.analysis.predict.laws import nonnegative_least_squares
from scalewise.analysis.predict.series import Floats
from scalewise.errors import NotEnoughData
from scalewise.record.spans import UNEXPLAINED, recurring

START = (*recurring("once"), UNEXPLAINED)
"""Spans of a job's life that there are once, however long it trains.

Not those that only a measurement has: a trace, loaders that were timed alone, earlier attempts.
"""
AGAIN = recurring("every epoch")
"""Spans that come again with every epoch."""
GROWS = 4
"""Points that a start which grows with devices needs to be told from a fixed one."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The start and the rate of a job on each number of devices that is weighed."""

    starts: Mapping[int, float] | None
    """Seconds; nothing where the start cannot be told from the rest."""
    rates: Mapping[int, Estimate]
    """Samples per second, validation and checkpoints included."""
    work: float | None
    """Samples of the job that was measured, on its fewest devices, where times tell them."""
    in_samples: bool = True
    """Or else the whole job counts as one sample: how many it has is not known."""
    assumed: str = ""
    """The law by which training was taken to be shared evenly, where times are all there is."""

    def start(self, devices: int) -> float:
        """Return the seconds of the start; 0 where they are not known."""
        return self.starts[devices] if self.starts else 0.0


def job(found: Prediction) -> Job:
    """Return the job behind a prediction, from its records or from its law."""
    counts = [point.devices for point in found.points]
    at = np.array(counts, float)
    spans = predict_complete_time(found.curve, at)
    seen = {point.devices: point.throughput for point in found.points if point.throughput}
    if spans:
        starts = _once(spans, at)
        again = _again(spans, found.curve, at)
        rates = {
            count: _slowed(rate, between) for (count, rate), between in zip(seen.items(), again)
        }
        samples = samples_at(found.curve.points, at[:1])
        return Job(
            starts=dict(zip(counts, starts)),
            rates=rates,
            work=None if samples is None else float(samples[0]),
        )
    if not seen or _by_samples(found.curve):
        return _of_times(found, counts)
    law = _law(found.curve)
    if law is None:
        return Job(starts=None, rates=seen, work=None)
    fixed, work, growing = law
    return Job(
        starts={count: fixed + growing * float(np.log2(count)) for count in counts},
        rates=seen,
        work=work,
    )


def starts(found: Prediction) -> Mapping[int, float] | None:
    """Return the seconds that a job takes to start, or nothing where that is not known."""
    try:
        known = job(found).starts
    except NotEnoughData:
        return None
    return known if known and all(known.values()) else None


def _slowed(rate: Estimate, between: float) -> Estimate:
    return rate.through(lambda samples: 1 / (1 / samples + between))


def _rate(training: Estimate, samples: float) -> Estimate:
    return training.through(lambda seconds: samples / seconds)


def _once(spans: CompleteTime, at: Floats) -> list[float]:
    parts = [part.seconds(at) for part in spans.span_laws if part.name in START]
    return [float(each) for each in np.sum(parts, axis=0)] if parts else [0.0] * len(at)


def _again(spans: CompleteTime, curve: ScalingCurve, at: Floats) -> list[float]:
    """Return the seconds per sample that come on top of the steps."""
    parts = [part.seconds(at) for part in spans.span_laws if part.name in AGAIN]
    samples = samples_at(curve.points, at)
    if not parts or samples is None:
        return [0.0] * len(at)
    return [float(each) for each in np.sum(parts, axis=0) / samples]


def _by_samples(curve: ScalingCurve) -> bool:
    """Say whether throughputs are only the times of known samples in other words."""
    return all(p.samples and p.time and not p.complete for p in curve.points)


def _of_times(found: Prediction, counts: list[int]) -> Job:
    """Return the job of a table of times: the law of the complete time splits them."""
    law = next(fit for fit in found.laws if fit.law == "complete")
    fixed, shared = law.parameters["fixed"].value, law.parameters["work"].value
    growing = law.parameters["growing"].value if "growing" in law.parameters else 0.0
    if shared <= 0:
        raise NotEnoughData(
            f"by {law.formula} no part of the job is shared by its devices",
            hint="add a column throughput",
        )
    samples = samples_at(found.curve.points, np.array(counts, float))
    totals = [1.0] * len(counts) if samples is None else [float(each) for each in samples]
    rates = {}
    for point, total in zip(found.points, totals):
        assert point.time is not None  # Every point of such a table has one.
        # The law gives the middle; the prediction says how sure it is.
        middle = point.time * (shared / point.devices / point.time.value)
        rates[point.devices] = _rate(middle, total)
    return Job(
        starts={count: fixed + growing * float(np.log2(count)) for count in counts},
        rates=rates,
        work=totals[0],
        in_samples=samples is not None,
        assumed=law.formula,
    )


def _law(curve: ScalingCurve) -> tuple[float, float, float] | None:
    """Return the fixed part of the start, the samples, and what a doubling adds to the start."""
    known = [
        (float(point.devices), point.throughput.value, point.time.value)
        for point in curve.points
        if point.throughput and point.time
    ]
    if len(known) < 2:
        return None
    devices, rates, times = np.array(known).T
    terms = [np.ones_like(times), 1 / rates, np.log2(devices)]
    count = 3 if len(known) >= GROWS else 2
    fixed, work, growing = (
        *map(float, nonnegative_least_squares(np.stack(terms[:count], axis=1), times)),
        0.0,
    )[:3]
    return fixed, work, growing
