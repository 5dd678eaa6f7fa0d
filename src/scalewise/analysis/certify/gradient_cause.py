"""Recognize why gradients differ, from the factor, the layers and the ranks that differ."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from scalewise.analysis.certify.certificate import Fault, Finding
from scalewise.analysis.certify.layer_difference import (
    LayerDifference,
    common_factor,
    compare_layers,
    layers_finding,
    total_norm,
)
from scalewise.analysis.certify.output_difference import output_finding
from scalewise.analysis.certify.sketched_run import SketchedRun, is_finite, mean_sketch, sum_sketch
from scalewise.record.sketches import LayerCopy

SAME_FACTOR = 0.02
"""A factor is that of a cause if it differs from it by less than this share."""
ROUGH_FACTOR = 0.25
"""With batch normalization per device, gradients are a multiple only up to this share."""
CONSTANT_NORM = 0.01
"""Gradients whose length varies by less over the steps are clipped to it."""
MEAN_TOLERANCE = 0.02
"""The mean of the ranks' gradients counts as the reference's up to this relative difference."""
MIN_CLIPPED_STEPS = 3


def unsynchronised_finding(
    run: SketchedRun,
    reference: SketchedRun,
    step: int,
    compared: Mapping[str, tuple[LayerDifference, LayerCopy]],
) -> Finding:
    """Return the finding that ranks have different gradients, and whether their mean would be the
    reference's gradient.
    """
    differing = [name for name, (row, _) in compared.items() if row.differs]
    row, copy = max((compared[name] for name in differing), key=lambda pair: pair[0].relative)
    copies = run.copies(step, "gradient")
    first = copies[row.layer][0]
    finite = {
        name: [held.sketch for held in copies[name]]
        for name in differing
        if all(is_finite(held.sketch) for held in copies[name])
    }
    means = {name: mean_sketch(sketches) for name, sketches in finite.items()}
    expected = {
        name: sketch
        for name, sketch in reference.first_copies(step, "gradient").items()
        if name in means
    }
    against = compare_layers(means, expected, lambda _: MEAN_TOLERANCE, 0.0)
    figures = {
        "ranks": (first.ranks[0], copy.ranks[0]),
        "difference": row.relative,
        "mean_is_reference": bool(against) and not any(row.differs for row in against),
    }
    return layers_finding("not synchronised", "gradient", step, differing, [*compared], figures)


def gradient_finding(
    run: SketchedRun, reference: SketchedRun, step: int, rows: Sequence[LayerDifference]
) -> Finding:
    """Return the finding that gradients differ from the reference's, with the cause that fits."""
    differing = [row for row in rows if row.differs]
    names = [row.layer for row in differing]
    worst = max(differing, key=lambda row: row.excess)
    figures: Mapping[str, object] = {"difference": worst.relative, "tolerance": worst.allowed}
    finding = layers_finding(
        "other gradient", "gradient", step, names, [row.layer for row in rows], figures
    )
    if any(row.relative != row.relative for row in differing):
        not_finite = [row.layer for row in differing if row.relative != row.relative]
        return replace(finding, cause="not finite", layer=not_finite[0])
    if _keeps_gradients(run, reference, step):
        return replace(finding, cause="kept gradients")
    if unreduced := run.unreduced(step):
        figures = {**finding.figures, "unreduced": unreduced}
        return replace(finding, cause="not synchronised", figures=figures)
    if factor := common_factor(differing):
        cause = factor_cause(factor, run.replicas, run.accumulate, SAME_FACTOR) or "scaled"
        if cause == "scaled" and _clipped_early(run, reference):
            cause = "clipped early"
        return replace(finding, cause=cause, factor=factor)
    if fewer := _fewer_rows(run, reference, step):
        figures = {**finding.figures, "kind": "rows", "devices": run.devices, **fewer}
        return replace(finding, cause="lost samples", figures=figures)
    counts = _rank_counts(run, step)
    if len({*counts}) > 1:
        figures = {**finding.figures, "counts": counts}
        return replace(finding, cause="uneven batch", figures=figures)
    targets = run.target_counts(step)
    if len({*targets}) > 1:
        figures = {**finding.figures, "targets": targets}
        return replace(finding, cause="uneven batch", figures=figures)
    if _clipped_early(run, reference):
        return replace(finding, cause="clipped early")
    if run.batch_norm and (run.replicas > 1 or run.accumulate > 1):
        return _batch_norm_finding(run, finding, differing)
    return output_finding(run, reference, finding)


def factor_cause(factor: float, replicas: int, accumulate: int, share: float) -> Fault | None:
    """Return the cause of a common factor; None if it is unknown.

    >>> factor_cause(4.0, replicas=4, accumulate=1, share=0.02)
    'summed'
    >>> factor_cause(0.25, replicas=2, accumulate=4, share=0.02)
    'accumulation'
    """

    def is_near(expected: float) -> bool:
        return abs(factor / expected - 1) < share

    if replicas > 1 and is_near(replicas):
        return "summed"
    if replicas > 1 and is_near(1 / replicas):
        return "averaged twice"
    counts = [accumulate] if accumulate > 1 else []
    counts += [accumulate * replicas] if accumulate > 1 and replicas > 1 else []
    if any(is_near(count) or is_near(1 / count) for count in counts):
        return "accumulation"
    return None


def _batch_norm_finding(
    run: SketchedRun, finding: Finding, differing: Sequence[LayerDifference]
) -> Finding:
    """Return the finding of batch normalization per device; if gradients are also summed or
    averaged twice, as the rough factor shows, that one.
    """
    factors = [row.factor for row in differing if row.factor]
    factor = median(factors) if factors else 1.0
    cause = factor_cause(factor, run.replicas, run.accumulate, ROUGH_FACTOR) if factor > 0 else None
    figures = {**finding.figures, "batch_norm": run.batch_norm}
    if cause and len(differing) > 1:
        return replace(finding, cause=cause, factor=factor, figures=figures)
    return replace(finding, cause="batch norm", figures=figures)


def _clipped_early(run: SketchedRun, reference: SketchedRun) -> bool:
    """Return whether the reference's gradients are clipped to one length at every step, and the
    run's gradients are shorter: a mean of clipped gradients is.
    """
    common = [step for step in reference.steps if step in run.steps]
    norms = [total_norm(reference.first_copies(step, "gradient")) for step in common]
    lengths = [reference.lengths.get(step, norm) for step, norm in zip(common, norms)]
    if len(lengths) < MIN_CLIPPED_STEPS or not min(lengths):
        return False
    if max(lengths) / min(lengths) - 1 > CONSTANT_NORM:
        return False
    own = [total_norm(run.first_copies(step, "gradient")) for step in common]
    return all(length < norm * (1 - CONSTANT_NORM) for length, norm in zip(own, norms))


def _keeps_gradients(run: SketchedRun, reference: SketchedRun, step: int) -> bool:
    """Return whether the run's gradients are the sum of the reference's at this step and at the
    one before, which has sketches too.
    """
    before = reference.first_copies(step - 1, "gradient")
    expected = {
        name: sum_sketch([sketch, before[name]])
        for name, sketch in reference.first_copies(step, "gradient").items()
        if name in before
    }
    rows = compare_layers(
        run.first_copies(step, "gradient"), expected, lambda _: MEAN_TOLERANCE, MEAN_TOLERANCE
    )
    return bool(rows) and not any(row.differs for row in rows)


def _fewer_rows(run: SketchedRun, reference: SketchedRun, step: int) -> dict[str, int]:
    """Return with how many rows the model is called, if with fewer than the reference's at an equal
    number of samples; else nothing. The next step counts too: in its first step, a stage of a
    pipeline may be called once more to find the shapes of its output.
    """
    common = [number for number in run.steps if number >= step and number in reference.steps]
    found: dict[str, int] = {}
    for number in common[:2]:
        rows, expected = run.model_rows(number), reference.model_rows(number)
        is_equal = run.sample_count(number) == reference.sample_count(number)
        if rows is not None and expected is not None and rows < expected and is_equal:
            found = {"count": rows, "expected": expected, "rows_step": number}
    return found


def _rank_counts(run: SketchedRun, step: int) -> tuple[int, ...]:
    """Return the samples of each replica at a step; empty if they are unknown."""
    by_replica = run.replica_samples(step)
    if by_replica:
        return tuple(samples.total() for samples in by_replica.values())
    counts = [steps.get(step) for steps in run.sample_counts]
    return () if run.is_split or None in counts else tuple(count or 0 for count in counts)
