"""Guards of correctness: faults that make training on several devices differ from that on one."""

from collections import Counter
from math import isclose

from scalewise.analysis.explain.guards.guard import WatchedRun, guard
from scalewise.analysis.measure.summary import program_epoch_samples
from scalewise.analysis.number_format import format_count
from scalewise.record import batch_sharing, replicas

MIN_BATCH_GROWTH = 1.5
"""A global batch counts as grown from this factor on."""
SAME_RATE_TOLERANCE = 0.1
"""Learning rates that differ by a smaller share count as equal; scaling rules change them more."""
MIN_COVERED_SHARE = 0.95
"""An epoch that covers a smaller share of the samples than on the baseline loses samples."""
SQUARE_ROOT_OPTIMIZERS = ("adam", "lamb", "rmsprop", "adagrad", "adafactor")
"""Optimizers whose learning rate grows with the square root of the batch."""

WRAP_HINT = (
    "Wrap the model in DistributedDataParallel: it sends rank 0's weights to all ranks and "
    "averages their gradients. By hand, broadcast the weights and average every gradient."
)


@guard("no exchange", "correct")
def no_exchange(run: WatchedRun) -> tuple[str, str] | None:
    """Ranks that do not exchange gradients, so each trains alone."""
    if not replicas.unsynchronised(run.facts):
        return None
    drift = replicas.drift(run.facts)
    evidence = _drift_text(drift) if drift else f"all {run.ranks} ranks train on the same samples."
    return (
        f"{replicas.NO_EXCHANGE.capitalize()}; {evidence}",
        f"{WRAP_HINT} With Accelerate on a CPU: `Accelerator(cpu=True)`.",
    )


@guard("same samples", "correct")
def same_samples(run: WatchedRun) -> tuple[str, str] | None:
    """Ranks whose first training batches are equal."""
    # Ranks that hold parts of one model read the same samples by design.
    is_split = any(facts.split for facts in run.facts)
    if run.ranks < 2 or is_split or replicas.unsynchronised(run.facts):
        return None
    digests_by_rank = [*filter(None, map(batch_sharing.identifying_digests, run.facts))]
    if not digests_by_rank:
        return None
    digests, count = Counter(digests_by_rank).most_common(1)[0]
    if count < 2:
        return None
    return (
        f"{count} of {run.ranks} ranks read the same samples: "
        f"their first {len(digests)} training batches are equal.",
        "Give the loader `sampler=DistributedSampler(dataset)`, or split the data by rank.",
    )


@guard("lost samples", "correct")
def lost_samples(run: WatchedRun) -> tuple[str, str] | None:
    """An epoch that covers only a part of the data that it covers on fewer devices."""
    if not run.smaller or same_samples.check(run) or no_exchange.check(run):
        return None
    baseline = run.smaller[0]
    samples, expected = program_epoch_samples(run.record), program_epoch_samples(baseline.record)
    # Incomplete last batches may be dropped.
    if not samples or not expected or samples + run.global_batch >= MIN_COVERED_SHARE * expected:
        return None
    fewer = format_count(baseline.devices)
    return (
        f"An epoch covers {samples:,} samples, and on {fewer} {expected:,}.",
        "Split the data by rank only once: by a sampler, or by the library's loader.",
    )


@guard("repeated samples", "correct", question=True)
def repeated_samples(run: WatchedRun) -> tuple[str, str] | None:
    """An epoch that grows with the devices, because every rank reads all of the data."""
    if not run.smaller:
        return None
    baseline = run.smaller[0]
    samples = program_epoch_samples(run.record)
    expected = program_epoch_samples(baseline.record)
    growth = run.ranks / baseline.ranks
    if not samples or not expected or growth <= 1 or samples < 0.95 * growth * expected:
        return None
    fewer = format_count(baseline.devices)
    return (
        f"An epoch covers {samples:,} samples, and on {fewer} {expected:,}: every rank reads all "
        "of the data.",
        "Is that meant so? If not, give the loader `sampler=DistributedSampler(dataset)`.",
    )


@guard("drift", "correct")
def replica_drift(run: WatchedRun) -> tuple[str, str] | None:
    """Replicas whose weights differ after a step."""
    drift = replicas.drift(run.facts)
    if not drift or replicas.unsynchronised(run.facts) or replicas.averages_weights(run.facts):
        return None
    return f"The replicas are not equal: {_drift_text(drift)}", WRAP_HINT


def _drift_text(drift: replicas.Drift) -> str:
    return (
        f"after step {drift.step} the weights of rank {drift.rank} differ "
        f"from those of rank 0 by {100 * drift.share:.2g} %."
    )


@guard("step counts", "correct")
def step_counts(run: WatchedRun) -> tuple[str, str] | None:
    """Ranks that take different numbers of steps."""
    fewest, highest = min(run.steps), max(run.steps)
    if fewest == highest:
        return None
    return (
        f"The ranks take different numbers of steps: rank {run.steps.index(fewest)} took {fewest}, "
        f"rank {run.steps.index(highest)} took {highest}.",
        "Give all ranks equally many batches, with a DistributedSampler or `drop_last=True`.",
    )


@guard("set_epoch", "correct")
def set_epoch(run: WatchedRun) -> tuple[str, str] | None:
    """A shuffled order that is the same in every epoch."""
    epochs = run.rank0.sampler_epochs
    if not epochs or epochs.passes < 2 or epochs.orders > 1:
        return None
    return (
        f"All {epochs.passes} passes over the data had the same order: "
        "`set_epoch` of the DistributedSampler was never called.",
        "Call `loader.sampler.set_epoch(epoch)` at the start of every epoch.",
    )


@guard("learning rate", "correct", question=True)
def learning_rate(run: WatchedRun) -> tuple[str, str] | None:
    """A learning rate that stays the same while the global batch grows."""
    comparable = [other for other in (*run.smaller, run) if other.comparable_rate is not None]
    # The checked run must be comparable itself, and is then the last; the first is the baseline.
    if not comparable or comparable[-1] is not run or not comparable[0].global_batch:
        return None
    baseline, rate = comparable[0], run.rank0.first_rate or 0.0
    growth = run.global_batch / baseline.global_batch
    # With tolerance: a decaying schedule has lowered the rate a little before it is first read.
    highest, base_highest = run.rank0.highest_rate or rate, baseline.rank0.highest_rate or rate
    same_rate = isclose(highest, base_highest, rel_tol=SAME_RATE_TOLERANCE)
    if growth < MIN_BATCH_GROWTH or baseline.rank0.first_rate != rate or not same_rate:
        return None
    optimizer = run.rank0.optimizer or ""
    if any(name in optimizer.lower() for name in SQUARE_ROOT_OPTIMIZERS):
        rule, scaled_rate = "with the square root of the batch", rate * growth**0.5
    else:
        rule, scaled_rate = "in proportion to the batch", rate * growth
    return (
        f"The learning rate is {rate:g} on {baseline.devices} and on {run.devices} devices, "
        f"while the global batch grew from {baseline.global_batch} to {run.global_batch}.",
        f"Is that your recipe? With {optimizer or 'this optimizer'} the rate often grows {rule}, "
        f"here to {scaled_rate:.3g}, after a warm-up; or keep the global batch.",
    )
