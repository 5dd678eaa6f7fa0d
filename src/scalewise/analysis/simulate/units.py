"""Parse links and sizes: ``25GB/s,20us`` and ``100MB``. A number without a unit is refused, and so
is ``Gb/s``, which may mean bits or bytes.
"""

import re
from collections.abc import Mapping

from scalewise.analysis.simulate.network import Link
from scalewise.catalog.hardware import links
from scalewise.errors import SpecError, shown

BYTES_PER_UNIT: Mapping[str, float] = {
    "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
BYTES_PER_SECOND: Mapping[str, float] = {
    **{f"{unit}/s": size for unit, size in BYTES_PER_UNIT.items()},
    **{f"{prefix}bit/s": size / 8 for prefix, size in
       (("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))},
}  # fmt: skip
UNITS_PER_SECOND: Mapping[str, float] = {
    "ns": 1e9, "us": 1e6, "µs": 1e6, "μs": 1e6, "ms": 1e3, "s": 1.0,
}  # fmt: skip
"""How many of each unit make one second. µ is listed twice: Unicode has two such letters."""
MAX_GRADIENT_BYTES = 1e12
"""No larger gradients are exchanged: such a model is split over devices."""
LINK_EXAMPLE = (
    "write a bandwidth and a latency: 25GB/s,20us in bytes, 200Gbit/s,20us in bits, or a name "
    "of `scalewise catalog links` and a latency: infiniband-hdr,20us"
)
SIZE_EXAMPLE = "for example 100MB or 1.5GB"


def parse_link(text: str) -> Link:
    """Parse a bandwidth, or a link of the catalog, and a latency, in either order.

    >>> parse_link("25GB/s,20us")
    Link(latency=2e-05, bandwidth=25000000000.0)
    >>> parse_link("infiniband-hdr, 5us")
    Link(latency=5e-06, bandwidth=25000000000.0)
    """
    catalog = links()
    bandwidths, latencies = [], []
    for part in text.split(","):
        if part.strip() in catalog:
            bandwidths.append(float(catalog[part.strip()].bandwidth))
            continue
        number, unit = _split_unit(part, {**BYTES_PER_SECOND, **UNITS_PER_SECOND}, LINK_EXAMPLE)
        if unit in BYTES_PER_SECOND:
            bandwidths.append(number * BYTES_PER_SECOND[unit])
        else:
            latencies.append(number / UNITS_PER_SECOND[unit])
    if (len(bandwidths), len(latencies)) != (1, 1):
        raise SpecError(
            f"a link has one bandwidth and one latency, got {shown(text)}", hint=LINK_EXAMPLE
        )
    if not bandwidths[0]:
        raise SpecError(
            f"the bandwidth of a link must be above 0, got {shown(text)}", hint=LINK_EXAMPLE
        )
    return Link(latencies[0], bandwidths[0])


def parse_size(text: str) -> float:
    """Parse a size in bytes.

    >>> parse_size("100MB"), parse_size("1GiB")
    (100000000.0, 1073741824.0)
    """
    number, unit = _split_unit(text, BYTES_PER_UNIT, SIZE_EXAMPLE)
    size = number * BYTES_PER_UNIT[unit]
    if not 0 < size <= MAX_GRADIENT_BYTES:
        raise SpecError(f"a size is above 0 and at most 1TB, got {shown(text)}", hint=SIZE_EXAMPLE)
    return size


def _split_unit(text: str, units: Mapping[str, float], hint: str) -> tuple[float, str]:
    """Return a number and its unit; raise if the unit is not one of ``units``."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(\S*?)\s*", text)
    if not match:
        raise SpecError(f"not a number from 0 up with its unit: {shown(text.strip())}", hint=hint)
    number, unit = match.groups()
    if unit not in units:
        problem = f"the unknown unit {shown(unit)}" if unit else "no unit"
        raise SpecError(f"{shown(text.strip())} has {problem}", hint=hint)
    return float(number), unit
