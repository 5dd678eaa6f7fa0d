"""The devices of a run, and the rendezvous of its processes."""

import os
from typing import Any

import jax
import jaxlib

from scalewise.errors import SpecError
from scalewise.probe.environment import peak_resident_bytes
from scalewise.spec import RunSpec

PLATFORMS = {"cuda": "gpu"}
"""JAX's names of device types, where they differ from a run's ``device``."""
MATMUL_PRECISIONS = {"fp32": "highest", "tf32": "tensorfloat32"}
"""Precision of 32-bit matrix products: JAX's default has fewer bits on some devices."""


def initialize(spec: RunSpec) -> None:
    """Connect the processes of a run; must happen before JAX looks for devices."""
    jax.config.update("jax_default_matmul_precision", MATMUL_PRECISIONS.get(spec.precision))
    if spec.ranks == 1:
        return
    # With start = "node", one process uses all devices of its node.
    uses_one_gpu = spec.started_by != "node" and spec.device != "cpu"
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
        num_processes=spec.ranks,
        process_id=int(os.environ["RANK"]),
        local_device_ids=[int(os.environ["LOCAL_RANK"])] if uses_one_gpu else None,
    )


def find_devices(spec: RunSpec) -> list[Any]:
    """Return the device of each replica of a run; every process has equally many replicas."""
    try:
        devices = jax.devices(PLATFORMS.get(str(spec.device), spec.device))
    except (RuntimeError, AssertionError) as error:  # An AssertionError has no message.
        reason = f": {error}" if str(error) else ""
        raise SpecError(
            f"the study asks for {spec.device}, and this JAX finds no such device here{reason}",
            hint='`scalewise doctor` shows the devices; device = "cpu" needs no accelerator',
        ) from error
    needed = spec.topology.world // spec.ranks
    by_process = [
        [device for device in devices if device.process_index == process]
        for process in range(spec.ranks)
    ]
    fewest = min(map(len, by_process))
    if fewest < needed:
        raise SpecError(
            f"{spec.topology} needs {needed} devices in each process, and JAX finds {fewest} "
            f"{devices[0].platform} in one of them",
            hint='use fewer devices per node; device = "cpu" creates as many as needed',
        )
    if spec.precision == "tf32" and devices[0].platform != "gpu":
        raise SpecError(
            f"tf32 is a mode of CUDA devices, and this run has {devices[0].platform}",
            hint='write precision = "fp32"',
        )
    return [device for process_devices in by_process for device in process_devices[:needed]]


def peak_memory(devices: list[Any]) -> int | None:
    """Return the peak bytes of the fullest device, or on CPUs of this process; None if unknown."""
    if devices[0].platform == "cpu":
        return peak_resident_bytes()
    all_stats = [device.memory_stats() for device in devices]
    peaks = [stats["peak_bytes_in_use"] for stats in all_stats if stats]
    return int(max(peaks)) if len(peaks) == len(devices) else None


def facts() -> dict[str, Any]:
    """Return JAX's version and devices; on a rank, its devices are None."""
    on_rank = "RANK" in os.environ  # There ``initialize`` must come before looking for devices.
    devices = None if on_rank else [device.device_kind for device in jax.local_devices()]
    versions = {"version": jax.__version__, "jaxlib": jaxlib.__version__}
    return {"name": "jax", **versions, "devices": devices}
