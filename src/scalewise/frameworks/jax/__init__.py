"""JAX. This file imports no jax: what it reads of the environment must be said before that."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from scalewise import plugins
from scalewise.errors import NoEngine, ScalewiseError, SpecError
from scalewise.frameworks import Session, installed, refuse_older, refuse_start, too_few
from scalewise.frameworks.data_source import Source
from scalewise.frameworks.part_options import check_options, options_for
from scalewise.probe import HostClock, Probe
from scalewise.probe.rank_identity import required_rank
from scalewise.spec import Parallelism, RunSpec

OLDEST = (0, 6)
"""Of JAX's versions that we train with."""
STARTS = ("node", "plain", "srun", "mpirun")
"""One process that has all devices of its node, or one for each device."""
COUNT = "--xla_force_host_platform_device_count"
ONLY: Mapping[str, tuple[Any, ...]] = {
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
"""What a run may say of some fields here; the first is what it says unless asked."""
WHY = {
    "compile": "JAX compiles the whole step, always",
    "parallelism": "this engine splits the batch alone, and every device has the whole model",
    "backend": "JAX chooses the library by itself: Gloo between CPUs, NCCL between GPUs",
    "workers": "this engine reads sets that are in memory, and needs no workers",
    "optimizer_step": "the optimizer is a part of the one step that XLA compiles",
}


class Jax:
    """Trains with JAX: one compiled step over a mesh of all devices."""

    def check(self, spec: RunSpec) -> None:
        """Refuse a run that cannot work, before any rank starts."""
        there = installed("jax", extra="jax")
        refuse_older("JAX", there, OLDEST, hint="pip install --upgrade jax")
        installed("jaxlib", extra="jax")
        for field, allowed in ONLY.items():
            if getattr(spec, field) not in allowed:
                raise _refused(spec, field)
        refuse_start("a jax run", spec, STARTS)
        source = Source.of_run(spec)
        if source.count and source.count < spec.replicas:
            raise too_few(source.count, spec.replicas)
        if source.on_device:
            raise SpecError(
                "this engine sends every batch to its devices, and the data lie there already",
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
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # Looking takes no accelerator.
        build(spec, source.shape, 10)

    def ranks(self, spec: RunSpec) -> Sequence[int]:
        """This process is one rank, and its starter told which."""
        return [required_rank(spec, os.environ)]

    def clock(self, spec: RunSpec) -> HostClock:
        """The host's clock; the session changes to one that knows when devices are done."""
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
    """Return what JAX must find in the environment when it is imported.

    CPU devices are made, as many as a process has; each has its threads and no more, or a
    second device would only take the cores of the first.
    """
    each = spec.topology.world // spec.ranks
    said = re.sub(rf"{COUNT}=\S*", "", env.get("XLA_FLAGS", "")).split()
    flags = [*said, f"{COUNT}={each}"]
    if spec.threads == 1:
        flags.append("--xla_cpu_multi_thread_eigen=false")
    told = {"XLA_FLAGS": " ".join(flags), "NPROC": str(each * spec.threads)}
    return {**told, "JAX_PLATFORMS": spec.device} if spec.device else told


def build(spec: RunSpec, shape: tuple[int, int, int], classes: int) -> Any:
    """Return the run's model for images of this shape."""
    factory = plugins.load("workloads", str(spec.workload), framework="jax")
    try:
        return factory(shape, classes, **options_for(factory, spec))
    except ScalewiseError:
        raise
    except (TypeError, ValueError) as bad:
        raise SpecError(
            f"{spec.workload} cannot be built for images of {shape} "
            f"with options {dict(spec.options)}: {bad}"
        ) from bad


def _check_options(spec: RunSpec) -> None:
    """Refuse options that neither the workload nor the strategy knows, or cannot take."""
    try:
        check_options(spec, plugins.load("workloads", str(spec.workload), framework="jax"))
    except ScalewiseError:
        raise
    except Exception as broken:  # JAX says in words of its own that it does not fit its jaxlib.
        raise NoEngine(
            f"JAX is installed and cannot be imported: {broken}",
            hint="pip install --upgrade jax jaxlib",
        ) from broken


def _refused(spec: RunSpec, field: str) -> SpecError:
    """Return the error for a field that says what this engine does not do."""
    why = WHY.get(field, "the jax engine does not do that")
    said = getattr(spec, field)
    others = [repr(each) for each in ONLY[field] if each is not None and field != "parallelism"]
    usual = f", or write {field} = {others[0]}" if len(others) > 1 and field != "compile" else ""
    said = said if field == "parallelism" else repr(said)
    return SpecError(f"{why}: {field} = {said}", hint=f"leave {field} out{usual}")
