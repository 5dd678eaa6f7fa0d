"""Run a study: start missing runs, adopt running ones, report the state of every run.

Import ``budget`` and ``stop_rule`` only where they are needed: they load numpy.
"""

from scalewise.study.certificate_runs import DEFAULT_STEPS as CERTIFICATE_STEPS
from scalewise.study.certificate_runs import plan_certificate, run_certificate
from scalewise.study.jobs import trained_alone
from scalewise.study.load_study import (
    check,
    from_program,
    load,
    with_full_run,
    with_launcher,
    with_program_facts,
)
from scalewise.study.notices import Watcher, left_out_notices
from scalewise.study.run_study import plan, request_summary, request_warnings, run, write_plan
from scalewise.study.runner import TerminalClosed
from scalewise.study.status import Status, cancel, follow, status

__all__ = [
    "CERTIFICATE_STEPS", "Status", "TerminalClosed", "Watcher", "cancel", "check", "follow",
    "from_program", "left_out_notices", "load", "plan", "plan_certificate", "request_summary",
    "request_warnings", "run", "run_certificate", "status", "trained_alone", "with_full_run",
    "with_launcher", "with_program_facts", "write_plan",
]  # fmt: skip
