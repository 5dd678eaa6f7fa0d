"""What to run: frozen values, checked when they are made.

strategy_traits  what a strategy declares about itself
topology         devices and machines, and how one model is split over them
run              one training run
study            the runs that answer one question

Identity is content: two equal run specs have the same ``id`` and so the same folder.
"""

from scalewise.spec.run import RUN_KEYS, Precision, Remainder, RunSpec
from scalewise.spec.strategy_traits import StrategyTraits
from scalewise.spec.study import STUDY_KEYS, StudySpec
from scalewise.spec.topology import Parallelism, Topology

__all__ = [
    "RUN_KEYS",
    "STUDY_KEYS",
    "Parallelism",
    "Precision",
    "Remainder",
    "RunSpec",
    "StrategyTraits",
    "StudySpec",
    "Topology",
]
