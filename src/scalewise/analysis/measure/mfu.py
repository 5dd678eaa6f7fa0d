"""What a model's own operations reach of what its device could do.

    MFU = operations of a sample × samples per second of a device / peak of the device

The peak is the one of the run's precision, without sparsity. A device that is
not listed has none, and a name that is only alike is no proof.
"""

from collections.abc import Sequence
from typing import Any

from scalewise.analysis.measure.estimate import Estimate
from scalewise.catalog.hardware import called
from scalewise.record.read import RunRecord

FLOPS_UNITS = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"))


def flops_unit(rate: float) -> tuple[float, str]:
    """Return the largest unit that a rate fills, with its size.

    >>> flops_unit(4.2e14), flops_unit(3.0)
    ((1000000000000.0, 'TFLOP/s'), (1000000.0, 'MFLOP/s'))
    """
    return next((each for each in FLOPS_UNITS if rate >= each[0]), FLOPS_UNITS[-1])


def point_flops(repeats: Sequence[RunRecord], per_device: Estimate) -> dict[str, Any]:
    """Return what is known of the operations of one topology, by a point's fields.

    ``per_device`` are the samples per second of one device.
    """
    outline = repeats[0].ranks[0].find("outline")
    name = device_name(repeats)
    flops = outline.get("flops")
    if not flops:
        why = outline.get("uncounted")
        return {"mfu_unknown": f"operations were not counted: {why}" if why else None}
    found: dict[str, Any] = {"flops": flops, "flops_per_second": per_device * flops}
    peak, source = peak_flops(name, repeats[0].spec.precision)
    if peak is None:
        return {**found, "mfu_unknown": source}
    return {
        **found,
        "peak": peak,
        "peak_source": source,
        "mfu": found["flops_per_second"] * (1 / peak),
    }


def device_name(repeats: Sequence[RunRecord]) -> str | None:
    """Return what the devices of one topology are called, all kinds of them."""
    names = {rank.find("device") for record in repeats for rank in record.ranks}
    return " and ".join(sorted(map(str, names - {None}))) or None


def peak_flops(device: str | None, precision: str) -> tuple[float | None, str]:
    """Return a device's operations per second in a precision, and who says so; or why not.

    >>> peak_flops("NVIDIA H200", "bf16")[0]
    989500000000000.0
    >>> peak_flops("cpu", "fp32")
    (None, 'a CPU has no peak of its own in the catalog')
    """
    if device == "cpu":
        return None, "a CPU has no peak of its own in the catalog"
    row = called(device) if device else None
    if row is None:
        return None, f"the catalog has no device that is called {device!r}"
    whole = row.peak.get(precision)
    if whole is None:
        return None, f"the catalog has no peak of {row.name} in {precision}"
    return float(whole / row.dies), f"{row.name} in {precision}: {row.source}"
