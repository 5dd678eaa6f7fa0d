"""Devices, links and prices as their makers and sellers state them, each with source and date.

A user's own rows, in ``catalog.toml`` beside the sites' file, win over ours by name.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from scalewise.errors import SpecError
from scalewise.user_config import own_file, own_table
from scalewise.validate import nearest, positive, refuse_unknown, typed, whole

FOLDER = Path(__file__).parent
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator as its maker states it; what is not stated is nothing."""

    name: str
    reported: Sequence[str] = ()
    """What engines call it."""
    dies: int = 1
    """How many devices an engine sees in one."""
    vendor: str | None = None
    memory: float | None = None
    """Bytes."""
    bandwidth: float | None = None
    """Bytes per second between the device and its memory."""
    peak: Mapping[str, float | None] = field(default_factory=dict)
    """Operations per second by precision, without sparsity."""
    power: float | None = None
    """The most watts it may draw: an upper bound of what it does."""
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One way between devices or nodes."""

    name: str
    latency: float | None = None
    """Seconds."""
    bandwidth: float
    """Bytes per second in each direction, before what protocols take of it."""
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What an instance costs for one hour."""

    provider: str
    instance: str
    device: str
    devices: int
    """Devices of one instance."""
    region: str | None = None
    hour: float
    """Money for one hour on demand."""
    spot: float | None = None
    """The same while nobody else wants it: it may be taken away."""
    currency: str
    interruption: float | None = None
    """The share of instances that are taken away within a month."""
    source: str
    date: str

    @property
    def name(self) -> str:
        """How it is asked for."""
        return f"{self.provider}:{self.instance}"


Row = Device | Link | Price
Kind = TypeVar("Kind", Device, Link, Price)
KINDS: dict[str, type[Device] | type[Link] | type[Price]] = {
    "devices": Device,
    "links": Link,
    "prices": Price,
}
"""What the catalog has, by the name of its file; a user's table has it without the s."""
EXAMPLES = {
    "memory": 80e9, "bandwidth": 25e9, "power": 500, "latency": 2e-6, "hour": 6.0, "spot": 2.5,
    "interruption": 0.05,
}  # fmt: skip
"""What a number may look like."""
TEXTS = ("name", "vendor", "provider", "instance", "device", "region", "currency", "source", "date")


def devices() -> dict[str, Device]:
    """Return every device, by name."""
    return _rows("devices", Device)


def links() -> dict[str, Link]:
    """Return every link, by name."""
    return _rows("links", Link)


def prices() -> dict[str, Price]:
    """Return every price, by provider and instance."""
    return _rows("prices", Price)


def search(kind: str, words: Sequence[str]) -> list[Row]:
    """Return the rows of a kind in which every word occurs.

    >>> [row.name for row in search("devices", ["H100", "sxm"])]
    ['h100-sxm']
    """
    every: dict[str, list[Row]] = {
        "devices": [*devices().values()],
        "links": [*links().values()],
        "prices": [*prices().values()],
    }
    asked = [word.lower() for word in words]
    return [row for row in every[kind] if all(word in _told(row) for word in asked)]


def called(text: str) -> Device | None:
    """Return the device that an engine calls so, or nothing: a name that is alike is no proof.

    >>> called("NVIDIA H200").name, called("NVIDIA H200 NVL")
    ('h200', None)
    """
    asked = text.strip().lower()
    for row in reversed(devices().values()):
        if asked in (name.lower() for name in (row.name, *row.reported)):
            return row
    return None


def drawing(text: str) -> Device:
    """Return the device of this name; of several that begin so, the one that may draw most.

    So what follows from its power stays an upper bound.

    >>> drawing("h100").name
    'h100-sxm'
    """
    typed("device", text, str, "a name")
    every = devices()
    asked = text.strip().lower().replace(" ", "-")
    named = {name.lower().replace(" ", "-"): row for name, row in every.items()}
    found = [named[asked]] if asked in named else [
        row for name, row in named.items() if asked and name.startswith(asked)
    ]  # fmt: skip
    if not found:
        raise SpecError(
            f"no device named {text!r} is listed",
            hint=nearest(asked, named) or "`scalewise catalog devices` shows them; or --watts 700",
        )
    known = [(row.power, row) for row in found if row.power is not None]
    if not known:
        raise SpecError(
            f"what a {found[0].name} draws is not known",
            hint="--watts 700; docs/guides/catalog.md adds a row of your own",
        )
    return max(known, key=lambda pair: pair[0])[1]


def _told(row: Row) -> str:
    """Return the words that a row is found by."""
    names = ("name", "vendor", "device", "region", "currency")
    return " ".join(str(getattr(row, name, "") or "") for name in names).lower()


def _rows(kind: str, of: type[Kind]) -> dict[str, Kind]:
    every: list[Kind] = [of(**row) for row in _ours(kind)]
    every += _own(kind, of)
    return {row.name: row for row in every}


@cache
def _ours(kind: str) -> tuple[dict[str, Any], ...]:
    return tuple(json.loads((FOLDER / f"{kind}.json").read_text(encoding="utf-8")))


def _own(kind: str, of: type[Kind]) -> list[Kind]:
    """Return the user's rows of one kind, each checked."""
    path = own_file("catalog.toml")
    table = own_table(path)
    words = [name.removesuffix("s") for name in KINDS]
    refuse_unknown(str(path), table, words)
    word = kind.removesuffix("s")
    rows = table.get(word, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SpecError(f"{path}: {word} must be rows, got {rows!r}", hint=f"write [[{word}]]")
    return [_checked(f"{path}, [[{word}]] {place}", row, of) for place, row in enumerate(rows, 1)]


def _checked(where: str, row: Mapping[str, Any], of: type[Kind]) -> Kind:
    """Return one row of a user; without source and date it is theirs."""
    known = {each.name: each for each in fields(of)}
    refuse_unknown(where, row, list(known))
    given = {"source": "your catalog.toml", "date": "as you wrote it", **row}
    for name, each in known.items():
        if name not in given and _needed(each):
            raise SpecError(f"{where} has no {name}", hint=_example(of))
    for name, value in given.items():
        try:
            _check_value(name, value)
        except SpecError as bad:
            raise SpecError(f"{where}: {bad}", hint=bad.hint) from bad
    return of(**given)


def _needed(each: "Field[Any]") -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _check_value(name: str, value: Any) -> None:
    if name in TEXTS:
        typed(name, value, str, "text")
        if not value.strip() or not value.isprintable():
            raise SpecError(f"{name} must be one line of text, got {value!r}")
    elif name == "reported":
        typed(name, value, list, 'a list of names, such as ["NVIDIA H200"]')
        for each in value:
            typed("each of reported", each, str, "text")
    elif name in ("devices", "dies"):
        whole(name, value, least=1)
    elif name == "peak":
        typed(name, value, dict, "a table, such as {bf16 = 312e12}")
        refuse_unknown(name, value, PRECISIONS)
        for precision, rate in value.items():
            positive(precision, rate, example=312e12)
    else:
        positive(name, value, example=EXAMPLES[name])
        if name == "interruption" and value > 1:
            raise SpecError(f"interruption must be a share from 0 to 1, got {value!r}")


def _example(of: type[Row]) -> str:
    shown = {
        Device: 'name = "mine", memory = 80e9, power = 500',
        Link: 'name = "mine", bandwidth = 25e9',
        Price: 'provider = "us", instance = "node", device = "a100-80gb", devices = 4, '
        'hour = 6.0, currency = "EUR"',
    }
    return f"at least {shown[of]}"
