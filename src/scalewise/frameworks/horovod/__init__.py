"""Horovod: PyTorch's models, their gradients averaged by Horovod's own ring.

The real package and this one have the same name; imports are absolute, so they never meet. This
file imports neither torch nor it: a run can be checked without them.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from scalewise.errors import NoEngine, SpecError
from scalewise.frameworks import Session, installed, refuse_older
from scalewise.frameworks.horovod.unsupported import refuse_adasum, refuse_elastic
from scalewise.frameworks.torch import OverTorch, refuse_torch, refuse_unfit
from scalewise.probe import Probe
from scalewise.spec import RunSpec

OLDEST = (0, 28)
"""Of Horovod's versions that we train with."""
STARTS = ("horovodrun", "srun", "mpirun", "torchrun", "plain")
"""What makes one process per device; but for the first, the ranks find each other by themselves."""
EXTENSION = "mpi_lib*.so"
"""What Horovod compiles for PyTorch, where it is built with it."""


class Horovod(OverTorch):
    """Trains PyTorch's workloads with Horovod's optimizer, one process per device."""

    package = "horovod"

    def check(self, spec: RunSpec) -> None:
        """Refuse a run that cannot work, before any rank starts."""
        there = installed("horovod", extra="horovod")
        mended = "make horovod, in a checkout of scalewise, builds one"
        refuse_older("Horovod", there, OLDEST, hint=mended)
        _refuse_unbuilt()
        refuse_torch(spec, STARTS)
        _refuse_unstarted(spec)
        _refuse_unknown(spec)
        refuse_unfit(spec)
        if spec.options.get("adasum") and spec.topology.world > 1:
            refuse_adasum(spec)
        if is_elastic(spec):
            refuse_elastic(spec)

    def ranks(self, spec: RunSpec) -> Sequence[int]:
        """This process is one rank, and its starter told which."""
        if is_elastic(spec):  # Each is alone on a machine, for Horovod, and all are on this one.
            os.environ["LOCAL_RANK"] = os.environ["RANK"]
        return super().ranks(spec)

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        """Set up a training on this rank's device."""
        if is_elastic(spec):
            from scalewise.frameworks.horovod.elastic import session

            return session(spec, rank, probe)
        return super().session(spec, rank, probe)


def is_elastic(spec: RunSpec) -> bool:
    """Say whether a run may lose ranks."""
    return spec.options.get("min_np") is not None and spec.topology.world > 1


def _refuse_unbuilt() -> None:
    """Refuse a Horovod that was built before PyTorch was there, or without it."""
    home = find_spec("horovod")
    places = home.submodule_search_locations if home else None
    if not any(next(Path(place, "torch").glob(EXTENSION), None) for place in places or ()):
        raise NoEngine(
            "this Horovod was built without its PyTorch extension",
            hint="build it where PyTorch is installed, with HOROVOD_WITH_PYTORCH=1: "
            "make horovod, in a checkout of scalewise, does",
        )


def _refuse_unstarted(spec: RunSpec) -> None:
    """Refuse a run whose ranks nobody can start: one alone needs no starter."""
    beside = Path(sys.executable).with_name("horovodrun")
    if spec.topology.world > 1 and spec.started_by == "horovodrun" and not which(beside):
        raise NoEngine(
            f"there is no horovodrun beside {sys.executable}",
            hint='write start = "plain", which does without, or name another Python: '
            '[engines] horovod = "envs/horovod/bin/python"',
        )


def _refuse_unknown(spec: RunSpec) -> None:
    """Refuse what Horovod is not asked for here."""
    asked = {
        "parallelism": spec.degrees.degree > 1,
        "compile": bool(spec.compile),
        "noise_every": bool(spec.noise_every),
        "checkpoint_every": spec.checkpoint_every is not None,
        "resume": spec.resume is not None,
    }
    for field, wanted in asked.items():
        if wanted:
            raise SpecError(
                f"{field} does not go together with horovod yet",
                hint=f'leave {field} out, or write framework = "torch"',
            )
