"""What a report adds to the measurements of a curve: a prediction, and advice."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from scalewise.analysis.advise.choice import DOUBLINGS_AHEAD, Advice, advise
from scalewise.analysis.advise.purpose import Purpose
from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.predict import Prediction, predict
from scalewise.errors import ScalewiseError

REPORT_PURPOSES = ("balanced", "efficiency=0.8")
"""Neither slow nor wasteful; and as fast as possible without waste."""
Answer = TypeVar("Answer")


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
    advice = tuple(
        _answer_or_error(partial(advise, curve, Purpose.parse(purpose)))
        for purpose in REPORT_PURPOSES
    )
    made = next((answer.prediction for answer in advice if isinstance(answer, Advice)), None)
    if made is None:
        counts = [max(measured) * 2**step for step in range(1, DOUBLINGS_AHEAD + 1)]
        prediction = _answer_or_error(partial(predict, curve, counts))
        return Outlook(curve=curve, prediction=prediction, advice=advice)
    # The prediction of an advice includes the measured counts; a report shows those beyond.
    beyond = tuple(point for point in made.points if point.devices > max(measured))
    return Outlook(curve=curve, prediction=replace(made, points=beyond), advice=advice)


def _answer_or_error(answer: Callable[[], Answer]) -> Answer | ScalewiseError:
    try:
        return answer()
    except ScalewiseError as error:
        return error
