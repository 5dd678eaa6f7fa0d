"""What control groups allow this process, in both of their versions.

A limit may stand at the process's own group or at any group above it; the
narrowest counts. Inside a container the path a process is told may not be
there: then the top is its own group.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
UNLIMITED_BYTES = 2**60
"""The first version writes a number near 2**63 for no limit."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The bytes a control group may hold, and holds."""

    bytes: int
    used: int


def group_folders(membership: str, controller: str, root: Path = CGROUP_ROOT) -> Iterator[Path]:
    """Yield the folders of a controller from the process's own group upwards.

    ``membership`` is the text of ``/proc/self/cgroup``.
    """
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        for top in [root / controller] if names else [root, root / "unified"]:
            own = top / path.strip("/")
            if not own.is_dir() or ".." in Path(path).parts:
                own = top
            yield own
            while own != top:
                own = own.parent
                yield own


def cpu_quota(membership: str, root: Path = CGROUP_ROOT) -> float | None:
    """Return how many cores' worth of time the process gets; None without a limit."""
    found = []
    for group in group_folders(membership, "cpu", root):
        share, _, period = read_text(group / "cpu.max").partition(" ")
        if not share:
            share = read_text(group / "cpu.cfs_quota_us")
            period = read_text(group / "cpu.cfs_period_us")
        if share.isdigit() and period.isdigit() and int(period):
            found.append(int(share) / int(period))
    return min(found, default=None)


def memory_limit(membership: str, root: Path = CGROUP_ROOT) -> MemoryLimit | None:
    """Return the narrowest memory limit; None without one."""
    found = []
    for group in group_folders(membership, "memory", root):
        for most, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, now = read_text(group / most), read_text(group / used)
            if limit.isdigit() and int(limit) < UNLIMITED_BYTES:
                found.append(MemoryLimit(int(limit), int(now) if now.isdigit() else 0))
    return min(found, key=lambda each: each.bytes - each.used, default=None)


def read_membership() -> str:
    """Return which groups this process is in; nothing where the system has none."""
    return read_text(Path("/proc/self/cgroup"))


def read_text(path: Path) -> str:
    """Return what a file of the system says; nothing where there is no such file."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
