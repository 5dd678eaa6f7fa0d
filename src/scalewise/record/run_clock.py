"""The clock of a run: wall-clock times that do not jump when somebody sets the wall clock.

Each host relates a clock that nobody sets (seconds since its boot) to its wall clock once, when a
run starts. The launcher hands this relation to the processes of the run on its own host, in
SCALEWISE_CLOCK, and keeps it in ``job.json`` for later commands.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CLOCK_VARIABLE = "SCALEWISE_CLOCK"
SET_SECONDS = 1.0
"""If the wall clock jumps by more than this, it was set."""


def since_boot() -> float:
    """Return seconds of a clock that nobody sets; on Linux it also counts while the host sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@cache
def boot_id() -> str:
    """Return a text that is the same for all processes for which ``since_boot`` is one clock."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = os.uname().nodename
    try:
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:  # An older kernel has no namespaces of time.
        return boot


@dataclass(frozen=True, slots=True)
class RunClock:
    """Seconds since 1970 at any moment, by the wall clock as it was set at one moment."""

    booted_at: float
    """When the host was booted, by that wall clock."""

    @classmethod
    def start(cls) -> "RunClock":
        """Return the clock of a run that starts now."""
        return cls(time.time() - since_boot())

    @classmethod
    def from_text(cls, text: str | None) -> "RunClock":
        """Return the clock of ``text`` (``str`` of a clock); a new one if that is of another host.

        >>> clock = RunClock.start()
        >>> RunClock.from_text(str(clock)) == clock
        True
        """
        booted_at, _, boot = (text or "").partition(" ")
        try:
            return cls(float(booted_at)) if boot == boot_id() else cls.start()
        except ValueError:
            return cls.start()

    def __str__(self) -> str:
        return f"{self.booted_at!r} {boot_id()}"

    def now(self) -> float:
        """Return the time."""
        return self.booted_at + since_boot()


def run_clock(environment: Mapping[str, str] = os.environ) -> RunClock:
    """Return the clock of the run that this process belongs to."""
    return RunClock.from_text(environment.get(CLOCK_VARIABLE))
