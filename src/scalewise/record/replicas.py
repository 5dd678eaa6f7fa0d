"""Compare what the ranks noted of their weights: are they still replicas of one model?"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalewise.record.schema import ProgramFacts, WeightSample

ROUNDING = 1e-6
"""The relative difference of two sums of weights that is more than rounding."""
ALONE = "no gradient was exchanged: every process trains alone"


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
    shares = [_difference(by_step[0][step], samples[step]) for samples in by_step]
    worst = max(range(len(shares)), key=lambda rank: shares[rank])
    if not shares[worst] > ROUNDING:  # NaN compares as False: the weights cannot be compared.
        return None
    return Drift(step, worst, shares[worst])


def alone(facts: Sequence[ProgramFacts]) -> bool:
    """Say whether each rank trained a separate model.

    An exchange of gradients may go unseen. So the weights must also differ between ranks, or
    be equal for another reason: all ranks read the same samples.
    """
    quiet = all(rank.exchanged is False for rank in facts)
    parts = any(rank.sharded or rank.split for rank in facts)
    return quiet and not parts and (drift(facts) is not None or _read_the_same(facts))


def _read_the_same(facts: Sequence[ProgramFacts]) -> bool:
    """Say whether all ranks took their first batches from a loader, and those are equal."""
    batches = {tuple(rank.batch_digests or ()) for rank in facts}
    loaded = all(rank.has_loader for rank in facts)
    return (
        len(facts) > 1
        and loaded
        and len(batches) == 1
        and all(map(all, batches))
        and () not in batches
    )


def _difference(mine: WeightSample, other: WeightSample) -> float:
    parts = zip(mine.sums, other.sums, mine.absolute_sums, strict=True)
    return max((abs(a - b) / size for a, b, size in parts if size > 0), default=0.0)
