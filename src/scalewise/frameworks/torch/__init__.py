"""PyTorch. This file imports no torch: a run can be checked without it."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from scalewise import plugins
from scalewise.errors import SpecError
from scalewise.frameworks import Session, installed, refuse_older, release, too_few
from scalewise.frameworks.options import check_options, options_for
from scalewise.frameworks.place import own_rank
from scalewise.frameworks.source import Source
from scalewise.probe import HostClock, Probe
from scalewise.record import checkpoints
from scalewise.spec import RunSpec

OLDEST = (2, 4)
"""Of PyTorch's versions that we train with."""
ANY_SIZE = ("mlp", "mnist-cnn")
"""Workloads that take every image: a plain run of them is checked without PyTorch."""
STARTS = ("torchrun", "srun", "mpirun")
"""What makes one process per device; the first does unless the study says otherwise."""


class Torch:
    """Trains with PyTorch, one process per device."""

    def check(self, spec: RunSpec) -> None:
        """Refuse a run that cannot work, before any rank starts."""
        refuse_start(spec)
        if spec.parallelism.shard > 1 and spec.strategy not in ("fsdp", "hsdp"):
            raise SpecError(
                f"{spec.strategy} shards nothing, and this run says shard {spec.parallelism.shard}",
                hint='write strategy = "fsdp", or leave shard out',
            )
        if spec.noise_every and (spec.strategy not in ("ddp", "zero1") or spec.degrees.degree > 1):
            raise SpecError(
                "noise_every compares the gradients of whole replicas, which ddp and zero1 have",
                hint="leave noise_every out, or strategy and parallelism",
            )
        refuse_unfit(spec)

    def ranks(self, spec: RunSpec) -> Sequence[int]:
        """This process is one rank, and its starter told which."""
        return [own_rank(spec, os.environ)]

    def clock(self, spec: RunSpec) -> HostClock:
        """The host's clock; the session changes to the device's where there is one."""
        return HostClock()

    def facts(self) -> dict[str, Any]:
        """Return PyTorch's version, devices and backends."""
        from scalewise.frameworks.torch.device import facts

        return facts()

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        """Set up a training on this rank's device."""
        from scalewise.frameworks.torch.session import session

        return session(spec, rank, probe)


class OverTorch(Torch):
    """Trains PyTorch's workloads by the engine of another package."""

    package: ClassVar[str]

    def facts(self) -> dict[str, Any]:
        """Return the package's version, and what PyTorch sees of this machine."""
        version = installed(self.package, extra=self.package)
        facts = super().facts()
        return {**facts, "name": self.package, "version": version, "torch": facts["version"]}


def refuse_start(spec: RunSpec, starts: Sequence[str] = STARTS) -> None:
    """Refuse a PyTorch that is not there or too old, and starts but of one process per device."""
    _refuse_older(spec, installed("torch", extra="torch"))
    if spec.started_by not in starts:
        raise SpecError(
            f"a {spec.framework} run needs one process per device, and start = {spec.start!r} "
            "makes one",
            hint=f'leave start out, or write start = "{starts[0]}"',
        )


def refuse_unfit(spec: RunSpec) -> None:
    """Refuse what no training of PyTorch's models can do, whoever does its steps."""
    if spec.device == "cpu" and spec.backend in ("nccl", "xccl"):
        raise SpecError(
            f'{spec.backend} is for accelerators, and this run says device = "cpu"',
            hint="leave backend out",
        )
    source = Source.of_run(spec)
    if source.count and source.count < spec.replicas:
        raise too_few(source.count, spec.replicas)
    if source.on_device and spec.workers:
        raise SpecError(
            "what lies on the device already needs no workers, and this run has "
            f"{spec.workers} per rank",
            hint="leave workers out",
        )
    if spec.options:
        check_options(spec, workload(spec))
    by_blocks = spec.recompute != "none" or spec.compile == "blocks"
    of_tokens = isinstance(source.shape, int)
    split = spec.degrees.degree > 1
    sized = spec.workload not in ANY_SIZE
    if sized or split or by_blocks or of_tokens or spec.options or spec.sync_batchnorm:
        from scalewise.frameworks.torch.splits import refuse_impossible

        refuse_impossible(spec)
    if spec.resume:
        there = checkpoints.find(Path(spec.resume).expanduser())
        checkpoints.refuse_another_model(there, spec, options_for(workload(spec), spec))


def workload(spec: RunSpec) -> Callable[..., Any]:
    """Return what makes the run's model: built in, or lying elsewhere."""
    name = str(spec.workload)
    if plugins.lies_elsewhere(name, "torch"):
        from scalewise.frameworks.torch.libraries import factory

        return factory(name)
    made: Callable[..., Any] = plugins.load("workloads", name, framework="torch")
    return made


def _refuse_older(spec: RunSpec, installed: str) -> None:
    """Refuse a PyTorch that we do not train with, and what a run wants of a later one."""
    mended = "pip install --upgrade torch"
    refuse_older("PyTorch", installed, OLDEST, hint=mended)
    wanted = {
        'recompute = "selective"': (2, 5) if spec.recompute == "selective" else OLDEST,
        "clip": (2, 6) if spec.clip else OLDEST,
        f"strategy = {spec.strategy!r}": (2, 7) if spec.strategy in ("fsdp", "hsdp") else OLDEST,
    }
    there = release(installed)
    for what, least in wanted.items():
        if there < least:
            raise SpecError(
                f"{what} needs PyTorch {'.'.join(map(str, least))}, and {installed} is installed",
                hint=mended,
            )
