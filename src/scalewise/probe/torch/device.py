"""This rank's device, its clock and its memory."""

import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from scalewise.errors import SpecError
from scalewise.probe.memory import peak_resident
from scalewise.spec import RunSpec

BACKENDS = {"cuda": "nccl", "xpu": "xccl", "cpu": "gloo"}
HOPPER = (9, 0)
WORDS = {"cuda": "NVIDIA's and AMD's devices", "xpu": "Intel's devices", "cpu": "CPUs"}


def bind(spec: RunSpec) -> torch.device:
    """Return the device of this rank, and make it the current one."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    kind = _kind(spec.device)
    if kind == "cpu":
        torch.set_num_threads(spec.threads)
        return torch.device("cpu")
    module = module_of(kind)
    count = module.device_count()
    if local >= count:
        if spec.backend != "gloo":
            raise SpecError(
                f"local rank {local} has no device: {count} are visible",
                hint='use fewer devices per node; backend = "gloo" lets ranks share one',
            )
        local %= count
    device = torch.device(kind, local)
    module.set_device(device)
    # Batches are alike, so that trying convolutions once pays.
    torch.backends.cudnn.benchmark = True
    return device


def _kind(asked: str | None = None) -> str:
    """Return the kind of device that was asked for, or the best that is here."""
    if asked and asked != "cpu" and not module_of(asked).is_available():
        raise SpecError(
            f"the study asks for {asked}, and this PyTorch finds no such device here",
            hint='`scalewise doctor` shows what is here; device = "cpu" needs none',
        )
    if asked:
        return asked
    for kind in ("cuda", "xpu"):
        if module_of(kind).is_available():
            return kind
    return "cpu"


def module_of(kind: str) -> Any:
    """Return ``torch.cuda`` or ``torch.xpu``; older versions have no function for it."""
    return getattr(torch, kind)


def attention(device: torch.device) -> AbstractContextManager[Any]:
    """Have attention computed by the kernel that fits: from Hopper on cuDNN's, where it can.

    PyTorch itself (2.11) takes the one that older devices had. Before version 2.6 nobody could
    say in which order they are tried.
    """
    ordered = "set_priority" in signature(sdpa_kernel).parameters
    if device.type != "cuda" or torch.version.hip or not ordered:
        return nullcontext()
    if torch.cuda.get_device_capability(device) < HOPPER:
        return nullcontext()
    order = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
    return sdpa_kernel([getattr(SDPBackend, each) for each in order], set_priority=True)


def settle(device: torch.device) -> None:
    """Wait until the device has done what it was asked."""
    if device.type != "cpu":
        module_of(device.type).synchronize()


def backend(spec: RunSpec, device: torch.device) -> tuple[str, str]:
    """Return the communication library that fits the device, or the one asked for, and why."""
    if spec.backend:
        return spec.backend, "the study asks for it"
    return BACKENDS[device.type], f"it is made for {WORDS[device.type]}"


def name(device: torch.device) -> str:
    """Return what the device is called."""
    if device.type == "cpu":
        return "cpu"
    return str(module_of(device.type).get_device_name(device))


def peak_memory(device: torch.device) -> int:
    """Return the peak bytes: reserved on an accelerator, resident on a CPU."""
    if device.type != "cpu":
        return int(module_of(device.type).max_memory_reserved(device))
    return peak_resident()


class EventClock:
    """Marks in the device's own queue: nothing waits for them while training."""

    simulated = False
    now = staticmethod(time.perf_counter)

    def __init__(self, device: torch.device) -> None:
        self._event = module_of(device.type).Event

    def mark(self) -> Any:
        event = self._event(enable_timing=True)
        event.record()
        return event

    def passed(self, mark: Any) -> bool:
        return bool(mark.query())

    def between(self, earlier: Sequence[Any], later: Sequence[Any]) -> list[float]:
        return [start.elapsed_time(end) / 1000 for start, end in zip(earlier, later)]


def facts() -> dict[str, Any]:
    """Return PyTorch's version, devices and backends."""
    kind = _kind()
    return {
        "name": "torch",
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "devices": ["cpu"]
        if kind == "cpu"
        else [name(torch.device(kind, n)) for n in range(module_of(kind).device_count())],
        "backends": [
            each
            for each in ("gloo", "nccl", "mpi", "xccl")
            if getattr(torch.distributed, f"is_{each}_available", lambda: False)()
        ],
        "threads": torch.get_num_threads(),
    }
