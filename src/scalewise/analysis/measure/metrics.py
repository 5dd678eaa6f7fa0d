"""The metrics of one topology: each function computes a field of ``Point`` from its repeats.

A metric is declared once, as a field of ``Point`` with its function and its columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from scalewise.analysis.measure.energy import NodeSamples
from scalewise.analysis.measure.estimate import Estimate, estimate_from_steps, estimate_if_all_known
from scalewise.analysis.measure.ledger import build_ledger
from scalewise.analysis.measure.window import (
    Window,
    epoch_seconds,
    last_validation,
    lifetime_parts,
    steady_window,
)
from scalewise.record.read import RunRecord
from scalewise.record.schema import Outline
from scalewise.spec import RunSpec


@dataclass(frozen=True)
class Repeats:
    """The runs of one topology, with what several metrics need."""

    records: Sequence[RunRecord]
    nodes: NodeSamples = field(default_factory=dict)

    @property
    def spec(self) -> RunSpec:
        """The first run's; the others differ in ``repeat`` alone."""
        return self.records[0].spec

    @property
    def outline(self) -> Outline:
        """Counts of steps and samples that rank 0 of the first run recorded."""
        return self.records[0].ranks[0].outline

    @property
    def passes(self) -> int:
        """Epochs; 1 where a run was given as a number of steps."""
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
        """The complete time of each run."""
        return [record.ended - record.started for record in self.records]


def throughput(repeats: Repeats) -> Estimate:
    """Return samples per second of all devices; a single run's interval is from its steps."""
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
    # The complete time is a geometric mean and the parts are arithmetic ones.
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


def epoch_time(repeats: Repeats) -> Estimate | None:
    """Return the seconds of an epoch, without the first."""
    return _epoch_estimate(repeats, slice(1, None))


def first_epoch_time(repeats: Repeats) -> Estimate | None:
    """Return the seconds of the first epoch."""
    return _epoch_estimate(repeats, slice(0, 1))


def _epoch_estimate(repeats: Repeats, selection: slice) -> Estimate | None:
    selected = [epoch_seconds(record)[selection] for record in repeats.records]
    return Estimate.of([float(np.mean(s)) for s in selected]) if all(selected) else None


def peak_memory(repeats: Repeats) -> Estimate | None:
    """Return the peak bytes on the device that used most."""

    def largest(record: RunRecord) -> float | None:
        peaks = [rank.notes.peak_memory for rank in record.ranks]
        known = [peak for peak in peaks if peak is not None]
        return float(max(known)) if len(known) == len(peaks) else None

    return estimate_if_all_known([largest(record) for record in repeats.records])


def state_bytes(repeats: Repeats) -> Estimate | None:
    """Return the bytes of parameters, gradients and optimizer state on the fullest device."""

    def largest(record: RunRecord) -> float | None:
        totals = [state.total for rank in record.ranks if (state := rank.notes.state_bytes)]
        return float(max(totals)) if len(totals) == len(record.ranks) else None

    return estimate_if_all_known([largest(record) for record in repeats.records])


def compression(repeats: Repeats) -> dict[str, Estimate] | None:
    """Return the share of the gradients' bytes that is exchanged, and its error, over all ranks."""
    ratios, errors = [], []
    for record in repeats.records:
        ranks = [used for rank in record.ranks if (used := rank.notes.compression)]
        if len(ranks) < len(record.ranks):
            return None
        ratios.append(sum(r.sent_bytes for r in ranks) / sum(r.gradient_bytes for r in ranks))
        known = [rank.relative_error for rank in ranks if rank.relative_error is not None]
        errors.append(float(np.mean(known)) if len(known) == len(ranks) else None)
    error = Estimate.of_shares([e for e in errors if e is not None]) if None not in errors else None
    return {"ratio": Estimate.of(ratios), **({"error": error} if error else {})}


def gradient_noise(repeats: Repeats) -> Estimate | None:
    """Return the gradient noise scale; a single run has the interval that it recorded."""
    noises = [noise for run in repeats.records if (noise := run.ranks[0].notes.gradient_noise)]
    scales = [noise.scale for noise in noises if noise.scale is not None]
    if len(scales) < len(repeats.records):
        return None
    if len(scales) == 1:
        return Estimate(scales[0], noises[0].low, noises[0].high)
    return Estimate.of(scales)


def sent_bytes(repeats: Repeats) -> Estimate | None:
    """Return the bytes that the device which sends most sends in a step."""

    def largest(record: RunRecord) -> float | None:
        traffics = [traffic for rank in record.ranks if (traffic := rank.notes.traffic)]
        if len(traffics) < len(record.ranks):
            return None
        collectives = [traffic.exchanged.values() for traffic in traffics]
        return float(max(sum(kind["sent"] for kind in kinds) for kinds in collectives))

    return estimate_if_all_known([largest(record) for record in repeats.records])


def exposed_communication(repeats: Repeats) -> Estimate | None:
    """Return the share of a step that waits for communication; None on a single rank."""
    shares = []
    for record, window in zip(repeats.records, repeats.windows):
        ledger = build_ledger(record, window.first) if len(record.ranks) > 1 else None
        if ledger is None or ledger.exposed is None:
            return None
        shares.append(ledger.exposed * window.steps / window.seconds)
    return Estimate.of_shares(shares)


def global_batch(repeats: Repeats) -> int:
    """Return the samples of all ranks in a step; for a watched program, in the typical step."""
    if not repeats.spec.program:
        return repeats.spec.global_batch
    first = repeats.windows[0].first
    ranks = [rank.steps for rank in repeats.records[0].ranks]
    # The median: the last batch of an epoch is often smaller.
    return sum(int(np.median(steps.samples[steps.index >= first])) for steps in ranks)


def batches_per_rank(repeats: Repeats) -> int | None:
    """Return the batches of one rank per epoch; None for a watched program."""
    if repeats.spec.program:
        return None
    return int(repeats.outline.steps * repeats.spec.accumulate)


def total_samples(repeats: Repeats) -> int:
    """Return the samples of all ranks in all epochs."""
    per_epoch = sum(rank.outline.seen for rank in repeats.records[0].ranks)
    return int(per_epoch * repeats.passes)


def accuracy(repeats: Repeats) -> Estimate | None:
    """Return the accuracy of the last validation."""
    validations = [last_validation(record) for record in repeats.records]
    if not all(validations):
        return None
    return Estimate.of_shares([validation.accuracy for validation in validations if validation])


def validation_samples(repeats: Repeats) -> int | None:
    """Return the number of samples that were validated."""
    validation = last_validation(repeats.records[0])
    return validation.samples if validation else None


def host_count(repeats: Repeats) -> int:
    """Return the number of hosts that were used."""
    return max(len({rank.host for rank in record.ranks}) for record in repeats.records)
