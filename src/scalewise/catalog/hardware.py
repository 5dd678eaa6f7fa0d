"""Devices, links and prices as their vendors state them, each with source and date. Rows of
``catalog.toml`` in the user's configuration folder replace built-in rows of the same name.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from scalewise.errors import SpecError, parameter, shown
from scalewise.user_config import load_user_config, user_config_path
from scalewise.validate import (
    check_integer,
    check_positive,
    check_type,
    refuse_unknown_keys,
    suggest_name,
)

CATALOG_FOLDER = Path(__file__).parent
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator, as its vendor states it; a value that is not stated is None."""

    name: str
    reported: Sequence[str] = ()
    """Names by which frameworks report this accelerator."""
    dies: int = 1
    """As how many devices a framework counts this accelerator: 2 if each of two dies is one."""
    vendor: str | None = None
    memory: float | None = None
    """Bytes."""
    bandwidth: float | None = None
    """Bytes per second between the device and its memory."""
    peak: Mapping[str, float | None] = field(default_factory=dict)
    """Floating-point operations per second of all dies, by precision, without sparsity."""
    power: float | None = None
    """Rated watts, an upper bound of the power in use."""
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One connection between devices or nodes."""

    name: str
    latency: float | None = None
    """Seconds."""
    bandwidth: float
    """Bytes per second in each direction, without protocol overhead."""
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a cloud instance."""

    provider: str
    instance: str
    device: str
    devices: int
    """Devices of one instance."""
    region: str | None = None
    hour: float
    """Price of one hour on demand."""
    spot: float | None = None
    """Price of one hour as a spot instance, which may be preempted."""
    currency: str
    interruption: float | None = None
    """The share of spot instances that are preempted within a month."""
    source: str
    date: str

    @property
    def name(self) -> str:
        """The name of this price in options of the command line."""
        return f"{self.provider}:{self.instance}"


Row = Device | Link | Price
RowType = TypeVar("RowType", bound=Row)
ROW_TYPES: dict[str, type[Row]] = {"devices": Device, "links": Link, "prices": Price}
"""Row types by file name. In ``catalog.toml`` the s is omitted: [[device]]."""
EXAMPLE_VALUES = {
    "memory": 80e9, "bandwidth": 25e9, "power": 500, "latency": 2e-6, "hour": 6.0, "spot": 2.5,
    "interruption": 0.05,
}  # fmt: skip
"""A plausible value of each numeric field, for hints."""
EXAMPLE_ROWS: dict[type, str] = {
    Device: 'name = "mine", memory = 80e9, power = 500',
    Link: 'name = "mine", bandwidth = 25e9',
    Price: 'provider = "us", instance = "node", device = "a100-80gb", devices = 4, '
    'hour = 6.0, currency = "EUR"',
}
"""The smallest row of each type, for hints."""
TEXT_FIELDS = (
    "name", "vendor", "provider", "instance", "device", "region", "currency", "source", "date",
)  # fmt: skip


def devices() -> dict[str, Device]:
    """Return every device, by name."""
    return _load_rows("devices", Device)


def links() -> dict[str, Link]:
    """Return every link, by name."""
    return _load_rows("links", Link)


def prices() -> dict[str, Price]:
    """Return every price, by its name ``provider:instance``."""
    return _load_rows("prices", Price)


def search_catalog(kind: str, words: Sequence[str]) -> list[Row]:
    """Return the rows of a kind (``ROW_TYPES``) whose text has every word, in any case.

    >>> [row.name for row in search_catalog("devices", ["H100", "sxm"])]
    ['h100-sxm']
    """
    names = ("name", "vendor", "device", "region", "currency")
    rows = []
    for row in _load_rows(kind, ROW_TYPES[kind]).values():
        text = " ".join(str(getattr(row, name, "") or "") for name in names).lower()
        if all(word.lower() in text for word in words):
            rows.append(row)
    return rows


def device_by_reported_name(text: str) -> Device | None:
    """Return the device with this name or reported name (all of it, in any case), or None.

    >>> device_by_reported_name("NVIDIA H200").name, device_by_reported_name("NVIDIA H200 NVL")
    ('h200', None)
    """
    name = text.strip().lower()
    for row in reversed(devices().values()):  # The user's rows are last and take precedence.
        if name in (alias.lower() for alias in (row.name, *row.reported)):
            return row
    return None


def device_for_power(text: str) -> Device:
    """Return the device of this name; else the one of most watts whose name begins with it.

    >>> device_for_power("h100").name
    'h100-sxm'
    """
    check_type("device", text, str, "a name")
    name = text.strip().lower().replace(" ", "-")
    rows = {row_name.lower().replace(" ", "-"): row for row_name, row in devices().items()}
    prefix_matches = [row for row_name, row in rows.items() if name and row_name.startswith(name)]
    matching = [rows[name]] if name in rows else prefix_matches
    if not matching:
        raise SpecError(
            f"no device named {shown(text)} is listed",
            hint=suggest_name(name, rows)
            or f"`scalewise catalog devices` shows them; or give {parameter('watts', 700)}",
        )
    with_power = [(row.power, row) for row in matching if row.power is not None]
    if not with_power:
        raise SpecError(
            f"the power of {matching[0].name} is not known",
            hint=f"give {parameter('watts', 700)}; to add a row, see docs/guides/catalog.md",
        )
    return max(with_power, key=lambda pair: pair[0])[1]


def _load_rows(kind: str, row_type: type[RowType]) -> dict[str, RowType]:
    """Return the rows of a kind by name: built-in rows, replaced or extended by the user's."""
    path, key = user_config_path("catalog.toml"), kind.removesuffix("s")
    table = load_user_config(path)
    refuse_unknown_keys(str(path), table, [name.removesuffix("s") for name in ROW_TYPES])
    user_rows = table.get(key, [])
    if not isinstance(user_rows, list) or not all(isinstance(row, dict) for row in user_rows):
        raise SpecError(
            f"{path}: {key} must be rows, got {shown(user_rows)}", hint=f"write [[{key}]]"
        )
    rows = [row_type(**row) for row in _built_in_rows(kind)]
    for number, row in enumerate(user_rows, 1):
        rows.append(_checked_row(f"{path}, [[{key}]] {number}", row, row_type))
    return {row.name: row for row in rows}


@cache
def _built_in_rows(kind: str) -> tuple[dict[str, Any], ...]:
    return tuple(json.loads((CATALOG_FOLDER / f"{kind}.json").read_text(encoding="utf-8")))


def _checked_row(where: str, row: Mapping[str, Any], row_type: type[RowType]) -> RowType:
    """Return a row that the user wrote; raise if it is wrong. Source and date may be omitted."""
    columns = {column.name: column for column in fields(row_type)}
    refuse_unknown_keys(where, row, list(columns))
    values = {"source": "your catalog.toml", "date": "as you wrote it", **row}
    for name, column in columns.items():
        required = column.default is MISSING and column.default_factory is MISSING
        if required and name not in values:
            raise SpecError(f"{where} has no {name}", hint=f"at least {EXAMPLE_ROWS[row_type]}")
    for name, value in values.items():
        try:
            _check_value(name, value)
        except SpecError as error:
            raise SpecError(f"{where}: {error}", hint=error.hint) from error
    return row_type(**values)


def _check_value(name: str, value: Any) -> None:
    """Raise SpecError if a value does not fit the field ``name``."""
    if name in TEXT_FIELDS:
        check_type(name, value, str, "text")
        if not value.strip() or not value.isprintable():
            raise SpecError(
                f"{name} must be one line of text, got {shown(value)}",
                hint=f'for example {name} = "text"',
            )
    elif name == "reported":
        check_type(name, value, list, 'a list of names, such as ["NVIDIA H200"]')
        for alias in value:
            check_type("each of reported", alias, str, "text")
    elif name in ("devices", "dies"):
        check_integer(name, value, minimum=1)
    elif name == "peak":
        check_type(name, value, dict, "a table, such as {bf16 = 312e12}")
        refuse_unknown_keys(name, value, PRECISIONS)
        for precision, rate in value.items():
            check_positive(precision, rate, example=312e12)
    else:
        check_positive(name, value, example=EXAMPLE_VALUES[name])
        if name == "interruption" and value > 1:
            raise SpecError(
                f"interruption must be a share from 0 to 1, got {shown(value)}",
                hint="for example interruption = 0.05",
            )
