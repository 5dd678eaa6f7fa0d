"""The causes of a point in a sentence that a student understands, and something to try."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scalewise.analysis.explain.chain import CAUSES
from scalewise.analysis.explain.communication_time import TRANSFER_ACTIONS, TRANSFER_TEXT
from scalewise.analysis.number_format import format_count

MIN_CAUSE_SHARE = 0.02
"""The smallest share of a step that is worth a sentence."""
CAUSE_TEXT = {
    "computation": "computation that takes longer than on the baseline",
    "balance": "waiting for the slowest rank",
    "input": "waiting for input",
    "transfer": "moving gradients",
    "orchestration": "other work in the loop, outside computation, input and communication",
}


@dataclass(frozen=True, slots=True)
class SlowestRank:
    """The rank that is slowest by itself, and by how much."""

    rank: int
    host: str
    behind: float
    even: bool
    """Whether all ranks have the same number of samples."""


@dataclass(frozen=True, slots=True)
class LoaderRates:
    """Samples per second that all loaders deliver alone, and that the steps need."""

    delivered: float
    needed: float
    workers: int

    @property
    def wanted(self) -> int:
        """How many workers would deliver what is needed."""
        each = self.delivered / max(self.workers, 1)
        return max(1, math.ceil(self.needed / each))


@dataclass(frozen=True, slots=True)
class PointFacts:
    """What is known of one point."""

    devices: int
    step: float
    ideal: float
    added: Mapping[str, float | None]
    added_before: Mapping[str, float | None]
    """On the baseline."""
    devices_before: int
    phases_known: bool
    transfer_known: bool
    batch: float
    batch_before: float
    way: str = "ddp"
    """The way of splitting that decides what is exchanged."""
    balance: SlowestRank | None = None
    loaders: LoaderRates | None = None
    balance_known: bool = True
    loads: bool = True
    """Whether workers load the samples; if not, the engine reads them by itself."""


@dataclass(frozen=True, slots=True)
class PointText:
    """The same in words."""

    cause: str | None
    sentence: str
    action: str | None
    unknown: tuple[str, ...] = ()


def describe_point(story: PointFacts) -> PointText:
    """Return the largest cause, a sentence about it, and what cannot be known."""
    step, ideal = duration(story.step), duration(story.ideal)
    takes = f"On {format_count(story.devices)} a step takes {step}"
    if not story.phases_known:
        unknown = "the steps of this point, or of the baseline, were recorded without phases"
        return PointText(
            None,
            f"{takes}, and at the baseline's pace it would take {ideal}. "
            f"Where the time goes cannot be known: {unknown}.",
            "Use a strategy that tells its phases apart; a step fused into one has none.",
            (f"no causes are known: {unknown}",),
        )
    unknown_parts = () if story.transfer_known else (_not_apart(story),)
    found = {cause: story.added[cause] or 0.0 for cause in CAUSES}
    cause = max(CAUSES, key=lambda each: found[each])
    if found[cause] < MIN_CAUSE_SHARE * story.step:
        return PointText(
            None,
            f"{takes}, and computation alone needs {ideal} of it: nothing else costs much.",
            None,
            unknown_parts,
        )
    said = (
        TRANSFER_TEXT.get(story.way, CAUSE_TEXT[cause])
        if cause == "transfer"
        else CAUSE_TEXT[cause]
    )
    if not story.transfer_known and cause in ("computation", "balance"):
        said = "computation and communication, which were not told apart"
    sentence = f"{takes}{_rest(story, found[cause])}{said}{_already(story, cause)}."
    return PointText(cause, sentence, _action(story, cause), unknown_parts)


def _rest(story: PointFacts, seconds: float) -> str:
    more = story.step - story.ideal
    if more <= 0:
        return f", {duration(seconds)} of it "
    part = "most" if seconds > more / 2 else "the largest part"
    return (
        f", and computation alone would take {duration(story.ideal)}: "
        f"{part} of the rest ({duration(seconds)}) is "
    )


def _already(story: PointFacts, cause: str) -> str:
    """Say of a cause that it does not grow with the devices, if it does not."""
    before, now = story.added_before.get(cause) or 0.0, story.added[cause] or 0.0
    if story.devices == story.devices_before or before < now / 2:
        return ""
    device = "device" if story.devices_before == 1 else "devices"
    return (
        f"; on {story.devices_before} {device} it was {duration(before)} already, so it costs time "
        "rather than scaling"
    )


def _not_apart(story: PointFacts) -> str:
    if not story.balance_known:
        return (
            "one process has several devices, and its step is one piece: transfer and balance are "
            "unknown, and what they took is in computation"
        )
    return (
        "communication was not told apart from computation (`sync` was not measured): "
        "transfer is unknown, and what it took is in computation or balance"
    )


def _action(story: PointFacts, cause: str) -> str:
    if cause == "input":
        return (
            _feed(story.loaders)
            if story.loads
            else (
                "The engine reads its data by itself, without workers: look at the size of the "
                "samples, and at the cores that are left for reading them."
            )
        )
    if not story.transfer_known and cause in ("computation", "balance"):
        return (
            "Try a larger batch per device; to see which of the two it is, "
            "measure with a strategy that tells communication apart."
        )
    if cause == "balance":
        return _even_out(story)
    if cause == "transfer":
        return TRANSFER_ACTIONS.get(story.way) or (
            "Try a larger batch per device, several micro-steps per step (accumulate), "
            "or fewer nodes with more devices each."
        )
    if cause == "computation":
        if story.batch < 0.9 * story.batch_before:
            return (
                f"A device gets {story.batch:.3g} samples per step, and {story.batch_before:.3g} "
                "on the baseline: try a larger global batch, small batches use a device badly."
            )
        return (
            "Look at what the devices of a host share: processor cores, memory bandwidth, power; "
            "try fewer threads per rank, or fewer ranks per host."
        )
    return (
        "Look for work between the phases: logging, reading the loss of every step, "
        "saving; do it less often, or take a larger batch per device."
    )


def _feed(loaders: LoaderRates | None) -> str:
    if loaders is None:
        return (
            "Try more loader workers; --loaders-alone (`loaders_alone = true` in a study file) "
            "measures what the loaders can deliver, and then the number of workers can be named."
        )
    rates = (
        f"the loaders deliver {loaders.delivered:,.0f} samples/s and you need {loaders.needed:,.0f}"
    )
    if loaders.wanted <= loaders.workers:
        return (
            f"Alone {rates}: beside the training they are slower. "
            "Look at the processor cores and the storage that the ranks share."
        )
    return f"{rates}: raise workers from {loaders.workers} to {loaders.wanted}.".capitalize()


def _even_out(story: PointFacts) -> str:
    found = story.balance
    if found and not found.even:
        return (
            "The ranks have unlike numbers of samples in a step: give all of them the same, "
            "for example with batches of equal length."
        )
    if found and found.behind > (story.added["balance"] or 0.0) / 2:
        return (
            f"Look at rank {found.rank} on {found.host}: it takes {duration(found.behind)} longer "
            "in every step than a typical rank by its own work. Does the script do something on "
            "that rank alone? If not, compare its clocks, temperature and neighbours."
        )
    return (
        "The ranks take turns at being slow: look for other work on their hosts, "
        "and for samples that take unlike time."
    )


def duration(seconds: float) -> str:
    """Return seconds in the unit that suits them.

    >>> duration(0.0251), duration(3.2e-6), duration(150.4)
    ('25.1 ms', '3.2 µs', '150 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{_figures(seconds / size)} {unit}"
    return f"{_figures(seconds / 1e-6)} µs"


def _figures(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
