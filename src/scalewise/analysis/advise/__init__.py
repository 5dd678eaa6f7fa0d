"""How many devices to use for a purpose, and why.

choice               the advice: the scale that serves a purpose, its neighbours, the reason
purpose              every purpose: the limit it sets, and what is best among what meets it
scale                one number of devices as a candidate
candidates           every candidate, under the given conditions
conditions           conditions beyond the measured job

quality/             time to target: the work until the model is good enough
interruptions        how often to save, and what interruptions cost
queue_wait           the time in a queue
job_time             start and rate of a job of any length
durations            numbers and durations as users write them

diminishing_returns  where more devices stop paying, and the cause
break_even           what would make a number of devices worthwhile
packing              many equal runs on some devices

Its sentences are in ``report.text``.
"""

from scalewise.analysis.advise.choice import Advice, advise
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
