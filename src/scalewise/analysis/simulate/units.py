"""Links and sizes as people write them: ``25GB/s,20us`` and ``100MB``.

A number without a unit is refused, and so is ``Gb/s``: some mean bits by it and
some bytes, and they are eight times apart.
"""

import re
from collections.abc import Mapping

from scalewise.analysis.simulate.network import Link
from scalewise.catalog.hardware import links
from scalewise.errors import SpecError

SIZES: Mapping[str, float] = {
    "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
"""Bytes of each unit."""
RATES: Mapping[str, float] = {
    **{f"{unit}/s": size for unit, size in SIZES.items()},
    **{f"{prefix}bit/s": size / 8 for prefix, size in
       (("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))},
}  # fmt: skip
"""Bytes per second of each unit."""
LARGEST = 1e12
"""Bytes of gradients: a model beyond that is split over devices, and not exchanged whole."""
TIMES: Mapping[str, float] = {"ns": 1e9, "us": 1e6, "µs": 1e6, "μs": 1e6, "ms": 1e3, "s": 1.0}
"""How many of each unit are a second: both letters that look like a micro are in use."""
EXAMPLE = (
    "write a bandwidth and a latency: 25GB/s,20us in bytes, 200Gbit/s,20us in bits, or a name "
    "of `scalewise catalog links` and a latency: infiniband-hdr,20us"
)


def link(text: str) -> Link:
    """Return the link that is written as its bandwidth and its latency, in either order.

    A link of the catalog has its bandwidth by name; a latency is needed all the same.

    >>> link("25GB/s,20us")
    Link(latency=2e-05, bandwidth=25000000000.0)
    >>> link("infiniband-hdr, 5us")
    Link(latency=5e-06, bandwidth=25000000000.0)
    """
    known = links()
    named = [known[part.strip()].bandwidth for part in text.split(",") if part.strip() in known]
    rest = [part for part in text.split(",") if part.strip() not in known]
    parts = [(float(rate), "B/s") for rate in named]
    parts += [_quantity(part, {**RATES, **TIMES}, EXAMPLE) for part in rest]
    rates = [number * RATES[unit] for number, unit in parts if unit in RATES]
    times = [number / TIMES[unit] for number, unit in parts if unit in TIMES]
    if (len(rates), len(times)) != (1, 1):
        raise SpecError(f"a link has one bandwidth and one latency, got {text!r}", hint=EXAMPLE)
    if not rates[0]:
        raise SpecError(f"a link without bandwidth carries nothing: {text!r}", hint=EXAMPLE)
    return Link(times[0], rates[0])


def size(text: str) -> float:
    """Return bytes.

    >>> size("100MB"), size("1GiB")
    (100000000.0, 1073741824.0)
    """
    number, unit = _quantity(text, SIZES, "for example 100MB or 1.5GB")
    if not 0 < number * SIZES[unit] <= LARGEST:
        raise SpecError(
            f"a size is above 0 and at most 1TB, got {text!r}", hint="for example 100MB or 1.5GB"
        )
    return number * SIZES[unit]


def _quantity(text: str, units: Mapping[str, float], hint: str) -> tuple[float, str]:
    """Return a number and its unit."""
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(\S*?)\s*", text)
    if not found:
        raise SpecError(f"not a number from 0 up with its unit: {text.strip()!r}", hint=hint)
    if found[2] not in units:
        wrong = f"the unknown unit {found[2]!r}" if found[2] else "no unit"
        raise SpecError(f"{text.strip()!r} has {wrong}", hint=hint)
    return float(found[1]), found[2]


def told(there: Link) -> str:
    """Return a link as a person would write it.

    >>> told(Link(2e-05, 25e9))
    '25 GB/s and 20 µs'
    """
    unit = next((unit for unit in ("TB", "GB", "MB", "kB") if there.bandwidth >= SIZES[unit]), "B")
    return f"{there.bandwidth / SIZES[unit]:.4g} {unit}/s and {there.latency * 1e6:.3g} µs"


def bytes_told(count: float) -> str:
    """Return bytes for people.

    >>> bytes_told(212008), bytes_told(1e9)
    ('212 kB', '1 GB')
    """
    unit = next((unit for unit in ("TB", "GB", "MB", "kB") if count >= SIZES[unit]), "B")
    return f"{count / SIZES[unit]:.3g} {unit}"
