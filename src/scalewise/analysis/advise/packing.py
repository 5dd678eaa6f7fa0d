"""Many equal runs on some devices: side by side on few devices each, or one after another.

    time = wait + rounds × time of one run on k devices        rounds = ⌈runs / ⌊N / k⌋⌉

A run on fewer devices is more efficient, but a round that is not full leaves devices idle.
One device per run is therefore not always best.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.measure import Estimate
from scalewise.errors import SpecError, parameter
from scalewise.validate import check_integer

MAX_RUNS = 10**6
"""More are refused as a typing error."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One way to place the runs on all devices. Its fields are keys of the JSON output."""

    devices: int
    each: int
    """Devices of one run."""
    at_once: int
    """Runs side by side."""
    rounds: int
    time: Estimate
    """Seconds until all runs are done."""
    device_hours: Estimate
    """Of all runs together, without devices that idle beside them."""


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
    check_integer("runs", count, minimum=1)
    if count > MAX_RUNS:
        raise SpecError(
            f"runs must be at most {MAX_RUNS:,}, got {count:,}",
            hint=f"for example {parameter('runs', 8)}",
        )
    return Packing(
        count,
        tuple(
            _place(count, all_devices, run_scale)
            for all_devices in scales
            for run_scale in scales
            if run_scale.devices <= all_devices.devices
        ),
    )


def _place(count: int, all_devices: Scale, run_scale: Scale) -> Placement:
    if run_scale.device_hours is None:
        raise SpecError(
            "runs are placed by their time, and there are only throughputs",
            hint=f"add a column time, or give {parameter('target')}",
        )
    at_once = min(count, all_devices.devices // run_scale.devices)
    rounds = math.ceil(count / at_once)
    wait = all_devices.wait or 0.0
    # Not run_scale.time: that includes the wait in the queue, which happens once.
    run_time = run_scale.device_hours * (3600 / run_scale.charged)
    return Placement(
        devices=all_devices.devices,
        each=run_scale.devices,
        at_once=at_once,
        rounds=rounds,
        time=run_time.through(lambda seconds: wait + rounds * seconds),
        device_hours=run_time * (count * run_scale.devices / 3600),
    )
