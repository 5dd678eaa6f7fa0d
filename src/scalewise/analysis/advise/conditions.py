"""What else there is beside the job that was measured: a target, interruptions, a queue.

Conditions are what was asked for. Settled on a prediction, they turn each scale of the
measured job into one of the job that is asked about.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalewise.analysis.advise.durations import span
from scalewise.analysis.advise.interruptions import (
    HOPELESS,
    Interruptions,
    Often,
    recorded_save,
)
from scalewise.analysis.advise.job_time import starts
from scalewise.analysis.advise.quality.aim import Aim
from scalewise.analysis.advise.quality.to_target import ToTarget, to_target
from scalewise.analysis.advise.queue_wait import Wait
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import format_count
from scalewise.analysis.predict import Prediction
from scalewise.errors import SpecError
from scalewise.record.read import RunRecord


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What was asked for; nothing changes nothing."""

    target: Aim | None = None
    critical_batch: str | float | Estimate | None = None
    batch: float | None = None
    wait: Wait | None = None
    often: Often | None = None
    """How often devices are interrupted."""
    save: float | None = None
    restart: float | None = None
    records: Sequence[RunRecord] = ()
    """Of the curve's runs, where there are some."""

    @classmethod
    def parse(  # noqa: PLR0913 - each is a condition
        cls,
        *,
        target: str | None = None,
        critical_batch: str | float | Estimate | None = None,
        batch: float | None = None,
        wait: str | None = None,
        interrupted_every: str | None = None,
        save: str | None = None,
        restart: str | None = None,
        records: Sequence[RunRecord] = (),
    ) -> "Conditions":
        """Read conditions as people write them."""
        _refuse_alone(
            "target", target, "epochs=90 at 256", {"critical-batch": critical_batch, "batch": batch}
        )
        _refuse_alone(
            "interrupted-every", interrupted_every, "12h", {"save": save, "restart": restart}
        )
        return cls(
            target=None if target is None else Aim.parse(target),
            critical_batch=critical_batch,
            batch=batch,
            wait=None if wait is None else Wait.parse(wait),
            often=None if interrupted_every is None else Often.parse(interrupted_every),
            save=None if save is None else span(save, "--save 30s"),
            restart=None if restart is None else span(restart, "--restart 3min", zero=True),
            records=records,
        )

    def settled(self, found: Prediction) -> "Settled":
        """Return these conditions with all that is known of this curve."""
        return Settled(
            counts=tuple(point.devices for point in found.points),
            target=self._to_target(self.target, found) if self.target else None,
            interruptions=self._interruptions(self.often, found) if self.often else None,
            wait=self.wait,
        )

    def _to_target(self, aim: Aim, found: Prediction) -> ToTarget:
        return to_target(aim, found, self.records, critical=self.critical_batch, batch=self.batch)

    def _interruptions(self, often: Often, found: Prediction) -> Interruptions:
        """Return the interruptions; what saving and restarting take can be in the records."""
        save = self.save or recorded_save(self.records)
        if save is None:
            raise SpecError(
                f"--interrupted-every {often.text} needs the time that a save takes",
                hint="--save 30s, or a study's folder with checkpoint_every",
            )
        known = starts(found)
        if self.restart is None and known is None:
            raise SpecError(
                f"--interrupted-every {often.text} needs the time that a restart takes",
                hint="--restart 3min",
            )
        counts = [point.devices for point in found.points]
        again = dict.fromkeys(counts, self.restart) if self.restart is not None else known
        taken = [
            *(["the save"] if self.save is None else []),
            *(["the restart"] if self.restart is None else []),
        ]
        return Interruptions(
            often=often,
            save=save,
            restarts=again or {},
            source=f" ({' and '.join(taken)} as measured)" if taken else "",
        )


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Conditions that know the curve."""

    counts: tuple[int, ...]
    target: ToTarget | None = None
    interruptions: Interruptions | None = None
    wait: Wait | None = None

    @property
    def same_job(self) -> bool:
        """Whether the time is that of the job as it was measured."""
        waits = self.wait is not None and any(self.wait.seconds(count) for count in self.counts)
        return self.target is None and self.interruptions is None and not waits

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to beware of."""
        return (
            *(self.target.warnings if self.target else ()),
            *(self.wait.warnings(self.counts) if self.wait else ()),
        )

    def lived(self, scale: Scale) -> Scale | None:
        """Return the scale with all that happens while devices are held; or it never ends."""
        whole = self.target.applied(scale) if self.target else scale
        return self.interruptions.applied(whole) if self.interruptions else whole

    def queued(self, scale: Scale) -> Scale:
        """Return the scale with the wait before it starts."""
        return self.wait.applied(scale) if self.wait else scale

    def done(self, scales: list[Scale]) -> list[Scale]:
        """Return the scales that get done; refuse to weigh none."""
        if not scales and self.interruptions:
            raise SpecError(
                f"interrupted every {self.interruptions.often.text}, no scale gets done: it would "
                f"take more than {HOPELESS:g} times as long",
                hint="save and restart faster, or use fewer devices, or others",
            )
        return scales

    def left_out(self, scales: Sequence[Scale]) -> tuple[str, ...]:
        """Warn of scales that are interrupted too often to get done."""
        gone = {*self.counts} - {scale.devices for scale in scales}
        if not gone or not self.interruptions:
            return ()
        return (
            f"from {format_count(min(gone))} on a job is interrupted too often to get done: it "
            "would "
            f"take more than {HOPELESS:g} times as long",
        )

    def sentences(self, closest: Scale) -> tuple[str, ...]:
        """Say what the conditions mean for a scale."""
        return (
            *(self.target.sentences(closest) if self.target else ()),
            *(self.interruptions.sentences(closest) if self.interruptions else ()),
            *(self.wait.sentences(self.counts) if self.wait else ()),
        )


def _refuse_alone(what: str, given: object, example: str, others: dict[str, object]) -> None:
    """Refuse details of something that was not asked for."""
    for name, value in others.items():
        if given is None and value is not None:
            raise SpecError(
                f"--{name} says something about --{what}, which was not given",
                hint=f"for example --{what} '{example}'",
            )
