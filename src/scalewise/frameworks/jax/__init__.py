"""JAX. This file does not import jax: JAX reads environment variables when it is imported."""

import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from scalewise import plugins
from scalewise.errors import FrameworkMissing, ScalewiseError
from scalewise.frameworks import (
    TORCH_ONLY,
    Framework,
    Refused,
    Session,
    installed_version,
    refuse_fields,
    refuse_older,
    refuse_start,
)
from scalewise.frameworks.data_source import in_memory_source
from scalewise.frameworks.part_options import build_model, check_options
from scalewise.probe import Probe
from scalewise.spec import RunSpec

OLDEST = (0, 6)
"""Oldest supported version of JAX."""
DEVICE_COUNT_FLAG = "--xla_force_host_platform_device_count"  # CPU devices of a process.
REFUSED: Refused = {
    **TORCH_ONLY, "compile": ("blocks", "graphs"), "precision": ("fp16",), "device": ("xpu",)
}  # fmt: skip
REASONS = {
    "compile": "JAX always compiles the whole step",
    "parallelism": "the jax framework splits only the batch, every device has the whole model",
    "backend": "JAX chooses the library by itself: Gloo between CPUs, NCCL between GPUs",
    "workers": "the jax framework reads data sets in memory, and needs no workers",
    "optimizer_step": "the optimizer is a part of the one step that XLA compiles",
}
"""Messages for some refused fields, in place of a general one."""


class Jax(Framework):
    """Trains with JAX: one compiled step over a mesh of all devices."""

    def check(self, spec: RunSpec) -> None:
        version = installed_version("jax", extra="jax")
        refuse_older("JAX", version, OLDEST, hint="pip install --upgrade jax")
        for package in ("jaxlib", "optax"):
            installed_version(package, extra="jax")  # Refuses a missing package.
        refuse_fields(spec, REFUSED, REASONS)
        refuse_start("a jax run", spec)
        shape = in_memory_source(spec).shape
        assert not isinstance(shape, int)
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # A check needs no accelerator.
        try:
            workload = plugins.load("workloads", str(spec.workload), framework="jax")
        except ScalewiseError:
            raise
        except Exception as error:  # JAX raises its own errors if its jaxlib has another version.
            raise FrameworkMissing(
                f"JAX is installed but cannot be imported: {error}",
                hint="pip install --upgrade jax jaxlib",
            ) from error
        check_options(spec, workload)
        build_model(workload, spec, shape, 10)  # Any number of classes will do.

    def facts(self) -> dict[str, Any]:
        installed_version("jax", extra="jax")
        from scalewise.frameworks.jax.device import facts

        return facts()

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        os.environ.update(environment_variables(spec, os.environ))
        from scalewise.frameworks.jax.session import session

        return session(spec, rank, probe)


def environment_variables(spec: RunSpec, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables, to be set before JAX is imported, for its CPU devices and threads.

    ``NPROC`` limits threads: otherwise one device would use all cores, and two would share them.
    """
    devices = spec.topology.world // spec.ranks
    flags = re.sub(rf"{DEVICE_COUNT_FLAG}=\S*", "", env.get("XLA_FLAGS", "")).split()
    flags.append(f"{DEVICE_COUNT_FLAG}={devices}")
    if spec.threads == 1:
        flags.append("--xla_cpu_multi_thread_eigen=false")
    result = {"XLA_FLAGS": " ".join(flags), "NPROC": str(devices * spec.threads)}
    return {**result, "JAX_PLATFORMS": spec.device} if spec.device else result
