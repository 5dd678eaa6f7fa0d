"""Where the time and the efficiency went: one line per cause, with what is unexplained.

chain           from the ideal step to the measured one, cause by cause
whatif          the recorded steps replayed with one thing changed
breakdown       the results: causes of one point and of a curve, the cost of leaving a node
guards/         checks for what silently ruins scaling, one function each
trace_analysis  a profiler's trace of a few steps, compared with the light measurement
utilisation     how busy devices and hosts were
run_view        one run with its window, ledger and chain
receipt         device-hours bought, useful, and lost per cause
explain_curve   from a curve and its records to these results
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
    "RankTime",
    "Receipt",
    "ScalingVerdict",
    "explain",
    "receipts",
    "sum_receipts",
    "wasted_receipt",
]
