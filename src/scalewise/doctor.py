"""Ask this machine what it can do. A first version: processor, memory, disk, engines."""

import os
import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from scalewise import plugins
from scalewise.errors import LaunchError
from scalewise.launch.processes import ask


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was asked, and the answer."""

    name: str
    good: bool
    says: str
    hint: str = ""


def examine(folder: Path) -> list[Finding]:
    """Ask about everything a local study needs."""
    engines = [_engine(name) for name in plugins.available("frameworks")]
    return [_python(), _cores(), _memory(), _disk(folder), *engines]


def _python() -> Finding:
    return Finding(
        "python", good=True, says=f"{platform.python_version()} on {platform.platform()}"
    )


def _cores() -> Finding:
    usable = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    load = os.getloadavg()[0]
    busy = load > usable / 2
    says = f"{usable} usable of {os.cpu_count()}, load {load:.1f}"
    return Finding(
        "cores", good=not busy, says=says, hint="busy: measurements will be noisy" if busy else ""
    )


def _memory() -> Finding:
    found = psutil.virtual_memory()
    says = f"{found.available / 2**30:.1f} GiB free of {found.total / 2**30:.1f}"
    return Finding("memory", good=found.available > 2**30, says=says)


def _disk(folder: Path) -> Finding:
    """Try to write where runs would go."""
    free = shutil.disk_usage(folder).free / 2**30
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
    except OSError as why:
        hint = "run from another folder, or give -o"
        return Finding(
            "disk", good=False, says=f"cannot write in {folder}: {why.strerror}", hint=hint
        )
    return Finding("disk", good=free > 1, says=f"{free:.1f} GiB free in {folder}")


def _engine(name: str) -> Finding:
    """Start the engine in a child process and ask it."""
    try:
        facts = ask("about", name)
    except LaunchError as why:
        return Finding(name, good=False, says=str(why))
    if problem := facts.get("problem"):
        return Finding(name, good=False, says=problem)
    told = [f"{key} {_words(value)}" for key, value in facts.items() if key != "name" and value]
    return Finding(name, good=True, says=", ".join(told))


def _words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
