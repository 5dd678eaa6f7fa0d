"""Record a run's host, processor, versions, commit and variables, and a process's peak memory."""

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

PREFIXES = (
    "OMP_", "MKL_", "KMP_", "NCCL_", "GLOO_", "CUDA_VISIBLE", "TORCH_", "SLURM_JOB", "UCX_",
    "TF_", "XLA_",
)  # fmt: skip
"""Prefixes of environment variables that can change a measurement."""
OTHER_PREFIXES = ("TF_CLI_", "TF_VAR_", "TF_TOKEN_", "TF_LOG", "TF_DATA_DIR", "TF_WORKSPACE")
"""Terraform's variables, which TensorFlow does not read: they may hold secrets."""


def write_environment(folder: Path, framework: Mapping[str, Any]) -> dict[str, Any]:
    """Write and return the facts needed to compare two runs, with the facts of the framework."""
    system = os.uname()
    values = {
        "host": system.nodename,
        "system": f"{system.sysname} {system.release} {system.machine}",
        "processor": _processor_name(),
        "cores": usable_cores(),
        "python": sys.version.split()[0],
        "arguments": sys.argv,
        "folder": os.getcwd(),
        "commit": _git_commit(),
        "variables": {
            key: value
            for key, value in sorted(os.environ.items())
            if key.startswith(PREFIXES) and not key.startswith(OTHER_PREFIXES)
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


def _processor_name() -> str | None:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return None


def _git_commit() -> str | None:
    """Return the git commit of the working folder; ``+`` marks uncommitted changes."""
    try:
        result = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12"],
            capture_output=True, text=True, timeout=5, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


def major_minor(version: str) -> tuple[int, ...]:
    """Return major and minor version; without a number, an empty tuple, which sorts first.

    >>> major_minor("2.13.0+cpu"), major_minor("0.7rc1"), major_minor("unknown")
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
