"""The difference that rounding explains, learned from a second run of the reference.

The second run has the samples inside each global batch in reversed order. In exact arithmetic its
gradients are equal; what differs is rounding and the order of sums, which grows as training does.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from scalewise.analysis.certify.sketched_run import (
    SketchedRun,
    difference_norm,
    is_finite,
    norm,
)
from scalewise.record.schema import SketchKind

EARLY_STEPS = 3
"""Steps 0, 1 and 2: rounding has hardly grown, so that they are judged strictly."""
EARLY_FACTOR, LATE_FACTOR = 16.0, 64.0
"""A layer may differ by so many times what reversing the order changes. The ratio of two estimates
from 8 projections each exceeds 16 in fewer than 1 of 10^8 cases if rounding is equally large."""
LATE_FLOOR = 0.02
"""From step 3 on, a smaller relative difference is never a fault: a single weight that rounding
moved the other way (Adam divides by the gradient's size) changes all later gradients."""
SECOND_FLOOR_FACTOR, LATE_FLOOR_FACTOR = 4.0, 16.0
"""The floor of a precision is so many times as high in steps 1 and 2, and from step 3 on. In bf16
the order of samples changes nothing, because sums are rounded at their end; but each rank rounds
its own sum, and the difference grows with every step.
"""
MAX_TOLERANCE = 0.5
"""Where rounding explains a larger relative difference, a step is not judged."""
EXPLAINED_FACTOR = 10.0
"""A gradient may differ by so many times the relative difference of the update before it."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The least difference of a precision that counts."""

    relative: float
    """Relative to the layer's own gradient."""
    absolute: float
    """Relative to the gradient of the whole model: some gradients are zero but for rounding, as
    that of a bias before batch normalization."""


FLOORS: Mapping[str, Floor] = {
    "fp32": Floor(2**-16, 2**-20),
    "tf32": Floor(2**-8, 2**-11),
    "fp16": Floor(2**-8, 2**-11),
    "bf16": Floor(2**-6, 2**-8),
}
UNLEARNED_FACTOR = 64.0
"""Without a second run of the reference, the floors are so many times as high."""
FP32_EPSILON = 2**-24


def floor_of(*precisions: str) -> Floor:
    """Return the floor of the coarsest of these precisions; an unknown one counts as bf16."""
    floors = [FLOORS.get(precision, FLOORS["bf16"]) for precision in precisions]
    return max(floors, key=lambda floor: floor.relative)


@dataclass(frozen=True)
class Tolerance:
    """What rounding explains in a comparison with ``reference``."""

    reference: SketchedRun
    reversed_reference: SketchedRun | None
    floor: Floor

    @property
    def is_learned(self) -> bool:
        return self.reversed_reference is not None

    @cached_property
    def _changes(self) -> dict[tuple[int, SketchKind], dict[str, float]]:
        """By step and kind: how much reversing the order changes each layer, relative to it."""
        if self.reversed_reference is None:
            return {}
        changes: dict[tuple[int, SketchKind], dict[str, float]] = {}
        kinds: tuple[SketchKind, ...] = ("gradient", "update")
        for step in self.reference.steps:
            for kind in kinds:
                changed = self.reversed_reference.first_copies(step, kind)
                changes[step, kind] = {
                    name: difference_norm(changed[name], sketch) / norm(sketch)
                    for name, sketch in self.reference.first_copies(step, kind).items()
                    if name in changed and norm(sketch) > 0
                    if is_finite(sketch) and is_finite(changed[name])
                }
        return changes

    @cached_property
    def _medians(self) -> dict[tuple[int, SketchKind], float]:
        return {key: median(values.values()) for key, values in self._changes.items() if values}

    def typical(self, step: int, kind: SketchKind) -> float:
        """Return the median over layers of what reversing the order changes."""
        return self._medians.get((step, kind), 0.0)

    def relative(self, step: int, kind: SketchKind, layer: str | None = None) -> float | None:
        """Return the relative difference that rounding explains in a layer, or in the median layer;
        None if that is so much that the step cannot be judged.
        """
        if not self.is_learned:
            return self._unlearned(step)
        typical = self.typical(step, kind)
        growth = max(1.0, typical / max(self.typical(0, kind), FP32_EPSILON))
        own = [
            changes.get(layer, 0.0)
            for (earlier, changed_kind), changes in self._changes.items()
            if layer is not None and changed_kind == kind and earlier <= step
        ]
        factor = EARLY_FACTOR if step < EARLY_STEPS else LATE_FACTOR
        allowed = max(factor * max([typical, *own]), self._floor_at(step, growth))
        return allowed if math.isfinite(allowed) and allowed <= MAX_TOLERANCE else None

    def _floor_at(self, step: int, growth: float) -> float:
        """Return the least tolerance at a step; ``growth`` is that of the reversed reference."""
        if step < EARLY_STEPS:
            return self.floor.relative * max(growth, SECOND_FLOOR_FACTOR if step else 1.0)
        return max(LATE_FLOOR, self.floor.relative * max(growth, LATE_FLOOR_FACTOR))

    def _unlearned(self, step: int) -> float | None:
        if step >= EARLY_STEPS:
            return None
        allowed = self.floor.relative * UNLEARNED_FACTOR * (1 if step == 0 else 10)
        return allowed if allowed <= MAX_TOLERANCE else (MAX_TOLERANCE if step == 0 else None)
