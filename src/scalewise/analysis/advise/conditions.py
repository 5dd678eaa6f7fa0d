"""Conditions of the real job that the measured job did not have: a target, interruptions, a queue.
They change the time, cost and energy of each scale (number of devices).
"""

from collections.abc import Sequence
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
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.measure import Estimate
from scalewise.analysis.predict import Prediction
from scalewise.errors import SpecError, parameter
from scalewise.record.read import RunRecord

REQUIRED_CONDITION = {
    "critical_batch": ("target", "epochs=90 at 256"),
    "batch": ("target", "epochs=90 at 256"),
    "save": ("interrupted_every", "12h"),
    "restart": ("interrupted_every", "12h"),
}
"""By name of a condition that needs another: the name of that other, and an example of it."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions as users write them; ``api.advise`` explains each. By default there are none."""

    target: str | None = None
    critical_batch: str | float | Estimate | None = None
    batch: float | None = None
    wait: str | None = None
    interrupted_every: str | None = None
    save: str | None = None
    """How long a save of a checkpoint takes; None means as long as recorded."""
    restart: str | None = None
    """How long a restart takes; None means as long as the measured start."""
    records: Sequence[RunRecord] = ()
    """The records of the curve's runs; empty for a CSV."""

    def resolve(self, prediction: Prediction) -> "ResolvedConditions":
        """Return these conditions with everything that depends on the curve filled in."""
        for name, (required, example) in REQUIRED_CONDITION.items():
            if getattr(self, required) is None and getattr(self, name) is not None:
                raise SpecError(
                    f"{parameter(name)} needs {parameter(required)}, which was not given",
                    hint=f"for example {parameter(required, example)}",
                )
        target = None
        if self.target is not None:
            if prediction.curve.full_run:
                raise SpecError(
                    f"{parameter('target')} and {parameter('full_run')} both say how long the "
                    "training is",
                    hint="give one of them",
                )
            target = time_to_target(
                Target.parse(self.target),
                prediction,
                self.records,
                critical=self.critical_batch,
                batch=self.batch,
            )
        return ResolvedConditions(
            counts=tuple(point.devices for point in prediction.points),
            target=target,
            interruptions=self._interruptions(prediction),
            wait=None if self.wait is None else QueueWait.parse(self.wait),
        )

    def _interruptions(self, prediction: Prediction) -> Interruptions | None:
        """Return the interruptions; measured times of save and restart replace missing ones."""
        if self.interrupted_every is None:
            return None
        every = InterruptionInterval.parse(self.interrupted_every)
        if self.save is None:
            save = recorded_save(self.records)
        else:
            save = parse_limited_duration(self.save, parameter("save", "30s"))
        if save is None:
            raise SpecError(
                f"{parameter('interrupted_every', every.text)} needs the time that a save takes",
                hint=f"give {parameter('save', '30s')}, or a folder of runs with checkpoint_every",
            )
        if self.restart is None:
            restarts = known_starts(prediction)  # A restart takes as long as a start.
        else:
            example = parameter("restart", "3min")
            restart = parse_limited_duration(self.restart, example, allow_zero=True)
            restarts = {point.devices: restart for point in prediction.points}
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
    """Conditions for the scales of one curve, with measured values where the user gave none."""

    counts: tuple[int, ...]
    """The numbers of devices of all candidates."""
    target: TimeToTarget | None = None
    interruptions: Interruptions | None = None
    wait: QueueWait | None = None

    @property
    def same_job(self) -> bool:
        """Whether no condition changes the times of the measured job."""
        has_wait = self.wait is not None and any(self.wait.seconds(count) for count in self.counts)
        return self.target is None and self.interruptions is None and not has_wait

    def with_target_and_interruptions(self, scale: Scale) -> Scale | None:
        """Return the scale with target and interruptions; None if the job would never finish."""
        to_target = self.target.applied(scale) if self.target else scale
        return self.interruptions.applied(to_target) if self.interruptions else to_target
