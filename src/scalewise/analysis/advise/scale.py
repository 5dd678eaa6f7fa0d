"""One number of devices as a choice: what it would take."""

import math
from dataclasses import dataclass

from scalewise.analysis.advise.power import Power, widened
from scalewise.analysis.measure import Estimate, Point
from scalewise.analysis.predict import Ahead, Prediction
from scalewise.catalog.rates import Rate
from scalewise.errors import SpecError
from scalewise.spec import Topology


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
    def spent(self) -> float:
        """Charged devices times time: device-hours, but for the unit."""
        return self.charged * self.slowness

    def __str__(self) -> str:
        told = counted(self.devices)
        return f"{told} ({self.topology})" if self.topology else told


def counted(devices: int) -> str:
    """Return a number of devices in words.

    >>> counted(1), counted(1024)
    ('1 device', '1,024 devices')
    """
    return f"{devices:,} device" + ("" if devices == 1 else "s")


def scales_of(
    found: Prediction, rate: Rate | None, power: Power | None, *, whole_nodes: bool
) -> list[Scale]:
    """Return every scale that can be weighed; by time, or by throughput where times say nothing."""
    by_time = all(point.time for point in found.points)
    points = {point.devices: point for point in reversed(found.curve.points)}
    per_node = found.curve.devices_per_node
    if whole_nodes and per_node is None:
        raise SpecError(
            "whole nodes cannot be charged: the devices per node are not known",
            hint="--devices-per-node 4, or devices_per_node=4 in Python",
        )

    def scale(ahead: Ahead) -> Scale:
        seen = points.get(ahead.devices)
        nodes = seen.nodes if seen else ahead.nodes
        charged = nodes * per_node if whole_nodes and nodes and per_node else ahead.devices
        time = ahead.time if by_time else None
        hours = time * (charged / 3600) if time else None
        return Scale(
            devices=ahead.devices,
            nodes=nodes,
            charged=charged,
            measured=seen is not None,
            throughput=ahead.throughput,
            time=time,
            efficiency=_efficiency(ahead, found),
            device_hours=hours,
            cost=hours * rate.per_device_hour if hours and rate else None,
            currency=rate.currency if rate else None,
            energy=_energy(ahead.devices, time, seen, power) if time and power else None,
        )

    return [scale(ahead) for ahead in found.points if by_time or ahead.throughput]


def _energy(devices: int, time: Estimate, seen: Point | None, power: Power) -> Estimate:
    """Return the joules of a scale: a measured number keeps its value, within its time's range."""
    if seen is None or seen.energy is None:
        return power.energy(time * devices)
    own = seen.energy
    off = math.log(own.high / own.low) / 2 if own.low and own.high else 0.0
    return widened(time.through(lambda seconds: own.value * seconds / time.value), off)


def _efficiency(ahead: Ahead, found: Prediction) -> Estimate | None:
    """Return the efficiency against the baseline: by throughput, or by time if that is all."""
    base = found.curve.baseline
    growth = ahead.devices / base.devices
    if growth == 1:
        return Estimate(1.0, 1.0, 1.0, len(found.curve.points))
    if base.throughput and ahead.throughput:
        return ahead.throughput * (1 / (base.throughput.value * growth))
    if base.throughput or not (base.time and ahead.time):
        return None
    whole = base.time.value / growth
    return ahead.time.through(lambda seconds: whole / seconds)
