"""PyTorch. This file imports no torch: a run can be checked without it."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any

from scalewise import plugins
from scalewise.checks import nearest, typed, whole
from scalewise.errors import SpecError
from scalewise.frameworks import Session, installed, too_few
from scalewise.frameworks.place import find_place
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
        _check_options(spec)
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


def _check_options(spec: RunSpec) -> None:
    """Refuse options that neither the workload nor the strategy knows, or cannot take."""
    model, strategy = workload(spec), _strategy(spec)
    known = [*options_of(model), *options_of(strategy)]
    for part in (model, strategy):
        options_for(part, spec)
    for key in spec.options:
        if key not in known and not _takes_any(model):
            raise SpecError(
                f"{spec.workload} with {spec.strategy} has no option {key!r}",
                hint=nearest(key, known) or f"known are: {', '.join(known) or 'none'}",
            )


def workload(spec: RunSpec) -> Callable[..., Any]:
    """Return what makes the run's model: built in, or lying elsewhere."""
    name = str(spec.workload)
    if plugins.lies_elsewhere(name, "torch"):
        from scalewise.frameworks.torch.libraries import factory

        return factory(name)
    made: Callable[..., Any] = plugins.load("workloads", name, framework="torch")
    return made


def _strategy(spec: RunSpec) -> Callable[..., Any]:
    found: Callable[..., Any] = plugins.load("strategies", spec.strategy, framework=spec.framework)
    return found


def options_of(part: Any) -> list[str]:
    """Return the names of a part's options: its arguments that have a name and a default.

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
    if _takes_any(part):
        others = {*chosen, *options_of(_strategy(spec))}
        chosen |= {key: value for key, value in spec.options.items() if key not in others}
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
    return {
        each.name: each.default
        for each in every
        if each.kind is each.KEYWORD_ONLY
        or (each.kind is each.POSITIONAL_OR_KEYWORD and each.default is not each.empty)
    }


def _takes_any(part: Any) -> bool:
    """Say whether a part takes options of any name, as a library's model does."""
    return any(each.kind is each.VAR_KEYWORD for each in signature(part).parameters.values())


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
