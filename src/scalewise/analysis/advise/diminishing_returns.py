"""Where more devices stop paying, and which part of the job is the cause."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.predict import Prediction, fit_fixed_cost

Kind = Literal["steps", "spans", "fixed", "growing", "growing outside steps"]
MIN_GAIN = 0.5
"""Returns diminish where a doubling adds less than half of the ideal gain in speed."""
MIN_SAVED_TIME = 0.05
"""A doubling that saves a smaller share of the time is not worth it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The part of the job that more devices do not shorten, at the largest measured scale."""

    kind: Kind
    """steps: overhead in steps; spans: time outside training; else: a term of ``formula``. If only
    times are known, what grows may be in the steps or outside of them.
    """
    devices: int = 0
    seconds: float = 0.0
    """Seconds of this part; 0 if the kind is ``steps``."""
    total: float = 0.0
    """Seconds of the job."""
    spans: tuple[tuple[str, float], ...] = ()
    """Every span that is not training and its seconds, the longest first."""
    formula: str = ""
    """The law fitted to the times, with its numbers: T(N) = fixed + work / X(N) + growing log2 N
    with the throughput X, or N instead of X(N) if only times are known.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class DiminishingReturns:
    """Where doublings of the devices stop paying. Fields are None where doublings still pay."""

    diminish: int | None
    """The first number of devices whose gain over ``before`` is below half of the ideal gain."""
    before: int | None
    """The candidate just below ``diminish``."""
    gain: float | None
    """Speed gained per doubling from ``before`` to ``diminish``: 1 means twice as fast."""
    enough: int | None
    """Beyond this many devices every doubling saves almost no time."""
    saved: tuple[tuple[int, float], ...]
    """For each number of devices beyond ``enough``, the share of the time that it saves."""
    cause: Cause | None
    """None where the cause is unknown, or where returns do not diminish."""


def find_diminishing_returns(
    prediction: Prediction, scales: Sequence[Scale], *, same_job: bool = True
) -> DiminishingReturns:
    """Return where scales stop paying, and why if they are scales of the measured job."""
    gains = []  # Rows: the smaller count, the larger count, the speed gained per doubling.
    for smaller, larger in pairwise(scales):
        log_speedup = math.log(smaller.slowness / larger.slowness)
        doublings = math.log2(larger.devices / smaller.devices)  # May differ from 1.
        gains.append((smaller.devices, larger.devices, math.expm1(log_speedup / doublings)))
    diminishing = [row for row in gains if row[2] < MIN_GAIN]
    before, diminish, gain = diminishing[0] if diminishing else (None, None, None)
    # A gain g in speed saves the share 1 − 1 / (1 + g) of the time.
    paying_counts = [count for _, count, added in gains if added >= 1 / (1 - MIN_SAVED_TIME) - 1]
    enough = paying_counts[-1] if paying_counts else scales[0].devices
    (time,) = (scale.slowness for scale in scales if scale.devices == enough)
    saved = tuple(
        (scale.devices, 1 - scale.slowness / time) for scale in scales if scale.devices > enough
    )
    return DiminishingReturns(
        diminish=diminish,
        before=before,
        gain=gain,
        enough=enough if saved else None,
        saved=saved,
        cause=_cause(prediction) if same_job and (diminishing or saved) else None,
    )


def _cause(prediction: Prediction) -> Cause | None:
    """Return the part that more devices do not shorten: by spans, else by the fitted law."""
    timed_points = [point for point in prediction.curve.points if point.time]
    if not timed_points or not prediction.points[-1].time:
        return Cause(kind="steps")  # Only the throughput of steps is known.
    last = timed_points[-1]
    if "train" in last.complete and last.time:
        spans = [(name, span.value) for name, span in last.complete.items() if name != "train"]
        if not any(seconds for _, seconds in spans):
            return Cause(kind="steps")
        return Cause(
            kind="spans",
            devices=last.devices,
            seconds=sum(seconds for _, seconds in spans),
            total=last.time.value,
            spans=tuple(sorted(spans, key=lambda span: -span[1])),
        )
    law = fit_fixed_cost(prediction)
    if law is None:
        return None
    growing: Kind = "growing outside steps" if law.has_throughput else "growing"
    return Cause(
        kind="fixed" if law.fixed > law.growing else growing,
        devices=last.devices,
        seconds=max(law.fixed, law.growing),
        total=law.total,
        formula=law.formula,
    )
