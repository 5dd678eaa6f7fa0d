"""What to run: frozen, checked values; equal run specs have the same ``id``, so one folder."""

from scalewise.spec.full_run import FullRun
from scalewise.spec.run import RUN_KEYS, Precision, Remainder, RunSpec
from scalewise.spec.strategy_traits import StrategyTraits
from scalewise.spec.study import STUDY_KEYS, StudySpec
from scalewise.spec.topology import Parallelism, Topology

__all__ = [
    "RUN_KEYS", "STUDY_KEYS", "FullRun", "Parallelism", "Precision", "Remainder", "RunSpec",
    "StrategyTraits", "StudySpec", "Topology",
]  # fmt: skip
