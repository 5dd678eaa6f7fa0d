"""CPU and memory limits of this process, from its Linux control groups (version 1 or 2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
UNLIMITED_BYTES = 2**60
"""So large a limit means that memory is unlimited: version 1 writes a number near 2**63."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The memory limit of a control group, and how many bytes the group uses."""

    bytes: int
    used: int


def group_folders(membership: str, controller: str, root: Path = CGROUP_ROOT) -> Iterator[Path]:
    """Yield the folders of the groups in ``membership`` (/proc/self/cgroup) and their parents."""
    # Lines of /proc/self/cgroup are ID:CONTROLLERS:PATH; in version 2 CONTROLLERS is empty.
    for line in membership.splitlines():
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        # If both versions are mounted, version 2 is in "unified".
        for top in [root / controller] if controllers else [root, root / "unified"]:
            group = top / path.strip("/")
            # In a container the path may not exist: then the root is the process's group.
            if not group.is_dir() or ".." in Path(path).parts:
                group = top
            yield group
            while group != top:
                group = group.parent
                yield group


def cpu_quota(membership: str, root: Path = CGROUP_ROOT) -> float | None:
    """Return the CPU quota in cores; None without a limit."""
    quotas = []
    for group in group_folders(membership, "cpu", root):
        quota, _, period = read_text(group / "cpu.max").partition(" ")
        if not quota:  # Version 1.
            quota = read_text(group / "cpu.cfs_quota_us")
            period = read_text(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):  # Unlimited: "max" or -1.
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit(membership: str, root: Path = CGROUP_ROOT) -> MemoryLimit | None:
    """Return the limit that leaves the least free memory; None without a limit."""
    memory_limits = []
    for group in group_folders(membership, "memory", root):
        for limit_file, usage_file in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, usage = read_text(group / limit_file), read_text(group / usage_file)
            if limit.isdigit() and int(limit) < UNLIMITED_BYTES:
                memory_limits.append(MemoryLimit(int(limit), int(usage) if usage.isdigit() else 0))
    return min(memory_limits, key=lambda candidate: candidate.bytes - candidate.used, default=None)


def read_text(path: Path) -> str:
    """Return the stripped text of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
