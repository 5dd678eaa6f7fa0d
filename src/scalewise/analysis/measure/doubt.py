"""A doubt: a reason to trust a result less. ``report.text.doubts`` has a sentence for each kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

DoubtKind = Literal[
    # About a point.
    "few steps",  # Few steps after the warm-up.
    "few batches",  # Few batches per rank and epoch.
    "rehearsed",  # Several nodes were simulated on fewer hosts.
    "resumed",  # The run continued from a checkpoint.
    "skipped files",
    "loss not finite",
    "overloaded",  # Other processes used the host.
    "work differs",  # Another number of samples than the baseline.
    "accuracy differs",
    "other device",  # Another kind of device than the baseline's.
    # About one curve or several curves.
    "runs differ",  # Runs of a curve had different environments.
    "baseline missing",
    "curves differ",  # Different settings make curves incomparable.
    # Why MFU is unknown.
    "operations not counted",
    "no peak of a CPU",
    "unlisted device",
    "unlisted precision",
    # About an explanation.
    "no phases",  # The causes of a step's time are unknown.
    "fused step",  # One process has several devices: their phases are not separate.
    "transfer unknown",
    "clock off",  # A node's clock differs from the first node's.
]


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is doubtful; ``figures`` are the values for the sentence about this doubt."""

    kind: DoubtKind
    figures: Mapping[str, Any] = field(default_factory=dict)
