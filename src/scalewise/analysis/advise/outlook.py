"""What there is to say of a curve beyond its measurements: predicted, and advised."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from scalewise.analysis.advise.choice import AHEAD, Advice, advise
from scalewise.analysis.advise.purpose import Purpose
from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.predict import Prediction, predict
from scalewise.errors import ScalewiseError

PURPOSES = ("balanced", "efficiency=0.8")
"""What most people want: neither slow nor wasteful; and as fast as is not wasteful."""
Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A prediction for the next doublings and advice for usual purposes, or why there is none."""

    curve: ScalingCurve
    prediction: Prediction | str
    """A sentence where nothing can be predicted."""
    advice: tuple[Advice | str, ...]
    """For each purpose; a sentence where it cannot be told."""


def outlook(curve: ScalingCurve) -> Outlook | None:
    """Return what lies ahead of a curve; nothing of a single number of devices."""
    measured = {point.devices for point in curve.points}
    if len(measured) < 2:
        return None
    advice = tuple(_or_why(partial(advise, curve, Purpose.parse(each))) for each in PURPOSES)
    made = next((each.prediction for each in advice if isinstance(each, Advice)), None)
    if made is None:
        counts = [max(measured) * 2**step for step in range(1, AHEAD + 1)]
        return Outlook(
            curve=curve, prediction=_or_why(partial(predict, curve, counts)), advice=advice
        )
    # Advice weighs the measured counts too; what is predicted beyond them is the same.
    beyond = tuple(point for point in made.points if point.devices > max(measured))
    return Outlook(curve=curve, prediction=replace(made, points=beyond), advice=advice)


def _or_why(answer: Callable[[], Answer]) -> Answer | str:
    try:
        return answer()
    except ScalewiseError as problem:
        return f"{problem}: {problem.hint}" if problem.hint else str(problem)
