"""Name the layer in which a difference begins: the first whose output differs."""

from dataclasses import replace

from scalewise.analysis.certify.certificate import Finding
from scalewise.analysis.certify.layer_difference import compare_sketches
from scalewise.analysis.certify.sketched_run import (
    SketchedRun,
    difference_norm,
    difference_sketch,
    fitted_factor,
    norm,
    sum_sketch,
)
from scalewise.analysis.certify.tolerance import floor_of
from scalewise.record.schema import LayerSketch

OUTPUT_FACTOR = 4.0
"""Sums of outputs may differ by so many times the floor of the precision."""
BIAS_SHARE = 0.05
"""The part of a difference that is no multiple of the bias must be smaller than this share."""


def output_finding(run: SketchedRun, reference: SketchedRun, finding: Finding) -> Finding:
    """Return the finding about gradients of the first step with the layer whose output is the first
    to differ; the finding as it is if there is none.
    """
    step = run.steps[0]
    rows = run.model_rows(step)
    if finding.step != step or rows is None or rows != reference.model_rows(step):
        return finding
    outputs, expected = _outputs(run, step), _outputs(reference, step)
    allowed = OUTPUT_FACTOR * floor_of(run.precision, reference.precision).relative
    for key, sketch in outputs.items():
        if key not in expected:  # Tensor parallelism splits its features.
            continue
        row = compare_sketches(key, sketch, expected[key], allowed, 0.0)
        if not row.differs:
            continue
        module = key.rpartition(" ")[0]
        weights = reference.first_copies(step, "weight")
        layers = [name for name in weights if name.rpartition(".")[0] == module]
        if not layers:
            return finding
        difference = difference_sketch(sketch, expected[key])
        bias = next((name for name in layers if name.rpartition(".")[2] == "bias"), None)
        is_bias = bias is not None and _is_multiple(difference, weights[bias])
        figures = {"output": row.relative, "module": module, "is_bias": is_bias}
        layer = bias if is_bias else layers[0]
        return replace(finding, layer=layer, figures={**finding.figures, **figures})
    return finding


def _outputs(run: SketchedRun, step: int) -> dict[str, LayerSketch]:
    """Return the outputs of all samples: ranks of one model have the same samples, replicas have a
    part each.
    """
    copies = run.copies(step, "output")
    if run.is_split:
        return {key: held[0].sketch for key, held in copies.items()}
    return {
        key: sum_sketch([copy.sketch for copy in held])
        for key, held in copies.items()
        if len(held) == run.devices
    }


def _is_multiple(difference: LayerSketch, bias: LayerSketch) -> bool:
    factor = fitted_factor(difference, bias)
    if factor is None:
        return False
    return difference_norm(difference, bias, factor) < BIAS_SHARE * norm(difference)
