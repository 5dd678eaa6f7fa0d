"""Many equal runs on N devices: side by side on k devices each, or one after another.

    time = wait in queue + rounds × time of one run on k devices        rounds = ⌈runs / ⌊N / k⌋⌉

One device per run is not always best: a round that is not full leaves devices idle.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.measure import Estimate
from scalewise.validate import check_integer

MAX_RUNS = 10**6
"""A larger number of runs is refused as a typing error."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One way to place all runs on ``devices``. Its fields are keys of the JSON output."""

    devices: int
    each: int
    """Devices per run."""
    at_once: int
    """Runs that train at the same time."""
    rounds: int
    """How often ``at_once`` runs train, one group of runs after another."""
    time: Estimate
    """Seconds until all runs are done."""
    device_hours: Estimate
    """Device-hours of all runs together, without devices that stay idle."""


@dataclass(frozen=True)
class Packing:
    """Every way to place ``count`` equal runs on each number of devices."""

    count: int
    ways: tuple[Placement, ...]

    def on(self, devices: int) -> tuple[Placement, ...]:
        """Return the placements on this many devices, the fewest devices per run first."""
        return tuple(way for way in self.ways if way.devices == devices)

    def best(self, devices: int) -> Placement:
        """Return the fastest placement; if several are, the one with fewest devices per run."""
        return min(self.on(devices), key=lambda way: (way.time.value, way.each))

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of devices that have placements."""
        return tuple(dict.fromkeys(way.devices for way in self.ways))


def pack_runs(count: int, scales: Sequence[Scale]) -> Packing:
    """Return every way to place ``count`` equal runs on each of these scales."""
    check_integer("runs", count, minimum=1, maximum=MAX_RUNS, example=8)
    pairs = [(total, part) for total in scales for part in scales if part.devices <= total.devices]
    return Packing(count, tuple(_place(count, total, part) for total, part in pairs))


def _place(count: int, total: Scale, part: Scale) -> Placement:
    """Return the placement on the devices of ``total``, each run on the devices of ``part``."""
    run_time = part.require_time("runs are placed by their time")
    if part.device_hours:  # They exclude the wait in the queue, which happens once.
        run_time = part.device_hours * (3600 / part.charged)
    at_once = min(count, total.devices // part.devices)
    rounds = math.ceil(count / at_once)
    return Placement(
        devices=total.devices,
        each=part.devices,
        at_once=at_once,
        rounds=rounds,
        time=run_time.through(lambda seconds: (total.wait or 0.0) + rounds * seconds),
        device_hours=run_time * (count * part.devices / 3600),
    )
