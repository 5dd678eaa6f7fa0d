"""How far the sketches of two runs are apart."""

from collections.abc import Mapping

from scalewise.record.read import RunRecord
from scalewise.record.sketches import LayerCopy, layer_copies, sketched_steps


def differences(
    reference: RunRecord, candidate: RunRecord, kind: str
) -> dict[tuple[int, str], float]:
    """Return the largest relative difference of any copy of a layer, by step and layer."""
    largest = {}
    for step in sketched_steps(reference.ranks, kind):
        ours = layer_copies(candidate.ranks, step, kind)
        for name, (copy, *_) in layer_copies(reference.ranks, step, kind).items():
            apart = [distance(copy, other) for other in ours.get(name, ())]
            if apart:
                largest[step, name] = max(apart)
    return largest


def distance(copy: LayerCopy, other: LayerCopy) -> float:
    """Return |a - b| / |a| of two layers, as their sketches estimate it."""
    sums, others = copy.sketch.sums, other.sketch.sums
    apart = sum((a - b) ** 2 for a, b in zip(sums, others, strict=True)) / len(sums)
    return (apart / (copy.sketch.squares or 1.0)) ** 0.5


def layers(record: RunRecord, kind: str = "gradient") -> Mapping[str, tuple[LayerCopy, ...]]:
    """Return the layers of the first step."""
    return layer_copies(record.ranks, 0, kind)
