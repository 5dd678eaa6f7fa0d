"""Whether others used the machines of a run: then its times are not its own."""

from collections.abc import Sequence

from scalewise.analysis.measure.energy import NodeSamples
from scalewise.record.node_samples import NodeRecord
from scalewise.record.read import RunRecord

FULL_CPU_SHARE = 0.9
"""The busy share of all cores from which whoever comes in addition slows the others down."""
MIN_FOREIGN_SHARE = 0.2
"""The share of all cores from which others are worth a word."""
MIN_SAMPLES = 3
"""Samples of a training below which nothing is said."""


def overload_warnings(repeats: Sequence[RunRecord], nodes: NodeSamples) -> list[str]:
    """Say which machines were full while runs trained, and of whom: one line for each."""
    most: dict[str, float] = {}
    for record in repeats:
        for node in nodes.get(record.folder, ()):
            if (others := _others(node, record)) is not None:
                most[node.host] = max(others, most.get(node.host, 0.0))
    return [
        f"{host} was full while this trained, and others took {100 * share:.0f} % of its cores: "
        "the times are those of a shared machine"
        for host, share in most.items()
    ]


def _others(node: NodeRecord, record: RunRecord) -> float | None:
    """Return the share of a full machine's cores that others took; nothing if it is not much."""
    trains = [span for rank in record.ranks for span in rank.spans if span.name == "train"]
    if not trains:
        return None
    apart = node.ahead or 0.0
    start, end = min(span.start for span in trains), max(span.end for span in trains)
    inside = (node.at > start + apart) & (node.at <= end + apart)
    known = inside & (node.cpu >= 0) & (node.own >= 0)  # What is not a number is neither.
    if known.sum() < MIN_SAMPLES:
        return None
    busy, own = float(node.cpu[known].mean()), float(node.own[known].mean())
    return busy - own if busy >= FULL_CPU_SHARE and busy - own >= MIN_FOREIGN_SHARE else None
