"""What would make a number of devices worthwhile: more data, a larger batch, a larger model.

T(N) = start(N) + training(N)                       efficiency(N) = N₀ T(N₀) / (N T(N))
k times the data lengthens the training:            training → k training
m times the batch of a device leaves 1/m of steps:  training → computation + overhead / m
"""

from dataclasses import dataclass

from scalewise.analysis.advise.job_time import split_job
from scalewise.analysis.advise.purpose import Purpose
from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.number_format import format_count
from scalewise.analysis.predict import predict
from scalewise.errors import SpecError, parameter
from scalewise.validate import INT32_MAX

DEFAULT_EFFICIENCY = 0.8
"""The efficiency to reach, unless the purpose names one."""
MAX_FACTOR = 1e6
"""A larger factor is not a practical answer."""


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """What makes a number of devices worthwhile; a factor is None where no size is large enough.
    Start and training are in seconds, on ``few`` devices (the baseline) and on ``devices``.
    """

    devices: int
    few: int
    floor: float
    """The efficiency to reach."""
    start_few: float
    start: float
    train_few: float
    train: float
    overhead: float | None
    """Share of the training that a larger batch would hide; None where unknown."""
    timed: bool
    """Whether start and training are in seconds; else only their ratio is known."""

    @property
    def efficiency(self) -> float:
        """Efficiency of the job as it is, by its complete time."""
        return self._ratio(self.start_few + self.train_few, self.start + self.train)

    @property
    def training_efficiency(self) -> float:
        """The efficiency of the training alone: the limit for any amount of data."""
        return self._ratio(self.train_few, self.train)

    @property
    def best_batch_efficiency(self) -> float:
        """The efficiency if an infinite batch hid all overhead of the steps."""
        computation = self.train * (1 - (self.overhead or 0.0))
        return self._ratio(self.start_few + self.train_few, self.start + computation)

    def _ratio(self, few: float, many: float) -> float:
        return self.few * few / (self.devices * many)

    @property
    def data(self) -> float | None:
        """Factor on the data or the epochs; 1 if the devices are worthwhile as it is."""
        gain = self.few * self.train_few - self.floor * self.devices * self.train
        return _factor(self.floor * self.devices * self.start - self.few * self.start_few, gain)

    @property
    def model(self) -> float | None:
        """Factor on the model, if the start does not grow with it: as that on the data."""
        return self.data

    @property
    def batch(self) -> float | None:
        """Factor on the batch of each device, with the same data."""
        return self._batch_factor(self.start_few, self.start)

    @property
    def batch_of_steps(self) -> float | None:
        """The same for the training alone, without the start."""
        return self._batch_factor(0.0, 0.0)

    def _batch_factor(self, start_few: float, start: float) -> float | None:
        if self.overhead is None:
            return None
        allowed = self.few * (start_few + self.train_few) / (self.floor * self.devices)
        computation = self.train * (1 - self.overhead)
        return _factor(self.train * self.overhead, allowed - computation - start)


def break_even(curve: ScalingCurve, devices: int, purpose: Purpose) -> BreakEven:
    """Return what makes this many devices worthwhile, by the purpose's efficiency or 80 %."""
    few = curve.baseline.devices
    is_whole = isinstance(devices, int) and not isinstance(devices, bool)
    if not is_whole or not few < devices <= INT32_MAX:
        raise SpecError(
            f"{parameter('worth')} takes more devices than the baseline's {few}, got {devices!r}",
            hint=f"for example {parameter('worth', 8 * few)}",
        )
    job = split_job(predict(curve, [few, devices]))
    if not {few, devices} <= job.rates.keys():
        raise SpecError(
            f"the throughput on {format_count(devices)} cannot be predicted",
            hint="complete the column throughput",
        )
    train_few, train = ((job.work or 1.0) / job.rates[count].value for count in (few, devices))
    overhead = max(0.0, 1 - few * train_few / (devices * train))
    exposed = next((point.exposed for point in curve.points if point.devices == devices), None)
    if exposed:
        overhead = min(overhead, exposed.value)
    floors = [limit.bound for limit in purpose.limits if limit.name == "efficiency"]
    return BreakEven(
        devices=devices,
        few=few,
        floor=floors[0] if floors else DEFAULT_EFFICIENCY,
        start_few=job.start(few) if job.work else 0.0,
        start=job.start(devices) if job.work else 0.0,
        train_few=train_few,
        train=train,
        # Times alone do not separate the overhead of the steps from the start.
        overhead=None if job.assumed else overhead,
        timed=job.work is not None,
    )


def _factor(deficit: float, gain: float) -> float | None:
    """Return the factor of growth that makes up a deficit, at least 1; None if none does."""
    if gain <= 0 or deficit / gain > MAX_FACTOR:
        return None
    return max(1.0, deficit / gain)
