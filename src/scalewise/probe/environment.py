"""What a run ran on: host, processor, versions, commit, variables; its peak memory."""

import os
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewise.record.write import write_json

VARIABLES = (
    "OMP_", "MKL_", "KMP_", "NCCL_", "GLOO_", "CUDA_VISIBLE", "TORCH_", "SLURM_JOB", "UCX_",
    "TF_", "XLA_",
)  # fmt: skip
"""Prefixes of environment variables that can change a measurement."""


def write_environment(folder: Path, framework: Mapping[str, Any]) -> dict[str, Any]:
    """Write and return the facts needed to compare two runs, with those of the framework."""
    system = os.uname()
    values = {
        "host": system.nodename,
        "system": f"{system.sysname} {system.release} {system.machine}",
        "processor": _processor(),
        "cores": usable_cores(),
        "python": sys.version.split()[0],
        "arguments": sys.argv,
        "folder": os.getcwd(),
        "commit": _commit(),
        "variables": {
            key: value for key, value in sorted(os.environ.items()) if key.startswith(VARIABLES)
        },
        "engine": framework,
    }
    write_json(folder / "environment.json", values)
    return values


def usable_cores() -> int | None:
    """Return the number of cores this process may use; the machine may have more."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _processor() -> str | None:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return None


def _commit() -> str | None:
    """Return the git commit of the working folder; ``+`` marks uncommitted changes."""
    try:
        result = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12"],
            capture_output=True, text=True, timeout=5, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


def release(version: str) -> tuple[int, ...]:
    """Return major and minor version; empty, and so older than any, for a text without numbers.

    >>> release("2.13.0+cpu"), release("0.7rc1"), release("unknown")
    ((2, 13), (0, 7), ())
    """
    match = re.match(r"(\d+)(?:\.(\d+))?", version)
    return tuple(int(number) for number in match.groups() if number) if match else ()


def peak_resident_bytes() -> int:
    """Return the peak resident memory of this process."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
