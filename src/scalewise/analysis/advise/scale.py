"""One number of devices as a choice: what it would take."""

from dataclasses import dataclass

from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import format_count
from scalewise.spec import Topology


@dataclass(frozen=True, kw_only=True)
class AtTarget:
    """What a scale needs until the target, where one is given."""

    batch: float
    """The global batch."""
    work: Estimate
    """Samples to target at this batch."""
    steps: Estimate
    """Optimizer steps to target."""
    start: float | None
    """Seconds of the start, where they are known."""
    hardware: Estimate
    """The efficiency of the devices, against the baseline."""
    statistical: Estimate
    """The efficiency of the batch: the baseline's work to target, over that of this batch."""


@dataclass(frozen=True, kw_only=True)
class Interrupted:
    """What interruptions cost on a scale, where devices are taken away now and then."""

    mean: float
    """Seconds between two of them, on average."""
    interval: float | None
    """Seconds of training between two saves; nothing where the job ends before one pays."""
    count: float
    """How many are to be expected."""
    lost: Estimate
    """Seconds of saves, lost work and restarts, part of the time."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A number of devices, measured or predicted, and what it would take."""

    devices: int
    nodes: int | None = None
    charged: int
    """Devices that are paid for: more than are used, where nodes are charged whole."""
    measured: bool = True
    throughput: Estimate | None = None
    time: Estimate | None = None
    """Seconds of the complete job, or of what the curve's times are."""
    efficiency: Estimate | None = None
    device_hours: Estimate | None = None
    cost: Estimate | None = None
    currency: str | None = None
    """Of the cost, where it is known."""
    energy: Estimate | None = None
    """Joules of the devices that are used."""
    chance: float | None = None
    """The chance to keep the limits of the purpose."""
    target: AtTarget | None = None
    """What the target takes; the time is then that until the target."""
    interrupted: Interrupted | None = None
    wait: float | None = None
    """Seconds in the queue, part of the time and of no device-hours."""

    @property
    def topology(self) -> Topology | None:
        """Nodes and devices of each, where the nodes are known and evenly filled."""
        if self.nodes is None or self.devices % self.nodes:
            return None
        return Topology(self.nodes, self.devices // self.nodes)

    @property
    def slowness(self) -> float:
        """The time; the time of one sample, where only throughput is known."""
        if self.time:
            return self.time.value
        assert self.throughput is not None  # One of the two is what a scale is weighed by.
        return 1 / self.throughput.value

    @property
    def held(self) -> float:
        """The time that devices are held: all of it, but for a wait before."""
        if self.wait and self.device_hours:
            return self.device_hours.value * 3600 / self.charged
        return self.slowness

    @property
    def spent(self) -> float:
        """Charged devices times the time that they are held: device-hours, but for the unit."""
        return self.charged * self.held

    def __str__(self) -> str:
        told = format_count(self.devices)
        return f"{told} ({self.topology})" if self.topology else told
