"""Compare the layers of two runs, or of the ranks of one run, at one step."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from scalewise.analysis.certify.certificate import Cause, Finding
from scalewise.analysis.certify.sketched_run import (
    difference_norm,
    fitted_factor,
    is_finite,
    norm,
)
from scalewise.record.schema import LayerSketch, SketchKind
from scalewise.record.sketches import LayerCopy

PURE_FACTOR = 0.05
"""Layers that differ by one factor may deviate from it by this share."""
MOST_LAYERS = 0.75
"""This share of the layers must have the factor that is named."""


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """How one layer differs from its reference."""

    layer: str
    relative: float
    """The length of the difference, relative to the reference."""
    allowed: float
    """The relative difference that rounding explains."""
    factor: float | None
    """By which factor it is larger than the reference."""
    residual: float
    """The relative difference that remains beside this factor."""

    @property
    def excess(self) -> float:
        """The difference relative to what rounding explains; above 1, it is not rounding."""
        if math.isnan(self.relative):
            return math.inf
        return _ratio(self.relative, self.allowed)

    @property
    def differs(self) -> bool:
        return self.excess > 1

    def has_factor(self, factor: float) -> bool:
        """Return whether the layer is the reference times this factor, but for a small rest."""
        return (
            self.factor is not None
            and abs(self.factor / factor - 1) < PURE_FACTOR
            and self.residual < PURE_FACTOR * abs(factor)
        )


def _ratio(value: float, unit: float) -> float:
    """Return how many times the unit a value is; of a unit of 0, nothing or infinitely many.

    >>> _ratio(1.0, 2.0), _ratio(1.0, 0.0), _ratio(0.0, 0.0)
    (0.5, inf, 0.0)
    """
    if unit:
        return value / unit
    return math.inf if value else 0.0


def total_norm(layers: Mapping[str, LayerSketch]) -> float:
    """Return the length of the vector of all layers together, over the sketched elements."""
    return math.sqrt(sum(norm(sketch) ** 2 for sketch in layers.values() if is_finite(sketch)))


def compare_layers(
    layers: Mapping[str, LayerSketch],
    reference: Mapping[str, LayerSketch],
    tolerance: Callable[[str], float | None],
    absolute: float,
) -> list[LayerDifference]:
    """Return how each layer differs from the reference. Layers without a tolerance are left out:
    rounding explains any difference. ``absolute`` is the difference, relative to the whole
    reference, that rounding explains in any layer.
    """
    unit = absolute * total_norm(reference)
    differences = []
    for name, sketch in reference.items():
        allowed = tolerance(name)
        if name not in layers or allowed is None:
            continue
        differences.append(compare_sketches(name, layers[name], sketch, allowed, unit))
    return differences


def compare_sketches(
    name: str, sketch: LayerSketch, reference: LayerSketch, allowed: float, unit: float
) -> LayerDifference:
    """Return how one layer differs from its reference; ``unit`` is the length of a difference that
    rounding explains beside the share ``allowed``.
    """
    size = norm(reference)
    if not is_finite(sketch) or not is_finite(reference):
        return LayerDifference(name, math.nan, allowed, None, math.nan)
    if size == 0:  # In units of what rounding explains.
        relative = _ratio(norm(sketch), unit)
        return LayerDifference(name, relative, 1.0, None, relative)
    factor = fitted_factor(sketch, reference)
    residual = difference_norm(sketch, reference, factor) / size if factor is not None else math.inf
    relative = difference_norm(sketch, reference) / size
    return LayerDifference(name, relative, allowed + unit / size, factor, residual)


def compare_copies(
    copies: Mapping[str, Sequence[LayerCopy]],
    tolerance: Callable[[str], float | None],
    absolute: float,
) -> dict[str, tuple[LayerDifference, LayerCopy]]:
    """Return for each layer with several copies the copy that differs most from the first one."""
    firsts = {name: held[0].sketch for name, held in copies.items()}
    unit = absolute * total_norm(firsts)
    most: dict[str, tuple[LayerDifference, LayerCopy]] = {}
    for name, held in copies.items():
        allowed = tolerance(name)
        if len(held) < 2 or allowed is None:
            continue
        compared = [(compare_sketches(name, copy.sketch, held[0].sketch, allowed, unit), copy)
                    for copy in held[1:]]  # fmt: skip
        most[name] = max(compared, key=lambda pair: pair[0].excess)
    return most


def common_factor(differences: Sequence[LayerDifference]) -> float | None:
    """Return the factor by which most of these layers are larger; None if they have none, or 1."""
    factors = [row.factor for row in differences if row.factor]
    if not factors:
        return None
    factor = median(factors)
    if not math.isfinite(factor) or factor == 0 or abs(factor - 1) < PURE_FACTOR:
        return None
    matching = sum(row.has_factor(factor) for row in differences)
    return factor if matching >= MOST_LAYERS * len(differences) else None


def named_layer(differing: Sequence[str], compared: Sequence[str]) -> str:
    """Return the layer to name. If all layers up to some layer differ, and none after it, that one:
    the backward pass reached it first. Otherwise the first of those that differ.
    """
    last = len(differing)
    is_beginning = 1 < last < len(compared) and list(compared[:last]) == list(differing)
    return differing[-1] if is_beginning else differing[0]


def layers_finding(
    cause: Cause,
    kind: SketchKind,
    step: int,
    differing: Sequence[str],
    compared: Sequence[str],
    figures: Mapping[str, Any],
) -> Finding:
    """Return the finding that some of the compared layers differ."""
    return Finding(
        cause=cause,
        step=step,
        kind=kind,
        layer=named_layer(differing, compared),
        differing=tuple(differing),
        figures={"compared": len(compared), **figures},
    )
