"""Compare what the ranks noted of their weights: are they still replicas of one model?"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalewise.record.schema import ProgramFacts

ROUNDING = 1e-6
"""The relative difference of two sums of weights that is more than rounding."""
NO_EXCHANGE = "no gradient was exchanged: every process trains alone"


@dataclass(frozen=True, slots=True)
class Drift:
    """After which step the weights of which rank differ from rank 0's, and by what share."""

    step: int
    rank: int
    share: float


def drift(facts: Sequence[ProgramFacts]) -> Drift | None:
    """Return how far replicas differ; None where they are equal or cannot be compared."""
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
        parts = zip(first.sums, samples[step].sums, first.absolute_sums, strict=True)
        shares.append(max((abs(a - b) / size for a, b, size in parts if size > 0), default=0.0))
    worst = max(range(len(shares)), key=lambda rank: shares[rank])
    if not shares[worst] > ROUNDING:  # NaN compares as False: the weights cannot be compared.
        return None
    return Drift(step, worst, shares[worst])


def unsynchronised(facts: Sequence[ProgramFacts]) -> bool:
    """Return whether each rank trained a separate model: no gradients or weights exchanged."""
    if any(rank.exchanged is not False or rank.sharded or rank.split for rank in facts):
        return False
    batches = {tuple(rank.batch_digests or ()) for rank in facts}
    loaded = len(facts) > 1 and all(rank.has_loader for rank in facts)
    same = len(batches) == 1 and all(map(all, batches)) and () not in batches
    # An exchange may go unseen: weights must differ, or be equal because the samples are.
    return drift(facts) is not None or (loaded and same)
