"""What a run that trained has left to hold against another's."""

from typing import Any

from scalewise.record.read import RunRecord


def told(record: RunRecord, key: str) -> list[Any]:
    """Return what rank 0 told of every epoch."""
    return [line[key] for line in record.ranks[0].lines if key in line]


def losses(record: RunRecord) -> list[float]:
    """Return the loss of every step."""
    return [loss for each in told(record, "losses") for loss in each]


def taken(record: RunRecord) -> tuple[set[int], int]:
    """Return how many steps each rank took, and the samples of all of them."""
    steps = {len(rank.steps.index) for rank in record.ranks}
    return steps, sum(int(rank.steps.samples.sum()) for rank in record.ranks)


def checked(record: RunRecord) -> tuple[float, int]:
    """Return the last accuracy, and how many images it was found on."""
    last = told(record, "validation")[-1]
    return last["accuracy"], last["samples"]
