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
    """Converts a scale (a candidate number of devices) from the measured job to the target."""

    target: Target
    job: Job
    batches: Mapping[int, float]
    """The global batch on each number of devices."""
    points: WorkAtBatches
    """The known work to target."""
    law: WorkToTarget | None
    """Work at any batch; None if all scales have the same batch, whose work is known."""
    critical: Critical | None
    """Stated, or from gradient noise; None if the points determine it, or without a law."""
    base_devices: int
    """The number of devices of the baseline, which has an efficiency of 1."""
    batch_grows: bool
    """Whether the global batch grows with the devices (weak scaling)."""
    missed: tuple[MissedBatch, ...] = ()
    """Batches at which not all runs reached the target."""

    def applied(self, scale: Scale) -> Scale:
        """Return the scale with time and efficiency to target."""
        batch, start = self.batches[scale.devices], self.job.start(scale.devices)
        base, rate = self.base_devices, self.job.rates.get(scale.devices)
        if rate is None:
            hint = "fill in the `throughput` column for every number of devices"
            raise NotEnoughData(f"the throughput on {scale.devices} devices is unknown", hint=hint)
        _, samples, runs = self.points[0]
        known_work = Estimate(samples, samples, samples, runs)
        work = self.law.work(batch) if self.law else known_work
        statistical = self.statistical(batch)
        hardware = (
            Estimate(1.0, 1.0, 1.0, rate.count)
            if scale.devices == base
            else rate * (base / scale.devices / self.job.rates[base].value)
        )
        return replace(
            scale,
            time=_add_start(work / rate, start),
            # hardware × statistical: an Estimate has no product, only a ratio.
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
        base_batch = self.batches[self.base_devices]
        if self.law is None or batch == base_batch:
            return Estimate(1.0, 1.0, 1.0)
        return self.law.critical.through(lambda b_crit: (b_crit + base_batch) / (b_crit + batch))


def time_to_target(
    target: Target,
    prediction: Prediction,
    records: Sequence[RunRecord],
    *,
    critical: str | float | Estimate | None,
    batch: float | None,
) -> TimeToTarget:
    """Return what converts a prediction's scales; users may give ``critical`` and ``batch``."""
    counts = [point.devices for point in prediction.points]
    batches = global_batches(prediction.curve, counts, batch)
    base_devices = prediction.curve.baseline.devices
    points, missed = _work_points(target, records, batches[base_devices])
    prior = critical_batch(critical, prediction.curve, point_count=len(points))
    no_law = prior is None and len(points) < 2
    if no_law and {*batches.values()} != {points[0][0]}:
        raise NotEnoughData(
            f"the work to {target} is known at a global batch of {format_number(points[0][0])} "
            f"only, but batches up to {format_number(max(batches.values()))} are considered",
            hint=f"state how it grows: {parameter('critical_batch', 8192)}, noise (of a study with "
            "noise_every) or like:resnet",
        )
    law = None if no_law else work_to_target(points, critical=prior.batch if prior else None)
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
        critical=prior,
        base_devices=base_devices,
        batch_grows=prediction.curve.scaling == "weak",
        missed=missed,
    )


def _add_start(training: Estimate, start: float) -> Estimate:
    """Return training time plus start, in seconds. Starts vary, which widens the interval."""
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
    """Return the known work to target, and the batches at which some runs did not reach it."""
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
