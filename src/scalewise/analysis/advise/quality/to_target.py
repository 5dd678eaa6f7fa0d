"""The time until a model is good enough, at each number of devices.

    time(N) = start(N) + work(B(N)) / rate(N)        B(N): the global batch on N devices

More devices raise the rate; where they also raise the batch, they raise the work:

    efficiency to target = efficiency of the devices × efficiency of the batch
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scalewise.analysis.advise.job_time import Job, job
from scalewise.analysis.advise.quality.aim import Aim
from scalewise.analysis.advise.quality.batches import WAYS, Critical, critical_batch, global_batches
from scalewise.analysis.advise.quality.reached import Reached, reached
from scalewise.analysis.advise.quality.target import Target, work_to_target
from scalewise.analysis.advise.scale import AtTarget, Scale
from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import format_number
from scalewise.analysis.predict import Prediction
from scalewise.analysis.predict.complete_time import MIN_START_SPREAD
from scalewise.errors import NotEnoughData, SpecError
from scalewise.record.read import RunRecord

Work = tuple[tuple[float, float, int], ...]
"""Global batch, samples to target, runs."""


@dataclass(frozen=True, kw_only=True)
class ToTarget:
    """Turns a scale of the measured job into one of the job that reaches the target."""

    aim: Aim
    job: Job
    batches: Mapping[int, float]
    """The global batch at each number of devices."""
    points: Work
    law: Target | None
    """Work at any batch; nothing where all scales have the one batch whose work is known."""
    critical: Critical | None
    """Where it was not told by the points themselves."""
    base: int
    """The devices that efficiencies are compared with."""
    weak: bool
    warnings: tuple[str, ...] = ()

    def applied(self, scale: Scale) -> Scale:
        """Return the scale with the time and the efficiency until the target."""
        batch, start = self.batches[scale.devices], self.job.start(scale.devices)
        rate = self.job.rates.get(scale.devices)
        if rate is None:
            raise NotEnoughData(
                f"the throughput on {scale.devices} devices is not known",
                hint="complete the column throughput",
            )
        work = self.work(batch)
        statistical = self.statistical(batch)
        hardware = self._hardware(scale.devices, rate)
        return replace(
            scale,
            time=_started(work / rate, start),
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

    def work(self, batch: float) -> Estimate:
        """Return the samples to target."""
        if self.law:
            return self.law.work(batch)
        (_, samples, runs), *_ = self.points
        return Estimate(samples, samples, samples, runs)

    def statistical(self, batch: float) -> Estimate:
        """Return the efficiency of a batch: the work at the baseline's, over that at this one."""
        base = self.batches[self.base]
        if self.law is None or batch == base:
            return Estimate(1.0, 1.0, 1.0)
        return self.law.critical.through(lambda critical: (critical + base) / (critical + batch))

    def _hardware(self, devices: int, rate: Estimate) -> Estimate:
        if devices == self.base:
            return Estimate(1.0, 1.0, 1.0, rate.count)
        return rate * (self.base / devices / self.job.rates[self.base].value)

    def sentences(self, closest: Scale) -> tuple[str, ...]:
        """Say what the target takes, and what more devices buy of it."""
        batch, work, _ = self.points[0]
        told = (
            f"The target {self.aim} is {format_number(work)} samples at a global batch of "
            f"{format_number(batch)}"
        )
        if len(self.points) > 1:
            told = f"The target {self.aim} took " + ", ".join(
                f"{format_number(work)} samples at {format_number(batch)}"
                for batch, work, _ in self.points
            )
        if self.law is None:
            return (f"{told}, which all scales have.",)
        source = self.critical.source if self.critical else "by these points"
        each = round(self.batches[self.base] / self.base) if self.weak else None
        at = self.batches[closest.devices]
        # Past the critical batch the verdict itself says what to do instead.
        limit = (self.law.limit(each),) if at <= self.law.critical.value else ()
        return f"{told}; {self.law}, its critical batch {source}.", self.law.verdict(at), *limit


def to_target(
    aim: Aim,
    found: Prediction,
    records: Sequence[RunRecord],
    *,
    critical: str | float | Estimate | None,
    batch: float | None,
) -> ToTarget:
    """Return how scales change if the job is to reach an aim."""
    counts = [point.devices for point in found.points]
    batches = global_batches(found.curve, counts, batch)
    base = found.curve.baseline.devices
    points, missed = _points(aim, records, batches[base])
    told = critical_batch(critical, found.curve, points=len(points))
    blind = told is None and len(points) < 2
    if blind and {*batches.values()} != {points[0][0]}:
        raise NotEnoughData(
            f"the work to {aim} is known at a global batch of {format_number(points[0][0])} alone, "
            f"and up to {format_number(max(batches.values()))} is weighed",
            hint=f"say how it grows: {WAYS}",
        )
    law = None if blind else work_to_target(points, critical=told.batch if told else None)
    parts = job(found)
    if not parts.in_samples:
        raise NotEnoughData(
            "time to target needs samples per second, and there are only times",
            hint="add a column throughput, or samples (of the whole job), to the CSV",
        )
    unknown = [
        *([] if parts.starts else [
            "the time to start is not known and not counted: add a column time to the CSV"
        ]),
        *([
            f"times alone do not tell the speed of training from the start: by {parts.assumed} "
            "the devices share it evenly, at an efficiency of 100 %"
        ] if parts.assumed else []),
    ]  # fmt: skip
    return ToTarget(
        aim=aim,
        job=parts,
        batches=batches,
        points=points,
        law=law,
        critical=told,
        base=base,
        weak=found.curve.scaling == "weak",
        warnings=(*missed, *unknown),
    )


def _started(training: Estimate, start: float) -> Estimate:
    """Return the whole time; no two starts are alike, so they widen its interval too."""
    whole, varies = training.value + start, MIN_START_SPREAD * start
    low, high = training.low or training.value, training.high or training.value
    return Estimate(
        whole,
        whole - math.hypot(training.value - low, varies),
        whole + math.hypot(high - training.value, varies),
        training.count,
    )


def _points(aim: Aim, records: Sequence[RunRecord], base: float) -> tuple[Work, tuple[str, ...]]:
    """Return the work that is known, and what is not."""
    if aim.is_work:
        samples = aim.bound * (_epoch(aim, records) if aim.name == "epochs" else 1)
        return ((aim.batch or base, samples, 1),), ()
    if not records:
        raise SpecError(
            f"{aim} is found in the records of a study, and there are none",
            hint="give a study's folder, or the work: --target 'samples=115e6 at 256'",
        )
    found: Reached = reached(records, aim)
    return found.points, found.missed


def _epoch(aim: Aim, records: Sequence[RunRecord]) -> float:
    """Return the samples of one epoch."""
    known = [record for record in records if record.spec.epochs]
    if not known:
        raise SpecError(
            f"{aim} cannot be told: how many samples an epoch has is not known",
            hint="give the product: --target 'samples=115e6 at 256'",
        )
    return float(sum(rank.outline.seen for rank in known[0].ranks))
