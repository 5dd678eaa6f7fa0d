"""Parameters of the default predictor (``learned.json``), learned from published curves by
``benchmarks/learn.py --write``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scalewise.analysis.predict.series import KINDS, Kind

LEARNED_FILE = Path(__file__).with_name("learned.json")


@dataclass(frozen=True, slots=True)
class Prior:
    """Prior of a machine model's term: present with ``probability``, then log-normal with
    ``middle`` and ``spread`` of the logarithm; ``power`` may be negative and is normal.
    """

    probability: float
    middle: float
    spread: float


@dataclass(frozen=True)
class Learned:
    """What the default predictor knows of one kind of curve before seeing its points."""

    typical_loss: float
    """Loss per doubling that any curve has, as a logarithm of cost."""
    own_weight: float
    """Share of the curve's own measured loss per doubling that is added to it."""
    leave_node_loss: float
    """Loss where devices leave the node for the first time, as a logarithm of cost."""
    priors: Mapping[str, Prior]
    """By term of the machine model."""
    noise: float
    """Scale of measurement errors, in logarithms."""
    drift: float
    """Share of the error's variance that accumulates with each doubling."""
    trend_weight: float
    """Weight of the trend (loss per doubling); the machine models have 1 minus this."""
    interval_factor: float
    """Factor on the interval of the machine models, so that 90 % of points lie inside."""


@cache
def load_learned() -> dict[Kind, Learned]:
    """Return the parameters that ship with scalewise."""
    data = json.loads(LEARNED_FILE.read_text(encoding="utf-8"))
    learned = {}
    for kind in KINDS:
        priors = {name: Prior(**prior) for name, prior in data[kind]["priors"].items()}
        learned[kind] = Learned(**{**data[kind], "priors": priors})
    return learned
