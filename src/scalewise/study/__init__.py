"""Run a study: start missing runs, adopt running ones, report the state of every run.

load_study  load a study file, refuse runs that cannot work
run_study   plan a study, execute its missing runs
runner      start runs, and follow each to its end
jobs        load the jobs of runs, read their state, close them
status      the state of every run; cancel runs
notices     progress and problems, for a watcher
budget      what the study has cost and will cost, and the limit of device-hours
stop_rule   whether more devices still serve the purpose

The last two read measurements and need numpy; they are imported where they are needed.
"""

from scalewise.study.jobs import trained_alone
from scalewise.study.load_study import check, from_program, load, with_launcher, with_program_facts
from scalewise.study.notices import Watcher, left_out_notices
from scalewise.study.run_study import plan, request_summary, run, write_plan
from scalewise.study.runner import TerminalClosed
from scalewise.study.status import Status, cancel, status

__all__ = [
    "Status", "TerminalClosed", "Watcher", "cancel", "check", "from_program", "left_out_notices",
    "load", "plan", "request_summary", "run", "status", "trained_alone", "with_launcher",
    "with_program_facts", "write_plan",
]  # fmt: skip
