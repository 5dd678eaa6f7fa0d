"""Find out which rank this process is, from the environment variables of its launcher.

Frameworks read torchrun's RANK, WORLD_SIZE and LOCAL_RANK, so ``set_torchrun_variables`` sets these
from the variables of other launchers.
"""

import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from scalewise.errors import SpecError, shown
from scalewise.spec import RunSpec

FIRST_PORT = 20_000
PORT_COUNT = 20_000
"""Ports for the ranks' rendezvous. With so many, two jobs on a node rarely get the same port."""
LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "mpirun (Open MPI)": (
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "horovodrun": ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    "mpirun (Hydra)": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # SLURM_NTASKS would not do: a batch script has it too, and SLURM_PROCID, but is no rank.
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
}  # fmt: skip
"""Each launcher's variables for rank, world size, local rank, and processes on the node. The order
matters: mpirun in a Slurm job sets its own variables beside those of srun, and comes first.
"""


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """Which rank a process is, and which launcher says so."""

    rank: int
    world: int
    local_rank: int
    launcher: str
    """The launcher that set the variables; ``environment`` if RANK was set by other means."""


def find_rank(env: Mapping[str, str]) -> RankIdentity | None:
    """Return the rank of a process with these variables, or None if no launcher set any."""
    for launcher, (rank_name, world_name, local_name, _) in LAUNCHERS.items():
        if rank_name in env and world_name in env:
            if launcher == "torchrun" and "TORCHELASTIC_RUN_ID" not in env:
                launcher = "environment"
            rank, world = _number(env, rank_name), _number(env, world_name)
            local_rank = _number(env, local_name, rank % world if world else 0)
            return RankIdentity(rank, world, local_rank, launcher)
    return None


def rank_and_world(env: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return rank and number of ranks; (0, 1) without a launcher or with unreadable variables."""
    try:
        identity = find_rank(env)
    except SpecError:
        return 0, 1
    return (identity.rank, identity.world) if identity else (0, 1)


def required_rank(spec: RunSpec, env: Mapping[str, str]) -> int:
    """Return the rank of this process; raise if the launcher started another number of ranks."""
    identity = find_rank(env)
    if identity is None or identity.world != spec.ranks:
        started = f"{identity.launcher} started {identity.world}" if identity else "none started"
        raise SpecError(
            f"{spec.topology} needs {spec.ranks} ranks, but {started}",
            hint="`scalewise plan` shows the command that starts each rank",
        )
    return identity.rank


def set_torchrun_variables(env: MutableMapping[str, str]) -> RankIdentity | None:
    """Return which rank this is, and set torchrun's variables that are missing."""
    identity = find_rank(env)
    if identity is None or identity.launcher == "torchrun":
        return identity
    if "MASTER_ADDR" not in env:
        env["MASTER_ADDR"] = _rank_0_host(env, identity)
    port = FIRST_PORT + int(env.get("SLURM_JOB_ID", "0")) % PORT_COUNT
    env.setdefault("MASTER_PORT", str(port))
    env.setdefault("RANK", str(identity.rank))
    env.setdefault("WORLD_SIZE", str(identity.world))
    env.setdefault("LOCAL_RANK", str(identity.local_rank))
    return identity


def _rank_0_host(env: Mapping[str, str], identity: RankIdentity) -> str:
    # Under mpirun, SLURM_STEP_NODELIST is of mpirun's own job step and may begin elsewhere.
    for variable in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"):
        if variable in env and (identity.launcher == "srun" or variable == "SLURM_JOB_NODELIST"):
            return first_host(env[variable])
    node_processes = next(names[3] for names in LAUNCHERS.values() if names[0] in env)
    if identity.world == 1 or env.get(node_processes) == str(identity.world):
        return "localhost"  # All ranks are on one node.
    raise SpecError(
        f"{identity.launcher} says rank {identity.rank} of {identity.world}, "
        "but not on which host rank 0 is",
        hint="set MASTER_ADDR to the first node's name, on every rank",
    )


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list.

    >>> first_host("gpu[007-012,020],login1"), first_host("n1,n2")
    ('gpu007', 'n1')
    """
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", nodes)
    if match is None:
        raise SpecError(f"not a Slurm node list: {shown(nodes)}", hint="set MASTER_ADDR")
    return "".join(part or "" for part in match.groups())


def _number(env: Mapping[str, str], name: str, default: int = 0) -> int:
    try:
        return int(env.get(name, default))
    except ValueError as bad:
        raise SpecError(f"{name} must be a number, got {shown(env[name])}") from bad
