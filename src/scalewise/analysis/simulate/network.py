"""What a collective takes: links with a latency and a bandwidth, and the way it goes over them.

N ranks on M nodes with g each exchange S bytes. α is a link's latency and B its
bandwidth, inside a node and between nodes (Hockney's model):

    ring          2(N−M) α_in + 2(M−1) α_out + 2(N−1)/N S/B, B the slowest link of the ring
    tree          2⌈log2 g⌉ α_in + 2⌈log2 M⌉ α_out + 2 S/B
    hierarchical  2(g−1) α_in + 2(g−1)/g S/B_in + 2(M−1) α_out + 2(M−1)/M S/B_out

An all-gather and a reduce-scatter are each half of an all-reduce; a tree does
neither, and they take the ring.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from scalewise.errors import NotEnoughData, SpecError
from scalewise.spec import Topology
from scalewise.validate import choice, positive

Operation = Literal["all-reduce", "all-gather", "reduce-scatter", "point-to-point"]
Algorithm = Literal["ring", "tree", "hierarchical", "quickest"]
ALGORITHMS = ("ring", "tree", "hierarchical", "quickest")


class Exchange(Protocol):
    """Something that knows how long ranks exchange."""

    def seconds(self, operation: Operation, size: float, topology: Topology) -> float:
        """Return what a collective of ``size`` bytes takes, with nothing else going on."""
        ...

    def reach(self, topology: Topology) -> str:
        """Say what its seconds on this topology rest on."""
        ...


@dataclass(frozen=True, slots=True)
class Link:
    """What one message takes: ``latency`` seconds, and its bytes over ``bandwidth`` a second."""

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        positive("bandwidth", self.bandwidth, example=25e9)
        if not 0 <= self.latency < math.inf:
            raise SpecError(
                f"a latency is 0 or more seconds, got {self.latency!r}",
                hint="for example latency = 5e-6",
            )

    def seconds(self, size: float, messages: float = 1) -> float:
        """Return what ``size`` bytes take, in so many messages one after another."""
        return messages * self.latency + size / self.bandwidth


@dataclass(frozen=True, slots=True)
class Network:
    """The links of a machine, and the way its collectives go."""

    inside: Link
    """Between two devices of a node."""
    between: Link | None = None
    """What leaves a node, over all that it has for that; nothing where it is not known."""
    algorithm: Algorithm = "ring"

    def __post_init__(self) -> None:
        choice("algorithm", self.algorithm, ALGORITHMS)

    def seconds(self, operation: Operation, size: float, topology: Topology) -> float:
        """Return what a collective takes; one rank exchanges nothing."""
        if topology.world == 1:
            return 0.0
        if operation == "point-to-point":
            return self._crossing(topology).seconds(size)
        if operation == "all-reduce":
            return self._all_reduce(size, topology, self.algorithm)
        way: Algorithm = "ring" if self.algorithm == "tree" else self.algorithm
        return self._all_reduce(size, topology, way) / 2

    def reach(self, topology: Topology) -> str:
        """Say that links were given."""
        return "the links were given"

    @property
    def busy(self) -> float | None:
        """Cores that one rank's exchange keeps busy: a link does not tell."""
        return None

    def _all_reduce(self, size: float, topology: Topology, way: Algorithm) -> float:
        if way == "quickest":
            return min(each(self, size, topology) for each in WAYS.values())
        return WAYS[way](self, size, topology)

    def _crossing(self, topology: Topology) -> Link:
        """Return the link between nodes; on one node, the one inside."""
        if topology.nodes == 1:
            return self.inside
        if self.between is None:
            raise NotEnoughData(
                f"{topology} leaves the node, and no link between nodes is known",
                hint="time it with `scalewise doctor --collectives` on two nodes, or give it: "
                "--link-between 25GB/s,20us, between=Link(latency, bandwidth) in Python",
            )
        return self.between

    def ring(self, size: float, topology: Topology) -> float:
        """Return an all-reduce through all devices in a row."""
        ranks, nodes, out = topology.world, topology.nodes, self._crossing(topology)
        slowest = min(self.inside.bandwidth, out.bandwidth) if _inside(topology) else out.bandwidth
        hops = 2 * (ranks - nodes) * self.inside.latency + 2 * (nodes - 1) * out.latency
        return hops + 2 * (ranks - 1) / ranks * size / slowest

    def tree(self, size: float, topology: Topology) -> float:
        """Return an all-reduce up and down a tree, in pieces that follow each other."""
        out = self._crossing(topology)
        slowest = min(self.inside.bandwidth, out.bandwidth) if _inside(topology) else out.bandwidth
        hops = _depth(topology.devices) * self.inside.latency
        hops += _depth(topology.nodes) * out.latency
        return 2 * (hops + size / slowest)

    def hierarchical(self, size: float, topology: Topology) -> float:
        """Return an all-reduce that leaves a node once: scattered, exchanged, gathered."""
        here, nodes = topology.devices, topology.nodes
        inner = self.inside.seconds(2 * (here - 1) / here * size, 2 * (here - 1))
        outer = self._crossing(topology).seconds(2 * (nodes - 1) / nodes * size, 2 * (nodes - 1))
        return inner + outer


WAYS: Mapping[str, "Way"] = {
    "ring": Network.ring,
    "tree": Network.tree,
    "hierarchical": Network.hierarchical,
}


class Way(Protocol):
    """One way of an all-reduce."""

    def __call__(self, network: Network, size: float, topology: Topology, /) -> float:
        """Return its seconds."""
        ...


def _inside(topology: Topology) -> bool:
    """Say whether anything is exchanged inside a node."""
    return topology.devices > 1


def _depth(count: int) -> int:
    """Return the levels of a tree.

    >>> _depth(1), _depth(8), _depth(9)
    (0, 3, 4)
    """
    return (count - 1).bit_length()
