"""Run a script in the allocation of this process, which ``salloc`` or a batch job has made."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from scalewise.launch import processes
from scalewise.launch.slurm.queue import QueueEntry
from scalewise.record.log import signal_name

_children: dict[int, subprocess.Popen[bytes]] = {}
"""The scripts that this process has started, by process id."""
STOP_SECONDS = 20.0
"""Seconds that a script may take after SIGTERM, to write the outcome of its run."""


def current_job_id() -> str | None:
    """Return the id of the Slurm job that this process is in; None outside of one."""
    return os.environ.get("SLURM_JOB_ID")


def node_count() -> float:
    """Return the number of nodes of the allocation; infinity if Slurm does not set it."""
    return float(os.environ.get("SLURM_JOB_NUM_NODES", "inf"))


def submit(path: Path, log: Path, token: str) -> dict[str, Any]:
    """Start a script in this allocation; return its process identity."""
    child = processes.start(["bash", str(path)], {processes.TOKEN_VARIABLE: token}, log)
    _children[child.pid] = child
    return processes.identity(child.pid)


def script_signal(process: dict[str, Any]) -> str:
    """Return the name of the signal that killed a script of this process; empty if none did."""
    child = _children.get(process["pid"])
    code = child.poll() if child else None
    return signal_name(-code) if code and code < 0 else ""


def find_script(token: str) -> dict[str, Any] | None:
    """Return the process identity of the script with this token; None if it has ended."""
    return next(iter(processes.ProcessFilter({processes.TOKEN_VARIABLE: token}).outermost()), None)


def script_entry(process: dict[str, Any]) -> QueueEntry:
    """Return a script's state as a queue entry: COMPLETED says only that the script has ended."""
    return QueueEntry("RUNNING" if processes.alive(**process) else "COMPLETED")


def cancel(process: dict[str, Any]) -> None:
    """End a script and the processes that it has started, also where it was killed itself."""
    deadline = time.monotonic() + STOP_SECONDS
    session = processes.ProcessFilter({}, [process])
    _send_signal(session, signal.SIGTERM)
    while session.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    _send_signal(session, signal.SIGKILL)


def _send_signal(session: processes.ProcessFilter, signal_number: signal.Signals) -> None:
    """Send a signal to the script and its children, which share its session."""
    for each in session.processes():
        with suppress(psutil.Error):
            each.send_signal(signal_number)
