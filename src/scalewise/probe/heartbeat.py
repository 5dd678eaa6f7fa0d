"""A thread beside the training that writes steps each second, and detects stalls and SIGTERM.

Python runs no signal handler while the training thread blocks inside a collective, but it still
writes the signal's number to a file descriptor, which this thread reads. SIGUSR1 prints all stacks.
"""

import faulthandler
import math
import os
import select
import signal
import time
from contextlib import suppress
from threading import Thread

from scalewise.errors import RecordError
from scalewise.probe import Probe

STALL_SECONDS = 10.0
"""After so long without progress (a step, span or tick), a rank records what it is doing."""

LAST_WAIT_SECONDS = 3.0
"""So long a rank that must end waits for its disk; it is killed 5 s after SIGTERM."""


class Heartbeat:
    """Flushes a probe until closed; exits the rank after ``patience`` seconds without progress."""

    def __init__(self, probe: Probe, patience: float = math.inf) -> None:
        self._probe = probe
        self._patience = patience
        self._agent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else 0
        """Process id of torchrun's agent, the parent of this rank; 0 without torchrun."""
        self._read, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        # This empty handler keeps SIGTERM from ending the process before the thread records it.
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        self._thread = Thread(target=self._loop, name="scalewise-heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and restore the handling of SIGTERM."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.write(self._wake, b"\0")
        self._thread.join()

    def _loop(self) -> None:
        progress, since, next_note = (0, 0), time.monotonic(), STALL_SECONDS
        while True:
            ready, _, _ = select.select([self._read], [], [], 1.0)
            signals = os.read(self._read, 64) if ready else b""
            if signal.SIGTERM in signals:
                self._exit("ended by SIGTERM", kind="terminated")
            if signals:  # ``close`` wrote a zero.
                return
            if self._agent and os.getppid() != self._agent:
                self._exit(f"torchrun's agent (process {self._agent}) is gone", kind="orphaned")
            try:
                self._probe.flush(time.thread_time)
                latest = self._probe.steps_done, self._probe.ticks
                if latest != progress:
                    progress, since, next_note = latest, time.monotonic(), STALL_SECONDS
                elif time.monotonic() - since >= next_note:
                    next_note *= 2
                    self._probe.note_stall(time.monotonic() - since)
                seconds = time.monotonic() - since
                if seconds >= self._patience:  # Other ranks would wait for this one forever.
                    faulthandler.dump_traceback(all_threads=True)
                    self._probe.note_stall(seconds)
                    reason = f"no progress for {seconds:.0f} s (stacks are in the log)"
                    self._exit(reason, kind="stalled", code=1)
            except RecordError:
                return  # The training thread gets the same error when it writes its next line.

    def _exit(self, reason: str, kind: str, code: int = 128 + signal.SIGTERM) -> None:
        self._probe.record_failure(reason, kind=kind)
        with suppress(RecordError):
            self._probe.settle(LAST_WAIT_SECONDS)
        os._exit(code)
