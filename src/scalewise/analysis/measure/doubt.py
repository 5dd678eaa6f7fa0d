"""A doubt: a reason to trust a result less. ``report.text.doubts`` says each as a sentence, and
what to do about it; ``analysis.doubts`` finds those that need a whole curve.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Severity = Literal["blocks", "weakens", "notes"]
"""``blocks``: no prediction or advice without ``--despite``. ``weakens``: shown first, and widens
intervals. ``notes``: worth knowing, shown last."""

Blocking = Literal[
    # The training is not correct: the names of the guards of correctness.
    "no exchange",
    "same samples",
    "drift",
    "step counts",
    "set_epoch",
    "training differs",  # From that on one device, as a certificate shows.
    "lost samples",  # An epoch covers only a part of the data.
    # Two counts of a user's program that must agree (``analysis.conservation``).
    "steps unaccounted",
    "samples unaccounted",
    # Numbers that cannot be true.
    "implausible efficiency",  # Far above 100 %.
    "impossible time",  # Shorter than its samples take at the measured throughput.
    # About a prediction.
    "batch too small",  # Less than one sample per device.
]
Weakening = Literal[
    # About a point.
    "few steps",  # Few steps after the warm-up.
    "not steady",  # Steps were still getting faster or slower when the run ended.
    "rehearsed",  # Several nodes were simulated on fewer hosts.
    "overloaded",  # Other processes used the host.
    "loss not finite",
    "accuracy differs",
    "superlinear",  # Efficiency above 110 %.
    "outlier",  # The other points of the curve predict another value.
    "columns disagree",  # A table's own speedup or efficiency is not the computed one.
    "time disagrees",  # With the throughput of the same row.
    # About a curve.
    "repeated samples",  # Every rank reads all of the data.
    "left out",  # A run cannot be read.
    "watching stopped",
    "samples unclear",  # Samples per step were inferred.
    "sequence first",  # The counted rows of a batch may be its steps in time.
    "rows of one",  # A loader draws one sample for a batch of many rows.
    "calls added",  # Several calls of a model, without a loader, were added up.
    "rows unclear",  # Without a loader, only some inputs of a model showed their rows.
    "samples unknown",  # No sample was seen: steps are counted instead.
    # Two counts of a user's program that must agree, and differ a little.
    "some steps unaccounted",
    "some samples unaccounted",
    "time unaccounted",
    "frequent pauses",  # Almost every step is interrupted, and longer than it takes.
    "later training",  # Further processes trained after the first had ended.
    "several threads",  # Several threads of a process train at the same time.
    # About a prediction.
    "uneven batch",  # The global batch cannot be divided equally among the devices.
    "far extrapolation",
]
Noting = Literal[
    # About a point.
    "small outlier",  # An outlier that is off by less than 20 %.
    "few batches",  # Few batches per rank and epoch.
    "resumed",  # The run continued from a checkpoint.
    "skipped files",
    "disk refused",  # A rank's disk refused its lines for a while: they were written later.
    "disk slow",  # Single writes of a rank took more than a second.
    "clock set",  # A host's wall clock was set during a run.
    "work differs",  # Another number of samples than the baseline.
    "other device",  # Another kind of device than the baseline's.
    # About one curve or several curves.
    "runs differ",  # Runs of a curve had different environments.
    "baseline missing",
    "partly filled nodes",  # Devices per node do not divide the devices.
    "start unknown",  # A table has no start-up: the full run's time is without it.
    "curves differ",  # Different settings make curves incomparable.
    "idle devices",  # Beside smaller runs of a shared allocation.
    "not finished",
    "failed run",
    "no trace",
    "local SGD",  # Ranks average their weights only every few steps.
    "shared samples",  # Samples that several ranks read were counted once.
    "manual updates",
    "not certified",  # A certificate could not tell whether the training is that of one device.
    # Why MFU is unknown.
    "operations not counted",
    "no peak of a CPU",
    "unlisted device",
    "unlisted precision",
    # About an explanation.
    "no phases",  # The causes of a step's time are unknown.
    "fused step",  # One process has several devices: their phases are not separate.
    "transfer unknown",
    "attempts unread",  # The device-hours of a run's failed attempts are not counted.
    "clock off",  # A node's clock differs from the first node's.
]
UNKNOWN_ERROR = 0.1
"""The relative error of a weakening doubt whose effect cannot be computed."""
DoubtKind = Blocking | Weakening | Noting
SEVERITIES: Mapping[str, Severity] = {
    **dict.fromkeys(get_args(Blocking), "blocks"),
    **dict.fromkeys(get_args(Weakening), "weakens"),
    **dict.fromkeys(get_args(Noting), "notes"),
}


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is doubtful; ``figures`` are the values for the sentence about this doubt."""

    kind: DoubtKind
    figures: Mapping[str, Any] = field(default_factory=dict)
    devices: int | None = None
    """The number of devices of the point it is about; None if it is about the whole curve."""
    error: float = field(default=0.0, compare=False)
    """By which share it makes the results less certain (see ``widened``)."""

    @property
    def severity(self) -> Severity:
        return SEVERITIES[self.kind]

    @property
    def code(self) -> str:
        """Its name on the command line and in JSON.

        >>> Doubt("same samples").code
        'same-samples'
        """
        return code_of(self.kind)


def code_of(kind: str) -> str:
    """Return the name of a kind of doubt on the command line and in JSON."""
    return kind.replace(" ", "-").replace("_", "-").lower()


def widening(doubts: Iterable[Doubt], devices: int | None = None) -> float:
    """Return the relative error that weakening doubts add to the point with ``devices``; for None,
    to what is predicted from the whole curve. Doubts about one point mostly have one cause: the
    largest error counts.
    """
    weakening = [doubt for doubt in doubts if doubt.severity == "weakens"]
    of_points = [d.error for d in weakening if d.devices and devices in (None, d.devices)]
    of_curve = [d.error for d in weakening if d.devices is None and devices is None]
    return math.hypot(max(of_points, default=0.0), max(of_curve, default=0.0))
