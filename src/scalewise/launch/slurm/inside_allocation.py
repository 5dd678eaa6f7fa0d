"""Carry a script out in the allocation that we are in: ``salloc``, or a job of the user's own."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewise.launch import processes
from scalewise.launch.slurm.queue import QueueEntry

STOP_SECONDS = 20.0
"""Seconds in which a script that was told to end may close its record."""


def current_job_id() -> str | None:
    """Return the number of the job that we are in, if any."""
    return os.environ.get("SLURM_JOB_ID")


def node_count() -> float:
    """Return how many nodes the allocation has; without end, where it does not say."""
    return float(os.environ.get("SLURM_JOB_NUM_NODES", "inf"))


def submit(path: Path, log: Path, token: str) -> dict[str, Any]:
    """Start a script beside us; return how to find it again."""
    child = processes.start(["bash", str(path)], {processes.TOKEN_VARIABLE: token}, log)
    return processes.identity(child.pid)


def find_script(token: str) -> dict[str, Any] | None:
    """Return the script that was started with this token, if it goes on."""
    return next(iter(processes.ProcessFilter({processes.TOKEN_VARIABLE: token}).outermost()), None)


def script_entry(process: dict[str, Any]) -> QueueEntry:
    """Return the state of a script."""
    return QueueEntry("RUNNING" if processes.alive(**process) else "COMPLETED")


def cancel(process: dict[str, Any]) -> None:
    """End a script and the steps that it has started."""
    until = time.monotonic() + STOP_SECONDS
    _send_signal(process, signal.SIGTERM)
    while processes.alive(**process) and time.monotonic() < until:
        time.sleep(0.1)
    _send_signal(process, signal.SIGKILL)


def _send_signal(process: dict[str, Any], what: signal.Signals) -> None:
    """Send a signal to the script and its children: it has a session of its own."""
    if processes.alive(**process):
        with suppress(ProcessLookupError):
            os.killpg(process["pid"], what)
