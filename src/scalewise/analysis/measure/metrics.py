"""The metrics of one topology: each function computes a field of ``Point`` from its repeats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from scalewise.analysis.measure.cached_value import cached_value
from scalewise.analysis.measure.energy import NodeSamples
from scalewise.analysis.measure.estimate import Estimate, estimate_from_steps, estimate_if_all_known
from scalewise.analysis.measure.ledger import exposed_seconds
from scalewise.analysis.measure.window import Window, epoch_seconds, lifetime_parts, steady_window
from scalewise.record.read import RunRecord
from scalewise.record.schema import STEPS, Outline, RankNotes
from scalewise.spec import RunSpec


@dataclass(frozen=True)
class Repeats:
    """The runs of one topology, with values that several metrics need."""

    records: Sequence[RunRecord]
    nodes: NodeSamples = field(default_factory=dict)  # Readings of load and power.

    @property
    def spec(self) -> RunSpec:
        """The spec of the first run; the specs of other runs differ only in ``repeat``."""
        return self.records[0].spec

    @property
    def outline(self) -> Outline:
        """The steps and samples per epoch of rank 0 in the first run."""
        return self.records[0].ranks[0].outline

    @property
    def passes(self) -> int:
        """The number of epochs; 1 if the length of the run is set in steps."""
        return self.outline.epochs or 1

    @cached_property
    def windows(self) -> list[Window]:
        """The steady part of each run."""
        return [steady_window(record) for record in self.records]

    @cached_property
    def lifetimes(self) -> list[dict[str, float]]:
        """The parts of each run's lifetime, in seconds."""
        return [lifetime_parts(record) for record in self.records]

    @property
    def complete_seconds(self) -> list[float]:
        """The seconds of each run from launch to end."""
        return [record.ended - record.started for record in self.records]


def throughput(repeats: Repeats) -> Estimate:
    """Return samples per second of all devices. The interval of a single run is from its steps."""
    rates = [window.throughput for window in repeats.windows]
    if len(rates) == 1:
        return estimate_from_steps(rates[0], repeats.windows[0].step_seconds)
    return Estimate.of(rates)


def throughput_per_device(repeats: Repeats) -> Estimate:
    """Return samples per second of one device."""
    return throughput(repeats) * (1 / repeats.spec.topology.world)


def complete_time(repeats: Repeats) -> Estimate:
    """Return the seconds from launch to end."""
    return Estimate.of(repeats.complete_seconds)


def complete_time_parts(repeats: Repeats) -> dict[str, Estimate]:
    """Return the seconds of each part of the lifetime, scaled to sum to the complete time."""
    # Parts may be 0, so ``of_shares`` takes arithmetic means; the complete time is a geometric one.
    scale = complete_time(repeats).value / float(np.mean(repeats.complete_seconds))
    names = dict.fromkeys(name for parts in repeats.lifetimes for name in parts)
    return {
        name: Estimate.of_shares([parts.get(name, 0.0) for parts in repeats.lifetimes]) * scale
        for name in names
    }


def overhead(repeats: Repeats) -> float:
    """Return the share of the complete time that is not training."""
    trained = np.mean([parts.get("train", 0.0) for parts in repeats.lifetimes])
    return float(1 - trained / np.mean(repeats.complete_seconds))


def epoch_time(repeats: Repeats, epochs: slice = slice(1, None)) -> Estimate | None:
    """Return the mean seconds of the selected epochs; by default, all except the first."""
    selected = [epoch_seconds(record)[epochs] for record in repeats.records]
    return Estimate.of([float(np.mean(s)) for s in selected]) if all(selected) else None


def peak_memory(repeats: Repeats) -> Estimate | None:
    """Return the peak bytes on the fullest device."""
    return _largest_of_ranks(repeats, lambda notes: notes.peak_memory)


def state_bytes(repeats: Repeats) -> Estimate | None:
    """Return the bytes of parameters, gradients and optimizer state on the fullest device."""
    return _largest_of_ranks(
        repeats, lambda notes: notes.state_bytes.total if notes.state_bytes else None
    )


def compression(repeats: Repeats) -> dict[str, Estimate] | None:
    """Return the share of gradient bytes that is exchanged, and the relative error of gradients."""
    ratios, errors = [], []
    for record in repeats.records:
        notes = [note for rank in record.ranks if (note := rank.notes.compression)]
        if len(notes) < len(record.ranks):
            return None
        ratios.append(sum(n.sent_bytes for n in notes) / sum(n.gradient_bytes for n in notes))
        numbers = [note.relative_error for note in notes if note.relative_error is not None]
        errors.append(float(np.mean(numbers)) if len(numbers) == len(notes) else None)
    error = Estimate.of_shares([e for e in errors if e is not None]) if None not in errors else None
    return {"ratio": Estimate.of(ratios), **({"error": error} if error else {})}


def gradient_noise(repeats: Repeats) -> Estimate | None:
    """Return the gradient noise scale. The interval of a single run is the one it recorded."""
    noises = [noise for run in repeats.records if (noise := run.ranks[0].notes.gradient_noise)]
    scales = [noise.scale for noise in noises if noise.scale is not None]
    if len(scales) < len(repeats.records):
        return None
    if len(scales) == 1:
        return Estimate(scales[0], noises[0].low, noises[0].high)
    return Estimate.of(scales)


def sent_bytes(repeats: Repeats) -> Estimate | None:
    """Return the bytes sent per step, on the device that sends most."""

    def sent(notes: RankNotes) -> float | None:
        collectives = notes.traffic.exchanged.values() if notes.traffic else None
        return None if collectives is None else sum(counts["sent"] for counts in collectives)

    return _largest_of_ranks(repeats, sent)


def _largest_of_ranks(
    repeats: Repeats, quantity: Callable[[RankNotes], float | None]
) -> Estimate | None:
    """Return the largest value of a quantity on any rank; None if a rank did not record it."""
    largest = []
    for record in repeats.records:
        numbers = [n for rank in record.ranks if (n := quantity(rank.notes)) is not None]
        largest.append(float(max(numbers)) if len(numbers) == len(record.ranks) else None)
    return estimate_if_all_known(largest)


def exposed_communication(repeats: Repeats) -> Estimate | None:
    """Return the share of a step that is exposed communication; None if unknown or on one rank."""
    shares = []
    for record, window in zip(repeats.records, repeats.windows):
        exposed = exposed_seconds(record)
        if exposed is None:
            return None
        shares.append(exposed * window.steps / window.seconds)
    return Estimate.of_shares(shares)


def global_batch(repeats: Repeats) -> int | None:
    """Return the samples of all ranks in a step; in a user's program, those of the typical step,
    None if samples could not be seen.
    """
    if repeats.outline.unit == STEPS:
        return None
    if not repeats.spec.program:
        return repeats.spec.global_batch
    return typical_batch(repeats.records[0])


@cached_value("typical batch")
def typical_batch(record: RunRecord) -> int:
    """Return the samples of all ranks in the typical steady step: the sum of their medians, as the
    last batch of an epoch is often smaller.
    """
    first = steady_window(record).first
    ranks = [rank.steps for rank in record.ranks]
    return sum(int(np.median(steps.samples[steps.index >= first])) for steps in ranks)


def batches_per_rank(repeats: Repeats) -> int | None:
    """Return the batches of one rank per epoch; None for a user's program."""
    if repeats.spec.program:
        return None
    return int(repeats.outline.steps * repeats.spec.accumulate)


def total_samples(repeats: Repeats) -> int:
    """Return the samples of all ranks in all epochs."""
    per_epoch = sum(rank.outline.seen for rank in repeats.records[0].ranks)
    return int(per_epoch * repeats.passes)


def accuracy(repeats: Repeats) -> Estimate | None:
    """Return the accuracy of the last validation."""
    validations = [record.ranks[0].notes.validation for record in repeats.records]
    shares = [validation.accuracy for validation in validations if validation]
    return Estimate.of_shares(shares) if len(shares) == len(validations) else None


def validation_samples(repeats: Repeats) -> int | None:
    """Return the number of samples that were validated."""
    validation = repeats.records[0].ranks[0].notes.validation
    return validation.samples if validation else None


def host_count(repeats: Repeats) -> int:
    """Return the number of hosts used, the largest among the repeats."""
    return max(len({rank.host for rank in record.ranks}) for record in repeats.records)
