"""Horovod: PyTorch's models, their gradients averaged by Horovod.

This package has the name of the real one; absolute imports keep them apart. This file imports
neither torch nor horovod: a run can be checked without them.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from scalewise.errors import FrameworkMissing, SpecError
from scalewise.frameworks import Session, installed, refuse_older
from scalewise.frameworks.horovod.unsupported import refuse_adasum, refuse_elastic
from scalewise.frameworks.torch import OverTorch, refuse_torch, refuse_unfit
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
        """Refuse a run that cannot work, before any rank starts."""
        hint = "make horovod, in a checkout of scalewise, builds one"
        refuse_older("Horovod", installed("horovod", extra="horovod"), OLDEST, hint=hint)
        _refuse_unbuilt()
        refuse_torch(spec)
        _refuse_no_horovodrun(spec)
        _refuse_fields(spec)
        refuse_unfit(spec)
        if spec.options.get("adasum") and spec.topology.world > 1:
            refuse_adasum(spec)
        if is_elastic(spec):
            refuse_elastic(spec)

    def ranks(self, spec: RunSpec) -> Sequence[int]:
        """Return this process's rank, which its launcher set in the environment."""
        if is_elastic(spec):  # Horovod gives each rank local rank 0; all are on this host.
            os.environ["LOCAL_RANK"] = os.environ["RANK"]
        return super().ranks(spec)

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        """Set up a training on this rank's device."""
        if is_elastic(spec):
            from scalewise.frameworks.horovod.elastic import session

            return session(spec, rank, probe)
        return super().session(spec, rank, probe)


def is_elastic(spec: RunSpec) -> bool:
    """Return whether a run continues when it loses ranks."""
    return spec.options.get("min_np") is not None and spec.topology.world > 1


def _refuse_unbuilt() -> None:
    """Refuse a Horovod that was built without PyTorch."""
    package = find_spec("horovod")
    folders = package.submodule_search_locations if package else None
    if not any(next(Path(folder, "torch").glob(EXTENSION), None) for folder in folders or ()):
        raise FrameworkMissing(
            "this Horovod was built without its PyTorch extension",
            hint="build it where PyTorch is installed, with HOROVOD_WITH_PYTORCH=1: "
            "make horovod, in a checkout of scalewise, does",
        )


def _refuse_no_horovodrun(spec: RunSpec) -> None:
    """Refuse a run of several ranks where horovodrun is missing; a single rank does not need it."""
    horovodrun = Path(sys.executable).with_name("horovodrun")
    if spec.topology.world > 1 and spec.started_by == "horovodrun" and not which(horovodrun):
        raise FrameworkMissing(
            f"there is no horovodrun beside {sys.executable}",
            hint='write start = "plain", which does without, or name another Python: '
            '[engines] horovod = "envs/horovod/bin/python"',
        )


def _refuse_fields(spec: RunSpec) -> None:
    """Refuse fields that Horovod runs do not support."""
    unsupported = {
        "parallelism": spec.degrees.degree > 1,
        "compile": bool(spec.compile),
        "noise_every": bool(spec.noise_every),
        "checkpoint_every": spec.checkpoint_every is not None,
        "resume": spec.resume is not None,
    }
    for field, is_set in unsupported.items():
        if is_set:
            raise SpecError(
                f"{field} does not go together with horovod yet",
                hint=f'leave {field} out, or write framework = "torch"',
            )
