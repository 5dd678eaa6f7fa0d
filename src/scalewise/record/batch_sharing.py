"""Do ranks that hold parts of one model share their batches? Then each batch counts once."""

from collections.abc import Sequence

from scalewise.record.schema import ProgramFacts

SHARED_SAMPLES_COUNTED_ONCE = (
    "ranks that hold parts of one model read the same samples: those count once"
)
UNCLEAR = (
    "the model is split over ranks, and it was not seen whether they share their samples: these "
    "may be counted several times; give each rank's part of a batch"
)

Part = tuple[int, int]
"""A rank's index among those that share its batches, and how many they are."""


def parts(facts: Sequence[ProgramFacts]) -> list[Part]:
    """Return each rank's part of its batches, from what all ranks noted; (0, 1) if unclear.

    >>> tensor_parallel = ProgramFacts(split=True, has_loader=True, batch_digests=["a", "b"])
    >>> parts([tensor_parallel, tensor_parallel])
    [(0, 2), (1, 2)]
    """
    by_rank = [batches(rank) for rank in facts]
    if not _split(facts) or None in by_rank:
        return [(0, 1)] * len(facts)
    return [
        (by_rank[:rank].count(digests), by_rank.count(digests))
        for rank, digests in enumerate(by_rank)
    ]


def unclear(facts: Sequence[ProgramFacts]) -> bool:
    """Return whether ranks that hold parts of one model may share batches, unseen."""
    if len(facts) < 2 or not _split(facts):
        return False
    loaded = all(rank.has_loader for rank in facts)
    # A later stage of a pipeline gets activations, and no samples.
    stages = len({rank.weights and rank.weights.shapes for rank in facts}) > 1
    none_shared = all(part_count == 1 for _, part_count in parts(facts))
    return None in map(batches, facts) or (none_shared and stages and not loaded)


def batches(facts: ProgramFacts) -> tuple[str, ...] | None:
    """Return digests of a rank's first batches; None if they do not identify the batches."""
    every = facts.batch_digests or ()
    digests = tuple(digest for digest in every if digest)
    # Without a loader, one tensor for all steps may be no batch (positions, for example).
    distinct = len(digests) == len(every) > 0 and (facts.has_loader or len(set(digests)) > 1)
    return digests if distinct else None


def _split(facts: Sequence[ProgramFacts]) -> bool:
    return any(rank.split for rank in facts)
