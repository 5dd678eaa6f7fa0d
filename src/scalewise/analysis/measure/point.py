"""A point of a scaling curve: all metrics of one number of devices. Each metric is declared once,
as a field with its name (the key in JSON and CSV), the function that computes it, and its columns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from scalewise.analysis.measure import metrics
from scalewise.analysis.measure.doubt import Doubt
from scalewise.analysis.measure.energy import point_energy
from scalewise.analysis.measure.estimate import Estimate
from scalewise.analysis.measure.metrics import Repeats
from scalewise.analysis.measure.mfu import device_name, point_flops
from scalewise.record.schema import TRAIN, UNEXPLAINED, recurring

MIB = 1 / 2**20
"""The factor from bytes to MiB: MiB per byte."""
TableName = Literal["scaling", "time", "work", "memory", "quality"]


@dataclass(frozen=True, slots=True)
class Column:
    """How a metric is shown in a table."""

    heading: str
    table: TableName
    format: Literal["number", "share", "count", "text"] = "number"
    scale: float = 1.0
    """The factor from the metric's unit to the column's."""
    part: str | None = None
    """The key of the value to show, if the metric is a mapping."""
    spread: bool = False
    """Whether a second column shows the half-width of the interval."""
    shown: Literal["default", "wide", "all"] = "all"
    """By default, by default where the width allows it, or only with ``--all``."""


def metric(
    compute: Callable[[Repeats], Any],
    *columns: Column,
    default_factory: Callable[[], Any] = lambda: None,
) -> Any:
    """Declare a field of ``Point``: the function that computes it from repeats, and its columns."""
    metadata = {"compute": compute, "columns": columns}
    return field(default_factory=default_factory, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Point:
    """What was measured on one number of devices, and comparisons with other points."""

    devices: int
    nodes: int | None = None
    throughput: Estimate | None = metric(metrics.throughput)
    """Samples per second of all devices, in the steady state."""
    throughput_per_device: Estimate | None = metric(metrics.throughput_per_device)
    device_name: str | None = None
    """The framework's name of the devices; several kinds are joined with "and"."""
    flops: int | None = None
    """Operations of one sample, forward and backward."""
    flops_per_second: Estimate | None = None
    """Operations of the model per second, on one device."""
    peak: float | None = None
    """Peak operations per second of a device in the run's precision, without sparsity."""
    peak_source: str | None = None
    mfu: Estimate | None = None
    """The share of the peak that the model's operations reach."""
    mfu_unknown: Doubt | None = None
    """The reason why MFU is unknown."""
    time: Estimate | None = metric(metrics.complete_time)
    """Seconds of the complete job."""
    epoch_time: Estimate | None = metric(metrics.epoch_time)
    """Seconds per epoch, without the first epoch."""
    first_epoch_time: Estimate | None = metric(
        lambda repeats: metrics.epoch_time(repeats, slice(0, 1))
    )
    complete: Mapping[str, Estimate] = metric(metrics.complete_time_parts, default_factory=dict)
    """Seconds of each part of the lifetime; with ``unexplained`` they sum to ``time``."""
    energy: Estimate | None = None
    """Joules of the devices that computed, over the complete time."""
    energy_covers: str | None = None
    """What ``energy`` includes: ``accelerators`` without hosts, or the hosts' ``processors``."""
    energy_hosts: Estimate | None = None
    """Joules of the hosts' processors."""
    power: Estimate | None = None
    """Mean watts of a device over the complete time."""
    memory: Estimate | None = metric(
        metrics.peak_memory, Column("memory MiB", "memory", scale=MIB, shown="default")
    )
    """Peak bytes on the fullest device."""
    held: Estimate | None = metric(metrics.state_bytes, Column("model MiB", "memory", scale=MIB))
    """Bytes of parameters, gradients and optimizer state on the fullest device."""
    compression: Mapping[str, Estimate] | None = metric(
        metrics.compression,
        Column("bytes exchanged", "memory", "share", part="ratio"),
        Column("gradient error", "memory", "share", part="error"),
    )
    """``ratio``: exchanged bytes as a share of the gradients' bytes; ``error``: relative error of
    the exchanged gradients. None without compression.
    """
    noise: Estimate | None = metric(metrics.gradient_noise)
    """The gradient noise scale in samples, over the complete run."""
    sent: Estimate | None = metric(metrics.sent_bytes, Column("sent MiB/step", "memory", scale=MIB))
    """Bytes per step of the device that sends most, computed as if all collectives used a ring."""
    exposed: Estimate | None = metric(
        metrics.exposed_communication, Column("exposed", "memory", "share", shown="default")
    )
    """Share of a step that is exposed communication, mean over devices."""
    global_batch: int | None = metric(
        metrics.global_batch, Column("global batch", "work", "count", shown="default")
    )
    batches_per_rank: int | None = metric(
        metrics.batches_per_rank, Column("batches/rank", "work", "count")
    )
    """Per epoch; in total if the length of the run is set in steps."""
    samples_per_rank: int | None = metric(
        lambda repeats: repeats.outline.seen, Column("samples/rank", "work", "count")
    )
    steps: int | None = metric(
        lambda repeats: repeats.outline.steps * repeats.passes,
        Column("steps", "work", "count", shown="default"),
    )
    """Optimizer steps in total."""
    samples: int | None = metric(metrics.total_samples)
    """Samples of all ranks in total: the work done."""
    accuracy: Estimate | None = metric(
        metrics.accuracy, Column("accuracy", "quality", "share", spread=True, shown="default")
    )
    """On the validation data, after the last epoch."""
    validation_samples: int | None = metric(metrics.validation_samples)
    hosts: int | None = metric(metrics.host_count)
    left_out: str | None = metric(
        lambda repeats: repeats.windows[0].left_out, Column("warm-up excluded", "work", "text")
    )
    """Text: what was excluded from the steady state as warm-up."""

    ideal: Estimate | None = None
    """The baseline's throughput times the growth in devices."""
    speedup: Estimate | None = None
    """Over the baseline, by throughput."""
    speedup_time: Estimate | None = None
    """Over the baseline, by complete time; None if the work differs."""
    speedup_epoch: Estimate | None = None
    """Over the baseline, by epoch time; None if the work differs."""
    efficiency: Estimate | None = None
    """Speedup / growth in devices, by throughput; by time if only times are known."""
    gain: Estimate | None = None
    """Throughput added by one doubling of devices, as a share; by time if only times are known."""
    gain_absolute: float | None = None
    """Samples per second added since the previous point."""
    acceleration: Estimate | None = None
    """How many times faster than on another kind of device, by throughput."""
    acceleration_epoch: Estimate | None = None
    """The same by epoch time, without the first epoch."""
    acceleration_first: Estimate | None = None
    """The same by the time of the first epoch."""
    accelerated_from: str | None = None
    """Number and kind of the devices that acceleration compares with."""
    saved_previous: Estimate | None = None
    """Share of the complete time saved against the previous point."""
    saved_baseline: Estimate | None = None
    """Share of the complete time saved against the baseline."""
    serial_fraction: Estimate | None = None
    """Karp and Flatt's experimentally determined serial fraction."""
    overhead: float | None = metric(metrics.overhead)
    """Share of the complete time that is not training steps."""
    warnings: tuple[str | Doubt, ...] = ()

    @property
    def device_label(self) -> str:
        """The number and kind of the devices.

        >>> Point(devices=4, device_name="NVIDIA H200").device_label
        '4 x NVIDIA H200'
        """
        return f"{self.devices} x {self.device_name or 'an unknown device'}"

    @property
    def start_share(self) -> float | None:
        """The share of the complete time that a longer job has once: start and shutdown."""
        if not self.time or TRAIN not in self.complete:
            return None
        once = (*recurring("once"), UNEXPLAINED)
        return sum(self.complete[name].value for name in once if name in self.complete) / (
            self.time.value
        )

    @property
    def regime(self) -> str | None:
        """The larger part of the complete time: ``overhead`` or ``compute``; None if unknown."""
        if self.overhead is None:
            return None
        return "overhead" if self.overhead > 0.5 else "compute"


def columns_of(table: TableName) -> list[tuple[str, Column]]:
    """Return the columns that metrics declare for a table, each with the name of its field."""
    return [
        (declared.name, column)
        for declared in fields(Point)
        for column in declared.metadata.get("columns", ())
        if column.table == table
    ]


def measure_point(repeats: Repeats, warnings: tuple[Doubt, ...]) -> Point:
    """Return the point of one topology, not yet compared with other points."""
    topology = repeats.spec.topology
    computed = {
        declared.name: declared.metadata["compute"](repeats)
        for declared in fields(Point)
        if "compute" in declared.metadata
    }
    return Point(
        devices=topology.world,
        nodes=topology.nodes,
        device_name=device_name(repeats.records),
        **computed,
        **point_flops(repeats.records, computed["throughput_per_device"]),
        **point_energy(repeats.records, repeats.nodes),
        warnings=warnings,
    )
