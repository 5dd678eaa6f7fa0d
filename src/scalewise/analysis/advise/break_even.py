"""What would make a number of devices worthwhile: more data, a larger batch, a larger model.

N devices are worthwhile if their efficiency relative to the baseline's N₀ is at least ``floor``.
T(N) = start(N) + training(N)              efficiency(N) = N₀ T(N₀) / (N T(N))
k times the data:                          training → k training
m times the batch and 1/m of the steps:    training → training × (1 − overhead + overhead / m)
Overhead is the share of the training that every step costs, however large its batch is.
"""

from dataclasses import dataclass

from scalewise.analysis.advise.job_time import split_job
from scalewise.analysis.advise.purpose import Purpose
from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.number_format import format_count
from scalewise.analysis.predict import predict
from scalewise.errors import SpecError, parameter, shown
from scalewise.validate import INT32_MAX

DEFAULT_EFFICIENCY = 0.8
"""The efficiency to reach, unless the purpose names one."""
MAX_FACTOR = 1e6
"""A larger factor is not a practical answer."""


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """How much data, batch or model must grow for ``devices`` to reach ``floor``. A factor is None
    if unknown or if none is large enough. ``start`` (launch, data, build, compile) and ``training``
    are seconds on ``devices``; ``base_start`` and ``base_training`` are seconds on the baseline.
    """

    devices: int
    base_devices: int
    floor: float
    """The efficiency to reach."""
    base_start: float
    start: float
    base_training: float
    training: float
    overhead: float | None
    """Share of ``training`` that every step costs, however large its batch is; None if unknown."""
    in_seconds: bool
    """False if the work is unknown. Starts are then 0, and only ratios of times mean anything."""

    @property
    def efficiency(self) -> float:
        """Efficiency of the job without any growth, by its start and training together."""
        return self._efficiency_of(self.start + self.training)

    @property
    def training_efficiency(self) -> float:
        """The efficiency of the training alone, which the job approaches with more data."""
        return self.base_devices * self.base_training / (self.devices * self.training)

    @property
    def best_batch_efficiency(self) -> float:
        """The efficiency if an infinite batch removed all overhead of the steps."""
        computation = self.training * (1 - (self.overhead or 0.0))
        return self._efficiency_of(self.start + computation)

    def _efficiency_of(self, seconds: float) -> float:
        base_seconds = self.base_start + self.base_training
        return self.base_devices * base_seconds / (self.devices * seconds)

    @property
    def data(self) -> float | None:
        """Factor on the data or the epochs; 1 if the devices are already worthwhile."""
        # Solve N₀ (start₀ + k training₀) = floor N (start + k training) for k.
        base_devices, floor_devices = self.base_devices, self.floor * self.devices
        gain = base_devices * self.base_training - floor_devices * self.training
        return _growth_factor(floor_devices * self.start - base_devices * self.base_start, gain)

    @property
    def model(self) -> float | None:
        """Factor on the size of the model. If the start does not grow, it acts like more data."""
        return self.data

    @property
    def batch(self) -> float | None:
        """Factor on the batch of each device, with the same data."""
        return self._batch_factor(self.base_start, self.start)

    @property
    def batch_of_steps(self) -> float | None:
        """Factor on the batch of each device with which the training alone reaches ``floor``."""
        return self._batch_factor(0.0, 0.0)

    def _batch_factor(self, base_start: float, start: float) -> float | None:
        if self.overhead is None:
            return None
        # Solve start + computation + overhead / m = allowed time for m.
        base_device_seconds = self.base_devices * (base_start + self.base_training)
        allowed_seconds = base_device_seconds / (self.floor * self.devices)
        computation = self.training * (1 - self.overhead)
        return _growth_factor(self.training * self.overhead, allowed_seconds - computation - start)


def break_even(curve: ScalingCurve, devices: int, purpose: Purpose) -> BreakEven:
    """Return what must grow for ``devices`` to reach the purpose's efficiency, or the default."""
    base_devices = curve.baseline.devices
    is_integer = isinstance(devices, int) and not isinstance(devices, bool)
    if not is_integer or not base_devices < devices <= INT32_MAX:
        raise SpecError(
            f"{parameter('worth')} takes more devices than the baseline's {base_devices}, "
            f"got {shown(devices)}",
            hint=f"for example {parameter('worth', 8 * base_devices)}",
        )
    job = split_job(predict(curve, [base_devices, devices]))
    if not {base_devices, devices} <= job.rates.keys():
        raise SpecError(
            f"the throughput on {format_count(devices)} cannot be predicted",
            hint="complete the `throughput` column",
        )
    work = job.work or 1.0  # If unknown, only the ratio of the two times is used.
    base_training, training = (work / job.rates[count].value for count in (base_devices, devices))
    # All that is lost against ideal scaling is assumed to be a fixed cost of each step.
    overhead = max(0.0, 1 - base_devices * base_training / (devices * training))
    exposed = next((point.exposed for point in curve.points if point.devices == devices), None)
    if exposed:  # Measured as a share of the step: only this part shrinks with a larger batch.
        overhead = min(overhead, exposed.value)
    floors = [limit.bound for limit in purpose.limits if limit.name == "efficiency"]
    return BreakEven(
        devices=devices,
        base_devices=base_devices,
        floor=floors[0] if floors else DEFAULT_EFFICIENCY,
        base_start=job.start(base_devices) if job.work else 0.0,
        start=job.start(devices) if job.work else 0.0,
        base_training=base_training,
        training=training,
        # If only total times are known, an assumed law split them: the overhead is unknown.
        overhead=None if job.assumed_law else overhead,
        in_seconds=job.work is not None,
    )


def _growth_factor(required: float, gain: float) -> float | None:
    """Return the least k ≥ 1 with k × gain ≥ required; None if above ``MAX_FACTOR`` or infinite."""
    if gain <= 0 or required / gain > MAX_FACTOR:
        return None
    return max(1.0, required / gain)
