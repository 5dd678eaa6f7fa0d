"""Compare results: two sides with each other, or a history of several.

side        one side: a curve, the values of each of its runs, what they ran on
machine     whether the machine itself was slower, by the start of the processes
samples     tests of a difference between few repeats; what repeats can show
settings    settings and environments that differ
causes      which cause of a step's or a job's time moved
metric_difference  one metric on every common number of devices
comparison  two sides: all metrics, what differs, which cause moved, and the verdict
matching    which curves of two sources are compared
fail_if     conditions under which a comparison fails
trend       a history of several results, and where it changed
"""

from scalewise.analysis.compare.causes import CauseChange
from scalewise.analysis.compare.comparison import (
    DEFAULT_DIFFERENCE,
    Comparison,
    compare_sides,
    compare_sources,
    parse_difference,
)
from scalewise.analysis.compare.fail_if import Condition, ConditionResult, check_conditions
from scalewise.analysis.compare.machine import MachineShift
from scalewise.analysis.compare.matching import match_sides, one_side, split_source
from scalewise.analysis.compare.metric_difference import MetricDifference
from scalewise.analysis.compare.settings import SettingDifference
from scalewise.analysis.compare.side import METRICS, Side, side_of_study
from scalewise.analysis.compare.trend import Trend, TrendLine, TrendStep, trend_of_sources

__all__ = [
    "DEFAULT_DIFFERENCE",
    "METRICS",
    "CauseChange",
    "Comparison",
    "Condition",
    "ConditionResult",
    "MachineShift",
    "MetricDifference",
    "SettingDifference",
    "Side",
    "Trend",
    "TrendLine",
    "TrendStep",
    "check_conditions",
    "compare_sides",
    "compare_sources",
    "match_sides",
    "one_side",
    "parse_difference",
    "side_of_study",
    "split_source",
    "trend_of_sources",
]
