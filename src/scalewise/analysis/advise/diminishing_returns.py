"""Where more devices stop paying, and which part of the job is the cause."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from scalewise.analysis.advise.advice_text import percent
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.measure import Point
from scalewise.analysis.number_format import format_count, format_number, format_rounded
from scalewise.analysis.predict import Prediction
from scalewise.analysis.predict.laws import Fit

HALF = 0.5
"""Returns diminish where a doubling adds less than half of the speed that it could."""
FIXED = "fixed costs, which devices do not shorten (launch, data, build, compile)"
GROWN = (
    "what grows with devices (a start that takes longer, or an exchange in every step: times do "
    "not tell which)"
)
ALMOST = 0.05
"""A doubling that saves a smaller share of the time buys almost nothing."""


@dataclass(frozen=True, slots=True)
class Returns:
    """What doublings give; a number of devices is nothing where that does not happen."""

    diminish: int | None
    """The first number of devices that added less than half of what it could."""
    gain: float | None
    """What that doubling added, as a share: 1 is twice as fast."""
    enough: int | None
    """Beyond this many every doubling saves almost no time."""
    cause: str
    """The part of the job that does not shrink, where that is known."""
    sentences: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def returns(found: Prediction, scales: Sequence[Scale], *, same_job: bool = True) -> Returns:
    """Return where these scales stop paying: by time, or by throughput if that is all.

    Causes are those of the job that was measured: of another one they are not told.
    """
    gains = [(few, many, _gain(few, many)) for few, many in pairwise(scales)]
    weak = next((each for each in gains if each[2] < HALF), None)
    paying = [many for _, many, gain in gains if gain >= 1 / (1 - ALMOST) - 1]
    enough = paying[-1] if paying else scales[0]
    beyond = [scale for scale in scales if scale.devices > enough.devices]
    law = _law(found) if same_job else None
    cause = _cause(found, law) if same_job and (weak or beyond) else ""
    told = [_diminish(*weak)] if weak else []
    told += [_almost(enough, beyond)] if beyond else []
    told += [_regime(found)] if found.curve.turns_at and same_job else []
    return Returns(
        diminish=weak[1].devices if weak else None,
        gain=weak[2] if weak else None,
        enough=enough.devices if beyond else None,
        cause=cause,
        sentences=(*told, *([cause] if cause else [])),
        warnings=tuple(_below(law, scales)),
    )


def _gain(few: Scale, many: Scale) -> float:
    """Return the speed that a doubling between two scales adds, as a share."""
    doublings = math.log2(many.devices / few.devices)
    return math.expm1(math.log(few.slowness / many.slowness) / doublings)


def _diminish(few: Scale, many: Scale, gain: float) -> str:
    added = f"{percent(gain, 0)} speed, of 100 % that it could" if gain > 0 else "no speed"
    return (
        f"Returns diminish from {format_count(many.devices)} on: from {few.devices:,} to "
        f"{many.devices:,} a doubling adds {added}."
    )


def _almost(enough: Scale, beyond: Sequence[Scale]) -> str:
    saved = [1 - scale.slowness / enough.slowness for scale in beyond]
    if max(saved) <= 0:
        return f"Going beyond {format_count(enough.devices)} buys no time."
    first = percent(saved[0]) if saved[0] > 0 else "none"
    most = f", and up to {beyond[-1].devices:,} no more than {percent(max(saved))}"
    return (
        f"Going beyond {format_count(enough.devices)} buys almost no time: {beyond[0].devices:,} "
        "save "
        f"{first}{most if len(beyond) > 1 else ''}."
    )


def _regime(found: Prediction) -> str:
    """Say from where on most of the time is no training."""
    before = [point.devices for point in found.curve.points if point.regime == "compute"]
    told = f"Overhead dominates from {format_count(found.curve.turns_at or 1)} on"
    return f"{told}, training up to {max(before):,}." if before else f"{told}."


def _law(found: Prediction) -> Fit | None:
    """Return the law of the complete time, where it has a fixed part."""
    laws = [fit for fit in found.laws if fit.law == "complete"]
    return laws[0] if laws and laws[0].parameters["fixed"].value > 0 else None


def _cause(found: Prediction, law: Fit | None) -> str:
    """Say which part of the job does not shrink: by its spans, by its law, or in its steps."""
    seen = [point for point in found.curve.points if point.time]
    if not seen or not found.points[-1].time:
        return "The loss is in the steps themselves; `scalewise explain FOLDER` tells its causes."
    last = seen[-1]
    if spans := _spans(last):
        return spans
    if law is None or last.time is None:
        return ""
    fixed = law.parameters["fixed"].value
    growing = law.parameters["growing"].value if "growing" in law.parameters else 0.0
    grown = growing * math.log2(last.devices)
    part, what = max((fixed, FIXED), (grown, GROWN))
    return (
        f"The cause is {what}: about {format_rounded(part)} of the "
        f"{format_number(law.value(last.devices))} s that "
        f"{law.formula} gives {format_count(last.devices)}."
    )


def _spans(point: Point) -> str:
    """Say which parts of a job's life are no training, the largest first."""
    if "train" not in point.complete or point.time is None:
        return ""
    rest = {name: each.value for name, each in point.complete.items() if name != "train"}
    largest = sorted(rest, key=lambda name: -rest[name])[:3]
    told = ", ".join(f"{name} {format_number(rest[name])} s" for name in largest if rest[name] > 0)
    share = sum(rest.values()) / point.time.value
    return (
        f"Of the {format_number(point.time.value)} s on {format_count(point.devices)} "
        f"{percent(share, 0)} "
        f"is not training: {told}."
    )


def _below(law: Fit | None, scales: Sequence[Scale]) -> list[str]:
    """Warn of predicted times that are shorter than what is taken as fixed."""
    if law is None:
        return []
    fixed = law.parameters["fixed"].value
    low = [scale for scale in scales if not scale.measured and scale.slowness < fixed]
    if not low:
        return []
    return [
        f"from {format_count(low[0].devices)} on the predicted time is below the "
        f"{format_rounded(fixed)} s that "
        f"{law.formula} takes as fixed: measure before you count on it"
    ]
