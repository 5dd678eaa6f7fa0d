"""Find out whether ranks that hold parts of one model share batches, which must count only once."""

from collections.abc import Sequence

from scalewise.record.schema import ProgramFacts

SHARED_SAMPLES_COUNTED_ONCE = (
    "ranks that hold parts of one model read the same samples: those count once"
)
UNCLEAR = (
    "the model is split over ranks, and it is unknown whether they share their samples: these "
    "may be counted several times; give each rank's part of a batch"
)

Part = tuple[int, int]
"""A rank's index among the ranks that share its batches, and the number of these ranks."""


def parts(facts: Sequence[ProgramFacts]) -> list[Part]:
    """Return each rank's part of its batches; (0, 1), the whole batch, if unshared or unclear.

    >>> tensor_parallel = ProgramFacts(split=True, has_loader=True, batch_digests=["a", "b"])
    >>> parts([tensor_parallel, tensor_parallel])
    [(0, 2), (1, 2)]
    """
    by_rank = [identifying_digests(rank_facts) for rank_facts in facts]
    if not _is_model_split(facts) or None in by_rank:
        return [(0, 1)] * len(facts)
    return [
        (by_rank[:rank].count(digests), by_rank.count(digests))
        for rank, digests in enumerate(by_rank)
    ]


def unclear(facts: Sequence[ProgramFacts]) -> bool:
    """Return whether it is unknown if ranks that hold parts of one model share batches."""
    if len(facts) < 2 or not _is_model_split(facts):
        return False
    all_have_loader = all(rank_facts.has_loader for rank_facts in facts)
    # Pipeline stages have parameters of different shapes; later stages get activations, no samples.
    shapes = {rank_facts.weights and rank_facts.weights.shapes for rank_facts in facts}
    none_shared = all(part_count == 1 for _, part_count in parts(facts))
    is_pipeline = none_shared and len(shapes) > 1 and not all_have_loader
    return None in map(identifying_digests, facts) or is_pipeline


def identifying_digests(facts: ProgramFacts) -> tuple[str, ...] | None:
    """Return the digests of a rank's first batches; None if digests cannot identify batches."""
    entries = facts.batch_digests or ()
    digests = tuple(digest for digest in entries if digest)
    # Without a loader, a tensor that is equal in all steps may be positions instead of a batch.
    identified = len(digests) == len(entries) > 0 and (facts.has_loader or len(set(digests)) > 1)
    return digests if identified else None


def _is_model_split(facts: Sequence[ProgramFacts]) -> bool:
    return any(rank_facts.split for rank_facts in facts)
