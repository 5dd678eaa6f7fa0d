"""The processes of runs, found by the run's folder in their environment."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path


def read_proc(pid: int, name: str) -> bytes:
    """Return what the kernel says of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def living(folder: Path, run: str = "") -> list[int]:
    """Return the processes of runs below a folder, or of one run there, that are no zombies."""
    tag, found = b"SCALEWISE_RUN=" + os.fsencode(folder), []
    for name in os.listdir("/proc"):
        if name.isdigit() and tag in (environment := read_proc(int(name), "environ")):
            value = environment.partition(tag)[2].partition(b"\0")[0]
            state = read_proc(int(name), "stat").rpartition(b")")[2].split()[:1]
            if value.endswith(run.encode()) and state not in ([], [b"Z"], [b"X"]):
                found.append(int(name))
    return found


def left(folder: Path, seconds: float = 2.0) -> list[bytes]:
    """Return the commands of processes that live on so many seconds later."""
    ends = time.monotonic() + seconds
    while found := living(folder):
        if time.monotonic() > ends:
            return [read_proc(pid, "cmdline").replace(b"\0", b" ")[:200] for pid in found]
        time.sleep(0.1)
    return []


def kill_left(folder: Path) -> list[bytes]:
    """Kill the processes that live on; return their commands."""
    found = living(folder)
    commands = [read_proc(pid, "cmdline").replace(b"\0", b" ")[:200] for pid in found]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return commands
