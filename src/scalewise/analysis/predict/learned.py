"""What was learned from published curves; ``benchmarks/learn.py`` learns it again.

The numbers are in ``learned.json``, with how they came about.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scalewise.analysis.predict.series import KINDS, Kind

FILE = Path(__file__).with_name("learned.json")


@dataclass(frozen=True, slots=True)
class Prior:
    """A term that is there with probability ``chance``; then around ``middle``, so far spread.

    Middle and spread are of the logarithm, but for the power, which may be negative.
    """

    chance: float
    middle: float
    spread: float


@dataclass(frozen=True)
class Learned:
    """All that the default predictor knows of one kind of curve before seeing any of it."""

    usual: float
    """Loss per doubling that any curve has, as a logarithm of cost."""
    own: float
    """The share of its own loss per doubling so far that a curve goes on losing, on top."""
    leaving: float
    """Loss where devices leave the node for the first time."""
    priors: Mapping[str, Prior]
    """Of each term of the machine's law."""
    noise: float
    """How far measurements lie from their law, in logarithms."""
    drift: float
    """How much of that adds up with each doubling, as a share of its square."""
    trust: float
    """The weight of the loss per doubling; the rest is the machines'."""
    widen: float
    """What the machines' interval is multiplied with, so that nine of ten are held."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Learned":
        """Read one kind of ``learned.json``."""
        priors = {name: Prior(**prior) for name, prior in data["priors"].items()}
        return cls(**{**data, "priors": priors})


@cache
def learned() -> dict[Kind, Learned]:
    """Return what ships with scalewise."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    return {kind: Learned.of(data[kind]) for kind in KINDS}
