"""Where more devices stop paying, and which part of the job is the cause."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from scalewise.analysis.advise import advice_text
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.predict import Prediction
from scalewise.analysis.predict.laws import Fit

MIN_GAIN = 0.5
"""Returns diminish where a doubling adds less than half of the ideal gain in speed."""
MIN_SAVED_TIME = 0.05
"""A doubling that saves a smaller share of the time is not worth it."""


@dataclass(frozen=True, slots=True)
class DiminishingReturns:
    """What doublings of the devices gain; None where the limit is not reached."""

    diminish: int | None
    """The first number of devices that added less than half of the ideal gain."""
    gain: float | None
    """What that doubling added, as a share: 1 is twice as fast."""
    enough: int | None
    """Beyond this many devices every doubling saves almost no time."""
    cause: str
    """The part of the job that does not shrink, as a sentence; empty where unknown."""
    sentences: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def find_diminishing_returns(
    prediction: Prediction, scales: Sequence[Scale], *, same_job: bool = True
) -> DiminishingReturns:
    """Return where these scales stop paying: by time, or by throughput without times.

    Causes are those of the measured job; if ``same_job`` is false they are left out.
    """
    gains = [(few, many, _doubling_gain(few, many)) for few, many in pairwise(scales)]
    diminishing = next((step for step in gains if step[2] < MIN_GAIN), None)
    paying = [many for _, many, gain in gains if gain >= 1 / (1 - MIN_SAVED_TIME) - 1]
    enough = paying[-1] if paying else scales[0]
    beyond = [scale for scale in scales if scale.devices > enough.devices]
    law = _fixed_cost_law(prediction) if same_job else None
    sentences = advice_text.returns_sentences(
        diminishing, enough, beyond, prediction.curve if same_job else None
    )
    cause = ""
    if same_job and (diminishing or beyond):
        cause = advice_text.cause_sentence(prediction, law)
    return DiminishingReturns(
        diminish=diminishing[1].devices if diminishing else None,
        gain=diminishing[2] if diminishing else None,
        enough=enough.devices if beyond else None,
        cause=cause,
        sentences=tuple(filter(None, [*sentences, cause])),
        warnings=advice_text.below_fixed_warnings(law, scales) if law else (),
    )


def _doubling_gain(few: Scale, many: Scale) -> float:
    """Return the gain in speed per doubling between two scales, as a share."""
    doublings = math.log2(many.devices / few.devices)
    return math.expm1(math.log(few.slowness / many.slowness) / doublings)


def _fixed_cost_law(prediction: Prediction) -> Fit | None:
    """Return the law of the complete time, if it has a fixed part."""
    law = next((fit for fit in prediction.laws if fit.law == "complete"), None)
    return law if law and law.parameters["fixed"].value > 0 else None
