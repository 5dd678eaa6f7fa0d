"""Test what this machine and allocation can do, by using each part of it."""

import os
import platform
import resource
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from scalewise import plugins
from scalewise.doctor import cgroups, framework_checks, interfaces, machine, slurm_checks, storage
from scalewise.doctor.finding import Finding, run_check
from scalewise.errors import PluginError

__all__ = ["Finding", "default_ranks", "examine"]

Check = tuple[str, Callable[[], Finding]]
"""The name of a check, and its function."""


def examine(
    folder: Path, *, ranks: int | None = None, on_check: Callable[[str], None] = lambda name: None
) -> Iterator[Finding]:
    """Yield the result of each check; ``ranks`` None: check for ``default_ranks`` ranks."""
    facts: dict[str, dict[str, Any]] = {}

    def check_framework(name: str) -> Finding:
        facts[name] = framework_checks.framework_facts(name)
        return framework_checks.check_framework(name, facts[name])

    try:
        names = list(plugins.available("frameworks"))
    except PluginError as error:
        yield Finding("engines", str(error), error.hint, "fault")
        names = []
    frameworks: list[Check] = [(name, partial(check_framework, name)) for name in names]
    yield from _run_checks([("python", machine.check_python), *frameworks], on_check)
    torch = facts.get("torch") or {"problem": "no framework named torch is registered"}
    yield from _run_checks(_machine_checks(folder, torch, ranks or default_ranks(torch)), on_check)


def default_ranks(torch: dict[str, Any]) -> int:
    """Return the number of ranks that suits this machine: one per accelerator, else two."""
    return len(framework_checks.accelerators(torch)) or 2


def _run_checks(checks: list[Check], on_check: Callable[[str], None]) -> Iterator[Finding]:
    for name, check in checks:
        on_check(name)
        yield run_check(name, check)


def _machine_checks(folder: Path, torch: dict[str, Any], ranks: int) -> list[Check]:
    """Return the checks of this machine, the quick ones first."""
    env, membership = os.environ, cgroups.read_text(Path("/proc/self/cgroup"))
    quota, cores = cgroups.cpu_quota(membership), machine.affinity()
    usable = machine.usable_cores(cores, quota)
    file_limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    checks: list[Check] = [
        ("devices", lambda: framework_checks.check_devices(torch, env)),
        ("container", lambda: machine.check_container(env, membership)),
        ("cores", lambda: machine.check_cores(cores, quota, ranks, os.getloadavg()[0], env)),
        ("threads", lambda: machine.check_threads(env, usable, ranks)),
        ("memory", lambda: machine.check_memory(cgroups.memory_limit(membership))),
        ("open-files", lambda: machine.check_open_files(*file_limits)),
        ("shared-memory", lambda: machine.check_shared_memory(Path("/dev/shm"))),
        ("disk", lambda: storage.check_disk(folder, cgroups.read_text(Path("/proc/mounts")))),
        ("clock", lambda: storage.check_clock(folder)),
        ("interfaces", lambda: interfaces.check_interfaces(env, interfaces.list_interfaces())),
        ("host", lambda: interfaces.check_host(socket.gethostname(), interfaces.list_interfaces())),
        ("slurm", lambda: slurm_checks.check_slurm(env)),
        ("backend", lambda: framework_checks.check_backend(torch, env)),
    ]
    if platform.system() == "Linux":
        return checks
    return [check for check in checks if check[0] != "shared-memory"]  # Only Linux has /dev/shm.
