"""Continue to more devices only while they serve the user's purpose."""

from dataclasses import dataclass
from pathlib import Path

from scalewise.analysis.advise import Purpose
from scalewise.analysis.advise.choice import require_full_run, require_price, stop_advice
from scalewise.analysis.cost.rates import Rate
from scalewise.report.text.advice import stop_sentence
from scalewise.results import for_full_run, measured_curves
from scalewise.spec import StudySpec


@dataclass(frozen=True)
class PurposeRule:
    """Decides from the measured curves whether larger device counts still serve the purpose."""

    study: StudySpec
    folder: Path
    purpose: Purpose
    rate: Rate | None = None

    def __post_init__(self) -> None:
        for limit in self.purpose.limits:
            require_price(limit, self.rate)
        if self.study.full_run is None and any(run.stop_after for run in self.study.runs()):
            require_full_run(self.purpose)

    def stop_reason(self, devices: int) -> str:
        """Return why no curve of the study gains from ``devices`` or more; empty to continue."""
        advices = []
        for measured in measured_curves(self.study, self.folder):
            curve = for_full_run(measured, self.study)
            if devices <= max(point.devices for point in curve.points):  # Measured already.
                continue
            where = repr(curve.where)  # The settings, except devices, that make runs one curve.
            runs = (run for run in self.study.runs() if repr(self.study.where(run)) == where)
            counts = sorted({run.topology.world for run in runs if run.topology.world >= devices})
            if counts:
                advices.append(stop_advice(curve, self.purpose, counts, price=self.rate))
        reasons = [stop_sentence(advice) for advice in advices if advice]
        # Continue as long as one curve still gains.
        return "\n".join(reasons) if len(reasons) == len(advices) else ""
