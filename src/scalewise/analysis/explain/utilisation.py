"""How busy devices and hosts were during a part of a run, and their energy.

Utilisation misleads: a device that waits inside a collective spins, and shows 100 % without useful
work. Spinning takes far fewer watts than computing, so compare ``power`` first. A sample covers the
time since the previous one, so means weight each sample by its seconds inside the part.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.measure.energy import energy_between
from scalewise.analysis.measure.intervals import intersect
from scalewise.record.node_samples import NodeRecord
from scalewise.record.read import Numbers

IDLE_SHARE = 0.05
"""A device is idle if it is in use for less than this share of the time."""
MIN_IDLE_SECONDS = 2.0
"""Shorter pauses are not reported: samples are about a second apart."""
THROTTLED_SHARE = 0.9
"""A clock that ends below this share of its highest rate was throttled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """One device during a stretch of time; unknown is ``None``."""

    host: str
    index: int
    name: str | None
    busy: float | None
    """The mean share of time, 0 to 1, in which anything ran: spinning in a collective too."""
    memory: float | None
    """The highest number of bytes in use."""
    power: float | None
    """Mean watts."""
    energy: float | None
    """Joules, from the device's own counter."""
    idle: tuple[tuple[float, float], ...]
    """Start and end, by the wall clock, of each pause of two seconds or more."""
    clock: float | None
    """Mean MHz while it was in use."""
    throttled: bool | None
    """Whether its clock while in use was, in the last quarter, below 90 % of the highest one."""
    own: int | None
    """The largest number of the run's processes on it at a time; 0 if the run did not use it."""
    foreign: int | None
    """The largest number of other processes on it at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUtilisation:
    """One machine during a stretch of time; unknown is ``None``."""

    host: str
    busy: float | None
    """The mean busy share of all its cores, 0 to 1."""
    own: float | None
    """The mean share of all its cores that the run used."""
    memory: float | None
    """The highest number of bytes in use."""
    energy: float | None
    """Joules of its processors, without its devices and its memory."""
    ahead: float | None = None
    """Seconds by which its clock is ahead of the first node's."""
    within: float | None = None
    """The uncertainty of ``ahead`` in seconds."""


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
    weights = [_sample_weights(node, start, end) for node in nodes]
    return tuple(
        HostUtilisation(
            host=node.host,
            busy=weighted_mean(node.cpu, seconds),
            own=weighted_mean(node.own, seconds),
            memory=_maximum(node.memory, seconds),
            energy=energy_between(node.at, node.energy, start, end),
            ahead=node.ahead,
            within=node.within,
        )
        for node, seconds in zip(nodes, weights)
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
    """Return the largest value of positive weight that is not NaN; None if there are none."""
    valid = values[(weights > 0) & ~np.isnan(values)]
    return float(valid.max()) if valid.size else None


def idle_periods(
    edges: Numbers, utilisation: Numbers, start: float, end: float
) -> tuple[tuple[float, float], ...]:
    """Return when the device was idle for two seconds or more; an unknown sample ends a period.

    >>> idle_periods(np.arange(6.0), np.array([1.0, 0.0, 0.04, 0.0, 0.9]), 0.0, 5.0)
    ((1.0, 4.0),)
    """
    idle = utilisation < IDLE_SHARE
    samples = zip(edges[:-1][idle].tolist(), edges[1:][idle].tolist())
    periods = intersect(samples, [(start, end)])
    return tuple((begin, stop) for begin, stop in periods if stop - begin >= MIN_IDLE_SECONDS)
