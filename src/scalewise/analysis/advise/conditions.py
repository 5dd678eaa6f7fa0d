"""What else there is beside the job that was measured: a target.

Conditions are what was asked for. Settled on a prediction, they turn each scale of the
measured job into one of the job that is asked about.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scalewise.analysis.advise.aim import Aim
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.advise.to_target import ToTarget, to_target
from scalewise.analysis.measure import Estimate
from scalewise.analysis.predict import Prediction
from scalewise.errors import SpecError
from scalewise.record.read import RunRecord


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What was asked for; nothing changes nothing."""

    target: Aim | None = None
    critical_batch: str | float | Estimate | None = None
    batch: float | None = None
    records: Sequence[RunRecord] = ()
    """Of the curve's runs, where there are some."""

    @classmethod
    def parse(
        cls,
        *,
        target: str | None = None,
        critical_batch: str | float | Estimate | None = None,
        batch: float | None = None,
        records: Sequence[RunRecord] = (),
    ) -> "Conditions":
        """Read conditions as people write them."""
        if target is None:
            for name, given in (("critical-batch", critical_batch), ("batch", batch)):
                if given is not None:
                    raise SpecError(
                        f"--{name} says something about a target, and none was given",
                        hint="for example --target 'epochs=90 at 256'",
                    )
        return cls(
            target=None if target is None else Aim.parse(target),
            critical_batch=critical_batch,
            batch=batch,
            records=records,
        )

    def settled(self, found: Prediction) -> "Settled":
        """Return these conditions with all that is known of this curve."""
        if self.target is None:
            return Settled()
        return Settled(
            target=to_target(
                self.target, found, self.records, critical=self.critical_batch, batch=self.batch
            )
        )


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Conditions that know the curve."""

    target: ToTarget | None = None

    @property
    def same_job(self) -> bool:
        """Whether the job is the one that was measured."""
        return self.target is None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to beware of."""
        return self.target.warnings if self.target else ()

    def lived(self, scale: Scale) -> Scale:
        """Return the scale with all that happens while devices are held."""
        return self.target.applied(scale) if self.target else scale

    def sentences(self, closest: Scale) -> tuple[str, ...]:
        """Say what the conditions mean for a scale."""
        return self.target.sentences(closest) if self.target else ()
