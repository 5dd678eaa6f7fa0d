"""This rank's device, its clock and its memory."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from scalewise.errors import SpecError
from scalewise.probe.environment import peak_resident_bytes
from scalewise.spec import RunSpec

BACKENDS = {"cuda": "nccl", "xpu": "xccl", "cpu": "gloo"}
HOPPER = (9, 0)  # The compute capability of NVIDIA's H100.
DEVICE_TYPES = {"cuda": "NVIDIA's and AMD's devices", "xpu": "Intel's devices", "cpu": "CPUs"}


def bind(spec: RunSpec) -> torch.device:
    """Return the device of this rank, and make it the current one."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    kind = _kind(spec.device)
    if kind == "cpu":
        torch.set_num_threads(spec.threads)
        return torch.device("cpu")
    module = module_of(kind)
    count = module.device_count()
    if local_rank >= count:
        if spec.backend != "gloo":
            raise SpecError(
                f"local rank {local_rank} has no device: {count} are visible",
                hint='use fewer devices per node; backend = "gloo" lets ranks share a device',
            )
        local_rank %= count
    device = torch.device(kind, local_rank)
    module.set_device(device)
    # Batches have equal shapes, so benchmarking convolutions once pays off.
    torch.backends.cudnn.benchmark = True
    return device


def _kind(requested: str | None = None) -> str:
    """Return the requested type of device, or the best available one."""
    if not requested:
        return next((kind for kind in ("cuda", "xpu") if module_of(kind).is_available()), "cpu")
    if requested != "cpu" and not module_of(requested).is_available():
        raise SpecError(
            f"the study asks for {requested}, and this PyTorch finds no such device here",
            hint='`scalewise doctor` shows the devices; device = "cpu" needs no accelerator',
        )
    return requested


def module_of(kind: str) -> Any:
    """Return ``torch.cuda`` or ``torch.xpu``; older versions lack ``get_device_module``."""
    return getattr(torch, kind)


def prefer_cudnn_attention(device: torch.device) -> AbstractContextManager[Any]:
    """Prefer cuDNN's attention kernel on Hopper and newer GPUs, as PyTorch 2.11 does not."""
    can_order = "set_priority" in signature(sdpa_kernel).parameters  # Since PyTorch 2.6.
    is_nvidia = device.type == "cuda" and not torch.version.hip
    if not can_order or not is_nvidia or torch.cuda.get_device_capability(device) < HOPPER:
        return nullcontext()
    order = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
    return sdpa_kernel([getattr(SDPBackend, kernel) for kernel in order], set_priority=True)


def settle(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type != "cpu":
        module_of(device.type).synchronize()


def backend(spec: RunSpec, device: torch.device) -> tuple[str, str]:
    """Return the communication backend, and the reason: the study's choice, or the default."""
    if spec.backend:
        return spec.backend, "the study asks for it"
    return BACKENDS[device.type], f"it is made for {DEVICE_TYPES[device.type]}"


def name(device: torch.device) -> str:
    """Return the device's model name."""
    if device.type == "cpu":
        return "cpu"
    return str(module_of(device.type).get_device_name(device))


def peak_memory(device: torch.device) -> int:
    """Return this process's peak memory in bytes: reserved on an accelerator, resident on a CPU."""
    if device.type != "cpu":
        return int(module_of(device.type).max_memory_reserved(device))
    return peak_resident_bytes()


class Mark:
    """A recorded event; when nobody holds the mark any more, its event can be recorded again."""

    __slots__ = ("_free", "event")

    def __init__(self, event: Any, free: list[Any]) -> None:
        self.event, self._free = event, free

    def __del__(self) -> None:
        self._free.append(self.event)


class EventClock:
    """A clock whose marks (timestamps) are events in the device's stream: the host never waits.

    Between the launches of a training on an H200, a mark takes the host 8 µs. With a new event and
    a new stream object each time, as ``Event().record()`` makes them, it took 31 µs.
    """

    simulated = False
    now = staticmethod(time.perf_counter)
    mark: Callable[[], Mark]
    """Record an event in the stream that is current on the device."""

    def __init__(self, device: torch.device) -> None:
        event_class, current_stream = module_of(device.type).Event, _stream_reader(device)
        free: list[Any] = []

        def mark() -> Mark:
            event = free.pop() if free else event_class(enable_timing=True)
            event.record(current_stream())
            return Mark(event, free)

        self.mark = mark

    def passed(self, mark: Mark) -> bool:
        return bool(mark.event.query())

    def between(self, earlier: Sequence[Mark], later: Sequence[Mark]) -> list[float]:
        return [start.event.elapsed_time(end.event) / 1000 for start, end in zip(earlier, later)]


def _stream_reader(device: torch.device) -> Callable[[], Any]:
    """Return a function that returns the current stream of a device, without making an object for
    it again: that takes the host 19 µs.
    """
    module, streams = module_of(device.type), {}
    index = module.current_device() if device.index is None else device.index
    stream_address = getattr(torch._C, f"_{device.type}_getCurrentRawStream", None)
    if stream_address is None:  # It is no public name.
        return lambda: module.current_stream(index)

    def current_stream() -> Any:
        address = stream_address(index)
        if address not in streams:
            streams[address] = module.current_stream(index)
        return streams[address]

    return current_stream


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
            library
            for library in ("gloo", "nccl", "mpi", "xccl")
            if getattr(torch.distributed, f"is_{library}_available", lambda: False)()
        ],
        "threads": torch.get_num_threads(),
    }
