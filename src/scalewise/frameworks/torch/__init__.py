"""The PyTorch framework. Torch is imported only where a check or a session needs it."""

import math
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from scalewise import plugins
from scalewise.errors import SpecError, shown
from scalewise.frameworks import Framework, Session, installed_version, refuse_older, refuse_start
from scalewise.frameworks.data_source import Source, refuse_crop
from scalewise.frameworks.part_options import check_options, options_for
from scalewise.probe import Probe
from scalewise.probe.environment import major_minor
from scalewise.record import checkpoints
from scalewise.spec import RunSpec

MIN_VERSION = (2, 4)
"""The oldest supported version of PyTorch."""
MIN_EDGE = {"mlp": 1, "mnist-cnn": 6}
"""The smallest image edge, in pixels, that these workloads accept."""
PUBLISHED_VIT = re.compile(r"vit-[a-z]+(?P<patch>\d+)")
"""Names of published ViTs end with the patch size, of which image sides must be multiples."""
ENGINE_UNSUPPORTED = dict.fromkeys(
    ("parallelism", "compile", "noise_every", "checkpoint_every", "resume")
)
"""For ``refuse_fields``: DeepSpeed and Horovod support only the default of these fields (None)."""


class Torch(Framework):
    """Trains with PyTorch, one process per device."""

    def check(self, spec: RunSpec) -> None:
        refuse_torch(spec)
        if spec.parallelism.shard > 1 and spec.traits.degree != "shard":
            raise SpecError(
                f"{spec.strategy} does not shard, but this run has shard {spec.parallelism.shard}",
                hint='write strategy = "fsdp", or leave shard out',
            )
        if spec.noise_every and not (spec.traits.whole_gradients and spec.degrees.degree == 1):
            raise SpecError(
                "noise_every compares gradients of complete replicas, which this run does not have",
                hint="leave out noise_every, or both strategy and parallelism",
            )
        refuse_unfit(spec)

    def facts(self) -> dict[str, Any]:
        from scalewise.probe.torch.device import facts

        return facts()

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        from scalewise.frameworks.torch.setup import session

        return session(spec, rank, probe)


class OverTorch(Torch):
    """Trains PyTorch workloads with a ``package`` on top of PyTorch, such as DeepSpeed."""

    package: ClassVar[str]

    def facts(self) -> dict[str, Any]:
        """Return the package's version, and the devices and backends that PyTorch finds."""
        version = installed_version(self.package, extra=self.package)
        facts = super().facts()
        return {**facts, "name": self.package, "version": version, "torch": facts["version"]}


def refuse_torch(spec: RunSpec) -> None:
    """Refuse the run if PyTorch is missing or too old for it, or cannot be started as it asks."""
    version, hint = installed_version("torch", extra="torch"), "pip install --upgrade torch"
    refuse_older("PyTorch", version, MIN_VERSION, hint=hint)
    required = {
        'recompute = "selective"': (2, 5) if spec.recompute == "selective" else MIN_VERSION,
        "clip": (2, 6) if spec.clip else MIN_VERSION,
        f"strategy = {shown(spec.strategy)}": spec.traits.min_version or MIN_VERSION,
    }
    for option, minimum in required.items():
        if major_minor(version) < minimum:
            needs = f"{option} needs PyTorch {'.'.join(map(str, minimum))}"
            raise SpecError(f"{needs}, and {version} is installed", hint=hint)
    refuse_start(f"a {spec.framework} run", spec)


def refuse_unfit(spec: RunSpec) -> None:
    """Refuse runs that neither PyTorch nor a package on top of it can train."""
    if spec.device == "cpu" and spec.backend in ("nccl", "xccl"):
        raise SpecError(
            f'{spec.backend} is for accelerators, and this run says device = "cpu"',
            hint="leave backend out",
        )
    source = Source.of_run(spec)
    refuse_crop(source, spec.augment)
    if source.on_device and spec.workers:
        raise SpecError(
            f"data on the device needs no workers, and this run has {spec.workers} per rank",
            hint="leave workers out",
        )
    if spec.compile == "graphs":
        _refuse_cuda_graphs(spec)
    if spec.options:
        check_options(spec, workload_factory(spec))
    if not _is_known_to_fit(spec, source):
        from scalewise.frameworks.torch.parallel.splits import refuse_impossible

        refuse_impossible(spec)
    if spec.resume:
        checkpoint = checkpoints.find(Path(spec.resume).expanduser())
        options = options_for(workload_factory(spec), spec)
        checkpoints.refuse_another_model(checkpoint, spec, options)


def _refuse_cuda_graphs(spec: RunSpec) -> None:
    """Refuse CUDA graphs for settings with which a replay would overwrite memory still in use."""
    settings = {
        f"accumulate = {spec.accumulate}": spec.accumulate > 1,
        f'strategy = "{spec.strategy}"': not spec.traits.only_ddp,
        f"tensor = {spec.degrees.tensor}": spec.degrees.tensor > 1,
        f"pipeline = {spec.degrees.pipeline}": spec.degrees.pipeline > 1,
    }
    for setting, is_set in settings.items():
        if is_set:
            raise SpecError(
                'compile = "graphs" needs complete replicas (DDP) without accumulation, '
                f"but this run has {setting}",
                hint='write compile = true, or "blocks"',
            )


def _is_known_to_fit(spec: RunSpec, source: Source) -> bool:
    """Return whether the model certainly accepts the images; if not, PyTorch has to build it."""
    is_plain = spec.degrees.degree == 1 and not spec.options and not spec.sync_batchnorm
    if not is_plain or isinstance(source.shape, int):
        return False
    if match := PUBLISHED_VIT.fullmatch(str(spec.workload)):
        return not any(side % int(match["patch"]) for side in source.shape[1:])
    uses_blocks = spec.recompute != "none" or spec.compile == "blocks"
    min_edge = MIN_EDGE.get(str(spec.workload), math.inf)
    return min(source.shape[1:]) >= min_edge and not uses_blocks


def workload_factory(spec: RunSpec) -> Callable[..., Any]:
    """Return the function that builds the run's model: built-in, a library's or the user's."""
    name = str(spec.workload)
    if plugins.is_import_path(name, "torch"):
        from scalewise.frameworks.torch.libraries import model_factory

        return model_factory(name)
    factory: Callable[..., Any] = plugins.load("workloads", name, framework="torch")
    return factory
