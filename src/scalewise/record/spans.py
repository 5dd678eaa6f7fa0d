"""Every span of a job, declared once; tables, plots and laws read this table.

Standard library only, and Python 3.10: the worker writes spans, the lab reads them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Recurrence = Literal["once", "every epoch", "every step", "never"]


@dataclass(frozen=True, slots=True)
class SpanKind:
    """One part of a job's life, from launch to end."""

    name: str
    color: str
    """In plots of the complete time."""
    recurs: Recurrence
    """In a longer job of the same kind; ``never``: only this measurement has it."""
    lost_to: str | None = None
    """The cause that a receipt counts it under; none for training."""
    precedence: int = 0
    """In a program, where ranks are in several spans at once: the lowest one counts."""
    pauses_training: bool = False
    """Whether it lies between steps, and is not time of a step."""


EARLIER = "earlier"
"""Attempts of the same job before the one that was measured: it was put back into the queue."""
TRAIN = "train"
UNEXPLAINED = "unexplained"
"""What no span covers."""

SPANS = (
    SpanKind(EARLIER, "#882255", "never", lost_to="repeated", precedence=11),
    SpanKind("launch", "#999999", "once", lost_to="start-up", precedence=8),
    SpanKind("rendezvous", "#CC79A7", "once", lost_to="start-up", precedence=3),
    SpanKind("data", "#E69F00", "once", lost_to="start-up", precedence=5),
    SpanKind("build", "#56B4E9", "once", lost_to="start-up", precedence=7),
    SpanKind("compile", "#F0E442", "once", lost_to="start-up", precedence=6),
    SpanKind("restore", "#44AA99", "once", lost_to="start-up", precedence=12),
    SpanKind(TRAIN, "#0072B2", "every step", precedence=4),
    SpanKind(
        "validate", "#009E73", "every epoch", "validation", precedence=2, pauses_training=True
    ),
    SpanKind(
        "checkpoint", "#D55E00", "every epoch", "checkpoints", precedence=1, pauses_training=True
    ),
    SpanKind("trace", "#B3B300", "never", "looking", precedence=0, pauses_training=True),
    SpanKind("loaders", "#8DA0CB", "never", lost_to="looking", precedence=9),
    SpanKind("shutdown", "#7A5C3E", "once", lost_to="shutdown", precedence=10),
)
"""Every span that scalewise writes, in the order of a job's life."""
COLORS = {**{span.name: span.color for span in SPANS}, UNEXPLAINED: "#000000"}
PAUSES = tuple(span.name for span in SPANS if span.pauses_training)
_DECLARED = {span.name: span for span in SPANS}


def in_order_of_life(names: Iterable[str]) -> list[str]:
    """Return names of spans in the order of a job's life.

    A span of a plugin, which is not declared here, comes after those that are.

    >>> in_order_of_life(["unexplained", "warm-up", "train", "earlier"])
    ['earlier', 'train', 'warm-up', 'unexplained']
    """
    order = list(_DECLARED)
    return sorted(dict.fromkeys(names), key=lambda name: (
        name == UNEXPLAINED, order.index(name) if name in order else len(order),
    ))  # fmt: skip


def by_precedence(names: Iterable[str]) -> list[str]:
    """Return names of spans, first the one that counts where several are at once."""
    return sorted(
        dict.fromkeys(names),
        key=lambda name: _DECLARED[name].precedence if name in _DECLARED else len(SPANS),
    )


def recurring(recurrence: Recurrence) -> tuple[str, ...]:
    """Return the spans that come again so often in a longer job."""
    return tuple(span.name for span in SPANS if span.recurs == recurrence)
