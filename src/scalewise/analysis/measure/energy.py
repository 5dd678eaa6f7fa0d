"""Energy of a run in joules, from the energy counters of its devices and of its hosts' processors.
The energy of accelerators excludes their hosts. That of processors includes other users' processes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.analysis.measure.cached_value import cached_node_value
from scalewise.analysis.measure.estimate import Estimate, estimate_if_all_known
from scalewise.record.node_samples import DeviceRecord, NodeRecord
from scalewise.record.read import Numbers, RunRecord

NodeSamples = Mapping[Path, Sequence[NodeRecord]]
"""The node samples of each run, by the run's folder."""
MAX_UNSAMPLED_SHARE = 0.1
"""At most this share of a run may lie before the first and after the last sample."""
JOULES_PER_UNIT = {"J": 1.0, "Wh": 3.6e3, "kWh": 3.6e6, "MWh": 3.6e9}


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy of one run in joules; None where it is unknown."""

    total: float | None = None
    """Energy of the accelerators, or of the processors if the run used no accelerator."""
    hosts: float | None = None
    """Energy of the processors of all hosts of the run."""
    covers: str | None = None
    """What the total includes: ``accelerators`` or ``processors``."""


@cached_node_value("energy")
def run_energy(record: RunRecord, nodes: Sequence[NodeRecord]) -> Energy:
    """Return the energy of a run over its complete time, from its node samples."""
    hosts = {rank.host for rank in record.ranks}
    nodes = [node for node in nodes if node.host in hosts]
    if {node.host for node in nodes} != hosts:
        return Energy()
    start, end = record.started, record.ended
    host_joules = _known_sum([_counter_joules(node, node.energy, start, end) for node in nodes])
    if all(rank.notes.device == "cpu" for rank in record.ranks):
        return Energy(host_joules, host_joules, "processors" if host_joules else None)
    used = _used_devices(nodes, record.spec.topology.world)
    total = _known_sum([_counter_joules(node, device.energy, start, end) for node, device in used])
    return Energy(total, host_joules, "accelerators" if total else None)


def _used_devices(nodes: Sequence[NodeRecord], world: int) -> list[tuple[NodeRecord, DeviceRecord]]:
    """Return the devices on which the run's processes ran; empty if unknown. If a container hides
    processes, these are all devices, provided that the run requested exactly as many.
    """
    devices = [(node, device) for node in nodes for device in node.devices]
    if not any(np.isnan(device.own).all() for _, device in devices):  # Processes are visible.
        return [(node, device) for node, device in devices if np.nanmax(device.own) > 0]
    return devices if len(devices) == world else []


def _counter_joules(node: NodeRecord, counter: Numbers, start: float, end: float) -> float | None:
    """Return a counter's joules between two times of the first node's clock; None if too little was
    sampled. Unsampled seconds at both ends are assumed to have the mean power of the others.
    """
    clock_offset = node.ahead or 0.0
    valid = ~np.isnan(counter)
    if valid.sum() < 2 or end <= start:
        return None
    at = node.at[valid]
    first, last = max(start + clock_offset, float(at[0])), min(end + clock_offset, float(at[-1]))
    if last - first < (1 - MAX_UNSAMPLED_SHARE) * (end - start):
        return None
    joules = energy_between(node.at, counter, first, last)
    return None if joules is None else joules * (end - start) / (last - first)


def _known_sum(parts: Sequence[float | None]) -> float | None:
    """Return the sum; None if a part is unknown or there are no parts."""
    numbers = [part for part in parts if part is not None]
    return sum(numbers) if numbers and len(numbers) == len(parts) else None


def energy_between(at: Numbers, counter: Numbers, start: float, end: float) -> float | None:
    """Return how far a counter rose, interpolated; None if it was reset or not sampled throughout.

    >>> energy_between(np.array([0.0, 1.0, 2.0]), np.array([50.0, 150.0, 350.0]), 0.5, 1.5)
    150.0
    """
    valid = ~np.isnan(counter)
    at, counter = at[valid], counter[valid]
    if not at.size or start < at[0] or end > at[-1]:
        return None
    first = np.searchsorted(at, start, side="right") - 1
    last = np.searchsorted(at, end)
    if (np.diff(counter[first : last + 1]) < 0).any():
        return None
    low, high = np.interp([start, end], at, counter)
    return float(high - low)


def point_energy(repeats: Sequence[RunRecord], nodes: NodeSamples) -> dict[str, Any]:
    """Return the energy fields of a point, including the mean power per device. The result is empty
    if the repeats' energies differ in what they cover (accelerators, processors or nothing).
    """
    energies = [run_energy(record, nodes.get(record.folder, ())) for record in repeats]
    covers = {energy.covers for energy in energies}
    if len(covers) > 1:
        return {}
    watts = [
        energy.total / ((record.ended - record.started) * record.spec.topology.world)
        for energy, record in zip(energies, repeats)
        if energy.total
    ]
    return {
        "energy": estimate_if_all_known([energy.total for energy in energies]),
        "energy_covers": covers.pop(),
        "energy_hosts": estimate_if_all_known([energy.hosts for energy in energies]),
        "power": Estimate.of(watts) if watts else None,
    }


def energy_unit(joules: float) -> str:
    """Return the unit in which to write an energy of this size."""
    return "kWh" if joules >= JOULES_PER_UNIT["kWh"] else "Wh"
