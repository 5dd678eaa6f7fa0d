"""Compare updates of weights whose gradients are equal, and recognize why they differ."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from scalewise.analysis.certify.certificate import Finding
from scalewise.analysis.certify.layer_difference import (
    LayerDifference,
    common_factor,
    compare_layers,
    layers_finding,
    total_norm,
)
from scalewise.analysis.certify.sketched_run import (
    SketchedRun,
    difference_norm,
    fitted_factor,
    norm,
)
from scalewise.analysis.certify.tolerance import FLOORS, MAX_TOLERANCE, Tolerance
from scalewise.record.schema import LayerSketch

UPDATE_FLOOR = 2**-12
"""Updates of the median layer may differ by this share: an update is a small difference of two
rounded weights."""
DECAY_SHARE = 0.2
"""The part of a difference that is no multiple of the weights must be smaller than this share."""


def update_finding(
    run: SketchedRun, reference: SketchedRun, step: int, tolerance: Tolerance
) -> Finding | None:
    """Return how updates differ from the reference's; None if they do not.

    Adam divides a gradient by its size, so that rounding can turn single updates around. Therefore
    a single layer counts only if it differs by more than half in two steps; what all layers have in
    common (a factor, the median layer) counts at once.
    """
    updates, expected = run.first_copies(step, "update"), reference.first_copies(step, "update")
    floor = tolerance.floor
    rows = compare_layers(updates, expected, lambda _: MAX_TOLERANCE, floor.absolute)
    rows = [row for row in rows if np.isfinite(row.relative)]
    if not rows:
        return None
    typical = tolerance.relative(step, "update")
    names = [row.layer for row in rows]
    flipped = _flipped_share(run, reference, step)
    allowed = None if typical is None else max(typical, UPDATE_FLOOR, flipped)
    difference = median(row.relative for row in rows)
    figures = {"difference": difference, "tolerance": allowed}
    least = floor.absolute * total_norm(expected)
    if stale := [name for name in names if _is_stale(updates[name], expected[name], least)]:
        return layers_finding("not updated", "update", step, stale, names, figures)
    finding = layers_finding("other update", "update", step, names, names, figures)
    if factor := common_factor(rows):
        return replace(finding, cause="learning rate", factor=factor)
    if allowed is not None and difference > allowed:
        is_decay = _differs_by_weights(run, reference, updates, expected, step)
        return replace(finding, cause="weight decay" if is_decay else "other update")
    return _single_layers(run, reference, step, rows, tolerance)


def _flipped_share(run: SketchedRun, reference: SketchedRun, step: int) -> float:
    """Return how much updates may differ because gradients differ by rounding.

    In Adam's first steps an update is the sign of its gradient. If gradients differ by a share r,
    about a share r of the signs differ, each by 2: the updates differ by 2 √r of their length. So
    do updates that are as small as the rounding of bf16 weights.
    """
    gradients, expected = (
        run.first_copies(step, "gradient"),
        reference.first_copies(step, "gradient"),
    )
    rows = compare_layers(gradients, expected, lambda _: MAX_TOLERANCE, 0.0)
    shares = [row.relative for row in rows if np.isfinite(row.relative)]
    return 2 * float(np.sqrt(median(shares))) if shares else 0.0


def _is_stale(update: LayerSketch, expected: LayerSketch, least: float) -> bool:
    """Return whether a layer keeps its weights although the reference updates them."""
    return norm(update) == 0 and norm(expected) > least


def _differs_by_weights(
    run: SketchedRun,
    reference: SketchedRun,
    updates: Mapping[str, LayerSketch],
    expected: Mapping[str, LayerSketch],
    step: int,
) -> bool:
    """Return whether the differences of most layers are multiples of the weights at the start."""
    if step != run.steps[0]:
        return False
    weights = reference.first_copies(step, "weight")
    rests = []
    for name in expected.keys() & updates.keys() & weights.keys():
        sums = np.subtract(updates[name].sums, expected[name].sums)
        difference = LayerSketch(tuple(map(float, sums)), float(np.mean(sums**2)))
        factor = fitted_factor(difference, weights[name])
        if factor is not None and norm(difference) > 0:
            rests.append(difference_norm(difference, weights[name], factor) / norm(difference))
    return bool(rests) and median(rests) < DECAY_SHARE


def _single_layers(
    run: SketchedRun,
    reference: SketchedRun,
    step: int,
    rows: Sequence[LayerDifference],
    tolerance: Tolerance,
) -> Finding | None:
    """Find layers whose updates differ by more than half in this step and in an earlier one.

    The gradient of some elements is zero but for rounding, as that of the bias of attention's keys.
    Adam makes full updates of it. In a precision coarser than fp32 a layer therefore counts only if
    its update is a multiple of the reference's.
    """
    earlier = [number for number in run.steps if number < step and number in reference.steps]
    before: set[str] = set()
    for number in earlier:
        compared = compare_layers(
            run.first_copies(number, "update"),
            reference.first_copies(number, "update"),
            lambda _: MAX_TOLERANCE,
            tolerance.floor.absolute,
        )
        before |= {row.layer for row in compared if row.differs}
    differing = [
        row
        for row in rows
        if row.differs
        and row.layer in before
        and tolerance.relative(step, "update", row.layer) is not None
    ]
    is_coarse = tolerance.floor.relative > FLOORS["fp32"].relative
    if not differing or (is_coarse and not common_factor(differing)):
        return None
    figures = {"difference": differing[0].relative, "tolerance": MAX_TOLERANCE}
    layers = [row.layer for row in rows]
    finding = layers_finding(
        "other update", "update", step, [row.layer for row in differing], layers, figures
    )
    factor = common_factor(differing)
    return replace(finding, cause="learning rate", factor=factor) if factor else finding
