"""What the devices of a run exchange, and what their strategy makes of waiting for it."""

from collections.abc import Mapping

from scalewise.analysis.number_format import join_with_and
from scalewise.record.read import RunRecord
from scalewise.spec import RunSpec

COLLECTIVE_VERBS = {
    "all-reduce": "all-reduced",
    "all-gather": "all-gathered",
    "reduce-scatter": "reduce-scattered",
    "broadcast": "broadcast",
    "all-to-all": "exchanged by all with all",
    "point-to-point": "sent point to point",
}
TRANSFER_TEXT = {
    "zero1": "moving gradients and updated weights",
    "fsdp": "gathering parameters and reducing gradients",
    "hsdp": "gathering parameters and reducing gradients",
    "tensor": "exchanging what the parts of a layer compute",
    "pipeline": "waiting for other stages: the pipeline's bubble, and what they hand over",
}
TRANSFER_ACTIONS = {
    "tensor": "Keep a tensor group inside a node, or split the layers over fewer devices.",
    "pipeline": "Try more micro_batches (of a larger batch, if each is one sample already), or, on "
    'a deeper model, pipeline_schedule = "interleaved": both make the bubble smaller.',
}


def collective_bytes(record: RunRecord) -> Mapping[str, int] | None:
    """Return the bytes of each kind of collective in a step, on the device that sends most."""
    found = [rank.notes.traffic for rank in record.ranks]
    if None in found:
        return None
    busiest = max(
        (each.exchanged for each in found if each),
        key=lambda kinds: sum(one["sent"] for one in kinds.values()),
    )
    return {kind: int(one["bytes"]) for kind, one in busiest.items()}


def dominant_split(spec: RunSpec) -> str:
    """Return which way of splitting makes a step wait: the finest of those that are used."""
    split = spec.degrees
    ways = {"pipeline": split.pipeline > 1, "tensor": split.tensor > 1}
    return next((name for name, used in ways.items() if used), spec.strategy)


def communication_sentence(
    spec: RunSpec, kinds: Mapping[str, int] | None, waits: float | None
) -> str | None:
    """Say what a step exchanges, and which share of it waits; nothing where it is not known."""
    if not kinds:
        return None
    told = [f"{_size(count)} {COLLECTIVE_VERBS[kind]}" for kind, count in kinds.items()]
    parts = [f"{_name(spec)}: {join_with_and(told)} per step and device"]
    if waits is not None:
        parts.append(f"{100 * waits:.0f} % of the step waits for others")
    if spec.bubble is not None:
        parts.append(
            f"the bubble of {spec.degrees.pipeline} stages and "
            f"{spec.pipeline_micro_batches} micro-batches "
            f"is {100 * spec.bubble:.0f} % of it (computed)"
        )
    return "; ".join(parts)


def _name(spec: RunSpec) -> str:
    split = {"tensor": spec.degrees.tensor, "pipeline": spec.degrees.pipeline}
    more = [f"{name} {n}" for name, n in split.items() if n > 1 and name != spec.strategy]
    return " x ".join([spec.strategy, *more])


def _size(count: int) -> str:
    """Return bytes in the unit that suits them.

    >>> _size(3 * 2**19), _size(2048), _size(5)
    ('1.5 MiB', '2 KiB', '5 bytes')
    """
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
