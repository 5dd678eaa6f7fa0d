"""Seconds of a collective over links with a latency α and a bandwidth B, by algorithm.

N ranks, g on each of M nodes, all-reduce S bytes. Links inside a node have α_in and B_in, links
between nodes α_out and B_out (Hockney's model). B is the smaller bandwidth of the links in use.

    ring          2(N−M) α_in + 2(M−1) α_out + 2(N−1)/N S/B
    tree          2⌈log2 g⌉ α_in + 2⌈log2 M⌉ α_out + 2 S/B
    hierarchical  2(g−1) α_in + 2(g−1)/g S/B_in + 2(M−1) α_out + 2(M−1)/M S/B_out

An all-gather or a reduce-scatter takes half the time of an all-reduce, with ``tree`` half of
``ring``. The algorithm ``quickest`` is the fastest of the three for each size and topology.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from scalewise.errors import NotEnoughData, SpecError, parameter, shown
from scalewise.spec import Topology
from scalewise.validate import check_choice, check_positive

Operation = Literal["all-reduce", "all-gather", "reduce-scatter", "point-to-point"]
Algorithm = Literal["ring", "tree", "hierarchical", "quickest"]
ALGORITHMS = ("ring", "tree", "hierarchical", "quickest")


@dataclass(frozen=True, slots=True)
class Link:
    """One message takes ``latency`` seconds plus its bytes over ``bandwidth`` (bytes/s)."""

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        check_positive("bandwidth", self.bandwidth, example=25e9)
        if not 0 <= self.latency < math.inf:
            raise SpecError(
                f"a latency is 0 or more seconds, got {shown(self.latency)}",
                hint="for example latency = 5e-6",
            )

    def seconds(self, size: float, messages: float = 1) -> float:
        """Return the seconds of ``size`` bytes, sent as ``messages`` messages one after another."""
        return messages * self.latency + size / self.bandwidth


@dataclass(frozen=True, slots=True)
class Network:
    """The links of a machine, and the algorithm of its all-reduce."""

    inside: Link
    """The link between two devices of a node."""
    between: Link | None = None
    """The link between two nodes, with the bandwidth of all adapters of a node; None if unknown."""
    algorithm: Algorithm = "ring"
    sweeps: ClassVar[tuple[()]] = ()
    """Timed collectives; always empty here, as only a ``MeasuredExchange`` has them."""
    busy_cores: ClassVar[None] = None
    """Cores that one rank's exchange keeps busy; unknown here, known in a ``MeasuredExchange``."""

    def __post_init__(self) -> None:
        check_choice("algorithm", self.algorithm, ALGORITHMS)

    def seconds(self, operation: Operation, size: float, topology: Topology) -> float:
        """Return the seconds of a collective while nothing else runs; 0 for one rank."""
        if topology.world == 1:
            return 0.0
        if operation == "point-to-point":
            return self._outer_link(topology).seconds(size)
        is_half = operation != "all-reduce"  # An all-reduce is a reduce-scatter and an all-gather.
        algorithm = "ring" if is_half and self.algorithm == "tree" else self.algorithm
        methods = {"ring": self.ring, "tree": self.tree, "hierarchical": self.hierarchical}
        names = methods if algorithm == "quickest" else [algorithm]
        return (0.5 if is_half else 1.0) * min(methods[name](size, topology) for name in names)

    def _outer_link(self, topology: Topology) -> Link:
        """Return the link between nodes; on one node, the link inside it."""
        if topology.nodes == 1:
            return self.inside
        if self.between is None:
            raise NotEnoughData(
                f"{topology} leaves the node, and no link between nodes is known",
                hint="time it with `scalewise doctor --collectives` on two nodes, or give "
                f"{parameter('between')}, such as 25GB/s,20us",
            )
        return self.between

    def _slowest_bandwidth(self, topology: Topology) -> float:
        outer = self._outer_link(topology).bandwidth
        # With one device per node, the link inside the node is not used.
        return min(self.inside.bandwidth, outer) if topology.devices > 1 else outer

    def ring(self, size: float, topology: Topology) -> float:
        """Return the seconds of an all-reduce on one ring through all devices."""
        ranks, nodes, outer = topology.world, topology.nodes, self._outer_link(topology)
        latency = 2 * (ranks - nodes) * self.inside.latency + 2 * (nodes - 1) * outer.latency
        return latency + 2 * (ranks - 1) / ranks * size / self._slowest_bandwidth(topology)

    def tree(self, size: float, topology: Topology) -> float:
        """Return the seconds of a pipelined all-reduce: up a tree of devices and down again."""
        latency = tree_depth(topology.devices) * self.inside.latency
        latency += tree_depth(topology.nodes) * self._outer_link(topology).latency
        return 2 * (latency + size / self._slowest_bandwidth(topology))

    def hierarchical(self, size: float, topology: Topology) -> float:
        """Return the seconds of an all-reduce in three parts: in nodes, between nodes, in nodes."""
        devices, nodes, outer = topology.devices, topology.nodes, self._outer_link(topology)
        inside = self.inside.seconds(2 * (devices - 1) / devices * size, 2 * (devices - 1))
        return inside + outer.seconds(2 * (nodes - 1) / nodes * size, 2 * (nodes - 1))


def tree_depth(count: int) -> int:
    """Return the levels of a binary tree over ``count`` members.

    >>> tree_depth(1), tree_depth(8), tree_depth(9)
    (0, 3, 4)
    """
    return (count - 1).bit_length()
