"""A certificate: whether a run learns what the reference on one device learns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scalewise.record.schema import SketchKind

Verdict = Literal["equal", "differs", "cannot tell"]
Fault = Literal[
    "start weights",  # Ranks begin with different weights.
    "changed weights",  # Something changes the weights between two steps.
    "same samples",  # Ranks train on the same samples.
    "lost samples",  # Fewer samples than on one device, or others from some step on.
    "uneven batch",  # Ranks with fewer samples count as much as the others.
    "order repeats",  # Every epoch has the same order of samples.
    "not synchronised",  # Ranks have different gradients.
    "summed",  # Gradients are summed over replicas, not averaged.
    "averaged twice",  # Gradients are divided by the number of replicas once more.
    "accumulation",  # Micro-steps are summed, or divided twice.
    "scaled",  # Gradients are larger or smaller by a factor of unknown origin.
    "batch norm",  # Statistics of one device's samples.
    "clipped early",  # Gradients are clipped before they are averaged.
    "kept gradients",  # Gradients of the step before were not cleared.
    "no gradient",  # A layer gets no gradient.
    "other gradient",  # Another gradient, from an unknown cause.
    "learning rate",  # Updates are larger or smaller by a factor.
    "weight decay",  # Updates differ by a multiple of the weights.
    "not updated",  # A layer with a gradient keeps its weights.
    "other update",  # Another update, from an unknown cause.
    "updates differ",  # Ranks update their weights differently.
    "buffers",  # Ranks have different buffers, or others than one device.
    "not finite",  # Infinite gradients, or gradients that are not a number.
]
Obstacle = Literal[
    "no sketches",  # The run recorded no gradients.
    "not finished",  # A run is missing.
    "global batch",  # Another number of samples per step.
    "other samples",  # Other samples than the reference's in the first step.
    "other weights",  # Other weights than the reference's at the start.
    "other layers",  # Layers have other names.
    "rounding",  # Rounding changes as much as a fault would.
]
Cause = Fault | Obstacle


@dataclass(frozen=True, slots=True)
class Checked:
    """What was compared with the reference and differed only as rounding does."""

    steps: tuple[int, ...] = ()
    layers: int = 0
    largest: float = 0.0
    """The relative difference of the layer that comes nearest to its tolerance."""
    tolerance: float = 0.0
    """The relative difference that rounding explains in that layer."""
    samples: bool = False
    """Whether the samples of each step were compared."""
    is_learned: bool = False
    """Whether the tolerance was learned from a run of the reference in reversed order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The comparison of one run with its reference."""

    verdict: Verdict
    reference: str
    candidate: str
    """What was trained and where."""
    devices: int
    """Devices of the candidate."""
    where: Mapping[str, object] = field(default_factory=dict)
    """The settings of the candidate that its study varies."""
    cause: Cause | None = None
    """Why the runs differ, or why nothing can be told; None if they are equal."""
    step: int | None = None
    """The first step that differs, counted from 0."""
    kind: SketchKind | None = None
    """What differs first."""
    layer: str | None = None
    """The layer that is named: where the fault is, as far as that shows."""
    differing: tuple[str, ...] = ()
    """All layers that differ at this step, in the order of the model."""
    factor: float | None = None
    """By which factor the gradients or updates of these layers are larger."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """The values for the sentence about the cause."""
    checked: Checked = Checked()
    dropout_off: int = 0
    """Layers whose dropout was switched off for the comparison."""
    partly: str = ""
    """Why some layers could not be sketched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that ends a comparison."""

    cause: Cause
    verdict: Verdict = "differs"
    step: int | None = None
    kind: SketchKind | None = None
    layer: str | None = None
    differing: tuple[str, ...] = ()
    factor: float | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
