"""How fast ranks exchange data: the collectives of a training, timed by size.

A time is the slowest rank's. Bandwidths are those of nccl-tests: bytes are those
of the whole buffer, and the bus bandwidth can be held against a link's own.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from scalewise.errors import SpecError
from scalewise.record.write import write_json

BACKENDS = {"cuda": "nccl", "xpu": "xccl"}
REPEATS = 5
"""The least and the largest of five hold the true median in 94 % of cases."""
MAX_COLLECTIVE_SECONDS = 2.0
"""Seconds of one collective after which larger ones are not tried."""
TIMEOUT_SECONDS = 60.0
"""Seconds after which the engine gives up waiting for another rank."""


def run_bench(file: Path) -> None:
    """Time collectives with the other ranks; rank 0 leaves the answer in ``file``.

    Before that, ``file`` may say what is wanted: ``{"ask": {"operations": [...],
    "sizes": [...], "patience": 20}}``. Otherwise everything is.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        raise SpecError("one rank exchanges nothing", hint="start at least two with torchrun")
    ask = _ask(file)
    device, backend = _place()
    patience = timedelta(seconds=ask.get("patience", TIMEOUT_SECONDS))
    dist.init_process_group(backend, timeout=patience)
    sizes = ask.get("sizes") or _sizes(64 * 2**20 if backend == "gloo" else 2**30)
    rows: list[dict[str, Any]] = []
    for operation in ask.get("operations") or OPERATIONS:
        rows += _rows(operation, sizes, device)
    facts = _facts(device, backend)
    if dist.get_rank() == 0:
        reduced = [row for row in rows if row["operation"] == "all-reduce"]
        points = [(row["bytes"], row["seconds"]["value"]) for row in reduced]
        write_json(file, {**facts, "fit": fit(points), "rows": rows})
    _wait_for_all(device)
    dist.destroy_process_group()


def _ask(file: Path) -> dict[str, Any]:
    """Return what is asked for; an earlier answer asks for nothing."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found.get("ask", {}) if isinstance(found, dict) else {}


def _place() -> tuple[torch.device, str]:
    """Return this rank's device and the backend for it: Gloo where ranks share a device."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    for kind, backend in BACKENDS.items():
        module = getattr(torch, kind)
        if module.is_available():
            count = module.device_count()
            module.set_device(local % count)
            return torch.device(kind, local % count), backend if here <= count else "gloo"
    return torch.device("cpu"), "gloo"


def _sizes(largest: int) -> list[int]:
    """Return bytes from 4 upwards, each four times the one before."""
    return [4**power for power in range(1, 16) if 4**power <= largest]


def _rows(operation: str, sizes: Sequence[int], device: torch.device) -> Iterator[dict[str, Any]]:
    """Time one operation, from small to large, until it gets slow."""
    world = dist.get_world_size()
    for size in sizes:
        count = (
            max(1, size // 4 // world) * world
            if operation in SPLIT_OPERATIONS
            else max(1, size // 4)
        )
        act = OPERATIONS[operation](torch.zeros(count, device=device))
        inner = 20 if size <= 2**16 else 4 if size <= 2**20 else 1
        seconds, processor = _seconds(act, device, inner=inner)
        middle = median(seconds)
        yield {
            "operation": operation,
            "bytes": 4 * count,
            "seconds": {
                "value": middle,
                "low": min(seconds),
                "high": max(seconds),
                "count": len(seconds),
            },
            "processor": processor,
            "algorithm_bandwidth": 4 * count / middle,
            "bus_bandwidth": 4 * count / middle * bus_factor(operation, world),
        }
        if middle > MAX_COLLECTIVE_SECONDS:
            return


def _seconds(
    act: Callable[[], Any], device: torch.device, *, inner: int
) -> tuple[list[float], float]:
    """Return the seconds of each repeat on the slowest rank: all ranks get the same.

    And the processor seconds of one, on all threads of a rank, as their mean.
    """
    act()  # The first one also makes the connections.
    spent, processor = [], 0.0
    for _ in range(REPEATS):
        _wait_for_all(device)
        began, worked = time.perf_counter(), time.process_time()
        for _ in range(inner):
            act()
        _settle(device)
        spent.append((time.perf_counter() - began) / inner)
        processor += (time.process_time() - worked) / inner / REPEATS
    slowest = torch.tensor(spent, dtype=torch.float32, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    work = torch.tensor([processor / dist.get_world_size()], device=device)
    dist.all_reduce(work)
    return slowest.tolist(), work.item()


def _all_reduce(whole: Tensor) -> Callable[[], Any]:
    return lambda: dist.all_reduce(whole)


def _all_gather(whole: Tensor) -> Callable[[], Any]:
    part = torch.zeros_like(whole[: len(whole) // dist.get_world_size()])
    return lambda: dist.all_gather_into_tensor(whole, part)


def _reduce_scatter(whole: Tensor) -> Callable[[], Any]:
    part = torch.zeros_like(whole[: len(whole) // dist.get_world_size()])
    return lambda: dist.reduce_scatter_tensor(part, whole)


def _broadcast(whole: Tensor) -> Callable[[], Any]:
    return lambda: dist.broadcast(whole, src=0)


OPERATIONS: Mapping[str, Callable[[Tensor], Callable[[], Any]]] = {
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "broadcast": _broadcast,
}
SPLIT_OPERATIONS = ("all-gather", "reduce-scatter")
"""Operations whose buffer has an equal part for every rank."""


def _wait_for_all(device: torch.device) -> None:
    dist.all_reduce(torch.zeros(1, device=device))
    _settle(device)


def _settle(device: torch.device) -> None:
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


def bus_factor(operation: str, ranks: int) -> float:
    """Return what the algorithm bandwidth is multiplied with to be a link's.

    >>> bus_factor("all-reduce", 4), bus_factor("all-gather", 4), bus_factor("broadcast", 4)
    (1.5, 0.75, 1.0)
    """
    share = (ranks - 1) / ranks
    return {"all-reduce": 2 * share, "broadcast": 1.0}.get(operation, share)


def fit(points: Sequence[tuple[int, float]]) -> dict[str, float] | None:
    """Return latency and bandwidth of ``seconds = latency + bytes / bandwidth``.

    Least squares of the relative error, so that small messages count as much as
    large ones. ``error`` is the largest relative error that is left. None where
    the points have no slope to fit.

    >>> fit([(4, 1e-4), (10**6, 1.1e-3)])["bandwidth"]  # doctest: +ELLIPSIS
    99999...
    """
    weights = [1 / seconds**2 for _, seconds in points]
    w = sum(weights)
    x = sum(weight * size for weight, (size, _) in zip(weights, points))
    t = sum(weight * seconds for weight, (_, seconds) in zip(weights, points))
    xx = sum(weight * size**2 for weight, (size, _) in zip(weights, points))
    xt = sum(weight * size * seconds for weight, (size, seconds) in zip(weights, points))
    spread = w * xx - x * x
    if len({size for size, _ in points}) < 2 or spread <= 0:
        return None
    slope = (w * xt - x * t) / spread
    latency = (t - slope * x) / w
    if latency < 0:
        latency, slope = 0.0, xt / xx
    if slope <= 0:
        return None
    error = max(abs(latency + slope * size - seconds) / seconds for size, seconds in points)
    return {"latency": latency, "bandwidth": 1 / slope, "error": error}


def _facts(device: torch.device, backend: str) -> dict[str, Any]:
    """Return what the times were measured on; every rank must ask."""
    hosts: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, os.uname().nodename)
    on_gpu = device.type != "cpu"
    return {
        "hosts": sorted(set(hosts)),
        "backend": backend,
        "device": getattr(torch, device.type).get_device_name(device) if on_gpu else "cpu",
        "ranks": len(hosts),
        "ranks_per_node": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "measured": time.time(),
        "versions": {
            "scalewise": version("scalewise"),
            "torch": torch.__version__,
            "nccl": _nccl_version() if backend == "nccl" else None,
        },
        "variables": {
            key: value
            for key, value in sorted(os.environ.items())
            if key.startswith(("NCCL_", "GLOO_", "UCX_"))
        },
    }


def _nccl_version() -> str:
    module: Any = torch.cuda.nccl
    return ".".join(map(str, module.version()))
