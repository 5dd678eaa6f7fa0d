"""The state of runs as lines and as JSON."""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from scalewise.record.run_progress import RunProgress
from scalewise.spec import RunSpec
from scalewise.study import Status

LINE_SECONDS = 10.0
"""Minimum time between two lines about the progress of the same run."""


def status_line(status: Status) -> str:
    """Return a run's title and state."""
    return f"{status.run.title}: {status_text(status)}"


def status_text(status: Status) -> str:
    """Return a run's phase, and how far it has come or why it has not.

    >>> status_text(Status(None, "queued", "Resources", RunProgress(elapsed=70.0), job="12"))
    'queued for 0:01:10, Resources (job 12)'
    """
    is_waiting = status.phase == "queued" and status.progress.elapsed is not None
    waited = f" for {format_clock(status.progress.elapsed or 0.0)}" if is_waiting else ""
    details = _details(status)
    between = ", " if details and not details.startswith(" ") else ""
    return f"{status.phase}{waited}{between}{details}"


def _details(status: Status) -> str:
    progress = progress_text(status.progress) if status.phase == "running" else ""
    job = f" (job {status.job})" if status.job else ""
    return ", ".join(filter(None, [progress, status.cause])) + job


def progress_text(progress: RunProgress, *, with_share: bool = True) -> str:
    """Return steps, rate and time of a run, as far as they are known.

    >>> progress_text(RunProgress(120, 300, 1234.5, 61.0)), progress_text(RunProgress(7))
    ('120 of 300 steps (40%), 1,234 samples/s, 0:01:01', '7 steps')
    """
    done, total, share = progress.done, progress.total, progress.share
    steps = f"{done:,} step{'' if done == 1 else 's'}" if done else "no step yet"
    if done and total:
        steps = f"{done:,} of {total:,} steps" + (f" ({share:.0%})" if with_share else "")
    parts = [steps]
    if rate := progress.samples_per_second:
        parts.append(f"{rate:,.0f} samples/s" if rate >= 100 else f"{rate:.3g} samples/s")
    if progress.elapsed is not None:
        parts.append(format_clock(progress.elapsed))
    return ", ".join(parts)


def format_clock(seconds: float) -> str:
    """Return a time in hours, minutes and whole seconds."""
    return str(timedelta(seconds=int(seconds)))


def status_json(states: Sequence[Status]) -> dict[str, Any]:
    """Return what ``status --json`` prints."""
    runs = [
        {
            "id": state.run.id, "topology": str(state.run.topology), "repeat": state.run.repeat,
            "phase": state.phase, "cause": _details(state),
            "done": state.progress.done, "total": state.progress.total, "unit": "steps",
            "samples_per_second": state.progress.samples_per_second,
            "elapsed_seconds": state.progress.elapsed, "job": state.job,
        }
        for state in states
    ]  # fmt: skip
    done = sum(state.phase == "finished" for state in states)
    return {"schema": 1, "done": done, "total": len(states), "unit": "runs", "runs": runs}


class LineSchedule:
    """Decides which states are worth a line: a change, and now and then that a run goes on."""

    def __init__(self) -> None:
        self._printed: dict[RunSpec, tuple[tuple[str, str], float]] = {}
        """Of each run's last line: the phase and cause, and when it was printed."""

    def printed(self, run: RunSpec, phase: str, cause: str = "") -> None:
        """Remember a line that was printed."""
        self._printed[run] = (phase, cause), time.monotonic()

    def is_due(self, status: Status) -> bool:
        """Return whether to print a line about this state, and remember that it was printed."""
        before, printed_at = self._printed.get(status.run, (None, 0.0))
        is_old = time.monotonic() - printed_at > LINE_SECONDS
        if (status.phase, status.cause) == before and not (status.phase == "running" and is_old):
            return False
        self.printed(status.run, status.phase, status.cause)
        return True
