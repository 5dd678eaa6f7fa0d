"""Conditions beyond the measured job: a target, interruptions, a queue.

``Conditions`` are what the user asks for. Resolved for one curve, they turn each scale of
the measured job into a scale of the job that is asked about.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scalewise.analysis.advise.durations import parse_limited_duration
from scalewise.analysis.advise.interruptions import (
    InterruptionInterval,
    Interruptions,
    recorded_save,
)
from scalewise.analysis.advise.job_time import known_starts
from scalewise.analysis.advise.quality.target import Target
from scalewise.analysis.advise.quality.time_to_target import TimeToTarget, time_to_target
from scalewise.analysis.advise.queue_wait import QueueWait
from scalewise.analysis.measure import Estimate
from scalewise.analysis.predict import Prediction
from scalewise.errors import SpecError, parameter
from scalewise.record.read import RunRecord


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions as the user gave them; without any, advice is about the measured job."""

    target: Target | None = None
    critical_batch: str | float | Estimate | None = None
    batch: float | None = None
    wait: QueueWait | None = None
    interrupted_every: InterruptionInterval | None = None
    save: float | None = None
    """Seconds of one save; None: as recorded."""
    restart: float | None = None
    """Seconds of a restart; None: as the measured start."""
    records: Sequence[RunRecord] = ()
    """Of the curve's runs; empty for a CSV."""

    @classmethod
    def parse(  # noqa: PLR0913 - one parameter per condition
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
        """Parse conditions as users write them."""
        if target is None:
            details = {"critical_batch": critical_batch, "batch": batch}
            _refuse_details(details, "target", "epochs=90 at 256")
        if interrupted_every is None:
            _refuse_details({"save": save, "restart": restart}, "interrupted_every", "12h")
        return cls(
            target=None if target is None else Target.parse(target),
            critical_batch=critical_batch,
            batch=batch,
            wait=None if wait is None else QueueWait.parse(wait),
            interrupted_every=None
            if interrupted_every is None
            else InterruptionInterval.parse(interrupted_every),
            save=None if save is None else parse_limited_duration(save, parameter("save", "30s")),
            restart=None
            if restart is None
            else parse_limited_duration(restart, parameter("restart", "3min"), allow_zero=True),
            records=records,
        )

    def resolve(self, prediction: Prediction) -> "ResolvedConditions":
        """Return these conditions with everything that depends on the curve filled in."""
        target = None
        if self.target:
            target = time_to_target(
                self.target,
                prediction,
                self.records,
                critical=self.critical_batch,
                batch=self.batch,
            )
        return ResolvedConditions(
            counts=tuple(point.devices for point in prediction.points),
            target=target,
            interruptions=self._interruptions(prediction),
            wait=self.wait,
        )

    def _interruptions(self, prediction: Prediction) -> Interruptions | None:
        """Return the interruptions, with recorded times of save and restart unless given."""
        every = self.interrupted_every
        if every is None:
            return None
        save = self.save or recorded_save(self.records)
        if save is None:
            raise SpecError(
                f"{parameter('interrupted_every', every.text)} needs the time that a save takes",
                hint=f"give {parameter('save', '30s')}, or a study's folder with checkpoint_every",
            )
        restarts = (
            known_starts(prediction)
            if self.restart is None
            else dict.fromkeys([point.devices for point in prediction.points], self.restart)
        )
        if restarts is None:
            raise SpecError(
                f"{parameter('interrupted_every', every.text)} needs the time that a restart takes",
                hint=f"give {parameter('restart', '3min')}",
            )
        return Interruptions(
            every=every,
            save=save,
            restarts=restarts,
            save_measured=self.save is None,
            restart_measured=self.restart is None,
        )


@dataclass(frozen=True, kw_only=True)
class ResolvedConditions:
    """Conditions for the scales of one curve."""

    counts: tuple[int, ...]
    """The numbers of devices of all candidates."""
    target: TimeToTarget | None = None
    interruptions: Interruptions | None = None
    wait: QueueWait | None = None

    @property
    def same_job(self) -> bool:
        """Whether the times are those of the measured job."""
        waits = self.wait is not None and any(self.wait.seconds(count) for count in self.counts)
        return self.target is None and self.interruptions is None and not waits


def _refuse_details(details: Mapping[str, object], option: str, example: str) -> None:
    """Refuse options that only have a meaning together with another one."""
    for name, value in details.items():
        if value is not None:
            raise SpecError(
                f"{parameter(name)} needs {parameter(option)}, which was not given",
                hint=f"for example {parameter(option, example)}",
            )
