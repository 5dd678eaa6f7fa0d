"""What a log says, before anything is chosen or averaged."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from scalewise.analysis.measure.table_numbers import MAX_DEVICES, MAX_VALUE, MIN_VALUE

Quantity = Literal[
    "throughput", "steps_per_second", "step_time", "epoch_time", "time", "samples", "energy"
]
"""``time`` is that of the complete run, ``samples`` its work. Units: 1/s, 1/s, s, s, s, –, J."""

MAX_EPOCH = 1e9
MAX_DIGITS = 300
"""A longer integer is above every floating-point number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One number of a log."""

    quantity: Quantity
    value: float
    source: str
    """The format of the line, or the tag or column, as it is shown to users."""
    line: int | None = None
    """The number of the line; None in files without lines."""
    rank: int = 0
    """The place of the format in its table: of several formats, the lowest one is used."""
    epoch: int | None = None
    per_device: bool = False
    is_total: bool = False
    """Whether the log says that a throughput is that of all devices."""
    whole_run: bool = False
    """Whether it is a mean over the complete run, so that the last one of a log counts."""
    warmed_up: bool = False
    """Whether the first epoch is left out already."""
    unit: str | None = None
    """The unit of work of a throughput, such as ``images``."""
    low: float | None = None
    high: float | None = None
    """The interval, where the log gives one."""
    rounding: float = 0.0
    """Half of the unit of the last digit that is shown."""
    steps: int | None = None
    """Steps of the epoch that the observation is about."""
    batch: int | None = None
    """Samples per step of all devices, where the same line gives it."""
    printer: str | None = None
    """The label of the rank that printed the line, such as ``[1,0]``."""


@dataclass(frozen=True, slots=True)
class DeviceCount:
    """A number of devices, and where it was found."""

    devices: int
    where: str
    """Such as ``line 3`` or ``the file name``."""
    nodes: int | None = None


@dataclass(kw_only=True)
class Log:
    """The numbers of one run's log."""

    format: str
    """The kind of file, as it is shown to users: ``MLPerf log``, ``text log`` …"""
    name: str | None = None
    """The run within a file that holds several; None if the file is the run."""
    curve: str | None = None
    """The curve that the run belongs to, in files of scalewise; empty if they do not name it."""
    is_mean: bool = False
    """Whether it is the mean over repeats, which is not used where the repeats are known too."""
    observations: list[Observation] = field(default_factory=list)
    device_counts: list[DeviceCount] = field(default_factory=list)
    global_batch: int | None = None
    samples_per_epoch: int | None = None
    bad_values: int = 0
    """Numbers that are not above 0, such as ``nan``."""

    def add(self, observation: Observation) -> None:
        """Add a number; one that is not above 0 is only counted."""
        if MIN_VALUE <= observation.value <= MAX_VALUE:
            self.observations.append(observation)
        else:
            self.bad_values += 1

    def count_devices(self, devices: Any, where: str) -> None:
        """Note a number of devices that the log gives, if it is one that was not noted yet."""
        known = {count.devices for count in self.device_counts}
        if isinstance(devices, int) and 0 < devices <= MAX_DEVICES and devices not in known:
            self.device_counts.append(DeviceCount(devices, where))


def json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a line; None if it is none, is damaged or has a huge integer.

    >>> json_object('{"rate": 1}'), json_object('{"rate": 1' + 400 * "0" + "}")
    ({'rate': 1}, None)
    """
    try:
        value = json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError("an integer is too large")
    return int(digits)


def epoch_number(value: Any) -> int | None:
    """Return the number of an epoch from a JSON value or a cell; None if it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if abs(number) < MAX_EPOCH else None
