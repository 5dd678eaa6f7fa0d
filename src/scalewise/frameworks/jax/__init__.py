"""JAX. This file does not import jax: its environment variables must be set before that."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from scalewise import plugins
from scalewise.errors import FrameworkMissing, ScalewiseError, SpecError
from scalewise.frameworks import Session, installed, refuse_older, refuse_start, too_few
from scalewise.frameworks.data_source import Source
from scalewise.frameworks.part_options import check_options, options_for
from scalewise.probe import HostClock, Probe
from scalewise.probe.rank_identity import required_rank
from scalewise.spec import Parallelism, RunSpec

OLDEST = (0, 6)
"""Oldest supported version of JAX."""
DEVICE_COUNT_FLAG = "--xla_force_host_platform_device_count"
SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "parallelism": (Parallelism(),),
    "precision": ("fp32", "tf32", "bf16"),
    "compile": (True, False),
    "optimizer_step": ("auto",),
    "recompute": ("none",),
    "augment": ("none",),
    "workers": (0,),
    "noise_every": (0,),
    "ema": (None,),
    "sync_batchnorm": (False,),
    "checkpoint_every": (None,),
    "resume": (None,),
    "backend": (None,),
    "device": (None, "cpu", "cuda"),
}
"""Supported values of a run's fields; the first is the default."""
REASONS = {
    "compile": "JAX compiles the whole step, always",
    "parallelism": "the jax framework splits only the batch, every device has the whole model",
    "backend": "JAX chooses the library by itself: Gloo between CPUs, NCCL between GPUs",
    "workers": "the jax framework reads data sets in memory, and needs no workers",
    "optimizer_step": "the optimizer is a part of the one step that XLA compiles",
}
"""Why a field has no other values."""


class Jax:
    """Trains with JAX: one compiled step over a mesh of all devices."""

    def check(self, spec: RunSpec) -> None:
        """Refuse a run that cannot work, before any rank starts."""
        refuse_older("JAX", installed("jax", extra="jax"), OLDEST, hint="pip install --upgrade jax")
        installed("jaxlib", extra="jax")
        installed("optax", extra="jax")
        for field, allowed in SUPPORTED.items():
            if getattr(spec, field) not in allowed:
                raise _unsupported(spec, field)
        refuse_start("a jax run", spec)
        source = Source.of_run(spec)
        if source.count and source.count < spec.replicas:
            raise too_few(source.count, spec.replicas)
        if source.on_device:
            raise SpecError(
                "jax sends every batch to its devices, the data cannot be there already",
                hint='write data = "synthetic:…"',
            )
        if isinstance(source.shape, int):
            raise SpecError(
                f"{spec.workload} learns from images here, and the data are tokens",
                hint='for example data = "synthetic:1000"',
            )
        if source.kind not in ("digits", "synthetic", "idx", "cifar"):
            raise SpecError(
                f"{source.path} is read by PyTorch alone",
                hint='give MNIST\'s idx files, CIFAR\'s batches, "digits" or "synthetic:10000"',
            )
        _check_options(spec)
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # A check needs no accelerator.
        build(spec, source.shape, 10)

    def ranks(self, spec: RunSpec) -> Sequence[int]:
        """Return this process's rank, which its launcher set in the environment."""
        return [required_rank(spec, os.environ)]

    def clock(self, spec: RunSpec) -> HostClock:
        """Return the host's clock; the session later switches to a ``ReadyClock``."""
        return HostClock()

    def facts(self) -> dict[str, Any]:
        """Return JAX's version and devices."""
        installed("jax", extra="jax")
        from scalewise.frameworks.jax.device import facts

        return facts()

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        """Set up a training on all devices of this process."""
        os.environ.update(variables(spec, os.environ))
        from scalewise.frameworks.jax.session import session

        return session(spec, rank, probe)


def variables(spec: RunSpec, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables to set before JAX is imported.

    They create as many CPU devices as this process has, and limit its threads to those of its
    devices: without the limit, a second device would take cores from the first.
    """
    devices = spec.topology.world // spec.ranks
    flags = re.sub(rf"{DEVICE_COUNT_FLAG}=\S*", "", env.get("XLA_FLAGS", "")).split()
    flags.append(f"{DEVICE_COUNT_FLAG}={devices}")
    if spec.threads == 1:
        flags.append("--xla_cpu_multi_thread_eigen=false")
    result = {"XLA_FLAGS": " ".join(flags), "NPROC": str(devices * spec.threads)}
    return {**result, "JAX_PLATFORMS": spec.device} if spec.device else result


def build(spec: RunSpec, shape: tuple[int, int, int], classes: int) -> Any:
    """Return the run's model for images of this shape."""
    factory = plugins.load("workloads", str(spec.workload), framework="jax")
    try:
        return factory(shape, classes, **options_for(factory, spec))
    except ScalewiseError:
        raise
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"{spec.workload} cannot be built for images of {shape} "
            f"with options {dict(spec.options)}: {error}"
        ) from error


def _check_options(spec: RunSpec) -> None:
    """Refuse options that neither the workload nor the strategy knows, or cannot take."""
    try:
        check_options(spec, plugins.load("workloads", str(spec.workload), framework="jax"))
    except ScalewiseError:
        raise
    except Exception as error:  # JAX raises its own errors where it does not fit its jaxlib.
        raise FrameworkMissing(
            f"JAX is installed and cannot be imported: {error}",
            hint="pip install --upgrade jax jaxlib",
        ) from error


def _unsupported(spec: RunSpec, field: str) -> SpecError:
    """Return the error for a field with a value that JAX runs do not support."""
    reason = REASONS.get(field, "the jax framework does not do that")
    value = getattr(spec, field)
    if field == "parallelism":
        return SpecError(f"{reason}: {field} = {value}", hint=f"leave {field} out")
    supported = [repr(value) for value in SUPPORTED[field] if value is not None]
    other = f", or write {field} = {supported[0]}" if len(supported) > 1 else ""
    hint = f"leave {field} out{'' if field == 'compile' else other}"
    return SpecError(f"{reason}: {field} = {value!r}", hint=hint)
