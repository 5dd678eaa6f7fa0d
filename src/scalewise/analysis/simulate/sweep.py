"""Collectives as they were timed: the sweeps of doctor, and the links that explain them.

A sweep is believed for the topology on which it was made. For others there is
the network whose links are fitted to it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from scalewise.analysis.simulate.network import Algorithm, Link, Network, Operation
from scalewise.errors import NotEnoughData, SpecError
from scalewise.spec import Topology

LARGE = 2**16
"""Bytes from which a message needs bandwidth rather than latency."""
MADE = "make one with `scalewise doctor --collectives`"
Points = tuple[tuple[float, float], ...]
"""Bytes and seconds, from small to large."""


@dataclass(frozen=True)
class Sweep:
    """What the collectives took between some ranks."""

    topology: Topology
    points: Mapping[str, Points]
    """By operation."""
    busy: float | None = None
    """Cores that one rank keeps busy while it all-reduces large messages."""
    backend: str | None = None

    def seconds(self, operation: Operation, size: float) -> float | None:
        """Return what this many bytes take, between the sizes that were timed.

        Smaller ones take what the smallest did; larger ones go on at the pace of the largest.
        """
        points = self.points.get(operation)
        if not points:
            return None
        sizes, seconds = zip(*points)
        if size > sizes[-1]:
            return float(seconds[-1] * size / sizes[-1])
        return float(np.interp(size, sizes, seconds))


def read_sweep(stored: Mapping[str, Any]) -> Sweep:
    """Return a sweep from what ``scalewise doctor --collectives`` keeps."""
    if not isinstance(stored, Mapping):
        raise SpecError(f"this is no sweep of collectives, but {type(stored).__name__}", hint=MADE)
    try:
        nodes, each = len(stored["hosts"]), int(stored["ranks_per_node"])
        ranks, rows = int(stored["ranks"]), list(stored["rows"])
        found: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            point = float(row["bytes"]), float(row["seconds"]["value"])
            if not all(0 < each < math.inf for each in point):
                raise ValueError(f"{point[0]:g} bytes in {point[1]:g} s")
            found.setdefault(row["operation"], []).append(point)
        shares = [
            row["processor"] / row["seconds"]["value"]
            for row in rows
            if row["operation"] == "all-reduce"
            and row["bytes"] >= LARGE
            and row.get("processor") is not None
        ]
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as bad:
        raise SpecError(
            f"this is no sweep of collectives: {_wrong(bad)}",
            hint=MADE,
        ) from bad
    # Namespaces and containers of one host share its name: ranks count, names do not.
    nodes = max(nodes, ranks // max(1, each))
    if ranks < 2 or nodes * each != ranks:
        raise SpecError(
            f"{ranks} ranks do not fill {nodes} nodes with {each} each",
            hint="sweep with as many ranks on every node",
        )
    points = {name: tuple(sorted(each)) for name, each in found.items()}
    busy = median(shares) if shares else None
    return Sweep(Topology(nodes, each), points, busy, stored.get("backend"))


@dataclass(frozen=True)
class Fitted:
    """A link that explains a sweep, and how far it is off at the median."""

    link: Link
    error: float


def _wrong(bad: Exception) -> str:
    """Say what is wrong with a stored sweep."""
    return f"it has no {bad}" if isinstance(bad, KeyError) else str(bad)


def fitted(sweep: Sweep, inside: Link | None = None) -> Fitted:
    """Return the link of a sweep's all-reduce, taken for a ring.

    seconds = 2(n−1) latency + 2(n−1)/n bytes / bandwidth, by least squares of
    the relative error. Of a sweep over several nodes it is the link between
    them: what ``inside`` takes of the latency, where it is known, is taken off.
    """
    points = sweep.points.get("all-reduce", ())
    if len({size for size, _ in points}) < 2:
        raise NotEnoughData(
            f"a link has two unknowns, and {len(points)} sizes of all-reduce were timed",
            hint="sweep at least two sizes",
        )
    ranks, nodes = sweep.topology.world, sweep.topology.nodes
    size, seconds = np.array(points).T
    constant, slope = _line(size / seconds, 1 / seconds)
    if slope <= 0:
        raise NotEnoughData(
            "larger messages took no longer, so no bandwidth can be told",
            hint="sweep larger sizes, on an idle machine",
        )
    error = float(np.median(np.abs(constant + slope * size - seconds) / seconds))
    hops = 2 * (ranks - 1)
    if nodes > 1 and inside is not None:
        hops = 2 * (nodes - 1)
        constant = max(0.0, constant - 2 * (ranks - nodes) * inside.latency)
    return Fitted(Link(constant / hops, 2 * (ranks - 1) / ranks / slope), error)


def _line(slope: Any, constant: Any) -> tuple[float, float]:
    """Return c and s of c · constant + s · slope = 1, neither below 0."""
    terms = np.stack([constant, slope], axis=1)
    (c, s), *_ = np.linalg.lstsq(terms, np.ones(len(terms)), rcond=None)
    if c < 0:
        return 0.0, float(slope.sum() / (slope**2).sum())
    return float(c), float(s)


@dataclass(frozen=True)
class Measured:
    """Sweeps where there is one, and a network for everything else."""

    sweeps: tuple[Sweep, ...]
    network: Network

    def seconds(self, operation: Operation, size: float, topology: Topology) -> float:
        """Return what a collective takes."""
        for sweep in self.sweeps:
            if sweep.topology == topology:
                found = sweep.seconds(operation, size)
                if found is not None:
                    return found
        return self.network.seconds(operation, size, topology)

    def reach(self, topology: Topology) -> str:
        """Say whether this topology was timed, or follows from others."""
        timed = [sweep.topology for sweep in self.sweeps]
        if topology in timed:
            return f"the exchange was timed on {topology}"
        told = ", ".join(map(str, timed))
        if topology.nodes > 1 and all(each.nodes == 1 for each in timed):
            return f"the exchange was timed on {told}, and the link between nodes was given"
        return f"the exchange was timed on {told}, and follows the links that explain it"

    @property
    def busy(self) -> float | None:
        """Cores that one rank's exchange keeps busy, at the median of the sweeps."""
        known = [sweep.busy for sweep in self.sweeps if sweep.busy is not None]
        return median(known) if known else None


def measured(
    sweeps: Sequence[Sweep],
    algorithm: Algorithm = "ring",
    *,
    inside: Link | None = None,
    between: Link | None = None,
) -> Measured:
    """Return the exchange that sweeps tell of, its links fitted to the largest of each kind.

    A link that is given counts instead of the fitted one.
    """
    largest = sorted(sweeps, key=lambda sweep: sweep.topology.world)
    here = [sweep for sweep in largest if sweep.topology.nodes == 1]
    apart = [sweep for sweep in largest if sweep.topology.nodes > 1]
    if not largest:
        raise NotEnoughData("no collectives were timed", hint=MADE)
    if inside is None and here:
        inside = fitted(here[-1]).link
    if between is None and apart:
        between = fitted(apart[-1], inside).link
    # Without a sweep of one node, its links are not told apart from those that leave it.
    nearest = inside or between
    assert nearest is not None
    return Measured(tuple(sweeps), Network(nearest, between, algorithm))
