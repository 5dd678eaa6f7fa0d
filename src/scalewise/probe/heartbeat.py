"""A thread beside the training: flushes each second, notices stalls and SIGTERM.

While the training thread waits inside a collective, Python runs no signal
handler there. The system still writes the signal's number into a pipe, and
this thread reads it: so a rank that is told to end leaves its last words even
when it hangs. SIGUSR1 prints every thread's stack to stderr.
"""

import faulthandler
import math
import os
import select
import signal
import time
from threading import Thread
from types import FrameType

from scalewise.errors import RecordError
from scalewise.probe import Probe

STALL = 10.0
"""Seconds without a step or a new span before a rank says where it stands."""


class Watch:
    """Watches over a probe until it is closed; a rank that hangs too long is ended."""

    def __init__(self, probe: Probe, patience: float = math.inf) -> None:
        self._probe = probe
        self._patience = patience
        self._agent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else 0
        """Who started this rank and would end it, if that is torchrun."""
        self._read, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGTERM, _leave_it_to_the_thread)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        self._thread = Thread(target=self._loop, name="scalewise-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.write(self._wake, b"\0")
        self._thread.join()

    def _loop(self) -> None:
        reached, since, patience = (0, 0), time.monotonic(), STALL
        while True:
            ready, _, _ = select.select([self._read], [], [], 1.0)
            told = os.read(self._read, 64) if ready else b""
            if signal.SIGTERM in told:
                self._leave("ended by SIGTERM", kind="terminated")
            if told:
                return
            if self._agent and os.getppid() != self._agent:
                self._leave(f"torchrun's agent (process {self._agent}) is gone", kind="orphaned")
            try:
                self._probe.flush(time.thread_time)
                now = self._probe.steps_done, self._probe.ticks
                if now != reached:
                    reached, since, patience = now, time.monotonic(), STALL
                elif time.monotonic() - since >= patience:
                    patience *= 2
                    self._say_stalled(time.monotonic() - since)
                if time.monotonic() - since >= self._patience:
                    self._give_up(time.monotonic() - since)
            except RecordError:
                return  # The training thread meets the same error at its next line.

    def _say_stalled(self, seconds: float) -> None:
        probe = self._probe
        place = {"span": probe.span_now, "steps": probe.steps_done, "laps": probe.laps_done}
        self._probe.note(stalled={"seconds": round(seconds, 1), **place})

    def _give_up(self, seconds: float) -> None:
        """Show every thread's stack, and end: who waits for this rank would wait for ever."""
        faulthandler.dump_traceback(all_threads=True)
        self._say_stalled(seconds)
        self._probe.last_words(
            f"no progress for {seconds:.0f} s (stacks are in the log)", kind="stalled"
        )
        os._exit(1)

    def _leave(self, why: str, kind: str) -> None:
        self._probe.flush()
        self._probe.last_words(why, kind=kind)
        os._exit(128 + signal.SIGTERM)


def _leave_it_to_the_thread(number: int, frame: FrameType | None) -> None:
    """Take the signal without ending the process: the thread ends it in order."""
