"""PyTorch. This file imports no torch: a run can be checked without it."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass, replace
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any

from scalewise import plugins
from scalewise.checks import nearest, typed, whole
from scalewise.errors import PluginError, SpecError
from scalewise.frameworks import Session, too_few
from scalewise.frameworks.place import find_place
from scalewise.frameworks.torch.source import Source
from scalewise.probe import HostClock, Probe
from scalewise.record import checkpoints
from scalewise.spec import RunSpec

OLDEST = (2, 4)
"""Of PyTorch's versions that we train with."""


class Torch:
    """Trains with PyTorch, one process per device."""

    def check(self, spec: RunSpec) -> None:
        """Refuse a run that cannot work, before any rank starts."""
        try:
            _refuse_older(spec, version("torch"))
        except ModuleNotFoundError as missing:
            raise PluginError(
                "framework 'torch' needs torch, which is not installed",
                hint="pip install 'scalewise[torch]'",
            ) from missing
        if spec.started_by not in ("torchrun", "srun", "mpirun"):
            raise SpecError(
                f"a torch run needs one process per device, and start = {spec.start!r} makes one",
                hint='leave start out, or write start = "torchrun"',
            )
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
        if spec.device == "cpu" and spec.backend in ("nccl", "xccl"):
            raise SpecError(
                f'{spec.backend} is for accelerators, and this run says device = "cpu"',
                hint="leave backend out",
            )
        source = Source.of(spec.data, spec.workload)
        if source.kind == "synthetic" and source.shape[0] < spec.replicas:
            raise too_few(source.shape[0], spec.replicas)
        if spec.options:
            _check_options(spec)
        by_blocks = spec.recompute != "none" or spec.compile == "blocks"
        of_tokens = source.kind in ("tokens", "text")
        split = spec.degrees.degree > 1
        if split or by_blocks or of_tokens or spec.options or spec.sync_batchnorm:
            from scalewise.frameworks.torch.splits import refuse_impossible

            refuse_impossible(spec)
        if spec.resume:
            there = checkpoints.find(Path(spec.resume).expanduser())
            checkpoints.refuse_another_model(there, spec, options_for(workload(spec), spec))

    def ranks(self, spec: RunSpec) -> Sequence[int]:
        """This process is one rank, and its starter told which."""
        place = find_place(os.environ)
        if place is None or place.world != spec.topology.world:
            there = f"{place.started} started {place.world}" if place else "nobody started them"
            raise SpecError(
                f"{spec.topology} needs {spec.topology.world} ranks, and {there}",
                hint="`scalewise plan` shows the command that starts each",
            )
        return [place.rank]

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


def _check_options(spec: RunSpec) -> None:
    """Refuse options that neither the workload nor the strategy knows, or cannot take."""
    known: list[str] = []
    for kind, name in (("workloads", spec.workload), ("strategies", spec.strategy)):
        part = plugins.load(kind, str(name), framework="torch")  # type: ignore[arg-type]
        known += options_of(part)
        options_for(part, spec)
    for key in spec.options:
        if key not in known:
            raise SpecError(
                f"{spec.workload} with {spec.strategy} has no option {key!r}",
                hint=nearest(key, known) or f"known are: {', '.join(known) or 'none'}",
            )


def workload(spec: RunSpec) -> Callable[..., Any]:
    """Return what makes the run's model."""
    factory: Callable[..., Any] = plugins.load("workloads", str(spec.workload), framework="torch")
    return factory


def options_of(part: Any) -> list[str]:
    """Return the names of a part's options: its keyword-only arguments.

    Several that belong together are the fields of one, a dataclass that checks them.
    """
    found: list[str] = []
    for name, default in _keywords(part).items():
        found += [each.name for each in fields(default)] if is_dataclass(default) else [name]
    return found


def options_for(part: Any, spec: RunSpec) -> dict[str, Any]:
    """Return those of the run's options that are for this part, as its arguments."""
    chosen: dict[str, Any] = {}
    for name, default in _keywords(part).items():
        if is_dataclass(default):
            names = {each.name for each in fields(default)}
            given = {key: value for key, value in spec.options.items() if key in names}
            chosen[name] = replace(default, **given)  # type: ignore[type-var]
        elif name in spec.options:
            _refuse_unlike(name, spec.options[name], default)
            chosen[name] = spec.options[name]
    return chosen


def _refuse_unlike(name: str, value: Any, default: Any) -> None:
    """Refuse a value of another kind than the option's default, and sizes below 1."""
    if isinstance(default, bool):
        typed(name, value, bool, "true or false")
    elif isinstance(default, int):
        whole(name, value, least=min(1, default))
    elif isinstance(default, Sequence) and not isinstance(default, str):
        typed(name, value, (list, tuple), f"a list, such as {[*default]}")
        for each in value if all(isinstance(usual, int) for usual in default) else ():
            whole(f"each of {name}", each, least=1)


def _keywords(part: Any) -> dict[str, Any]:
    every = signature(part).parameters.values()
    return {each.name: each.default for each in every if each.kind is each.KEYWORD_ONLY}


def _refuse_older(spec: RunSpec, installed: str) -> None:
    """Refuse what a run wants of a PyTorch that came before it."""
    wanted = {
        "training": OLDEST,
        'recompute = "selective"': (2, 5) if spec.recompute == "selective" else OLDEST,
        "clip": (2, 6) if spec.clip else OLDEST,
        f"strategy = {spec.strategy!r}": (2, 7) if spec.strategy in ("fsdp", "hsdp") else OLDEST,
    }
    there = tuple(map(int, installed.split(".")[:2]))
    for what, least in wanted.items():
        if there < least:
            raise SpecError(
                f"{what} needs PyTorch {'.'.join(map(str, least))}, and {installed} is installed",
                hint="pip install --upgrade torch",
            )
