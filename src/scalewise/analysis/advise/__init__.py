"""How many devices to use for a purpose, and why.

purpose        limits to keep, and what is best among what keeps them
spans          time spans as people write them
scale          one number of devices as a choice
candidates     every scale that can be chosen, under the conditions that hold
choice         the whole answer: the scale that serves a purpose, its neighbours, the reason
returns        where more devices stop paying, and the part of the job that is the cause
words          what an advice says
outlook        a prediction and advice for usual purposes, as a report has them

conditions     what else there is beside the job that was measured
quality/       a target: the work until the model is good enough, and the time that it takes
interruptions  how often to save where devices are taken away, and what is lost
wait           the time in a queue
job            a job of any length: its start, and what each sample takes

power          how much energy a scale would take
worthwhile     what would make a number of devices worthwhile
runs           many equal runs on some devices
bill           what a study will cost, from what is known before it runs
paying         whether the next larger scale of a study still serves a purpose
"""

from scalewise.analysis.advise.choice import Advice, advise
from scalewise.analysis.advise.conditions import Conditions
from scalewise.analysis.advise.diminishing_returns import Returns
from scalewise.analysis.advise.outlook import Outlook, outlook
from scalewise.analysis.advise.purpose import Limit, Purpose
from scalewise.analysis.advise.quality.target import Target, by_noise, published, work_to_target
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.cost.energy_use import Power

__all__ = [
    "Advice",
    "Conditions",
    "Limit",
    "Outlook",
    "Power",
    "Purpose",
    "Returns",
    "Scale",
    "Target",
    "advise",
    "by_noise",
    "outlook",
    "published",
    "work_to_target",
]
