"""Model FLOP utilization (MFU): the share of a device's peak that the model's operations reach.

    MFU = operations per sample × samples per second and device / peak of the device

The catalog lists the peak by the device's exact name and the run's precision, without sparsity.
"""

from collections.abc import Sequence
from typing import Any

from scalewise.analysis.measure.doubt import Doubt
from scalewise.analysis.measure.estimate import Estimate
from scalewise.catalog.hardware import device_by_reported_name
from scalewise.record.read import RunRecord

FLOPS_UNITS = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"))


def flops_unit(rate: float) -> tuple[float, str]:
    """Return the size and name of the unit in which to write a rate of operations.

    >>> flops_unit(4.2e14), flops_unit(3.0)
    ((1000000000000.0, 'TFLOP/s'), (1000000.0, 'MFLOP/s'))
    """
    return next((unit for unit in FLOPS_UNITS if rate >= unit[0]), FLOPS_UNITS[-1])


def point_flops(repeats: Sequence[RunRecord], per_device: Estimate) -> dict[str, Any]:
    """Return the operation and MFU fields of a point; ``per_device`` is one device's samples/s."""
    outline = repeats[0].ranks[0].outline
    flops = outline.flops
    if not flops:
        reason = outline.uncounted
        doubt = Doubt("operations not counted", {"reason": reason}) if reason else None
        return {"mfu_unknown": doubt}
    rate = per_device * flops
    counted: dict[str, Any] = {"flops": flops, "flops_per_second": rate}
    listed_peak = peak_flops(device_name(repeats), repeats[0].spec.precision)
    if isinstance(listed_peak, Doubt):
        return {**counted, "mfu_unknown": listed_peak}
    peak, source = listed_peak
    return {**counted, "peak": peak, "peak_source": source, "mfu": rate * (1 / peak)}


def device_name(repeats: Sequence[RunRecord]) -> str | None:
    """Return the device name that ranks recorded; several kinds are joined with "and"."""
    names = {rank.notes.device for record in repeats for rank in record.ranks}
    return " and ".join(sorted(map(str, names - {None}))) or None


def peak_flops(device: str | None, precision: str) -> tuple[float, str] | Doubt:
    """Return a device's peak operations per second and its source, or why the peak is unknown.

    >>> peak_flops("NVIDIA H200", "bf16")[0]
    989500000000000.0
    >>> peak_flops("cpu", "fp32")
    Doubt(kind='no peak of a CPU', figures={}, devices=None, error=0.0)
    """
    if device == "cpu":
        return Doubt("no peak of a CPU")
    row = device_by_reported_name(device) if device else None
    if row is None:
        return Doubt("unlisted device", {"device": device})
    peak = row.peak.get(precision)  # The peak of a board; each of its dies is a device.
    if peak is None:
        return Doubt("unlisted precision", {"device": row.name, "precision": precision})
    return float(peak / row.dies), f"{row.name} in {precision}: {row.source}"
