"""Ask this machine and this allocation what they can do: asked, and never guessed.

A program on the PATH is not a cluster, a driver is not a device, a backend that
is compiled in may not work: so controllers, engines and two real ranks are asked.
"""

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

__all__ = ["Finding", "examine", "own_ranks"]

Question = tuple[str, Callable[[], Finding]]
"""A name, and how to find out."""


def examine(
    folder: Path, *, ranks: int | None = None, tell: Callable[[str], None] = lambda name: None
) -> Iterator[Finding]:
    """Ask about everything a study needs, and yield each answer as it comes.

    ``ranks`` is how many processes will share this machine: as many as it has
    devices, or two, if not given. ``tell`` hears the name of each question first.
    """
    facts: dict[str, dict[str, Any]] = {}

    def engine(name: str) -> Finding:
        facts[name] = framework_checks.framework_facts(name)
        return framework_checks.check_framework(name, facts[name])

    try:
        names = list(plugins.available("frameworks"))
    except PluginError as why:
        yield Finding("engines", str(why), why.hint, "fault")
        names = []
    opening: list[Question] = [(name, partial(engine, name)) for name in names]
    yield from _answers([("python", machine.check_python), *opening], tell)
    torch = facts.get("torch") or {"problem": "no engine named torch is registered"}
    yield from _answers(_questions(folder, torch, ranks or default_ranks(torch)), tell)


def default_ranks(torch: dict[str, Any]) -> int:
    """Return how many ranks this machine is for: one per device, two without any."""
    return len(framework_checks.accelerators(torch)) or 2


def _answers(questions: list[Question], tell: Callable[[str], None]) -> Iterator[Finding]:
    for name, question in questions:
        tell(name)
        yield run_check(name, question)


def _questions(folder: Path, torch: dict[str, Any], ranks: int) -> list[Question]:
    """Return what is asked of this machine, the quick things first."""
    env, groups = os.environ, cgroups.read_membership()
    quota, bound = cgroups.cpu_quota(groups), machine.affinity()
    usable = machine.usable_cores(bound, quota)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    questions: list[Question] = [
        ("devices", lambda: framework_checks.check_devices(torch, env)),
        ("container", lambda: machine.check_container(env, groups)),
        ("cores", lambda: machine.check_cores(bound, quota, ranks, os.getloadavg()[0], env)),
        ("threads", lambda: machine.check_threads(env, usable, ranks)),
        ("memory", lambda: machine.check_memory(cgroups.memory_limit(groups))),
        ("open-files", lambda: machine.check_open_files(*files)),
        ("shared-memory", lambda: machine.check_shared_memory(Path("/dev/shm"))),
        ("disk", lambda: storage.check_disk(folder, cgroups.read_text(Path("/proc/mounts")))),
        ("clock", lambda: storage.check_clock(folder)),
        ("interfaces", lambda: interfaces.check_interfaces(env, interfaces.list_interfaces())),
        ("host", lambda: interfaces.check_host(socket.gethostname(), interfaces.list_interfaces())),
        ("slurm", lambda: slurm_checks.check_slurm(env)),
        ("backend", lambda: framework_checks.check_backend(torch, env)),
    ]
    if platform.system() == "Linux":
        return questions
    return [each for each in questions if each[0] != "shared-memory"]  # Loaders need none there.
