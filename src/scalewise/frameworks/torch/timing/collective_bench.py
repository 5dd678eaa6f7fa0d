"""Benchmark collectives by message size. A collective takes as long as on the slowest rank.

As in nccl-tests, bytes are those of the full buffer; compare bus bandwidth with a link's bandwidth.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from scalewise.errors import SpecError
from scalewise.probe.torch import device as devices
from scalewise.record.write import write_json

FLOAT_BYTES = 4
REPEATS = 5
"""With a probability of 94 % (1 − 2/2⁵) the true median is between minimum and maximum of five."""
MAX_COLLECTIVE_SECONDS = 2.0
"""After a collective that takes longer than this, larger sizes are skipped."""
TIMEOUT_SECONDS = 60.0
"""The process group's timeout, unless the request has another ("patience")."""
OPERATIONS: Mapping[str, Callable[[Tensor, Tensor], Any]] = {
    "all-reduce": lambda buffer, part: dist.all_reduce(buffer),
    "all-gather": lambda buffer, part: dist.all_gather_into_tensor(buffer, part),
    "reduce-scatter": lambda buffer, part: dist.reduce_scatter_tensor(part, buffer),
    "broadcast": lambda buffer, part: dist.broadcast(buffer, src=0),
}
"""Collectives on a buffer; ``part`` is one rank's part of it."""
SPLIT_OPERATIONS = ("all-gather", "reduce-scatter")
"""Operations whose buffer consists of equal parts, one for every rank."""


def run_bench(file: Path) -> None:
    """Time collectives with the other ranks; rank 0 writes the result to ``file``.

    The file may hold a request: ``{"ask": {"operations": [...], "sizes": [...], "patience": 20}}``.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        raise SpecError("one rank exchanges nothing", hint="start two or more with torchrun")
    request = _read_request(file)
    device, backend = _choose_device()
    timeout = timedelta(seconds=request.get("patience", TIMEOUT_SECONDS))
    dist.init_process_group(backend, timeout=timeout)
    max_bytes = 64 * 2**20 if backend == "gloo" else 2**30
    sizes = request.get("sizes") or [4**n for n in range(1, 16) if 4**n <= max_bytes]
    rows: list[dict[str, Any]] = []
    for operation in request.get("operations") or OPERATIONS:
        rows += _time_operation(operation, sizes, device)
    facts = _environment(device, backend)
    if dist.get_rank() == 0:
        all_reduces = [row for row in rows if row["operation"] == "all-reduce"]
        points = [(row["bytes"], row["seconds"]["value"]) for row in all_reduces]
        write_json(file, {**facts, "fit": fit(points), "rows": rows})
    _wait_for_all(device)
    dist.destroy_process_group()


def _read_request(file: Path) -> dict[str, Any]:
    """Return the request in a file; an empty one if the file is missing or holds a result."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content.get("ask", {}) if isinstance(content, dict) else {}


def _choose_device() -> tuple[torch.device, str]:
    """Return this rank's device and its backend, which is Gloo if ranks share a device."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    for kind in ("cuda", "xpu"):
        module = devices.module_of(kind)
        if module.is_available():
            count = module.device_count()
            index = local_rank % count
            module.set_device(index)
            backend = devices.BACKENDS[kind] if local_ranks <= count else "gloo"
            return torch.device(kind, index), backend
    return torch.device("cpu"), "gloo"


def _time_operation(
    operation: str, sizes: Sequence[int], device: torch.device
) -> Iterator[dict[str, Any]]:
    """Time one operation with each size, from small to large, until it gets slow."""
    world = dist.get_world_size()
    for size in sizes:
        parts = world if operation in SPLIT_OPERATIONS else 1
        count = max(1, size // FLOAT_BYTES // parts) * parts  # Floats, divisible into parts.
        buffer, part = (torch.zeros(length, device=device) for length in (count, count // world))
        collective = partial(OPERATIONS[operation], buffer, part)
        calls = 20 if size <= 2**16 else 4 if size <= 2**20 else 1  # In each measurement.
        seconds, cpu_seconds = _time_collective(collective, device, calls=calls)
        median_seconds = median(seconds)
        spread = {"low": min(seconds), "high": max(seconds), "count": len(seconds)}
        yield {
            "operation": operation,
            "bytes": buffer.nbytes,
            "seconds": {"value": median_seconds, **spread},
            "processor": cpu_seconds,
            "algorithm_bandwidth": buffer.nbytes / median_seconds,
            "bus_bandwidth": buffer.nbytes / median_seconds * bus_factor(operation, world),
        }
        if median_seconds > MAX_COLLECTIVE_SECONDS:
            return


def _time_collective(
    collective: Callable[[], Any], device: torch.device, *, calls: int
) -> tuple[list[float], float]:
    """Return the slowest rank's seconds per call in each repeat, and mean CPU seconds per call."""
    collective()  # The first call also opens connections.
    seconds, cpu_seconds = [], 0.0
    for _ in range(REPEATS):
        _wait_for_all(device)
        start, cpu_start = time.perf_counter(), time.process_time()
        for _ in range(calls):
            collective()
        devices.settle(device)
        seconds.append((time.perf_counter() - start) / calls)
        cpu_seconds += (time.process_time() - cpu_start) / calls / REPEATS
    slowest = torch.tensor(seconds, dtype=torch.float32, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    mean_cpu = torch.tensor([cpu_seconds / dist.get_world_size()], device=device)
    dist.all_reduce(mean_cpu)
    return slowest.tolist(), mean_cpu.item()


def _wait_for_all(device: torch.device) -> None:
    dist.all_reduce(torch.zeros(1, device=device))
    devices.settle(device)


def bus_factor(operation: str, ranks: int) -> float:
    """Return the ratio of bus bandwidth to algorithm bandwidth.

    >>> bus_factor("all-reduce", 4), bus_factor("all-gather", 4), bus_factor("broadcast", 4)
    (1.5, 0.75, 1.0)
    """
    share = (ranks - 1) / ranks
    return {"all-reduce": 2 * share, "broadcast": 1.0}.get(operation, share)


def fit(points: Sequence[tuple[int, float]]) -> dict[str, float] | None:
    """Fit ``seconds = latency + bytes / bandwidth`` by least squares of the relative error.

    ``error`` is the largest relative error of a point. Return None if time does not grow with size.

    >>> fit([(4, 1e-4), (10**6, 1.1e-3)])["bandwidth"]  # doctest: +ELLIPSIS
    99999...
    """
    weights = [1 / seconds**2 for _, seconds in points]
    w = sum(weights)  # This and the next four are weighted sums, with size x and time t.
    x = sum(weight * size for weight, (size, _) in zip(weights, points))
    t = sum(weight * seconds for weight, (_, seconds) in zip(weights, points))
    xx = sum(weight * size**2 for weight, (size, _) in zip(weights, points))
    xt = sum(weight * size * seconds for weight, (size, seconds) in zip(weights, points))
    determinant = w * xx - x * x
    if len({size for size, _ in points}) < 2 or determinant <= 0:
        return None
    slope = (w * xt - x * t) / determinant
    latency = (t - slope * x) / w
    if latency < 0:  # Fit a line through the origin instead.
        latency, slope = 0.0, xt / xx
    if slope <= 0:
        return None
    error = max(abs(latency + slope * size - seconds) / seconds for size, seconds in points)
    return {"latency": latency, "bandwidth": 1 / slope, "error": error}


def _environment(device: torch.device, backend: str) -> dict[str, Any]:
    """Return hosts, device, versions and variables. All ranks have to call this together."""
    hosts: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, os.uname().nodename)
    nccl: Any = torch.cuda.nccl
    return {
        "hosts": sorted(set(hosts)),
        "backend": backend,
        "device": devices.name(device),
        "ranks": len(hosts),
        "ranks_per_node": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "measured": time.time(),
        "versions": {
            "scalewise": version("scalewise"),
            "torch": torch.__version__,
            "nccl": ".".join(map(str, nccl.version())) if backend == "nccl" else None,
        },
        "variables": {
            key: value
            for key, value in sorted(os.environ.items())
            if key.startswith(("NCCL_", "GLOO_", "UCX_"))
        },
    }
