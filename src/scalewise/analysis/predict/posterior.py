"""The second view: all machines that could have made these measurements.

    cost(N) ∝ (1 + ring (m−1)/m + host (m−1)/d + network (k−1)/k + flat [k>1] (N−1)/N
                 + latency log2 N + growth N/last) · N^power

with d devices per node, m = min(N, d) of them in one node, and k nodes: a ring
inside the node, contention for its host, a ring across nodes (or a flat one
through all devices, as slow as the network as soon as it leaves the node),
latency, and what grows with every device. Thousands of machines are drawn from the priors, each
term there or not; every one counts as much as it explains the measurements.
Its errors are Student's t, and a part of them drifts: it adds up with each
doubling, so that the last point counts most for what lies beyond.

The draws are fixed (a low-discrepancy sequence), so equal curves have equal
answers; a seed shifts them all, to see whether an answer depends on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtri, stdtrit

from scalewise.analysis.predict.learned import Learned, Prior
from scalewise.analysis.predict.series import Floats, Series

TERMS = ("ring", "host", "network", "flat", "latency", "growth", "power")
DRAWS = 16384
FREEDOM = 2.0
"""How well the size of the errors is known beforehand, in measurements."""


@dataclass(frozen=True, eq=False)
class Outlook:
    """Weighted draws of the logarithm of cost, one column per count."""

    weights: Floats
    samples: Floats

    def quantiles(self, shares: tuple[float, ...]) -> Floats:
        """Return these quantiles of every count, one row each."""
        columns = [_weighted(column, self.weights, shares) for column in self.samples.T]
        return np.stack(columns, axis=1)


@cache
def chances(seed: int = 0, count: int = DRAWS) -> Floats:
    """Return points that fill the unit cube evenly: two per term, one for the error.

    Multiples of the powers of the root of x^(d+1) = x + 1, the golden ratio of d
    dimensions.
    """
    size = 2 * len(TERMS) + 1
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (size + 1))
    shift = np.random.default_rng(seed).random(size) if seed else np.full(size, 0.5)
    steps = np.arange(1, count + 1)[:, None] * root ** -np.arange(1.0, size + 1)
    return np.clip((shift + steps) % 1, 1e-6, 1 - 1e-6)


def drawn(priors: Mapping[str, Prior], seed: int = 0, count: int = DRAWS) -> Floats:
    """Return machines, one per row, with a column for each term; 0 where it is not there."""
    uniform = chances(seed, count)
    machines = np.zeros((count, len(TERMS)))
    for column, name in enumerate(TERMS):
        prior = priors[name]
        there = uniform[:, 2 * column] < prior.chance
        size = prior.middle + prior.spread * ndtri(uniform[:, 2 * column + 1])
        machines[:, column] = np.where(there, size if name == "power" else np.exp(size), 0.0)
    return machines


def log_shape(machines: Floats, points: Series, at: Floats) -> Floats:
    """Return the logarithm of every machine's cost at these counts, but for a constant."""
    inside, nodes = points.inside(at), points.nodes(at)
    host = (inside - 1) / points.per_node if points.per_node else np.zeros_like(at)
    ring, network = (inside - 1) / inside, (nodes - 1) / nodes
    flat = (nodes > 1) * (at - 1) / at
    terms = np.stack([ring, host, network, flat, np.log2(at), at / points.last])
    return np.asarray(np.log1p(machines[:, :-1] @ terms) + machines[:, -1:] * np.log(at))


def weigh(
    points: Series, at: Floats, machines: Floats, noise: float, drift: float
) -> tuple[Floats, Floats, Floats]:
    """Return the machines' weights, and the middles and scales of their log costs ``at``.

    The constant of proportionality and the size of the errors are integrated out:
    a Gaussian of unknown variance gives Student's t.
    """
    far, ahead = np.log2(points.devices / points.devices[0]), np.log2(at / points.devices[0])
    count = len(far)
    inverse = np.linalg.inv(np.eye(count) + drift * np.minimum.outer(far, far))
    ones = inverse.sum(axis=1)
    rest = np.log(points.cost) - log_shape(machines, points, points.devices)
    level = rest @ ones / ones.sum()
    rest = rest - level[:, None]
    errors = FREEDOM * noise**2 + ((rest @ inverse) * rest).sum(axis=1)
    freedom = FREEDOM + count - 1
    told = -0.5 * freedom * np.log(errors)
    weights = np.exp(told - told.max())
    shared = drift * np.minimum.outer(np.maximum(ahead, 0), far)
    middles = log_shape(machines, points, at) + level[:, None] + rest @ inverse @ shared.T
    spread = (
        1 + drift * np.maximum(ahead, 0)
        - ((shared @ inverse) * shared).sum(axis=1)
        + (1 - shared @ ones) ** 2 / ones.sum()
    )  # fmt: skip
    scales = np.sqrt(errors / freedom)[:, None] * np.sqrt(np.maximum(spread, 0))
    return weights / weights.sum(), middles, scales


def outlook(
    points: Series, at: Floats, known: Learned, seed: int = 0, count: int = DRAWS
) -> Outlook:
    """Return what the machines that explain these points say of other counts."""
    machines = drawn(known.priors, seed, count)
    weights, middles, scales = weigh(points, at, machines, known.noise, known.drift)
    error = stdtrit(FREEDOM + len(points.devices) - 1, chances(seed, count)[:, -1:])
    return Outlook(weights, middles + scales * error)


def _weighted(values: Floats, weights: Floats, shares: tuple[float, ...]) -> Floats:
    order = np.argsort(values)
    sorted_weights = weights[order]
    return np.interp(shares, np.cumsum(sorted_weights) - sorted_weights / 2, values[order])
