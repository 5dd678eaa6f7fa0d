"""A reason to trust a result less, as a value: ``report.text.doubts`` words it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

DoubtKind = Literal[
    # Of a point.
    "few steps",
    "few batches",
    "rehearsed",
    "resumed",
    "skipped files",
    "loss not finite",
    "overloaded",
    "work differs",
    "accuracy differs",
    "other device",
    # Of a curve, or of several.
    "runs differ",
    "baseline missing",
    "curves differ",
    # Why MFU is unknown.
    "operations not counted",
    "no peak of a CPU",
    "unlisted device",
    "unlisted precision",
    # Of an explanation.
    "no phases",
    "fused step",
    "transfer unknown",
    "clock off",
]


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is doubtful, and the figures of its sentence."""

    kind: DoubtKind
    figures: Mapping[str, Any] = field(default_factory=dict)
