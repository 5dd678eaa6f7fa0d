"""Where the time went and why efficiency was lost: by cause, with an unexplained remainder.

chain           the seconds that each cause adds to the ideal step, up to the measured one
whatif          the recorded steps replayed with one thing changed
breakdown       result classes for a point and a curve; one node compared with several nodes
guards/         checks for faults that silently ruin training or scaling, one function each
trace_analysis  a profiler's trace of a few steps, compared with the timers that every run has
utilisation     how busy devices and hosts were
environment     machines, devices, software and settings of the runs
rank_times      rank × time: whether all ranks are equally fast, and since when one is not
run_view        one run with its steady window, ledger (seconds by phase) and chain
receipt         device-hours bought, useful, and lost per cause
explain_curve   computes these results from a curve and its records
"""

from scalewise.analysis.explain.breakdown import (
    COMPUTE_AND_COMMUNICATION,
    Boundary,
    Breakdown,
    Cost,
    Explanation,
    RankTime,
    ScalingVerdict,
)
from scalewise.analysis.explain.chain import CAUSES
from scalewise.analysis.explain.explain_curve import explain
from scalewise.analysis.explain.guards.guard import Finding
from scalewise.analysis.explain.rank_times import RankRow, RankTimes, SlowRank
from scalewise.analysis.explain.receipt import (
    LOSSES,
    Receipt,
    receipts,
    sum_receipts,
    wasted_receipt,
)

__all__ = [
    "CAUSES",
    "COMPUTE_AND_COMMUNICATION",
    "LOSSES",
    "Boundary",
    "Breakdown",
    "Cost",
    "Explanation",
    "Finding",
    "RankRow",
    "RankTime",
    "RankTimes",
    "Receipt",
    "ScalingVerdict",
    "SlowRank",
    "explain",
    "receipts",
    "sum_receipts",
    "wasted_receipt",
]
