"""What a run ran on: host, processor, versions, commit, variables that change speed."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VARIABLES = (
    "OMP_", "MKL_", "KMP_", "NCCL_", "GLOO_", "CUDA_VISIBLE", "TORCH_", "SLURM_JOB", "UCX_",
    "TF_", "XLA_",
)  # fmt: skip
"""Variables whose names begin like this can change a measurement."""


def environment(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts without which two runs cannot be compared; ``engine`` tells its own."""
    system = os.uname()
    return {
        "host": system.nodename,
        "system": f"{system.sysname} {system.release} {system.machine}",
        "processor": _processor(),
        "cores": _cores(),
        "python": sys.version.split()[0],
        "arguments": sys.argv,
        "folder": os.getcwd(),
        "commit": _commit(),
        "variables": {
            key: value for key, value in sorted(os.environ.items()) if key.startswith(VARIABLES)
        },
        "engine": engine,
    }


def _cores() -> int | None:
    """The cores this process may use, which can be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else None


def _commit() -> str | None:
    """The commit of the working folder, if it is a checkout; ``+`` marks a change."""
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12"],
            capture_output=True, text=True, timeout=5, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() or None


def release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version; a text without any is older than all.

    >>> release("2.13.0+cpu"), release("0.7rc1"), release("unknown")
    ((2, 13), (0, 7), ())
    """
    found = re.match(r"(\d+)(?:\.(\d+))?", version)
    return tuple(int(each) for each in found.groups() if each) if found else ()
