"""The time until a model reaches its target, on each number of devices.

time(N) = start(N) + work(B(N)) / rate(N)        B(N): the global batch on N devices
efficiency to target = efficiency of the devices × efficiency of the batch
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scalewise.analysis.advise.job_time import Job, split_job
from scalewise.analysis.advise.quality.critical_batch import (
    Critical,
    critical_batch,
    global_batches,
)
from scalewise.analysis.advise.quality.target import (
    MissedBatch,
    Target,
    WorkAtBatches,
    work_to_reach,
)
from scalewise.analysis.advise.quality.work_to_target import WorkToTarget, work_to_target
from scalewise.analysis.advise.scale import AtTarget, Scale
from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import format_number
from scalewise.analysis.predict import Prediction
from scalewise.analysis.predict.complete_time import MIN_START_SPREAD
from scalewise.errors import NotEnoughData, SpecError, parameter
from scalewise.record.read import RunRecord


@dataclass(frozen=True, kw_only=True)
class TimeToTarget:
    """Turns a scale of the measured job into a scale of the job that reaches the target."""

    target: Target
    job: Job
    batches: Mapping[int, float]
    """The global batch on each number of devices."""
    points: WorkAtBatches
    law: WorkToTarget | None
    """Work at any batch; None where all scales have the only batch of known work."""
    critical: Critical | None
    """None where the points determine it, or where there is no law."""
    base: int
    """Devices of the baseline of efficiencies."""
    weak: bool
    """Whether the batch grows with the devices."""
    missed: tuple[MissedBatch, ...] = ()
    """Batches at which not all runs reached the target."""

    def applied(self, scale: Scale) -> Scale:
        """Return the scale with time and efficiency to target."""
        batch, start = self.batches[scale.devices], self.job.start(scale.devices)
        rate = self.job.rates.get(scale.devices)
        if rate is None:
            raise NotEnoughData(
                f"the throughput on {scale.devices} devices is not known",
                hint="complete the column throughput",
            )
        _, samples, runs = self.points[0]
        same = Estimate(samples, samples, samples, runs)
        work = self.law.work(batch) if self.law else same
        statistical = self.statistical(batch)
        hardware = (
            Estimate(1.0, 1.0, 1.0, rate.count)
            if scale.devices == self.base
            else rate * (self.base / scale.devices / self.job.rates[self.base].value)
        )
        return replace(
            scale,
            time=_add_start(work / rate, start),
            efficiency=hardware / statistical.through(lambda share: 1 / share),
            target=AtTarget(
                batch=batch,
                work=work,
                steps=work * (1 / batch),
                start=start if self.job.starts else None,
                hardware=hardware,
                statistical=statistical,
            ),
        )

    def statistical(self, batch: float) -> Estimate:
        """Return the efficiency of a batch: work at the baseline's batch over work at this one."""
        base = self.batches[self.base]
        if self.law is None or batch == base:
            return Estimate(1.0, 1.0, 1.0)
        return self.law.critical.through(lambda critical: (critical + base) / (critical + batch))


def time_to_target(
    target: Target,
    prediction: Prediction,
    records: Sequence[RunRecord],
    *,
    critical: str | float | Estimate | None,
    batch: float | None,
) -> TimeToTarget:
    """Return how the scales of a prediction change if the job is to reach a target."""
    counts = [point.devices for point in prediction.points]
    batches = global_batches(prediction.curve, counts, batch)
    base = prediction.curve.baseline.devices
    points, missed = _work_points(target, records, batches[base])
    stated = critical_batch(critical, prediction.curve, points=len(points))
    no_law = stated is None and len(points) < 2
    if no_law and {*batches.values()} != {points[0][0]}:
        raise NotEnoughData(
            f"the work to {target} is known at a global batch of {format_number(points[0][0])} "
            f"only, and scales of up to {format_number(max(batches.values()))} are considered",
            hint=f"say how it grows: {parameter('critical_batch', 8192)}, noise (of a study with "
            "noise_every) or like:resnet",
        )
    law = None if no_law else work_to_target(points, critical=stated.batch if stated else None)
    job = split_job(prediction)
    if not job.in_samples:
        raise NotEnoughData(
            "time to target needs samples per second, and there are only times",
            hint="add a column throughput, or samples (of the whole job), to the CSV",
        )
    return TimeToTarget(
        target=target,
        job=job,
        batches=batches,
        points=points,
        law=law,
        critical=stated,
        base=base,
        weak=prediction.curve.scaling == "weak",
        missed=missed,
    )


def _add_start(training: Estimate, start: float) -> Estimate:
    """Return the complete time. Starts vary, which widens the interval."""
    total, start_spread = training.value + start, MIN_START_SPREAD * start
    low, high = training.low or training.value, training.high or training.value
    return Estimate(
        total,
        total - math.hypot(training.value - low, start_spread),
        total + math.hypot(high - training.value, start_spread),
        training.count,
    )


def _work_points(
    target: Target, records: Sequence[RunRecord], base_batch: float
) -> tuple[WorkAtBatches, tuple[MissedBatch, ...]]:
    """Return the known work to target, and the batches that did not reach it."""
    if target.is_work:
        samples = target.bound
        if target.name == "epochs":
            record = next((record for record in records if record.spec.epochs), None)
            if record is None:
                raise SpecError(
                    f"{target} needs the number of samples of an epoch, which is not known",
                    hint=f"give the product: {parameter('target', 'samples=115e6 at 256')}",
                )
            samples *= sum(rank.outline.seen for rank in record.ranks)
        return ((target.batch or base_batch, samples, 1),), ()
    if not records:
        raise SpecError(
            f"{target} is read from the records of a study, and there are none",
            hint=f"give a study's folder, or {parameter('target', 'samples=115e6 at 256')}",
        )
    return work_to_reach(target, records)
