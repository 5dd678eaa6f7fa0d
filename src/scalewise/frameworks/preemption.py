"""When a job is told to go: all ranks leave after the same step, with a checkpoint."""

import time
from pathlib import Path

from scalewise.frameworks import Session
from scalewise.probe import Laps
from scalewise.record.checkpoints import LEAVE

EVERY = 1.0
"""Seconds between two looks at it, about."""


class Leaving:
    """Lets ranks agree, about once a second, whether this step is their last."""

    def __init__(self, folder: Path, session: Session) -> None:
        self._path, self._session = folder / LEAVE, session
        self._steps, self._since = 0, time.monotonic()
        self._ahead = 1
        """Steps from one look to the next: all ranks have the same number."""

    def after_step(self, probe: Laps) -> bool:
        """Say whether all ranks leave now."""
        self._steps += 1
        if self._steps < self._ahead:
            return False
        spent = time.monotonic() - self._since
        wish = max(1, int(self._steps * EVERY / max(spent, 1e-6)))
        asked, fewest = self._session.largest([int(self._path.exists()), -wish])
        self._ahead, self._steps, self._since = -fewest, 0, time.monotonic()
        probe.lap("other")
        return bool(asked)
