"""Many equal runs on N devices: side by side on k devices each, or one after another.

    time = wait + rounds × time of one run on k devices        rounds = ⌈runs / ⌊N / k⌋⌉

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
    """Runs side by side."""
    rounds: int
    time: Estimate
    """Seconds until all runs are done."""
    device_hours: Estimate
    """Of all runs together; devices that stay idle are not counted."""


@dataclass(frozen=True)
class Packing:
    """Equal runs, and every way to place them on each number of devices."""

    count: int
    ways: tuple[Placement, ...]

    def on(self, devices: int) -> tuple[Placement, ...]:
        """Return the placements on this many devices, the fewest devices per run first."""
        return tuple(way for way in self.ways if way.devices == devices)

    def best(self, devices: int) -> Placement:
        """Return the fastest placement; of equal ones, that with fewer devices per run."""
        return min(self.on(devices), key=lambda way: (way.time.value, way.each))

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of devices that have placements."""
        return tuple(dict.fromkeys(way.devices for way in self.ways))


def pack_runs(count: int, scales: Sequence[Scale]) -> Packing:
    """Return every way to place ``count`` equal runs on each of these scales."""
    check_integer("runs", count, minimum=1, maximum=MAX_RUNS, example=8)
    pairs = [(total, run) for total in scales for run in scales if run.devices <= total.devices]
    return Packing(count, tuple(_place(count, total, run) for total, run in pairs))


def _place(count: int, total: Scale, run: Scale) -> Placement:
    """Place the runs on the devices of ``total``, each run on those of ``run``."""
    run_time = run.require_time("runs are placed by their time")
    if run.device_hours:  # They leave out the wait in the queue, which happens once.
        run_time = run.device_hours * (3600 / run.charged)
    at_once = min(count, total.devices // run.devices)
    rounds = math.ceil(count / at_once)
    return Placement(
        devices=total.devices,
        each=run.devices,
        at_once=at_once,
        rounds=rounds,
        time=run_time.through(lambda seconds: (total.wait or 0.0) + rounds * seconds),
        device_hours=run_time * (count * run.devices / 3600),
    )
