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
    """Prior of one term of a machine model. The term is present with ``probability``; its logarithm
    is then normal with mean ``middle`` and standard deviation ``spread``. For the term ``power``,
    an exponent that may be negative, not its logarithm but the term itself is normal.
    """

    probability: float
    middle: float
    spread: float


@dataclass(frozen=True)
class Learned:
    """Parameters of the default predictor for one kind of curve."""

    typical_loss: float
    """Loss per doubling that is assumed of every curve, as a logarithm of cost."""
    own_weight: float
    """Share of the curve's own measured loss per doubling that is added to ``typical_loss``."""
    leave_node_loss: float
    """Extra loss when going from one node to several, as a logarithm of cost."""
    priors: Mapping[str, Prior]
    """By name of the machine model's term (``posterior.TERMS``)."""
    noise: float
    """Scale of measurement errors, in logarithms."""
    drift: float
    """Error variance that each doubling adds, as a multiple of the measurement error's variance."""
    trend_weight: float
    """Weight of the trend in the mean; the machine models have 1 minus this."""
    interval_factor: float
    """Factor on the machine models' interval, so that 90 % of published points lie inside."""


@cache
def load_learned() -> dict[Kind, Learned]:
    """Return the parameters that ship with scalewise."""
    data = json.loads(LEARNED_FILE.read_text(encoding="utf-8"))
    learned = {}
    for kind in KINDS:
        priors = {name: Prior(**prior) for name, prior in data[kind]["priors"].items()}
        learned[kind] = Learned(**{**data[kind], "priors": priors})
    return learned
