"""Preemption: all ranks stop after the same step, with a checkpoint."""

import time
from pathlib import Path

from scalewise.frameworks import Session
from scalewise.probe import Laps
from scalewise.record.checkpoints import LEAVE

POLL_SECONDS = 1.0
"""Approximate time between two polls."""


class Preemption:
    """Lets ranks agree, about once a second, whether this step is the last one.

    The launcher asks for a stop by creating the file ``LEAVE`` in the run folder.
    """

    def __init__(self, folder: Path, session: Session) -> None:
        self._path, self._session = folder / LEAVE, session
        self._steps, self._last_poll = 0, time.monotonic()
        self._steps_between = 1
        """Steps from one poll to the next, the same on all ranks."""

    def after_step(self, probe: Laps) -> bool:
        """Return whether all ranks stop now."""
        self._steps += 1
        if self._steps < self._steps_between:
            return False
        seconds = time.monotonic() - self._last_poll
        steps = max(1, int(self._steps * POLL_SECONDS / max(seconds, 1e-6)))
        # The smallest number of steps, by a maximum of negatives: one exchange for both values.
        stop, fewest = self._session.largest([int(self._path.exists()), -steps])
        self._steps_between, self._steps, self._last_poll = -fewest, 0, time.monotonic()
        probe.lap("other")
        return bool(stop)
