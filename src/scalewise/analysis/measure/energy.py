"""What a run took: joules by the counters of its devices and of its hosts' processors.

Counters are read once per device and once per host, never per rank: ranks that share
a device would count it twice. Accelerators are counted without their hosts; where ranks
compute on processors, the processors are what is counted, and whoever else used them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.analysis.measure.estimate import Estimate
from scalewise.record.node_samples import DeviceRecord, NodeRecord
from scalewise.record.read import Numbers, RunRecord

NodeSamples = Mapping[Path, Sequence[NodeRecord]]
"""What the samplers saw of each run, by its folder."""
MAX_UNSAMPLED_SHARE = 0.1
"""At most this share of a run may lie before the first and after the last sample."""
JOULES_PER_UNIT = {"J": 1.0, "Wh": 3.6e3, "kWh": 3.6e6, "MWh": 3.6e9}
"""Joules in each unit of energy."""
COVERAGE_TEXT = {
    "accelerators": "energy is that of the accelerators alone, without their hosts",
    "processors": "energy is that of the hosts' processors, whoever used them",
    "as given": "energy is as the table gives it",
}
"""What an energy may count, and how that is said."""


@dataclass(frozen=True, slots=True)
class Energy:
    """What one run took, in joules; unknown is nothing."""

    total: float | None = None
    """Of what did the computing."""
    hosts: float | None = None
    """Of the processors of all its hosts."""
    covers: str | None = None
    """What the total counts: ``accelerators`` or ``processors``."""


def run_energy(record: RunRecord, nodes: Sequence[NodeRecord]) -> Energy:
    """Return what a run took over its complete time, from what the samplers saw."""
    names = {rank.host for rank in record.ranks}
    there = [node for node in nodes if node.host in names]
    if {node.host for node in there} != names:
        return Energy()
    start, end = record.started, record.ended
    hosts = _sum(_over(node, node.energy, start, end) for node in there)
    if all(rank.find("device") == "cpu" for rank in record.ranks):
        return Energy(hosts, hosts, "processors" if hosts else None)
    used = _used(there, record.spec.topology.world)
    total = _sum(_over(node, device.energy, start, end) for node, device in used)
    return Energy(total, hosts, "accelerators" if total else None)


def _used(nodes: Sequence[NodeRecord], world: int) -> list[tuple[NodeRecord, DeviceRecord]]:
    """Return the devices that the run computed on; none where that cannot be told.

    A device on which none of its processes was ever seen was left alone. Where a
    container hides processes, all devices are the run's if there are as many as it has.
    """
    every = [(node, device) for node in nodes for device in node.devices]
    if not any(np.isnan(device.own).all() for _, device in every):
        return [(node, device) for node, device in every if np.nanmax(device.own) > 0]
    return every if len(every) == world else []


def _over(node: NodeRecord, counter: Numbers, start: float, end: float) -> float | None:
    """Return the joules of a counter between two moments of the first node's clock.

    The sampler begins a little after the launch. What little is missing at the edges
    is taken to draw the mean of the rest.
    """
    apart = node.ahead or 0.0
    known = ~np.isnan(counter)
    if known.sum() < 2 or end <= start:
        return None
    at = node.at[known]
    first, last = max(start + apart, float(at[0])), min(end + apart, float(at[-1]))
    if last - first < (1 - MAX_UNSAMPLED_SHARE) * (end - start):
        return None
    joules = energy_between(node.at, counter, first, last)
    return None if joules is None else joules * (end - start) / (last - first)


def _sum(parts: Iterable[float | None]) -> float | None:
    """Return the sum, or nothing where a part is not known or there is none."""
    found = list(parts)
    known = [each for each in found if each is not None]
    return sum(known) if known and len(known) == len(found) else None


def energy_between(at: Numbers, counter: Numbers, start: float, end: float) -> float | None:
    """Return the joules that a counter climbed between two moments, read between its samples.

    Nothing if the samples do not reach over both moments, or if the counter
    was set back in between: part of the energy would be missing.

    >>> energy_between(np.array([0.0, 1.0, 2.0]), np.array([50.0, 150.0, 350.0]), 0.5, 1.5)
    150.0
    """
    known = ~np.isnan(counter)
    at, counter = at[known], counter[known]
    if not at.size or start < at[0] or end > at[-1]:
        return None
    first = np.searchsorted(at, start, side="right") - 1
    last = np.searchsorted(at, end)
    if (np.diff(counter[first : last + 1]) < 0).any():
        return None
    low, high = np.interp([start, end], at, counter)
    return float(high - low)


def mean_device_watts(joules: float, seconds: float, devices: int) -> float:
    """Return the mean power of a device.

    >>> mean_device_watts(3.6e6, 3600.0, 2)
    500.0
    """
    return joules / (seconds * devices)


def point_energy(repeats: Sequence[RunRecord], nodes: NodeSamples) -> dict[str, Any]:
    """Return what the repeats of a point took, and the mean power of a device.

    Nothing where they do not count the same, or one of them is not known.
    """
    runs = [run_energy(record, nodes.get(record.folder, ())) for record in repeats]
    covers = {each.covers for each in runs}
    if len(covers) > 1:
        return {}
    drawn = [
        mean_device_watts(each.total, record.ended - record.started, record.spec.topology.world)
        for each, record in zip(runs, repeats)
        if each.total
    ]
    return {
        "energy": _summary([each.total for each in runs]),
        "energy_covers": covers.pop(),
        "energy_hosts": _summary([each.hosts for each in runs]),
        "power": Estimate.of(drawn) if drawn else None,
    }


def _summary(found: Sequence[float | None]) -> Estimate | None:
    known = [each for each in found if each]
    return Estimate.of(known) if len(known) == len(found) else None


def energy_unit(joules: float) -> str:
    """Return the unit that people would use."""
    return "kWh" if joules >= JOULES_PER_UNIT["kWh"] else "Wh"
