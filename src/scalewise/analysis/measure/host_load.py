"""Doubts about hosts: overloaded by other processes, their disk in trouble, their clock set."""

from collections.abc import Sequence

from scalewise.analysis.measure.cached_value import cached_node_value
from scalewise.analysis.measure.doubt import Doubt
from scalewise.analysis.measure.energy import NodeSamples
from scalewise.analysis.measure.window import training_interval
from scalewise.record.node_samples import NodeRecord
from scalewise.record.read import RankRecord, RunRecord
from scalewise.record.schema import DiskTrouble

FULL_CPU_SHARE = 0.9
"""If at least this share of all cores is busy, processes slow each other down."""
MIN_FOREIGN_SHARE = 0.2
"""Other processes are reported if they use at least this share of all cores."""
MIN_SAMPLES = 3
"""With fewer samples during training, the load of a host is not judged."""


def overload_doubts(repeats: Sequence[RunRecord], nodes: NodeSamples) -> list[Doubt]:
    """Return a doubt for each host that other processes overloaded during training."""
    shares: dict[str, float] = {}  # The largest share of other processes, by host.
    for record in repeats:
        for host, share in _overload_shares(record, nodes.get(record.folder, ())).items():
            shares[host] = max(share, shares.get(host, 0.0))
    return [
        Doubt("overloaded", {"host": host, "share": share}, error=share)
        for host, share in shares.items()
    ]


def host_trouble(ranks: Sequence[RankRecord]) -> list[Doubt]:
    """Return a doubt for each kind of trouble with disks and clocks that ranks have noted."""
    doubts = []
    disks = [(disk, rank.rank) for rank in ranks if (disk := rank.notes.disk)]
    disk, number = max(disks, key=lambda pair: pair[0].refused, default=(DiskTrouble(), 0))
    if disk.refused or disk.error:
        figures = {"rank": number, "seconds": disk.refused, "error": disk.error}
        doubts.append(Doubt("disk refused", figures))
    disk, number = max(disks, key=lambda pair: pair[0].blocked, default=(DiskTrouble(), 0))
    if disk.blocked:
        doubts.append(Doubt("disk slow", {"rank": number, "seconds": disk.blocked}))
    by_host = {rank.host: seconds for rank in ranks for seconds in rank.notes.clock_set}
    doubts += [Doubt("clock set", {"host": h, "seconds": s}) for h, s in by_host.items()]
    return doubts


@cached_node_value("overload")
def _overload_shares(record: RunRecord, nodes: Sequence[NodeRecord]) -> dict[str, float]:
    """Return the share of cores that other processes used, for each overloaded host of a run."""
    shares = {node.host: _overload_share(node, record) for node in nodes}
    return {host: share for host, share in shares.items() if share is not None}


def _overload_share(node: NodeRecord, record: RunRecord) -> float | None:
    """Return the share of cores that other processes used; None unless they overloaded the host."""
    if not (interval := training_interval(record)):
        return None
    at = node.at - (node.ahead or 0.0)  # By the first node's clock.
    inside = (at > interval[0]) & (at <= interval[1])
    valid = inside & (node.cpu >= 0) & (node.own >= 0)  # NaN fails both comparisons.
    if valid.sum() < MIN_SAMPLES:
        return None
    busy, own = float(node.cpu[valid].mean()), float(node.own[valid].mean())
    foreign = busy - own
    return foreign if busy >= FULL_CPU_SHARE and foreign >= MIN_FOREIGN_SHARE else None
