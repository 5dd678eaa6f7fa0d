"""How many devices to use for a purpose, and why.

choice               the advice: the scale (number of devices) that serves a purpose best
best_scale           the best of several scales for a purpose, and the Pareto front
purpose              what users ask for: limits (deadline=2h), and a goal (time, device-hours, …)
scale                a scale: a number of devices with its time, cost and energy
candidates           all scales that are considered, under the conditions of the user
conditions           what only the real job has: a target, interruptions, a wait in a queue

quality/             time to target: how long until the model is good enough
interruptions        how often to save, and how much time interruptions cost
queue_wait           how long a job waits in a queue
job_time             time of a job with any amount of work: its start, then a constant rate
durations            parser of durations such as 1h30m

diminishing_returns  where more devices stop paying, and the cause
break_even           how much more data, batch or model makes a number of devices worthwhile
packing              how to place many equal runs on a number of devices

The sentences that describe an advice are in ``report.text``.
"""

from scalewise.analysis.advise.choice import Advice, Beyond, advise
from scalewise.analysis.advise.conditions import Conditions
from scalewise.analysis.advise.diminishing_returns import DiminishingReturns
from scalewise.analysis.advise.purpose import Limit, Purpose
from scalewise.analysis.advise.quality.work_to_target import (
    WorkToTarget,
    critical_from_noise,
    published_work,
    work_to_target,
)
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.cost.energy_use import Power

__all__ = [
    "Advice",
    "Beyond",
    "Conditions",
    "DiminishingReturns",
    "Limit",
    "Power",
    "Purpose",
    "Scale",
    "WorkToTarget",
    "advise",
    "critical_from_noise",
    "published_work",
    "work_to_target",
]
