"""Where the time and the efficiency went: one line per cause, and nothing hidden.

chain      from the ideal step to the measured one, cause by cause
whatif     the recorded steps once more, with one thing changed
exchange   what devices send each other, and what their strategy makes of it
operations what a device does of the model's own operations
breakdown  the causes of one point, and of a whole curve, as values
watched    what was noted of a run beside its times
boundary   what leaving the node costs
guards     what silently ruins scaling: ``correct`` and ``tune`` hold one function for each
trace      a few steps as the engine's profiler saw them, against what was measured in them
intervals  stretches of time, put together and cut
run        one run, looked at once
receipt    device-hours bought, useful, and lost per cause
account    from a curve and its records to these values
words      the same in a sentence, with something to try
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
from scalewise.analysis.explain.receipt import (
    LOSSES,
    Receipt,
    receipts,
    sum_receipts,
    wasted_receipt,
)
from scalewise.analysis.explain.trace_analysis import TraceComparison
from scalewise.analysis.explain.watched_facts import Finding
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
