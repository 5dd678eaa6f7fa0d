"""Do the training; the only place an engine is imported.

A ``Framework`` makes sessions, a ``Session`` does steps, and ``loop`` is the
one loop that drives them. Importing this package imports no engine.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from scalewise.errors import NoEngine, SpecError
from scalewise.plugins import way_to_install
from scalewise.probe import Clock, Laps, Probe
from scalewise.probe.environment import release
from scalewise.record.schema import Outline as Outline
from scalewise.record.schema import Quality as Quality
from scalewise.spec import RunSpec


def too_few(samples: int, replicas: int) -> SpecError:
    """Return the error for a data set that leaves a replica without a sample."""
    return SpecError(
        f"{samples} samples are too few for {replicas} replicas",
        hint="use more data, or fewer devices",
    )


def installed(package: str, *, extra: str) -> str:
    """Return the version of an engine's package; refuse one that is not there."""
    try:
        return version(package)
    except ModuleNotFoundError as missing:
        raise NoEngine(
            f"framework {extra!r} needs {package}, which is not installed",
            hint=f"{way_to_install(extra)}, or name the Python that has it: "
            f'[engines] {extra} = "envs/{extra}/bin/python"',
        ) from missing


def refuse_older(engine: str, there: str, least: tuple[int, ...], *, hint: str) -> None:
    """Refuse an engine that came before what we need of it; runs of other engines may go on."""
    if release(there) < least:
        raise NoEngine(
            f"training needs {engine} {'.'.join(map(str, least))}, and {there} is installed",
            hint=hint,
        )


def refuse_start(who: str, spec: RunSpec, starts: Sequence[str]) -> None:
    """Refuse processes that are made otherwise than ``who`` trains them; name what fits."""
    if spec.started_by not in starts:
        named = [repr(each) for each in starts]
        fits = " or ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
        raise SpecError(
            f"{who} takes start = {fits}, and this run says {spec.started_by!r}",
            hint="leave start out",
        )


class Session(Protocol):
    """A training in progress, seen from one rank.

    What has an answer here is for engines that keep no checkpoints, which refuse runs that ask for
    them, or that do not tell.
    """

    outline: Outline

    def begin(self, epoch: int) -> None:
        """Start a pass over the data in a new order."""
        ...

    def step(self, probe: Laps) -> int:
        """Do one optimizer step, a lap per phase; return this rank's samples."""
        ...

    def settle(self) -> None:
        """Wait until the device has done what it was asked: the edge of a window."""
        ...

    def losses(self) -> list[float]:
        """Return the loss of each step since ``begin``, averaged over all ranks."""
        ...

    def validate(self) -> Quality | None:
        """Return the quality now, each validation sample counted once."""
        ...

    def memory(self) -> int | None:
        """Return the peak bytes this rank has held."""
        ...

    def held(self) -> Mapping[str, int] | None:
        """Return the bytes that this rank holds of the model's state, by kind."""
        return None

    def store(self, folder: Path) -> str:
        """Begin to write a checkpoint into a folder of them; return what was wrong before."""
        return ""

    def stored(self) -> str:
        """Wait until the last checkpoint is whole; return what was wrong with it, if anything."""
        return ""

    def restore(self, folder: Path, tick: Callable[[], None]) -> int:
        """Go on from the newest whole checkpoint in a folder; return how many steps are done.

        ``tick`` is called now and then: reading a large one may take minutes.
        """
        return 0

    def damaged(self) -> Sequence[str]:
        """Return a sentence for each damaged checkpoint that ``restore`` passed over."""
        return ()

    def exchanged(self) -> Mapping[str, Any]:
        """Return what was seen of the exchange of gradients, each by its name in the record."""
        return {}

    def traffic(self) -> Mapping[str, Any] | None:
        """Return what this rank exchanged in one step, and in which step that was counted."""
        return None

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Return the largest of each number over all ranks: only checkpoints ask for it."""
        return list(numbers)

    def save(self, path: Path) -> None:
        """Write the model's weights, as the serial model would name them."""
        ...


class Framework(Protocol):
    """An engine that can train."""

    def check(self, spec: RunSpec) -> None:
        """Refuse a run that cannot work, before any rank starts."""
        ...

    def ranks(self, spec: RunSpec) -> Sequence[int]:
        """Return the ranks that this very process plays."""
        ...

    def clock(self, spec: RunSpec) -> Clock:
        """Return the clock a rank's life is measured by, at its beginning."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return the engine's version and what it sees of this machine."""
        ...

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        """Set up a training, its spans told to the probe, and take it down again."""
        ...
