"""Where this process stands among the ranks, from whichever starter told it.

torchrun and a careful hand set RANK and its like; mpirun and srun say the same
in words of their own. What is explicit wins. Engines read torchrun's names, so
these are filled in, and the record says whose words they were.
"""

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from scalewise.errors import SpecError
from scalewise.spec import RunSpec

PORTS = (20000, 20000)
"""The first port that a job may choose, and how many there are."""


@dataclass(frozen=True, slots=True)
class Starter:
    """Something that starts ranks, and the variables by which it numbers them."""

    name: str
    rank: str
    world: str
    local: str
    """Its number on this machine."""
    beside: str
    """How many there are on this machine."""


STARTERS = (
    Starter("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    Starter(
        "mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    Starter(
        "horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
    ),
    Starter("mpirun (Hydra)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    Starter(
        "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
        "SLURM_STEP_TASKS_PER_NODE",
    ),
)  # fmt: skip
"""The first that speaks is believed: mpirun inside a Slurm job has srun's variables too."""


@dataclass(frozen=True, slots=True)
class Place:
    """One process among all."""

    rank: int
    world: int
    local: int
    started: str
    """Whose words these are."""


def find_place(env: Mapping[str, str]) -> Place | None:
    """Return where a process with these variables stands, or nothing if nobody told it."""
    for each in STARTERS:
        if each.rank in env and each.world in env:
            name = each.name
            if name == "torchrun" and "TORCHELASTIC_RUN_ID" not in env:
                name = "environment"
            rank, world = _number(env, each.rank), _number(env, each.world)
            return Place(rank, world, _number(env, each.local, rank % world), name)
    return None


def own_rank(spec: RunSpec, env: Mapping[str, str]) -> int:
    """Return the rank that this process plays; refuse where not all ranks were started."""
    place = find_place(env)
    if place is None or place.world != spec.ranks:
        there = f"{place.started} started {place.world}" if place else "nobody started them"
        raise SpecError(
            f"{spec.topology} needs {spec.ranks} ranks, and {there}",
            hint="`scalewise plan` shows the command that starts each",
        )
    return place.rank


def take_place(env: MutableMapping[str, str]) -> Place | None:
    """Find the place of this process, and fill in the names that engines read."""
    place = find_place(env)
    if place is None or place.started == "torchrun":
        return place
    if "MASTER_ADDR" not in env:
        env["MASTER_ADDR"] = _master(env, place)
    env.setdefault("MASTER_PORT", str(port(env.get("SLURM_JOB_ID", "0"))))
    told = {"RANK": place.rank, "WORLD_SIZE": place.world, "LOCAL_RANK": place.local}
    for key, value in told.items():
        env.setdefault(key, str(value))
    return place


def port(job: str) -> int:
    """Return the port of a job: two jobs beside each other hardly ever share it."""
    first, count = PORTS
    return first + int(job) % count


def _master(env: Mapping[str, str], place: Place) -> str:
    """Return the machine of rank 0."""
    for nodes in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"):
        if nodes in env and (place.started == "srun" or nodes == "SLURM_JOB_NODELIST"):
            return first_host(env[nodes])
    starter = next(each for each in STARTERS if each.rank in env)
    if place.world == 1 or env.get(starter.beside) == str(place.world):
        return "localhost"
    raise SpecError(
        f"{place.started} tells rank {place.rank} of {place.world}, but not where rank 0 is",
        hint="set MASTER_ADDR to the first node's name, on every rank",
    )


def first_host(nodes: str) -> str:
    """Return the first name of a list as Slurm writes it.

    >>> first_host("gpu[007-012,020],login1"), first_host("n1,n2")
    ('gpu007', 'n1')
    """
    found = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", nodes)
    if found is None:
        raise SpecError(f"not a list of nodes: {nodes!r}", hint="set MASTER_ADDR")
    return "".join(part or "" for part in found.groups())


def _number(env: Mapping[str, str], name: str, absent: int = 0) -> int:
    try:
        return int(env.get(name, absent))
    except ValueError as bad:
        raise SpecError(f"{name} must be a number, got {env[name]!r}") from bad
