"""A sweep has the times of collectives of many sizes on one topology, as ``scalewise doctor`` wrote
them. On that topology these times are used; on others, links that are fitted to the sweeps.
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

MIN_LARGE_BYTES = 2**16
"""Messages of at least this size are limited by bandwidth rather than latency."""
SWEEP_HINT = "make one with `scalewise doctor --collectives`"
Points = tuple[tuple[float, float], ...]
"""Pairs of bytes and seconds, from small to large."""


@dataclass(frozen=True)
class Sweep:
    """Seconds of collectives between the ranks of one topology."""

    topology: Topology
    points: Mapping[str, Points]
    """Timed sizes of each operation."""
    busy_cores: float | None = None
    """Cores that one rank keeps busy while it all-reduces large messages."""
    backend: str | None = None

    def seconds(self, operation: Operation, size: float) -> float | None:
        """Return the interpolated seconds of ``size`` bytes; None if the operation was not timed.
        Below the smallest timed size the time is constant; above the largest, the bandwidth is.
        """
        points = self.points.get(operation)
        if not points:
            return None
        sizes, seconds = zip(*points)
        if size > sizes[-1]:
            return float(seconds[-1] * size / sizes[-1])
        return float(np.interp(size, sizes, seconds))


def parse_sweep(stored: Mapping[str, Any]) -> Sweep:
    """Read a sweep from the JSON of ``scalewise doctor --collectives``."""
    if not isinstance(stored, Mapping):
        raise SpecError(
            f"this is no sweep of collectives, but {type(stored).__name__}", hint=SWEEP_HINT
        )
    try:
        hosts, ranks_per_node = len(stored["hosts"]), int(stored["ranks_per_node"])
        ranks, rows = int(stored["ranks"]), list(stored["rows"])
        points = _sweep_points(rows)
        busy_cores = [  # Processor seconds per second of wall time.
            row["processor"] / row["seconds"]["value"]
            for row in rows
            if row["operation"] == "all-reduce"
            and row["bytes"] >= MIN_LARGE_BYTES
            and row.get("processor") is not None
        ]
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        problem = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise SpecError(f"this is no sweep of collectives: {problem}", hint=SWEEP_HINT) from error
    # Containers (each a node) on one host may have the same host name.
    nodes = max(hosts, ranks // max(1, ranks_per_node))
    if ranks < 2 or nodes * ranks_per_node != ranks:
        raise SpecError(
            f"{ranks} ranks do not fill {nodes} nodes with {ranks_per_node} each",
            hint="run the sweep with the same number of ranks on every node",
        )
    topology, cores = Topology(nodes, ranks_per_node), median(busy_cores) if busy_cores else None
    return Sweep(topology, points, cores, stored.get("backend"))


def _sweep_points(rows: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    """Return bytes and seconds by operation; raise ValueError if a number is not above 0."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        size, seconds = float(row["bytes"]), float(row["seconds"]["value"])
        if not (0 < size < math.inf and 0 < seconds < math.inf):
            raise ValueError(f"{size:g} bytes in {seconds:g} s")
        points.setdefault(row["operation"], []).append((size, seconds))
    return {operation: tuple(sorted(pairs)) for operation, pairs in points.items()}


@dataclass(frozen=True)
class FittedLink:
    """A link fitted to a sweep, and its median relative error."""

    link: Link
    error: float


def fit_link(sweep: Sweep, inside: Link | None = None) -> FittedLink:
    """Fit a link to a sweep's all-reduce, assumed to be a ring of n ranks: seconds = 2(n−1) latency
    + 2(n−1)/n bytes / bandwidth, by least squares of the relative error. If the sweep has several
    nodes, the link is between nodes; the latency of hops over the link ``inside`` is subtracted.
    """
    points = sweep.points.get("all-reduce", ())
    if len({size for size, _ in points}) < 2:
        raise NotEnoughData(
            f"fitting a link needs two sizes of all-reduce, got {len(points)}",
            hint="sweep at least two sizes",
        )
    ranks, nodes = sweep.topology.world, sweep.topology.nodes
    size, seconds = np.array(points).T
    terms = np.stack([1 / seconds, size / seconds], axis=1)
    constant, slope = np.linalg.lstsq(terms, np.ones(len(terms)), rcond=None)[0].tolist()
    if constant < 0:  # A latency is not negative: fit the bandwidth alone.
        constant, slope = 0.0, float(terms[:, 1].sum() / (terms[:, 1] ** 2).sum())
    if slope <= 0:
        raise NotEnoughData(
            "larger messages took no longer, so no bandwidth can be fitted",
            hint="sweep larger sizes, on an idle machine",
        )
    error = float(np.median(np.abs(constant + slope * size - seconds) / seconds))
    hops = 2 * (ranks - 1)
    if nodes > 1 and inside is not None:
        hops = 2 * (nodes - 1)
        constant = max(0.0, constant - 2 * (ranks - nodes) * inside.latency)
    return FittedLink(Link(constant / hops, 2 * (ranks - 1) / ranks / slope), error)


@dataclass(frozen=True)
class MeasuredExchange:
    """Sweeps for the topologies that were timed, and a network for all other topologies."""

    sweeps: tuple[Sweep, ...]
    network: Network

    def seconds(self, operation: Operation, size: float, topology: Topology) -> float:
        """Return the seconds of a collective."""
        for sweep in self.sweeps:
            if sweep.topology == topology:
                seconds = sweep.seconds(operation, size)
                if seconds is not None:
                    return seconds
        return self.network.seconds(operation, size, topology)

    @property
    def busy_cores(self) -> float | None:
        """Cores that one rank's exchange keeps busy: the median of the sweeps."""
        measured = [sweep.busy_cores for sweep in self.sweeps if sweep.busy_cores is not None]
        return median(measured) if measured else None


Exchange = Network | MeasuredExchange


def fit_exchange(
    sweeps: Sequence[Sweep],
    algorithm: Algorithm = "ring",
    *,
    inside: Link | None = None,
    between: Link | None = None,
) -> MeasuredExchange:
    """Return the sweeps with a network; a link not given is fitted to its largest sweep."""
    if not sweeps:
        raise NotEnoughData("no collectives were timed", hint=SWEEP_HINT)
    by_size = sorted(sweeps, key=lambda sweep: sweep.topology.world)
    one_node = [sweep for sweep in by_size if sweep.topology.nodes == 1]
    several_nodes = [sweep for sweep in by_size if sweep.topology.nodes > 1]
    if inside is None and one_node:
        inside = fit_link(one_node[-1]).link
    if between is None and several_nodes:
        between = fit_link(several_nodes[-1], inside).link
    # Without a sweep of one node, the link between nodes is also used inside.
    nearest = inside or between
    assert nearest is not None
    return MeasuredExchange(tuple(sweeps), Network(nearest, between, algorithm))
