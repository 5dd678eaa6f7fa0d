"""Second of two estimates: the posterior over machine models, given the measurements.

    cost(N) ∝ (1 + ring (m−1)/m + host (m−1)/d + network (k−1)/k + flat [k>1] (N−1)/N
                 + latency log2 N + growth N/last) · N^power

with d devices per node, m = min(N, d) used in each node, and k nodes. ``ring`` is an all-reduce
ring inside a node, ``host`` contention for the host, ``network`` a ring across nodes, ``flat`` one
ring through all devices, ``growth`` overhead proportional to the devices. A machine model (or
machine) is one set of coefficients. Machines are drawn from the priors, with each term present or
absent, and weighted by how well they explain the measurements. Errors follow Student's t. Part of
an error adds up from doubling to doubling (drift), so the last point counts most. The draws are a
fixed sequence, so equal curves give equal answers. Tests pass a seed to get other draws.
"""

from collections.abc import Mapping
from functools import cache, lru_cache

import numpy as np
from scipy.special import ndtri, stdtrit

from scalewise.analysis.predict.learned import Learned, Prior
from scalewise.analysis.predict.series import Floats, Series

TERMS = ("ring", "host", "network", "flat", "latency", "growth", "power")
DRAWS = 16384  # Number of machine models.
PRIOR_FREEDOM = 2.0
"""Degrees of freedom of the prior of the error's variance."""


@cache
def quasi_random_points(seed: int = 0, count: int = DRAWS) -> Floats:
    """Return points that fill the unit cube evenly: the R_d sequence, built on the powers of the
    root of x^(d+1) = x + 1 (the golden ratio for d = 1). Each term has two columns, the error one.
    """
    dimensions = 2 * len(TERMS) + 1
    root = 2.0
    for _ in range(64):  # Fixed-point iteration; it converges long before.
        root = (1 + root) ** (1 / (dimensions + 1))
    shift = np.random.default_rng(seed).random(dimensions) if seed else np.full(dimensions, 0.5)
    steps = np.arange(1, count + 1)[:, None] * root ** -np.arange(1.0, dimensions + 1)
    return np.clip((shift + steps) % 1, 1e-6, 1 - 1e-6)  # Normal quantiles of 0 and 1 are infinite.


def draw_machines(priors: Mapping[str, Prior], seed: int = 0, count: int = DRAWS) -> Floats:
    """Return machine models, one per row; a column is a term's coefficient, 0 if it is absent."""
    uniform = quasi_random_points(seed, count)
    machines = np.zeros((count, len(TERMS)))
    for column, name in enumerate(TERMS):
        prior = priors[name]
        present = uniform[:, 2 * column] < prior.probability
        size = prior.middle + prior.spread * ndtri(uniform[:, 2 * column + 1])
        machines[:, column] = np.where(present, size if name == "power" else np.exp(size), 0.0)
    return machines


def log_shape(machines: Floats, points: Series, at: Floats) -> Floats:
    """Return log cost of every machine (row) at these device counts, up to an added constant."""
    in_node, nodes = points.devices_in_node(at), points.nodes(at)
    host = (in_node - 1) / points.per_node if points.per_node else np.zeros_like(at)
    ring, network = (in_node - 1) / in_node, (nodes - 1) / nodes
    flat = (nodes > 1) * (at - 1) / at
    terms = np.stack([ring, host, network, flat, np.log2(at), at / points.last])
    return np.asarray(np.log1p(machines[:, :-1] @ terms) + machines[:, -1:] * np.log(at))


def weigh_machines(
    points: Series, at: Floats, machines: Floats, noise: float, drift: float
) -> tuple[Floats, Floats, Floats]:
    """Return each machine's weight, and the middle and scale of its log cost at the counts ``at``.
    The log cost follows Student's t: its constant and the size of its errors are integrated out.
    """
    measured_doublings = np.log2(points.devices / points.devices[0])
    doublings = np.maximum(np.log2(at / points.devices[0]), 0)
    count = len(measured_doublings)
    drift_covariance = drift * np.minimum.outer(measured_doublings, measured_doublings)
    precision = np.linalg.inv(np.eye(count) + drift_covariance)
    row_sums = precision.sum(axis=1)
    residuals = np.log(points.cost) - log_shape(machines, points, points.devices)
    level = residuals @ row_sums / row_sums.sum()  # The constant, by generalised least squares.
    residuals = residuals - level[:, None]
    squared_error = PRIOR_FREEDOM * noise**2 + ((residuals @ precision) * residuals).sum(axis=1)
    freedom = PRIOR_FREEDOM + count - 1
    log_weights = -0.5 * freedom * np.log(squared_error)
    weights = np.exp(log_weights - log_weights.max())
    # Between the counts ``at`` and the measured counts; the middles are conditioned on it.
    covariance = drift * np.minimum.outer(doublings, measured_doublings)
    middles = log_shape(machines, points, at) + level[:, None]
    middles = middles + residuals @ precision @ covariance.T
    variance = (
        1 + drift * doublings
        - ((covariance @ precision) * covariance).sum(axis=1)
        + (1 - covariance @ row_sums) ** 2 / row_sums.sum()
    )  # fmt: skip
    scales = np.sqrt(squared_error / freedom)[:, None] * np.sqrt(np.maximum(variance, 0))
    return weights / weights.sum(), middles, scales


@lru_cache(maxsize=8)
def _machines(learned: Learned, seed: int, count: int) -> Floats:
    return draw_machines(learned.priors, seed, count)


@lru_cache(maxsize=32)
def _student_t_errors(freedom: float, seed: int, count: int) -> Floats:
    return np.asarray(stdtrit(freedom, quasi_random_points(seed, count)[:, -1:]))


def posterior_quantiles(
    points: Series,
    at: Floats,
    learned: Learned,
    probabilities: tuple[float, ...],
    seed: int = 0,
    count: int = DRAWS,
) -> Floats:
    """Return quantiles of the log cost at the counts ``at``, one row per probability."""
    machines = _machines(learned, seed, count)
    weights, middles, scales = weigh_machines(points, at, machines, learned.noise, learned.drift)
    freedom = PRIOR_FREEDOM + len(points.devices) - 1
    error = _student_t_errors(freedom, seed, count)
    columns = []
    for samples in (middles + scales * error).T:
        order = np.argsort(samples)
        sorted_weights = weights[order]
        cumulative = np.cumsum(sorted_weights) - sorted_weights / 2  # To the middle of each weight.
        columns.append(np.interp(probabilities, cumulative, samples[order]))
    return np.stack(columns, axis=1)
