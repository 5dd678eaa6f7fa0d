"""What a report adds to the measurements of a curve: a prediction, and advice."""

from dataclasses import dataclass

from scalewise.analysis.advise.choice import DOUBLINGS_AHEAD, Advice, advise
from scalewise.analysis.advise.purpose import Purpose
from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.predict import Prediction, predict
from scalewise.errors import ScalewiseError

REPORT_PURPOSES = ("balanced", "efficiency=0.8")
"""Neither slow nor wasteful; and as fast as possible without waste."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A prediction for the next doublings and advice for common purposes."""

    curve: ScalingCurve
    prediction: Prediction | ScalewiseError
    """The error that prevents it, if no prediction is possible."""
    advice: tuple[Advice | ScalewiseError, ...]
    """One per purpose; the error that prevents it, if no advice is possible."""


def outlook(curve: ScalingCurve) -> Outlook | None:
    """Return the outlook of a curve; None if it has a single number of devices."""
    measured = {point.devices for point in curve.points}
    if len(measured) < 2:
        return None
    counts = [max(measured) * 2**step for step in range(1, DOUBLINGS_AHEAD + 1)]
    answers: list[Advice | ScalewiseError] = []
    for purpose in REPORT_PURPOSES:
        try:
            answers.append(advise(curve, Purpose.parse(purpose)))
        except ScalewiseError as error:
            answers.append(error)
    try:
        prediction: Prediction | ScalewiseError = predict(curve, counts)
    except ScalewiseError as error:
        prediction = error
    return Outlook(curve=curve, prediction=prediction, advice=tuple(answers))
