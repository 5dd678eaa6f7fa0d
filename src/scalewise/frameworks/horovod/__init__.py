"""Horovod: PyTorch's models, their gradients averaged by Horovod.

``import horovod`` finds the library, not this package. This file imports neither the library nor
torch: most checks run without them.
"""

import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from scalewise.errors import FrameworkMissing, SpecError
from scalewise.frameworks import Refused, Session, installed_version, refuse_fields, refuse_older
from scalewise.frameworks.torch import ENGINE_UNSUPPORTED, OverTorch, refuse_torch, refuse_unfit
from scalewise.probe import Probe
from scalewise.spec import RunSpec

OLDEST = (0, 28)
"""Oldest supported version of Horovod."""
EXTENSION = "mpi_lib*.so"
"""Horovod's compiled extension for PyTorch."""


class Horovod(OverTorch):
    """Trains PyTorch's workloads with Horovod's optimizer, one process per device."""

    package = "horovod"

    def check(self, spec: RunSpec) -> None:
        hint = "run `make horovod` in a checkout of scalewise to build a newer one"
        refuse_older("Horovod", installed_version("horovod", extra="horovod"), OLDEST, hint=hint)
        _refuse_no_torch_extension()
        refuse_torch(spec)
        _refuse_no_horovodrun(spec)
        refuse_fields(spec, ENGINE_UNSUPPORTED, {})
        refuse_unfit(spec)
        if spec.options.get("adasum") and spec.topology.world > 1:
            _refuse_adasum(spec)
        if is_elastic(spec):
            _refuse_elastic(spec)

    def ranks(self, spec: RunSpec) -> Iterable[int]:
        if is_elastic(spec):  # Horovod sets local rank 0 on every rank; all are on this host.
            os.environ["LOCAL_RANK"] = os.environ["RANK"]
        return super().ranks(spec)

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        if is_elastic(spec):
            from scalewise.frameworks.horovod.elastic import session

            return session(spec, rank, probe)
        return super().session(spec, rank, probe)


def is_elastic(spec: RunSpec) -> bool:
    """Return whether a run continues when it loses ranks."""
    return spec.options.get("min_np") is not None and spec.topology.world > 1


def _refuse_no_torch_extension() -> None:
    package = find_spec("horovod")
    folders = package.submodule_search_locations if package else None
    if not any(next(Path(folder, "torch").glob(EXTENSION), None) for folder in folders or ()):
        raise FrameworkMissing(
            "this Horovod was built without its PyTorch extension",
            hint="build it where PyTorch is installed, with HOROVOD_WITH_PYTORCH=1, or "
            "run `make horovod` in a checkout of scalewise",
        )


def _refuse_no_horovodrun(spec: RunSpec) -> None:
    """Refuse a run of several ranks where horovodrun is missing; a single rank does not need it."""
    horovodrun = Path(sys.executable).with_name("horovodrun")
    if spec.topology.world > 1 and spec.started_by == "horovodrun" and not which(horovodrun):
        raise FrameworkMissing(
            f"there is no horovodrun beside {sys.executable}",
            hint='write start = "plain", which does not need it, or name another Python: '
            '[engines] horovod = "envs/horovod/bin/python"',
        )


def _refuse_adasum(spec: RunSpec) -> None:
    """Refuse Adasum where it would fail, or silently do something else."""
    world = spec.topology.world
    if world & (world - 1):  # Not a power of two.
        raise SpecError(
            f"adasum needs a number of ranks that is a power of two: {spec.topology} has {world}",
            hint="use 2, 4, 8 … devices",
        )
    fields = ("clip", "warmup_steps", "warmup_epochs", "schedule")
    refused: Refused = {**dict.fromkeys(fields), "precision": ("fp16",)}
    reason = "with adasum each rank updates its weights inside backward, too early for this"
    refuse_fields(spec, refused, dict.fromkeys(refused, reason))
    if spec.started_by != "mpirun":
        raise SpecError(
            f"adasum uses MPI, and {spec.started_by} does not start MPI ranks",
            hint='write start = "mpirun"',
        )
    import horovod.torch as hvd

    if not hvd.mpi_built():
        raise SpecError(
            "adasum needs a Horovod with MPI, and this Horovod was built without MPI",
            hint="install MPI's headers, for example libopenmpi-dev, and build Horovod again: "
            "run `make horovod` in a checkout of scalewise",
        )


def _refuse_elastic(spec: RunSpec) -> None:
    """Refuse an elastic run that could not continue with fewer ranks."""
    min_np, world = int(spec.options["min_np"]), spec.topology.world
    if min_np > world:
        raise SpecError(
            f"min_np is {min_np}, and {spec.topology} has {world} ranks",
            hint=f"with min_np = {world - 1} the run continues when one rank is lost",
        )
    if spec.started_by != "horovodrun" or spec.topology.nodes > 1:
        raise SpecError(
            "min_np is for ranks that horovodrun starts on one machine",
            hint="leave start out, and take one node",
        )
    if not spec.steps:
        raise SpecError(
            "an elastic run needs steps: with fewer ranks an epoch would have more steps",
            hint="for example steps = 1000, instead of epochs or samples",
        )
    if spec.ema:
        raise SpecError("ema does not go together with min_np", hint="leave one of them out")
