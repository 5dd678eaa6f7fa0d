"""Where the time and the efficiency went: one line per cause, with what is unexplained.

chain           from the ideal step to the measured one, cause by cause
whatif          the recorded steps replayed with one thing changed
breakdown       the results: causes of one point and of a curve, the cost of leaving a node
guards/         checks for what silently ruins scaling, one function each
trace_analysis  a profiler's trace of a few steps, compared with the light measurement
intervals       set operations on time intervals
utilisation     how busy devices and hosts were
run_view        one run with its window, ledger and chain
receipt         device-hours bought, useful, and lost per cause
explain_curve   from a curve and its records to these results
explain_text    every sentence, and something to try
"""

from scalewise.analysis.explain.breakdown import (
    COMPUTE_AND_COMMUNICATION,
    Breakdown,
    Cost,
    Explanation,
    RankTime,
)
from scalewise.analysis.explain.chain import CAUSES, Chain
from scalewise.analysis.explain.explain_curve import explain
from scalewise.analysis.explain.guards.guard import Finding
from scalewise.analysis.explain.receipt import (
    LOSSES,
    Receipt,
    receipts,
    sum_receipts,
    wasted_receipt,
)
from scalewise.analysis.explain.trace_analysis import TraceComparison
from scalewise.analysis.explain.whatif import WhatIf

__all__ = [
    "CAUSES",
    "COMPUTE_AND_COMMUNICATION",
    "LOSSES",
    "Breakdown",
    "Chain",
    "Cost",
    "Explanation",
    "Finding",
    "RankTime",
    "Receipt",
    "TraceComparison",
    "WhatIf",
    "explain",
    "receipts",
    "sum_receipts",
    "wasted_receipt",
]
