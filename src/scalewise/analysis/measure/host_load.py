"""Warn where other processes overloaded the hosts of a run: its times are then unreliable."""

from collections.abc import Sequence

from scalewise.analysis.measure.energy import NodeSamples
from scalewise.record.node_samples import NodeRecord
from scalewise.record.read import RunRecord

FULL_CPU_SHARE = 0.9
"""The busy share of all cores from which further processes slow the others down."""
MIN_FOREIGN_SHARE = 0.2
"""The share of all cores from which the use by other processes is reported."""
MIN_SAMPLES = 3
"""With fewer samples during training, no warning is given."""


def overload_warnings(repeats: Sequence[RunRecord], nodes: NodeSamples) -> list[str]:
    """Return a warning for each host that was full during training, partly by others."""
    foreign_shares: dict[str, float] = {}
    for record in repeats:
        for node in nodes.get(record.folder, ()):
            if (share := _foreign_share(node, record)) is not None:
                foreign_shares[node.host] = max(share, foreign_shares.get(node.host, 0.0))
    return [
        f"host {host} was overloaded: other processes used {100 * share:.0f} % of its CPU; "
        "times are unreliable"
        for host, share in foreign_shares.items()
    ]


def _foreign_share(node: NodeRecord, record: RunRecord) -> float | None:
    """Return the share of a full host's cores that others used; None if it is small."""
    trains = [span for rank in record.ranks for span in rank.spans if span.name == "train"]
    if not trains:
        return None
    clock_offset = node.ahead or 0.0
    start, end = min(span.start for span in trains), max(span.end for span in trains)
    inside = (node.at > start + clock_offset) & (node.at <= end + clock_offset)
    valid = inside & (node.cpu >= 0) & (node.own >= 0)  # NaN fails both comparisons.
    if valid.sum() < MIN_SAMPLES:
        return None
    busy, own = float(node.cpu[valid].mean()), float(node.own[valid].mean())
    foreign = busy - own
    return foreign if busy >= FULL_CPU_SHARE and foreign >= MIN_FOREIGN_SHARE else None
