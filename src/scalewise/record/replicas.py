"""Compare what the ranks noted of their weights: are they still replicas of one model?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROUNDING = 1e-6
"""The relative difference of two sums of weights that is more than rounding."""
ALONE = "no gradient was exchanged: every process trains alone"


@dataclass(frozen=True, slots=True)
class Drift:
    """After which step the weights of which rank differ from rank 0's, and by what share."""

    step: int
    rank: int
    share: float


def drift(facts: Sequence[Mapping[str, Any]]) -> Drift | None:
    """Return how far replicas are apart; nothing where they are equal or cannot be compared."""
    weights = [each.get("weights") for each in facts]
    if len(facts) < 2 or any(each.get("split") for each in facts):
        return None
    known = [each for each in weights if each]
    if len(known) < len(facts) or len({each["shapes"] for each in known}) != 1:
        return None
    glances = [{each["step"]: each for each in of_rank["seen"]} for of_rank in known]
    common = set.intersection(*(set(each) for each in glances))
    if not common:
        return None
    step = max(common)
    shares = [_difference(glances[0][step], each[step]) for each in glances]
    worst = max(range(len(shares)), key=lambda rank: shares[rank])
    if not shares[worst] > ROUNDING:  # Not a number says nothing.
        return None
    return Drift(step, worst, shares[worst])


def alone(facts: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether each rank trained a model of its own.

    That nothing was seen to be exchanged is not enough, for it may happen unseen. So the
    replicas must be apart, or equal for another reason: all ranks read the same samples.
    """
    quiet = all(each.get("exchanged") is False for each in facts)
    parts = any(each.get("sharded") or each.get("split") for each in facts)
    return quiet and not parts and (drift(facts) is not None or _read_the_same(facts))


def _read_the_same(facts: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether all ranks took their first batches from a loader, and those are equal."""
    seen = {tuple(each.get("samples") or ()) for each in facts}
    loaded = all(each.get("loads") for each in facts)
    return len(facts) > 1 and loaded and len(seen) == 1 and all(map(all, seen)) and () not in seen


def _difference(mine: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    parts = zip(mine["sums"], other["sums"], mine["sizes"], strict=True)
    return max((abs(a - b) / size for a, b, size in parts if size > 0), default=0.0)
