"""Lost time: what a complete job spends on anything but computation at the baseline's pace, by
cause. Start-up is paid once; causes in a step are paid in every step.
"""

from collections import defaultdict
from dataclasses import dataclass

from scalewise.analysis.explain.breakdown import Breakdown
from scalewise.analysis.explain.receipt import LOSS_OF_SPAN
from scalewise.record.schema import UNEXPLAINED

NOT_PART_OF_TRAINING = ("looking", "repeated")
"""Losses that the measurement or a requeued job caused: a full run does not have them."""


@dataclass(frozen=True, slots=True)
class LostTime:
    """Seconds of a complete job that one cause takes."""

    cause: str
    """A cause of ``chain.CAUSES``, or what a span is lost to: ``start-up``, ``validation`` …"""
    seconds: float
    share: float
    """Of the complete time."""
    longest_part: str | None = None
    """For start-up: its longest span, such as ``launch``."""


def lost_time(breakdown: Breakdown) -> tuple[LostTime, ...]:
    """Return what a job on this number of devices loses, the largest cause first; empty if its
    complete time is unknown.
    """
    point = breakdown.facts.point
    if not point.time or not point.steps:
        return ()
    seconds: dict[str, float] = defaultdict(float)
    longest: dict[str, str] = {}
    for name, part in point.complete.items():
        cause = LOSS_OF_SPAN.get(name)
        if cause and cause not in NOT_PART_OF_TRAINING:
            seconds[cause] += part.value
            if part.value >= getattr(point.complete.get(longest.get(cause, "")), "value", 0.0):
                longest[cause] = name
    for cause, added in breakdown.seconds.items():
        if added is not None and cause != UNEXPLAINED:
            seconds[cause] += point.steps * added
    not_training = sum(
        part.value
        for name, part in point.complete.items()
        if LOSS_OF_SPAN.get(name) in NOT_PART_OF_TRAINING
    )
    total = point.time.value - not_training
    rows = [
        LostTime(cause, lost, lost / total, longest.get(cause))
        for cause, lost in seconds.items()
        if lost > 0
    ]
    return tuple(sorted(rows, key=lambda row: -row.seconds))
