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
    """Prior of one term's coefficient in a machine model. The term is present with ``probability``.
    The logarithm of its coefficient is normal, with mean ``middle`` and standard deviation
    ``spread``. ``power`` differs: it is an exponent and may be negative, so it is itself normal.
    """

    probability: float
    middle: float
    spread: float


@dataclass(frozen=True, eq=False)
class Learned:
    """Parameters of the default predictor for one kind of curve."""

    typical_loss: float
    """Part of the loss per doubling that is the same for every curve, as a logarithm of cost."""
    own_weight: float
    """Share of the curve's own measured loss per doubling that is added to ``typical_loss``."""
    leave_node_loss: float
    """Extra loss when going from one node to several, as a logarithm of cost."""
    priors: Mapping[str, Prior]
    """The prior of each term of a machine model; the keys are ``posterior.TERMS``."""
    noise: float
    """Prior scale of the error of a measured cost's logarithm."""
    drift: float
    """Variance that each doubling adds to the error, as a multiple of the measurement error's."""
    trend_weight: float
    """Weight of the trend in the prediction; the machine models' weight is 1 minus it."""
    interval_factor: float
    """Multiplies the machine models' interval, so that 90 % of published points lie inside."""


@cache
def load_learned() -> dict[Kind, Learned]:
    """Return the parameters that ship with scalewise."""
    data = json.loads(LEARNED_FILE.read_text(encoding="utf-8"))
    learned = {}
    for kind in KINDS:
        priors = {name: Prior(**prior) for name, prior in data[kind]["priors"].items()}
        learned[kind] = Learned(**{**data[kind], "priors": priors})
    return learned
