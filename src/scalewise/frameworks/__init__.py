"""Training frameworks (PyTorch, TensorFlow, JAX …): only modules below this package import them.

A ``Framework`` creates a ``Session``, which trains on one rank; ``loop`` calls its methods.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from scalewise.errors import FrameworkMissing, SpecError, shown
from scalewise.plugins import install_hint
from scalewise.probe import Clock, HostClock, Laps, Probe
from scalewise.probe.environment import major_minor
from scalewise.probe.rank_identity import required_rank
from scalewise.record.schema import Outline as Outline
from scalewise.record.schema import Quality as Quality
from scalewise.spec import RunSpec

Refused = Mapping[str, Sequence[object] | None]
"""Maps fields of a run to the values to refuse; None refuses every value but the default."""
TORCH_ONLY: Refused = dict.fromkeys((
    "parallelism", "workers", "backend", "augment", "optimizer_step", "noise_every", "recompute",
    "ema", "sync_batchnorm", "checkpoint_every", "resume",
))  # fmt: skip
"""Fields that only PyTorch supports; other frameworks refuse them."""


class RankEnded(Exception):
    """A simulated rank ends before its training does; other ranks of this process are played on."""

    def __init__(self, code: int, failed: str = "", kind: str = "") -> None:
        super().__init__(failed)
        self.code = code
        """The exit code that this gives to the process."""
        self.failed, self.kind = failed, kind
        """What the rank records of its failure, as in ``Probe.record_failure``; empty: nothing."""


def too_few_samples(samples: int, replicas: int) -> SpecError:
    """Return the error for a data set that leaves a replica without a sample."""
    return SpecError(
        f"{samples} samples are too few for {replicas} replicas",
        hint="use more data, or fewer devices",
    )


def installed_version(package: str, *, extra: str) -> str:
    """Return the version of a package that framework ``extra`` needs, or raise FrameworkMissing."""
    try:
        return version(package)
    except ModuleNotFoundError as missing:
        raise FrameworkMissing(
            f"framework {shown(extra)} needs {package}, which is not installed",
            hint=f"{install_hint(extra)}, or name the Python that has it: "
            f'[engines] {extra} = "envs/{extra}/bin/python"',
        ) from missing


def refuse_older(package: str, installed: str, oldest: tuple[int, ...], *, hint: str) -> None:
    """Refuse a package older than ``oldest``. A study then skips only runs of this framework."""
    if major_minor(installed) < oldest:
        raise FrameworkMissing(
            f"training needs {package} {'.'.join(map(str, oldest))}, and {installed} is installed",
            hint=hint,
        )


def refuse_start(name: str, spec: RunSpec) -> None:
    """Refuse a ``start`` that the strategy does not support; the message says so of ``name``."""
    if spec.started_by not in spec.traits.starts:
        quoted = [repr(start) for start in spec.traits.starts]
        supported = " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
        raise SpecError(
            f"{name} takes start = {supported}, and this run says {shown(spec.started_by)}",
            hint="leave start out",
        )


def refuse_fields(spec: RunSpec, refused: Refused, reasons: Mapping[str, str]) -> None:
    """Refuse values that a run's framework does not support; ``reasons`` are messages by field."""
    default = RunSpec(topology=spec.topology, batch=1, steps=1)  # Only the required fields.
    for field, values in refused.items():
        value = getattr(spec, field)
        is_refused = value != getattr(default, field) if values is None else value in values
        if is_refused:
            general = f"{field} does not go together with {spec.framework}'s {spec.strategy}"
            setting = (
                f"{field} = {shown(value)}" if isinstance(value, str) else f"{field} = {value}"
            )
            raise SpecError(
                f"{reasons.get(field, general)}: {setting}",
                hint=f'leave {field} out, or write framework = "torch"',
            )


class Session(Protocol):
    """Training on one rank; by default without checkpoints and without extra measurements."""

    outline: Outline
    """The planned work; an elastic run that loses ranks sets a new object here."""

    def begin(self, epoch: int) -> None:
        """Start an epoch: a pass over the data in a new order."""
        ...

    def step(self, probe: Laps) -> int:
        """Do one optimizer step; time its phases with ``probe.lap``; return this rank's samples."""
        ...

    def settle(self) -> None:
        """Wait until the device has finished all steps."""
        ...

    def losses(self) -> list[float]:
        """Return the loss of each step since ``begin``, averaged over all ranks."""
        ...

    def validate(self) -> Quality | None:
        """Return accuracy and loss on the validation data, each sample counted once."""
        ...

    def memory(self) -> int | None:
        """Return this rank's peak memory in bytes."""
        ...

    def state_bytes(self) -> Mapping[str, int] | None:
        """Return the bytes of this rank's parameters, gradients and optimizer state, by kind."""
        return None

    def store(self, folder: Path) -> str:
        """Begin to write a checkpoint; return why the previous checkpoint failed, or ""."""
        return ""

    def wait_stored(self) -> str:
        """Wait until the last checkpoint is complete; return why it failed, or ""."""
        return ""

    def restore(self, folder: Path, tick: Callable[[], None]) -> int:
        """Load the newest complete checkpoint; return its step, or 0. ``tick`` reports progress."""
        return 0

    def damaged(self) -> Sequence[str]:
        """Return a sentence for each damaged checkpoint that ``restore`` skipped."""
        return ()

    def exchange_measurements(self) -> Mapping[str, Any]:
        """Return measurements of the gradient exchange, by their names in the record."""
        return {}

    def traffic(self) -> Mapping[str, Any] | None:
        """Return the bytes that this rank exchanged in one step, and which step that was."""
        return None

    def max_over_ranks(self, numbers: Sequence[int]) -> list[int]:
        """Return the maximum of each number over all ranks; only runs with checkpoints use it."""
        return list(numbers)

    def save(self, path: Path) -> None:
        """Write the model's weights, named as in a model without parallelism."""
        ...


class Framework(Protocol):
    """A framework that can train. The default methods assume one launched process per rank."""

    def check(self, spec: RunSpec) -> None:
        """Refuse a run that cannot work, before any rank starts."""
        ...

    def ranks(self, spec: RunSpec) -> Iterable[int]:
        """Return the ranks that this process runs, one after the other."""
        return [required_rank(spec, os.environ)]

    def clock(self, spec: RunSpec) -> Clock:
        """Return the clock that measures a rank; a session may replace it by its own clock."""
        return HostClock()

    def facts(self) -> dict[str, Any]:
        """Return the framework's version and the devices that it sees."""
        ...

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        """Return a context that sets up a session and shuts it down, recording spans of both."""
        ...
