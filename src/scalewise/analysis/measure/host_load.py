"""Doubt the times of runs on hosts that other processes overloaded."""

from collections.abc import Sequence

from scalewise.analysis.measure.doubt import Doubt
from scalewise.analysis.measure.energy import NodeSamples
from scalewise.analysis.measure.window import training_interval
from scalewise.record.node_samples import NodeRecord
from scalewise.record.read import RunRecord

FULL_CPU_SHARE = 0.9
"""The busy share of all cores from which further processes slow the others down."""
MIN_FOREIGN_SHARE = 0.2
"""The share of all cores from which the use by other processes is reported."""
MIN_SAMPLES = 3
"""With fewer samples during training, there is no doubt."""


def overload_doubts(repeats: Sequence[RunRecord], nodes: NodeSamples) -> list[Doubt]:
    """Return a doubt for each host that was full during training, partly by others."""
    foreign_shares: dict[str, float] = {}
    for record in repeats:
        for node in nodes.get(record.folder, ()):
            if (share := _foreign_share(node, record)) is not None:
                foreign_shares[node.host] = max(share, foreign_shares.get(node.host, 0.0))
    return [
        Doubt("overloaded", {"host": host, "share": share})
        for host, share in foreign_shares.items()
    ]


def _foreign_share(node: NodeRecord, record: RunRecord) -> float | None:
    """Return the share of a full host's cores that others used; None if it is small."""
    if not (trained := training_interval(record)):
        return None
    at = node.at - (node.ahead or 0.0)  # By the first node's clock.
    inside = (at > trained[0]) & (at <= trained[1])
    valid = inside & (node.cpu >= 0) & (node.own >= 0)  # NaN fails both comparisons.
    if valid.sum() < MIN_SAMPLES:
        return None
    busy, own = float(node.cpu[valid].mean()), float(node.own[valid].mean())
    foreign = busy - own
    return foreign if busy >= FULL_CPU_SHARE and foreign >= MIN_FOREIGN_SHARE else None
