"""Run a study: start what is missing, take up what was left, say where every run is.

question   what is asked, and what of it cannot work
work       plan it, run what is missing
carry      start runs and see each to its end
jobs       what launchers and run folders know of them
state      where every run is
tell       how it goes, to whoever watches
bill       what it will cost, and has
purse      how much it may buy, and what that leaves for a run
paying     whether more devices still serve a purpose

The last three read what was measured; they are imported where they are needed.
"""

from scalewise.study.jobs import alone
from scalewise.study.load_study import check, launched_by, of_program, read, settled
from scalewise.study.notices import Watcher, left_out
from scalewise.study.run_study import asks, plan, run, write_plan
from scalewise.study.runner import HungUp
from scalewise.study.status import Status, cancel, status

__all__ = [
    "HungUp",
    "Status",
    "Watcher",
    "alone",
    "asks",
    "cancel",
    "check",
    "launched_by",
    "left_out",
    "of_program",
    "plan",
    "read",
    "run",
    "settled",
    "status",
    "write_plan",
]
