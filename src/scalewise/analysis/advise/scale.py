"""A scale: one number of devices as a candidate, with its time, cost and energy."""

from dataclasses import dataclass

from scalewise.analysis.measure import Estimate
from scalewise.errors import SpecError, parameter
from scalewise.spec import Topology


@dataclass(frozen=True, kw_only=True)
class AtTarget:
    """What a scale needs to reach a quality target. Its fields are keys of the JSON output."""

    batch: float
    """The global batch."""
    work: Estimate
    """Samples to target at this batch."""
    steps: Estimate
    """Optimizer steps to target."""
    start: float | None
    """Seconds until training begins; None where unknown."""
    hardware: Estimate
    """Efficiency of the devices by throughput, relative to the baseline."""
    statistical: Estimate
    """Efficiency of the batch: work to target with the baseline's batch / work with this batch."""


@dataclass(frozen=True, kw_only=True)
class Interrupted:
    """What interruptions cost on a scale. Its fields are keys of the JSON output."""

    mean: float
    """Mean seconds between two interruptions."""
    interval: float | None
    """Seconds of training between two saves; None where the job is too short for saves."""
    count: float
    """Expected number of interruptions."""
    lost: Estimate
    """Seconds of saves, lost work and restarts. ``Scale.time`` includes them."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A number of devices, and the time, cost and energy of the job, measured or predicted."""

    devices: int
    nodes: int | None = None
    charged: int
    """Devices that are paid for: more than are used, if whole nodes are charged."""
    measured: bool = True
    fitted_interval: bool = False
    """Measured once, without an interval: the intervals are those that a prediction has here."""
    throughput: Estimate | None = None
    time: Estimate | None = None
    """Seconds of the complete job; for a CSV, the value of its `time` column."""
    efficiency: Estimate | None = None
    device_hours: Estimate | None = None
    cost: Estimate | None = None
    currency: str | None = None
    """The currency of the cost; None where unknown."""
    energy: Estimate | None = None
    """Joules of the devices that are used, without those that are only charged."""
    chance: float | None = None
    """The probability of meeting all limits of the purpose."""
    target: AtTarget | None = None
    """What the target takes, if the user gave one; ``time`` is then the time to target."""
    interrupted: Interrupted | None = None
    wait: float | None = None
    """Seconds in the queue: part of the time, but not of the device-hours."""

    @property
    def topology(self) -> Topology | None:
        """Nodes and devices per node; None where nodes are unknown or unevenly filled."""
        if self.nodes is None or self.devices % self.nodes:
            return None
        return Topology(self.nodes, self.devices // self.nodes)

    def require_time(self, reason: str) -> Estimate:
        """Return the time. If there is none, raise an error that begins with ``reason``."""
        if self.time is None:
            raise SpecError(
                f"{reason}, and there are only throughputs",
                hint=f"add a `time` column, or give {parameter('target')}",
            )
        return self.time

    @property
    def slowness(self) -> float:
        """Seconds of the job, or of one sample if only throughput is known."""
        if self.time:
            return self.time.value
        assert self.throughput is not None  # Every scale has a time or a throughput.
        return 1 / self.throughput.value

    @property
    def busy_time(self) -> float:
        """The slowness without the wait in the queue: how long devices are in use."""
        if self.wait and self.device_hours:
            return self.device_hours.value * 3600 / self.charged
        return self.slowness

    @property
    def device_time(self) -> float:
        """Charged devices × busy time: device-seconds, per sample if only throughput is known."""
        return self.charged * self.busy_time
