"""Every sentence of `explain` but the guards': the largest cause, and something to try."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from scalewise.analysis.explain.chain import CAUSES
from scalewise.analysis.measure import Point
from scalewise.analysis.measure.mfu import flops_unit
from scalewise.analysis.number_format import format_count, format_rounded, join_with_and
from scalewise.spec import RunSpec, StrategyTraits

MIN_CAUSE_SHARE = 0.02
"""The smallest share of a step that is worth a sentence."""
CAUSE_TEXT = {
    "computation": "computation that takes longer than on the baseline",
    "balance": "waiting for the slowest rank",
    "input": "waiting for input",
    "transfer": "moving gradients",
    "orchestration": "other work in the loop, outside computation, input and communication",
}
COLLECTIVE_VERBS = {
    "all-reduce": "all-reduced",
    "all-gather": "all-gathered",
    "reduce-scatter": "reduce-scattered",
    "broadcast": "broadcast",
    "all-to-all": "exchanged by all with all",
    "point-to-point": "sent point to point",
}


@dataclass(frozen=True, slots=True)
class SlowestRank:
    """The rank whose own work takes longest."""

    rank: int
    host: str
    behind: float
    """Seconds per step by which it is slower than the typical rank."""
    even: bool
    """Whether all ranks have the same number of samples."""


@dataclass(frozen=True, slots=True)
class LoaderRates:
    """Samples per second that all loaders deliver without training, and that the steps need."""

    delivered: float
    needed: float
    workers: int

    @property
    def needed_workers(self) -> int:
        """How many workers would deliver what is needed."""
        per_worker = self.delivered / max(self.workers, 1)
        return max(1, math.ceil(self.needed / per_worker))


@dataclass(frozen=True, slots=True)
class PointFacts:
    """What the sentences about one point are made from; times are seconds per step."""

    devices: int
    step: float
    ideal: float
    added: Mapping[str, float | None]
    """By cause."""
    added_before: Mapping[str, float | None]
    """By cause, on the baseline."""
    devices_before: int
    phases_known: bool
    transfer_known: bool
    batch: float
    batch_before: float
    split: StrategyTraits = field(default_factory=StrategyTraits)
    """The strategy or split that decides what is exchanged."""
    balance: SlowestRank | None = None
    loaders: LoaderRates | None = None
    balance_known: bool = True
    has_workers: bool = True
    """Whether workers load the samples; if not, the framework reads them itself."""


@dataclass(frozen=True, slots=True)
class PointText:
    """The sentences about one point."""

    cause: str | None
    """The largest cause; None if none matters."""
    sentence: str
    action: str | None
    """Something to try."""
    unknown: tuple[str, ...] = ()
    """Warnings of what was not measured."""


def describe_point(point: PointFacts) -> PointText:
    """Return the largest cause, a sentence about it, an action, and what is unknown."""
    step, ideal = format_seconds(point.step), format_seconds(point.ideal)
    takes = f"On {format_count(point.devices)} a step takes {step}"
    if not point.phases_known:
        unknown = "the steps of this point, or of the baseline, were recorded without phases"
        return PointText(
            None,
            f"{takes}, and at the baseline's pace it would take {ideal}. "
            f"Where the time goes cannot be known: {unknown}.",
            "Use a strategy that records its phases; a fused step has none.",
            (f"no causes are known: {unknown}",),
        )
    unknown_parts = () if point.transfer_known else (_unknown_transfer(point),)
    added = {cause: point.added[cause] or 0.0 for cause in CAUSES}
    cause = max(CAUSES, key=lambda name: added[name])
    if added[cause] < MIN_CAUSE_SHARE * point.step:
        return PointText(
            None,
            f"{takes}, and computation alone needs {ideal} of it: nothing else costs much.",
            None,
            unknown_parts,
        )
    cause_text = CAUSE_TEXT[cause]
    if cause == "transfer":
        cause_text = point.split.transfer or cause_text
    elif _mixed_with_transfer(point, cause):
        cause_text = "computation and communication, which were not measured separately"
    sentence = f"{takes}{_share_of_added(point, added[cause])}{cause_text}"
    return PointText(
        cause, f"{sentence}{_baseline_had_it(point, cause)}.", _action(point, cause), unknown_parts
    )


def _mixed_with_transfer(point: PointFacts, cause: str) -> bool:
    return not point.transfer_known and cause in ("computation", "balance")


def _share_of_added(point: PointFacts, seconds: float) -> str:
    added = point.step - point.ideal
    if added <= 0:
        return f", {format_seconds(seconds)} of it "
    part = "most" if seconds > added / 2 else "the largest part"
    return (
        f", and computation alone would take {format_seconds(point.ideal)}: "
        f"{part} of the rest ({format_seconds(seconds)}) is "
    )


def _baseline_had_it(point: PointFacts, cause: str) -> str:
    """Return a clause where the baseline lost half as much to the same cause, or more."""
    before, now = point.added_before.get(cause) or 0.0, point.added[cause] or 0.0
    if point.devices == point.devices_before or before < now / 2:
        return ""
    return (
        f"; on {format_count(point.devices_before)} it was {format_seconds(before)} already, "
        "so it costs time rather than scaling"
    )


def _unknown_transfer(point: PointFacts) -> str:
    if not point.balance_known:
        return (
            "one process has several devices, and its step is fused: transfer and balance are "
            "unknown, and their time is in computation"
        )
    return (
        "communication was not measured separately from computation (`sync` is missing): "
        "transfer is unknown, and its time is in computation or balance"
    )


def _action(point: PointFacts, cause: str) -> str:
    if _mixed_with_transfer(point, cause):
        return (
            "Try a larger batch per device; to see which of the two it is, "
            "use a strategy that measures communication separately."
        )
    if cause == "input":
        return _input_action(point)
    if cause == "balance":
        return _balance_action(point)
    if cause == "transfer":
        return point.split.advice or (
            "Try a larger batch per device, several micro-steps per step (accumulate), "
            "or fewer nodes with more devices each."
        )
    if cause == "orchestration":
        return (
            "Look for work between the phases: logging, reading the loss of every step, "
            "saving; do it less often, or take a larger batch per device."
        )
    if point.batch < 0.9 * point.batch_before:
        return (
            f"A device gets {point.batch:.3g} samples per step, and {point.batch_before:.3g} "
            "on the baseline: try a larger global batch, small batches use a device badly."
        )
    return (
        "Look at what the devices of a host share: processor cores, memory bandwidth, power; "
        "try fewer threads per rank, or fewer ranks per host."
    )


def _input_action(point: PointFacts) -> str:
    if not point.has_workers:
        return (
            "The framework reads its data itself, without workers: look at the size of the "
            "samples, and at the cores that are left for reading them."
        )
    loaders = point.loaders
    if loaders is None:
        return (
            "Try more loader workers; --loaders-alone (`loaders_alone = true` in a study file) "
            "measures what the loaders can deliver, and then the number of workers can be named."
        )
    rates = (
        f"the loaders deliver {loaders.delivered:,.0f} samples/s and you need {loaders.needed:,.0f}"
    )
    if loaders.needed_workers <= loaders.workers:
        return (
            f"Alone {rates}: beside the training they are slower. "
            "Look at the processor cores and the storage that the ranks share."
        )
    return (
        f"{rates}: raise workers from {loaders.workers} to {loaders.needed_workers}.".capitalize()
    )


def _balance_action(point: PointFacts) -> str:
    slowest = point.balance
    if slowest and not slowest.even:
        return (
            "The ranks have different numbers of samples in a step: give all of them the same, "
            "for example with batches of equal length."
        )
    if slowest and slowest.behind > (point.added["balance"] or 0.0) / 2:
        return (
            f"Look at rank {slowest.rank} on {slowest.host}: in every step its own work takes "
            f"{format_seconds(slowest.behind)} longer than a typical rank's. Does the script do "
            "something on that rank alone? If not, compare its clocks, its temperature and the "
            "other load of its host."
        )
    return (
        "The ranks take turns at being slow: look for other work on their hosts, "
        "and for samples whose cost differs."
    )


def communication_sentence(
    spec: RunSpec, payload_bytes: Mapping[str, int] | None, exposed: float | None
) -> str | None:
    """Return what a step exchanges, and the share of it that is exposed; None if unknown."""
    if not payload_bytes:
        return None
    splits = {"tensor": spec.degrees.tensor, "pipeline": spec.degrees.pipeline}
    used = [f"{name} {n}" for name, n in splits.items() if n > 1 and name != spec.traits.degree]
    moved = [f"{_size(count)} {COLLECTIVE_VERBS[kind]}" for kind, count in payload_bytes.items()]
    parts = [f"{' x '.join([spec.strategy, *used])}: {join_with_and(moved)} per step and device"]
    if exposed is not None:
        parts.append(f"{100 * exposed:.0f} % of the step waits for others")
    if spec.bubble is not None:
        parts.append(
            f"the bubble of {spec.degrees.pipeline} stages and "
            f"{spec.pipeline_micro_batches} micro-batches "
            f"is {100 * spec.bubble:.0f} % of it (computed)"
        )
    return "; ".join(parts)


def _size(count: int) -> str:
    """Return bytes in MiB or KiB where there are as many.

    >>> _size(3 * 2**19), _size(2048), _size(5)
    ('1.5 MiB', '2 KiB', '5 bytes')
    """
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def mfu_sentence(point: Point) -> str | None:
    """Return a sentence with a device's operations per second and MFU, or why it is unknown."""
    if point.flops_per_second is None:
        return point.mfu_unknown
    rate = _flops_text(point.flops_per_second.value)
    subject = "a device" if point.devices == 1 else f"each of {point.devices:,} devices"
    reached = f"{subject} does {rate} of the model's own operations"
    if point.mfu is None or point.peak is None:
        return f"{reached}; MFU is not known: {point.mfu_unknown}"
    share = f"{100 * point.mfu.value:.1f} % of its {_flops_text(point.peak)}"
    return f"{reached}, {share} (MFU; {point.peak_source})"


def _flops_text(rate: float) -> str:
    size, unit = flops_unit(rate)
    return f"{format_rounded(rate / size)} {unit}"


def format_seconds(seconds: float) -> str:
    """Return seconds in s, ms or µs, with about three digits.

    >>> format_seconds(0.0251), format_seconds(3.2e-6), format_seconds(150.4)
    ('25.1 ms', '3.2 µs', '150 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds / 1e-6)} µs"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
