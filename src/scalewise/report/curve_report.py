"""Everything that a report says about one curve: computed once, shown by page, slides, evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain import Explanation
from scalewise.analysis.full_run import per_unit_of_work
from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.predict import Prediction, predict
from scalewise.analysis.summary import Summary, summarize
from scalewise.errors import ScalewiseError
from scalewise.report.text.doubts import refuse_blocking

DOUBLINGS_AHEAD = 2
"""Doublings beyond the largest measurement that a report predicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveReport:
    """A curve with its summary, its explanation and its prediction."""

    source: str
    """The folder or file that was read, as the user wrote it."""
    curve: ScalingCurve
    summary: Summary
    explanation: Explanation | None = None
    """None for a table, which has no records of runs."""
    prediction: Prediction | None = None
    problem: ScalewiseError | None = None
    """Why there is no prediction."""
    rate: Rate | None = None
    """The price of a device-hour; None if none was given."""
    table_options: Mapping[str, object] = field(default_factory=dict)
    """What the user said about a table (``scaling``, ``devices_per_node``), for its command."""


def curve_reports(
    loaded: Sequence[tuple[Path, ScalingCurve, Explanation | None]],
    price: Rate | None = None,
    table_options: Mapping[str, object] | None = None,
) -> list[CurveReport]:
    """Return a report of each curve; ``results.all_explained`` loads them, with these
    ``table_options``. With a ``price`` per device-hour, they have costs.
    """
    options = table_options or {}
    return [_curve_report(str(source), curve, why, price, options) for source, curve, why in loaded]


def _curve_report(
    source: str,
    curve: ScalingCurve,
    why: Explanation | None,
    price: Rate | None,
    table_options: Mapping[str, object],
) -> CurveReport:
    prediction, problem = None, None
    try:
        prediction = _prediction(curve)
    except ScalewiseError as error:
        problem = error
    return CurveReport(
        source=source,
        curve=curve,
        summary=summarize(curve, why, source=source, price=price),
        explanation=why,
        prediction=prediction,
        problem=problem,
        rate=price,
        table_options=table_options,
    )


def _prediction(curve: ScalingCurve) -> Prediction | None:
    """Return what more devices would give; None for a single device count."""
    largest = max(point.devices for point in curve.points)
    if all(point.devices == largest for point in curve.points):
        return None
    counts = [largest * 2**step for step in range(1, DOUBLINGS_AHEAD + 1)]
    prediction = predict(per_unit_of_work(curve), counts)
    refuse_blocking("predict", prediction.doubts)
    return prediction
