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

from scalewise.study.jobs import trained_alone
from scalewise.study.load_study import check, from_program, load, with_launcher, with_program_facts
from scalewise.study.notices import Watcher, left_out_notices
from scalewise.study.run_study import plan, request_summary, run, write_plan
from scalewise.study.runner import TerminalClosed
from scalewise.study.status import Status, cancel, status

__all__ = [
    "Status",
    "TerminalClosed",
    "Watcher",
    "cancel",
    "check",
    "from_program",
    "left_out_notices",
    "load",
    "plan",
    "request_summary",
    "run",
    "status",
    "trained_alone",
    "with_launcher",
    "with_program_facts",
    "write_plan",
]
