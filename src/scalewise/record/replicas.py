"""Compare the sums of weights that ranks recorded, to see if they still train the same model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scalewise.record.schema import ProgramFacts

ROUNDING = 1e-6
"""The largest relative difference of two sums of weights that rounding explains."""
NO_EXCHANGE = "no gradient was exchanged: every process trains alone"


@dataclass(frozen=True, slots=True)
class Drift:
    """The difference of a rank's weights from rank 0's."""

    step: int  # The step after which the weights were compared.
    rank: int
    share: float  # The difference, relative to the sum of absolute values.


def drift(facts: Sequence[ProgramFacts]) -> Drift | None:
    """Return the rank whose weights differ most from rank 0's; None if equal or not comparable."""
    if len(facts) < 2 or any(rank.split for rank in facts):
        return None
    recorded = [rank.weights for rank in facts if rank.weights]
    if len(recorded) < len(facts) or len({weights.shapes for weights in recorded}) != 1:
        return None
    by_step = [{sample.step: sample for sample in weights.samples} for weights in recorded]
    common = set.intersection(*map(set, by_step))
    if not common:
        return None
    step = max(common)
    first = by_step[0][step]
    shares = []
    for samples in by_step:
        rows = zip(first.sums, samples[step].sums, first.absolute_sums, strict=True)
        shares.append(max((abs(a - b) / total for a, b, total in rows if total > 0), default=0.0))
    worst = max(range(len(shares)), key=lambda rank: shares[rank])
    if not shares[worst] > ROUNDING:  # Also if it is NaN: then weights cannot be compared.
        return None
    return Drift(step, worst, shares[worst])


def averages_weights(facts: Sequence[ProgramFacts]) -> bool:
    """Return whether ranks, whose weights differ after steps, have equal weights after exchanges
    between steps: they train apart and average their weights every few steps (local SGD).
    """
    averaged = [rank.weights.averaged if rank.weights else () for rank in facts]
    if len(averaged) < 2 or not all(averaged) or drift(facts) is None:
        return False
    as_samples = [
        replace(rank, weights=replace(rank.weights, samples=rank.weights.averaged))
        for rank in facts
        if rank.weights
    ]
    numbers = [{sample.step for sample in samples} for samples in averaged]
    return bool(set.intersection(*numbers)) and drift(as_samples) is None


def unsynchronised(facts: Sequence[ProgramFacts]) -> bool:
    """Return whether each rank trained a separate model: no gradients or weights exchanged."""
    if any(rank.exchanged is not False or rank.sharded or rank.split for rank in facts):
        return False
    batches = {tuple(rank.batch_digests or ()) for rank in facts}
    all_have_loader = len(facts) > 1 and all(rank.has_loader for rank in facts)
    same_batches = len(batches) == 1 and all(map(all, batches)) and () not in batches
    # An exchange may be unobserved, so further evidence is needed: other weights or equal samples.
    return drift(facts) is not None or (all_have_loader and same_batches)
