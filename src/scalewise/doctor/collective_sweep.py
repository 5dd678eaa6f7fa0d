"""Time the collectives at many message sizes, store the result, and render it as a table."""

import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalewise.errors import LaunchError, SpecError, parameter
from scalewise.launch.processes import run_ranks
from scalewise.record.write import cannot_write

TIMEOUT_SECONDS = 600.0
"""Seconds after which a sweep is ended."""


def run_sweep(output: Path, ranks: int) -> dict[str, Any]:
    """Time the collectives between ranks of this machine; return and store the result."""
    if ranks < 2:
        hint = f"for example {parameter('ranks', 2)}"
        raise SpecError(f"collectives need at least 2 ranks, got {ranks}", hint=hint)
    try:  # The sweep takes a minute: test first that its result can be written.
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output.parent):
            pass
    except OSError as error:
        raise cannot_write(output, error) from error
    if output.is_dir():
        raise SpecError(f"{output} is a folder", hint="give a file: -o runs/collectives.json")
    file = output.absolute()
    try:
        return dict(run_ranks("collectives", file, ranks=ranks, timeout=TIMEOUT_SECONDS))
    except LaunchError as error:
        problem = f"the ranks could not exchange data: {error}"
        raise LaunchError(problem, hint="scalewise doctor shows what may be wrong") from error


def multi_node_command(env: Mapping[str, str], output: Path, ranks: int | None) -> str | None:
    """Return a command for several nodes (without srun: to run on each); None for one node."""
    slurm_nodes = env.get("SLURM_JOB_NUM_NODES") or env.get("SLURM_NNODES")
    world, local_world = env.get("WORLD_SIZE", "1"), env.get("LOCAL_WORLD_SIZE", "1")
    nodes = 1
    if slurm_nodes and slurm_nodes.isdigit():
        nodes = int(slurm_nodes)
    elif world.isdigit() and local_world.isdigit():
        nodes = int(world) // max(1, int(local_world))
    if nodes < 2:
        return None
    master = env.get("MASTER_ADDR", "FIRST_HOST")
    srun = ""
    if "SLURM_JOB_NODELIST" in env:
        master = '"$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"'
        srun = f"srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 "
    has_local_world = local_world.isdigit() and local_world != "1"
    per_node = ranks or (int(local_world) if has_local_world else "auto")
    return (
        f"{srun}torchrun --nnodes={nodes} --nproc-per-node={per_node} --rdzv-backend=c10d "
        f"--rdzv-id=collectives --rdzv-endpoint={master}:29400 "
        f"-m scalewise.frameworks collectives {shlex.quote(str(output.absolute()))}"
    )


def render_table(result: Mapping[str, Any]) -> str:
    """Return the result as text: a block per operation, then the formula of the all-reduce."""
    hosts = ", ".join(result["hosts"])
    lines = [f"{result['ranks']} ranks on {hosts}, {result['backend']}, {result['device']}"]
    for operation in dict.fromkeys(row["operation"] for row in result["rows"]):
        lines += ["", f"{operation:<16}{'time':>10}{'90 % within':>23}{'GB/s':>9}{'bus GB/s':>10}"]
        for row in (row for row in result["rows"] if row["operation"] == operation):
            time = row["seconds"]
            within = f"{format_duration(time['low'])} – {format_duration(time['high'])}"
            bandwidth, bus_bandwidth = (
                f"{row[key] / 1e9:.3f}" if row[key] >= 1e6 else "<0.001"
                for key in ("algorithm_bandwidth", "bus_bandwidth")
            )
            lines.append(
                f"{format_size(row['bytes']):>16}{format_duration(time['value']):>10}{within:>23}"
                f"{bandwidth:>9}{bus_bandwidth:>10}"
            )
    return "\n".join([*lines, "", describe_law(result["fit"])])


def describe_law(fit: Mapping[str, float] | None) -> str:
    """Return the formula that gives the time of an all-reduce from its bytes."""
    if not fit:
        return "all-reduce: larger messages took no longer, so no formula could be fitted"
    return (
        f"all-reduce: time = {format_duration(fit['latency'])} + bytes / "
        f"{fit['bandwidth'] / 1e9:.3g} GB/s, at most {fit['error'] * 100:.0f} % off"
    )


def format_duration(seconds: float) -> str:
    """Return seconds with a fitting unit.

    >>> format_duration(95e-6), format_duration(0.0042), format_duration(1.5)
    ('95 µs', '4.20 ms', '1.50 s')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def format_size(count: int) -> str:
    """Return bytes with a fitting unit.

    >>> format_size(4), format_size(65536), format_size(64 * 2**20)
    ('4 B', '64 KiB', '64 MiB')
    """
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:g} {name}"
    return f"{count} B"
