"""Ask Slurm about the cluster: GPUs and time limits of its partitions, accounts of the user.

A command that is missing, slow or refused leaves its facts unknown; it is never an error.
"""

import getpass
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from scalewise.errors import SpecError
from scalewise.launch.command_output import run_command
from scalewise.launch.slurm.settings import parse_time_limit

QUERY_SECONDS = 5.0
"""Seconds that a query may take: it delays ``scalewise plan`` and ``run``."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of the cluster."""

    name: str
    is_default: bool
    gpus_per_node: int
    """The GPUs of its largest node; 0 if no node has any."""
    gpu_types: tuple[str, ...]
    """Types of these GPUs, such as a100, where Slurm has names for them."""
    default_seconds: int | None
    """The time limit of a job that sets none; None: ``max_seconds``."""
    max_seconds: int | None
    """The longest time limit that a job may set; None: any."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts that a user may charge."""

    default: str | None
    names: tuple[str, ...]


def load_partitions(names: str | None = None) -> list[Partition]:
    """Return partitions, by default all that the user may see; none if Slurm does not answer."""
    query = ["sinfo", "--noheader", "--format=%P|%G|%L|%l"]
    if names:  # A hidden partition is listed only by its name.
        query.append(f"--partition={names}")
    answer = run_command(*query, seconds=QUERY_SECONDS)
    return parse_partitions(answer.stdout) if answer.ok else []


def load_accounts() -> Accounts | None:
    """Return the accounts of the current user on this cluster; None if they are unknown."""
    columns = "format=Cluster,DefaultAccount,Account"
    query = ("sacctmgr", "--noheader", "--parsable2", "show", "user", getpass.getuser())
    answer = run_command(*query, "withassoc", columns, seconds=QUERY_SECONDS)
    rows = [line.split("|") for line in answer.stdout.splitlines() if line.count("|") == 2]
    if not answer.ok or not rows:
        return None
    if len({cluster for cluster, *_ in rows}) > 1:  # The accounting is about several clusters.
        config = run_command("scontrol", "show", "config", seconds=QUERY_SECONDS)
        name = re.search(r"^ClusterName\s*=\s*(\S+)", config.stdout, re.M)
        rows = [row for row in rows if name and row[0] == name[1]]
    names = sorted({account for _, _, account in rows if account})
    default = next((default for _, default, _ in rows if default in names), None)
    return Accounts(default, tuple(names)) if names else None


def parse_partitions(text: str) -> list[Partition]:
    """Return the partitions that ``sinfo`` lists; it has a line for each kind of node.

    >>> (gpu,) = parse_partitions("gpu*|gpu:a100:4(S:0-1),nvme:1|10:00|1-00:00:00")
    >>> gpu.name, gpu.is_default, gpu.gpus_per_node, gpu.gpu_types
    ('gpu', True, 4, ('a100',))
    >>> gpu.default_seconds, gpu.max_seconds
    (600, 86400)
    """
    partitions: dict[str, Partition] = {}
    for line in text.splitlines():
        if line.count("|") != 3:
            continue
        starred_name, gres, default_limit, max_limit = line.strip().split("|")
        name = starred_name.rstrip("*")
        known = partitions.get(name) or Partition(
            name,
            starred_name.endswith("*"),
            gpus_per_node=0,
            gpu_types=(),
            default_seconds=_parse_limit(default_limit),
            max_seconds=_parse_limit(max_limit),
        )
        count, types = _parse_gpus(gres)
        partitions[name] = replace(
            known,
            gpus_per_node=max(known.gpus_per_node, count),
            gpu_types=tuple(dict.fromkeys([*known.gpu_types, *types])),
        )
    return list(partitions.values())


def _parse_gpus(gres: str) -> tuple[int, Iterable[str]]:
    """Return the number and the types of a node's GPUs, from Slurm's list of its resources.

    >>> _parse_gpus("gpu:4"), _parse_gpus("gpu:a100:2(S:0),gpu:v100:2(S:1)"), _parse_gpus("(null)")
    ((4, []), (4, ['a100', 'v100']), (0, []))
    """
    parts = [part.split(":") for part in re.sub(r"\([^)]*\)", "", gres).split(",")]
    gpus = [fields for name, *fields in parts if name == "gpu"]
    count = sum(int(field) for fields in gpus for field in fields if field.isdecimal())
    return count, [field for fields in gpus for field in fields if not field.isdecimal()]


def _parse_limit(limit: str) -> int | None:
    """Return a time limit in seconds; None for ``infinite`` and ``n/a``."""
    try:
        return parse_time_limit(limit)
    except SpecError:
        return None
