"""How many devices to use for a purpose, and why.

purpose  limits to keep, and what is best among what keeps them
scale    one number of devices as a choice
choice   the whole answer: the scale that serves a purpose, its neighbours, the reason
returns  where more devices stop paying, and the part of the job that is the cause
words    what an advice says
outlook  a prediction and advice for usual purposes, as a report has them
points   work to target as it was measured, checked
weigh    every law that could have made the points, by how well it explains them
target   work, steps and time to target at any batch, and where more devices stop paying
"""

from scalewise.analysis.advise.choice import Advice, advise
from scalewise.analysis.advise.outlook import Outlook, outlook
from scalewise.analysis.advise.purpose import Limit, Purpose
from scalewise.analysis.advise.returns import Returns
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.advise.target import Target, by_noise, published, work_to_target

__all__ = [
    "Advice",
    "Limit",
    "Outlook",
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
