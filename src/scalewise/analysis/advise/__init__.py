"""How many devices to use for a purpose, and why.

purpose  limits to keep, and what is best among what keeps them
power    how much energy a scale would take
scale    one number of devices as a choice
candidates  every scale that can be chosen, under the conditions that hold
choice   the whole answer: the scale that serves a purpose, its neighbours, the reason
paying   whether the next larger scale of a study still serves a purpose
bill     what a study will cost, from what is known before it runs
returns  where more devices stop paying, and the part of the job that is the cause
words    what an advice says
outlook  a prediction and advice for usual purposes, as a report has them

conditions  what else there is beside the job that was measured
job         a job of any length: its start, and what each sample takes
aim         what a model is trained for
reached     when recorded runs reached an aim
batches     the global batch on each number of devices, and the critical one
spans       time spans as people write them
wait        the time in a queue
interruptions  how often to save where devices are taken away, and what is lost
worthwhile  what would make a number of devices worthwhile
runs        many equal runs on some devices
to_target   the time until the target, at each number of devices
points      work to target as it was measured, checked
weigh       every law that could have made the points, by how well it explains them
target      work, steps and time to target at any batch, and where more devices stop paying
"""

from scalewise.analysis.advise.choice import Advice, advise
from scalewise.analysis.advise.conditions import Conditions
from scalewise.analysis.advise.outlook import Outlook, outlook
from scalewise.analysis.advise.power import Power
from scalewise.analysis.advise.purpose import Limit, Purpose
from scalewise.analysis.advise.returns import Returns
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.advise.target import Target, by_noise, published, work_to_target

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
