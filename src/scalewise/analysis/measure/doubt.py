"""A reason to trust a result less; ``report.text.doubts`` makes a sentence of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

DoubtKind = Literal[
    # About a point.
    "few steps",  # Steady ones.
    "few batches",  # Per rank and epoch.
    "rehearsed",  # Several nodes were simulated on fewer hosts.
    "resumed",
    "skipped files",
    "loss not finite",
    "overloaded",  # Other processes used the host.
    "work differs",
    "accuracy differs",
    "other device",  # Another kind than the baseline's.
    # About a curve, or several.
    "runs differ",
    "baseline missing",
    "curves differ",
    # Why MFU is unknown.
    "operations not counted",
    "no peak of a CPU",
    "unlisted device",
    "unlisted precision",
    # About an explanation.
    "no phases",
    "fused step",  # One process has several devices: their phases are not separate.
    "transfer unknown",
    "clock off",  # A node's clock differs from the first node's.
]


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is doubtful, and the values that its sentence contains."""

    kind: DoubtKind
    figures: Mapping[str, Any] = field(default_factory=dict)
