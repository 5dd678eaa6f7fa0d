"""A thread beside the training: flushes each second, detects stalls and SIGTERM.

Python runs no signal handler while the training thread blocks inside a collective, but the wakeup
file descriptor gets the signal's number, read here. SIGUSR1 prints all stacks to stderr.
"""

import faulthandler
import math
import os
import select
import signal
import time
from threading import Thread

from scalewise.errors import RecordError
from scalewise.probe import Probe

STALL_SECONDS = 10.0
"""Time without a step or a new span after which a rank records where it is."""


class Heartbeat:
    """Flushes a probe until closed; ends a rank without progress for ``patience`` seconds."""

    def __init__(self, probe: Probe, patience: float = math.inf) -> None:
        self._probe = probe
        self._patience = patience
        self._agent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else 0
        """Process id of torchrun's agent, the parent of this rank; 0 without torchrun."""
        self._read, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        # Keeps the process alive: the thread reads the signal and exits in order.
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
        progress, since, stall = (0, 0), time.monotonic(), STALL_SECONDS
        while True:
            ready, _, _ = select.select([self._read], [], [], 1.0)
            signals = os.read(self._read, 64) if ready else b""
            if signal.SIGTERM in signals:
                self._exit("ended by SIGTERM", kind="terminated")
            if signals:  # ``close`` writes a zero.
                return
            if self._agent and os.getppid() != self._agent:
                self._exit(f"torchrun's agent (process {self._agent}) is gone", kind="orphaned")
            try:
                self._probe.flush(time.thread_time)
                now = self._probe.steps_done, self._probe.ticks
                if now != progress:
                    progress, since, stall = now, time.monotonic(), STALL_SECONDS
                elif time.monotonic() - since >= stall:
                    stall *= 2
                    self._note_stall(time.monotonic() - since)
                seconds = time.monotonic() - since
                if seconds >= self._patience:  # Other ranks would wait for this one forever.
                    faulthandler.dump_traceback(all_threads=True)
                    self._note_stall(seconds)
                    reason = f"no progress for {seconds:.0f} s (stacks are in the log)"
                    self._exit(reason, kind="stalled", code=1)
            except RecordError:
                return  # The training thread gets the same error at its next line.

    def _note_stall(self, seconds: float) -> None:
        probe = self._probe
        position = {"span": probe.current_span, "steps": probe.steps_done, "laps": probe.laps_done}
        probe.note(stalled={"seconds": round(seconds, 1), **position})

    def _exit(self, reason: str, kind: str, code: int = 128 + signal.SIGTERM) -> None:
        self._probe.record_failure(reason, kind=kind)
        os._exit(code)
