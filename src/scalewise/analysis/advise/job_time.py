"""The time of a job with any amount of work: start + samples × (1 / throughput + between).

``start`` (launch, data, build, compile) does not depend on the amount of work. ``between`` is the
time per sample of validation and checkpoints. Records of runs contain both as spans. For a table
(CSV) the start is fitted: T(N) = start + work / X(N) + growing log2 N, where X is the throughput on
N devices, or N itself if the table has only times.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.measure.table_start import fit_table_start
from scalewise.analysis.predict import Prediction
from scalewise.analysis.predict.complete_time import (
    FITTED_START,
    CompleteTime,
    samples_at,
)
from scalewise.analysis.predict.series import Floats
from scalewise.errors import NotEnoughData
from scalewise.record.schema import UNEXPLAINED, recurring

START_SPANS = (*recurring("once"), UNEXPLAINED, FITTED_START)
"""Unexplained time, and spans that occur once in a job, but not those that only measure it."""
EPOCH_SPANS = recurring("every epoch")


@dataclass(frozen=True, kw_only=True)
class Job:
    """Seconds of start and samples per second of a job, by number of devices."""

    starts: Mapping[int, float] | None
    """Seconds of the start; None where it cannot be separated from the training."""
    rates: Mapping[int, Estimate]
    """Samples per second, with the time of validation and checkpoints included."""
    work: float | None
    """Samples of the measured job on the fewest devices; None where unknown."""
    in_samples: bool = True
    """False if samples are unknown: the complete job then counts as one sample."""
    assumed_law: str = ""
    """If there are only times: the fitted law, which assumes an efficiency of 100 % in training."""

    def start(self, devices: int) -> float:
        """Return the seconds of the start; 0 where unknown."""
        return self.starts[devices] if self.starts else 0.0


def split_job(prediction: Prediction) -> Job:
    """Return the start and the rate of the predicted job, from recorded spans or a fitted law."""
    curve = prediction.curve
    counts = [point.devices for point in prediction.points]
    at = np.array(counts, float)
    rates = {point.devices: point.throughput for point in prediction.points if point.throughput}
    if prediction.complete_time:
        return _job_from_spans(prediction.complete_time, curve, at, rates)
    # A table with samples and without spans has throughputs computed from its times.
    only_times = all(point.samples and point.time and not point.complete for point in curve.points)
    if not rates or only_times:
        return _job_from_times(prediction, counts)
    fit = fit_table_start(curve.points, min_points=2)
    if fit is None:
        return Job(starts=None, rates=rates, work=None)
    return Job(starts={count: fit.start(count) for count in counts}, rates=rates, work=fit.work)


def known_starts(prediction: Prediction) -> Mapping[int, float] | None:
    """Return the seconds that the job takes to start, by devices; None where unknown."""
    try:
        starts = split_job(prediction).starts
    except NotEnoughData:
        return None
    # A fitted start of 0 means that the fit could not separate start and training.
    return starts if starts and all(starts.values()) else None


def _job_from_spans(
    spans: CompleteTime, curve: ScalingCurve, at: Floats, rates: Mapping[int, Estimate]
) -> Job:
    """Return start and rate from the spans of the records."""
    starts, epoch_seconds = np.zeros_like(at), np.zeros_like(at)
    for span in spans.span_laws:
        if span.name in START_SPANS:
            starts += span.seconds(at)
        elif span.name in EPOCH_SPANS:
            epoch_seconds += span.seconds(at)
    samples = samples_at(curve.points, at)
    between = np.zeros_like(at) if samples is None else epoch_seconds / samples

    def slowed(rate: Estimate, extra: float) -> Estimate:
        return rate.through(lambda throughput: 1 / (1 / throughput + extra))

    return Job(
        starts=dict(zip(map(int, at), map(float, starts))),
        rates={
            count: slowed(rate, float(extra))
            for (count, rate), extra in zip(rates.items(), between)
        },
        work=None if samples is None else float(samples[0]),
    )


def _growing_starts(fixed: float, growing: float, counts: list[int]) -> dict[int, float]:
    return {count: fixed + growing * float(np.log2(count)) for count in counts}


def _job_from_times(prediction: Prediction, counts: list[int]) -> Job:
    """Return start and rate of a table of times, by the law fitted to them."""
    law = next(fit for fit in prediction.laws if fit.law == "complete")
    fixed, shared_seconds = law.parameters["fixed"].value, law.parameters["work"].value
    growing = law.parameters["growing"].value if "growing" in law.parameters else 0.0
    if shared_seconds <= 0:
        raise NotEnoughData(
            f"by {law.formula} no part of the job is shared by its devices",
            hint="add a `throughput` column",
        )
    samples = samples_at(prediction.curve.points, np.array(counts, float))
    sample_totals = [1.0] * len(counts) if samples is None else [float(total) for total in samples]
    rates = {}
    for point, total in zip(prediction.points, sample_totals):
        assert point.time is not None  # Every point of such a table has a time.
        # The law gives the value; the prediction gives the relative interval.
        training = point.time * (shared_seconds / point.devices / point.time.value)
        rates[point.devices] = training.through(lambda seconds: 1 / seconds) * total
    return Job(
        starts=_growing_starts(fixed, growing, counts),
        rates=rates,
        work=sample_totals[0],
        in_samples=samples is not None,
        assumed_law=law.formula,
    )
