"""How much memory this process has held; no engine."""

import resource
import sys
from pathlib import Path


def peak_resident() -> int:
    """Return the most bytes that this process has held in memory."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
