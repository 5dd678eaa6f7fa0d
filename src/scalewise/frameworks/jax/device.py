"""The devices of a run, and how its processes find each other."""

import os
from typing import Any

import jax
import jaxlib

from scalewise.errors import SpecError
from scalewise.probe.environment import peak_resident_bytes
from scalewise.spec import RunSpec

KINDS = {"cuda": "gpu"}
"""What JAX calls a kind of device, where it has another word."""
EXACT = {"fp32": "highest", "tf32": "tensorfloat32"}
"""How products of 32-bit numbers are computed: on some devices JAX would take fewer bits."""


def meet(spec: RunSpec) -> None:
    """Have all processes of a run know each other; before anyone looks for devices."""
    jax.config.update("jax_default_matmul_precision", EXACT.get(spec.precision))
    if spec.ranks == 1:
        return
    own = int(os.environ["LOCAL_RANK"]) if spec.started_by != "node" else None
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
        num_processes=spec.ranks,
        process_id=int(os.environ["RANK"]),
        local_device_ids=None if own is None or spec.device == "cpu" else [own],
    )


def leave(spec: RunSpec) -> None:
    """Part from the other processes."""
    if spec.ranks > 1:
        jax.distributed.shutdown()


def find(spec: RunSpec) -> list[Any]:
    """Return the devices of a run, replica by replica: each process has as many."""
    kind = KINDS.get(str(spec.device), spec.device)
    try:
        found = jax.devices(kind)
    except (RuntimeError, AssertionError) as none:  # The latter without a word.
        words = f": {none}" if str(none) else ""
        raise SpecError(
            f"the study asks for {spec.device}, and this JAX finds no such device here{words}",
            hint='`scalewise doctor` shows what is here; device = "cpu" needs none',
        ) from none
    each = spec.topology.world // spec.ranks
    by_process = [
        [device for device in found if device.process_index == process]
        for process in range(spec.ranks)
    ]
    fewest = min(map(len, by_process))
    if fewest < each:
        raise SpecError(
            f"{spec.topology} needs {each} devices in each process, and JAX finds {fewest} "
            f"{found[0].platform} there",
            hint='use fewer devices per node; device = "cpu" makes as many as are asked for',
        )
    if spec.precision == "tf32" and found[0].platform != "gpu":
        raise SpecError(
            f"tf32 is a mode of CUDA devices, and this run has {found[0].platform}",
            hint='write precision = "fp32"',
        )
    return [device for some in by_process for device in some[:each]]


def name(device: Any) -> str:
    """Return what a device is called."""
    return str(device.device_kind)


def peak_memory(devices: list[Any]) -> int | None:
    """Return the peak bytes of this process's fullest device; of the process itself on CPUs."""
    if devices[0].platform == "cpu":
        return peak_resident_bytes()
    told = [each.memory_stats() for each in devices]
    peaks = [stats["peak_bytes_in_use"] for stats in told if stats]
    return int(max(peaks)) if len(peaks) == len(devices) else None


def facts() -> dict[str, Any]:
    """Return JAX's version and devices.

    A rank notes its own: nobody may look for devices before all ranks have met.
    """
    versions = {"version": jax.__version__, "jaxlib": jaxlib.__version__}
    found = None if "RANK" in os.environ else [name(each) for each in jax.local_devices()]
    return {"name": "jax", **versions, "devices": found}
