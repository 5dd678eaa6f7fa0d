"""How busy devices and hosts were during an interval of a run, and their energy.

Utilisation misleads: a device that waits inside a collective spins, and shows 100 % without useful
work. Spinning takes far fewer watts than computing, so compare ``power`` first. A sample covers the
time since the previous sample; means weight it by how many of these seconds lie in the interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.measure.cached_value import cached_node_value
from scalewise.analysis.measure.energy import energy_between
from scalewise.analysis.measure.intervals import intersect
from scalewise.analysis.measure.window import training_interval
from scalewise.record.node_samples import NodeRecord
from scalewise.record.read import Numbers, RunRecord

IDLE_SHARE = 0.05
"""A device counts as idle in a sample if it was in use for less than this share of the time."""
MIN_IDLE_SECONDS = 2.0
"""Shorter pauses are not reported, because samples are about a second apart."""
THROTTLED_SHARE = 0.9
"""A device was throttled if its last clock rates are below this share of its highest rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """How one device was used during an interval; values that are unknown are None."""

    host: str
    index: int
    name: str | None
    busy: float | None
    """The mean share of time, 0 to 1, in which a kernel ran, including one that only waits."""
    memory: float | None
    """The highest number of bytes in use."""
    power: float | None
    """Mean watts."""
    energy: float | None
    """Joules, from the device's own counter."""
    idle: tuple[tuple[float, float], ...]
    """Start and end, by the wall clock, of each pause of two seconds or more."""
    clock: float | None
    """Mean MHz while the device was in use."""
    throttled: bool | None
    """Whether the mean clock in the last quarter (while in use) is below 90 % of the highest."""
    own: int | None
    """The most processes of the run on this device at one time; 0 if the run did not use it."""
    foreign: int | None
    """The most other processes on this device at one time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUtilisation:
    """How one machine was used during an interval; values that are unknown are None."""

    host: str
    busy: float | None
    """The mean busy share of all its cores, 0 to 1."""
    own: float | None
    """The mean share of all its cores that the run used."""
    memory: float | None
    """The highest number of bytes in use."""
    energy: float | None
    """Joules of its CPUs; accelerators and memory are not included."""
    ahead: float | None = None
    """Seconds by which the host's clock is ahead of the first node's."""
    within: float | None = None
    """The uncertainty of ``ahead`` in seconds."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How devices and hosts were used during the training."""

    devices: tuple[Utilisation, ...]
    hosts: tuple[HostUtilisation, ...]


@cached_node_value("usage")
def usage(record: RunRecord, nodes: Sequence[NodeRecord]) -> Usage | None:
    """Return how devices and hosts were used during the training; None without node samples."""
    interval = training_interval(record)
    if not nodes or not interval:
        return None
    return Usage(device_utilisations(nodes, *interval), host_utilisations(nodes, *interval))


def device_utilisations(
    nodes: Sequence[NodeRecord], start: float, end: float
) -> tuple[Utilisation, ...]:
    """Return how each device was used between two times of the wall clock."""
    utilisations = []
    for node in nodes:
        weights = _sample_weights(node, start, end)
        last_quarter_weights = _sample_weights(node, end - (end - start) / 4, end)
        for device in node.devices:
            # A low clock of an idle device is not throttling.
            clock = np.where(device.utilisation < IDLE_SHARE, np.nan, device.clock)
            late_clock = weighted_mean(clock, last_quarter_weights)
            own, foreign = _maximum(device.own, weights), _maximum(device.foreign, weights)
            utilisations.append(
                Utilisation(
                    host=node.host,
                    index=device.index,
                    name=device.name,
                    busy=weighted_mean(device.utilisation, weights),
                    memory=_maximum(device.memory, weights),
                    power=weighted_mean(device.power, weights),
                    energy=energy_between(node.at, device.energy, start, end),
                    idle=idle_periods(_edges(node), device.utilisation, start, end),
                    clock=weighted_mean(clock, weights),
                    throttled=None
                    if late_clock is None
                    else bool(late_clock < THROTTLED_SHARE * np.nanmax(clock)),
                    own=None if own is None else int(own),
                    foreign=None if foreign is None else int(foreign),
                )
            )
    return tuple(utilisations)


def host_utilisations(
    nodes: Sequence[NodeRecord], start: float, end: float
) -> tuple[HostUtilisation, ...]:
    """Return how each machine was used between two times of the wall clock."""
    weights_by_node = [_sample_weights(node, start, end) for node in nodes]
    return tuple(
        HostUtilisation(
            host=node.host,
            busy=weighted_mean(node.cpu, weights),
            own=weighted_mean(node.own, weights),
            memory=_maximum(node.memory, weights),
            energy=energy_between(node.at, node.energy, start, end),
            ahead=node.ahead,
            within=node.within,
        )
        for node, weights in zip(nodes, weights_by_node)
    )


def _edges(node: NodeRecord) -> Numbers:
    """Return the start of the first sample and the end of every sample."""
    return np.concatenate([node.at[:1] - node.interval, node.at])


def _sample_weights(node: NodeRecord, start: float, end: float) -> Numbers:
    """Return how many seconds between ``start`` and ``end`` each sample covers."""
    return np.diff(np.clip(_edges(node), start, end))


def weighted_mean(values: Numbers, weights: Numbers) -> float | None:
    """Return the weighted mean of the values that are not NaN; None if there are none.

    >>> weighted_mean(np.array([0.25, np.nan, 0.75]), np.array([1.0, 1.0, 3.0]))
    0.625
    """
    valid = (weights > 0) & ~np.isnan(values)
    return float(np.average(values[valid], weights=weights[valid])) if valid.any() else None


def _maximum(values: Numbers, weights: Numbers) -> float | None:
    """Return the largest value, without NaN and samples of weight 0; None if no value is left."""
    valid = values[(weights > 0) & ~np.isnan(values)]
    return float(valid.max()) if valid.size else None


def idle_periods(
    edges: Numbers, utilisation: Numbers, start: float, end: float
) -> tuple[tuple[float, float], ...]:
    """Return when the device was idle for two seconds or more. A NaN sample ends an idle period.

    >>> idle_periods(np.arange(6.0), np.array([1.0, 0.0, 0.04, 0.0, 0.9]), 0.0, 5.0)
    ((1.0, 4.0),)
    """
    idle = utilisation < IDLE_SHARE
    idle_samples = zip(edges[:-1][idle].tolist(), edges[1:][idle].tolist())
    periods = intersect(idle_samples, [(start, end)])
    return tuple((begin, stop) for begin, stop in periods if stop - begin >= MIN_IDLE_SECONDS)
