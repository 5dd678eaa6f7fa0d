"""Certificates as sentences: what was compared, what differs and why, what to do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scalewise.analysis.certify.certificate import Cause, Certificate, Checked
from scalewise.analysis.number_format import format_count, list_counts

MAX_NAMED_STEPS = 8
"""Of more steps only the first ones and the last one are named."""


def certificate_sentence(certificate: Certificate) -> str:
    """Return the verdict in one sentence: "differs from step 0 in layer fc1.weight: …"."""
    return f"{certificate.candidate}: {verdict_text(certificate)}"


def verdict_text(certificate: Certificate) -> str:
    """Return the verdict without the name of the run."""
    if certificate.verdict == "equal":
        return f"equal. {equal_text(certificate)}"
    cause = certificate.cause
    assert cause is not None  # Only equal runs have none.
    text = CAUSE_TEXT[cause](certificate)
    if certificate.verdict == "cannot tell":
        return f"cannot tell, because {text}"
    return f"differs from step {certificate.step}{_layer_text(certificate)}: {text}"


def equal_text(certificate: Certificate) -> str:
    """Say what was compared, and how close it is."""
    checked = certificate.checked
    steps = [str(step) for step in checked.steps]
    named = ", ".join(steps[:MAX_NAMED_STEPS])
    if len(steps) > MAX_NAMED_STEPS:
        named += f", … {steps[-1]}"
    samples = "Samples, gradients" if checked.samples else "Gradients"
    learned = "" if checked.is_learned else ", not learned: there is no run in reversed order"
    return (
        f"{samples} and updates of {format_count(checked.layers, 'layer')} in "
        f"{'step' if len(steps) == 1 else 'steps'} {named} are those of {certificate.reference}: "
        f"the largest relative difference is {_small(checked.largest)} (rounding explains "
        f"{_small(checked.tolerance)}{learned})."
    )


def condition_text(certificate: Certificate) -> str:
    """Say under which conditions the comparison holds; empty if there is nothing to say."""
    parts = []
    if certificate.dropout_off:
        parts.append(
            f"dropout was switched off in {format_count(certificate.dropout_off, 'layer')}"
        )
    if certificate.partly and certificate.cause != "no sketches":
        parts.append(f"not all layers were compared: {certificate.partly}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def fix_text(certificate: Certificate) -> str:
    """Return what to do about the cause; empty if nothing needs to be done."""
    return FIXES[certificate.cause] if certificate.cause else ""


def _layer_text(certificate: Certificate) -> str:
    """Return which layers differ: " in layer fc1.weight", " in all 12 layers"."""
    count, compared = len(certificate.differing), certificate.figures.get("compared", 0)
    if not count:
        return ""
    if count == 1:
        return f" in layer {certificate.layer}"
    if count == compared:
        return f" in all {count} layers"
    return f" in layer {certificate.layer} ({count} of {format_count(compared, 'layer')})"


def _small(value: float) -> str:
    """Return a relative difference with two digits.

    >>> _small(3.14e-07), _small(0.5)
    ('3.1e-07', '0.5')
    """
    return f"{value:.2g}"


def _factor_text(certificate: Certificate) -> str:
    assert certificate.factor is not None
    factor = certificate.factor
    text = f"{factor:.2f}" if 0.1 <= abs(factor) < 1000 else f"{factor:.3g}"
    return f"factor {text} on {format_count(certificate.devices)}"


def _ranks_text(certificate: Certificate) -> str:
    first, second = certificate.figures["ranks"]
    return f"rank {first} and rank {second}"


def _difference_text(certificate: Certificate) -> str:
    return f"relative difference {_small(certificate.figures['difference'])}"


def _summed(certificate: Certificate) -> str:
    return f"{_factor_text(certificate)}: gradients are summed, not averaged"


def _averaged_twice(certificate: Certificate) -> str:
    return (
        f"{_factor_text(certificate)}: gradients are divided by the number of devices twice, or "
        "the loss is divided too"
    )


def _accumulation(certificate: Certificate) -> str:
    wrong = "summed, not averaged" if (certificate.factor or 0) > 1 else "divided twice"
    return f"{_factor_text(certificate)}: gradients of micro-steps are {wrong}"


def _scaled(certificate: Certificate) -> str:
    return f"{_factor_text(certificate)}: gradients have another scale, from an unknown cause"


def _not_synchronised(certificate: Certificate) -> str:
    if unreduced := certificate.figures.get("unreduced"):
        return (
            f"when the optimizer steps, FSDP has not reduced the newest gradient of "
            f"{format_count(unreduced, 'parameter')} ({_difference_text(certificate)}): gradients "
            "of the last micro-step are not averaged over ranks"
        )
    mean = ""
    if certificate.figures["mean_is_reference"]:
        mean = "; their mean is the gradient of one device"
    return (
        f"{_ranks_text(certificate)} have different gradients ({_difference_text(certificate)})"
        f"{mean}: gradients are not averaged over ranks"
    )


def _batch_norm(certificate: Certificate) -> str:
    names = certificate.figures["batch_norm"]
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (
        f"batch normalization ({names[0]}{others}) uses the samples of one device, not the global "
        f"batch ({_difference_text(certificate)})"
    )


def _other_gradient(certificate: Certificate) -> str:
    figures = certificate.figures
    if output := figures.get("output"):
        bias = ", by a multiple of its bias" if figures["is_bias"] else ""
        return (
            f"other gradients ({_difference_text(certificate)}): {figures['module']} is the first "
            f"layer whose output differs{bias} (relative difference {_small(output)})"
        )
    return (
        f"other gradients ({_difference_text(certificate)}; rounding explains "
        f"{_small(certificate.figures['tolerance'])}), from an unknown cause"
    )


def _uneven_batch(certificate: Certificate) -> str:
    if targets := certificate.figures.get("targets"):
        batches = "batches of micro-steps" if len(targets) > certificate.devices else "ranks"
        return (
            f"{batches} have between {min(targets):,} and {max(targets):,} targets that the loss "
            f"does not ignore, and their mean losses count equally "
            f"({_difference_text(certificate)})"
        )
    counts = ", ".join(map(str, certificate.figures["counts"]))
    return (
        f"ranks have {counts} samples in this step, and their mean gradients count equally "
        f"({_difference_text(certificate)})"
    )


def _lost_samples(certificate: Certificate) -> str:
    figures = certificate.figures
    if figures["kind"] == "others":
        return (
            f"other samples than on 1 device: {figures['common']:,} of {figures['total']:,} are "
            "the same"
        )
    if figures["kind"] == "rows":
        return (
            f"the loaders give the same samples, and in step {figures['rows_step']} the model is "
            f"called with {figures['expected']:,} rows on 1 device and with {figures['count']:,} "
            f"on {figures['devices']:,} ({_difference_text(certificate)})"
        )
    on = f"{figures['expected']:,} samples are trained on 1 device and {figures['count']:,} on "
    on += f"{figures['devices']:,}"
    if figures["kind"] == "short batch dropped":
        return f"{on}: the incomplete last batch of the epoch is left out on several devices"
    return f"{on} in this step"


def _global_batch(certificate: Certificate) -> str:
    figures = certificate.figures
    return (
        f"the global batch differs: {figures['expected']:,} samples per step on 1 device, "
        f"{figures['count']:,} on {figures['devices']:,}"
    )


def _no_sketches(certificate: Certificate) -> str:
    figures = certificate.figures
    reason = figures["reason"] or "its gradients were not seen"
    return f"{figures['run']} has no sketches: {reason}"


def _learning_rate(certificate: Certificate) -> str:
    return (
        f"{_factor_text(certificate)}: gradients are equal, updates are not: the learning rate is "
        "scaled"
    )


def _other_update(certificate: Certificate) -> str:
    return f"gradients are equal, updates are not ({_difference_text(certificate)})"


def _same_samples(certificate: Certificate) -> str:
    figures = certificate.figures
    return (
        f"{figures['ranks']:,} of {figures['of']:,} ranks train on the same "
        f"{figures['samples']:,} samples"
    )


def _other_layers(certificate: Certificate) -> str:
    figures = certificate.figures
    other = f" (it has {figures['other']})" if figures["other"] else ""
    return (
        f"only {figures['common']:,} of {figures['layers']:,} layers have the same name: "
        f"{figures['only']} is missing{other}"
    )


def _start_weights(certificate: Certificate) -> str:
    return (
        f"{_ranks_text(certificate)} begin with different weights ({_difference_text(certificate)})"
    )


def _not_updated(certificate: Certificate) -> str:
    has_none = certificate.figures.get("no_optimizer")
    reason = "no optimizer has its parameters: " if has_none else ""
    return f"{reason}its weights stay as they are, and on 1 device they are updated"


def _changed_weights(certificate: Certificate) -> str:
    return (
        "the weights are not those that the step before left, and on 1 device they are: they "
        f"change between the steps ({_difference_text(certificate)} to the update)"
    )


def _constant(text: str) -> Callable[[Certificate], str]:
    return lambda certificate: text


CAUSE_TEXT: Mapping[Cause, Callable[[Certificate], str]] = {
    "start weights": _start_weights,
    "changed weights": _changed_weights,
    "same samples": _same_samples,
    "lost samples": _lost_samples,
    "uneven batch": _uneven_batch,
    "order repeats": lambda c: (
        f"the samples of step {c.figures['earlier']} again: every epoch has the same order"
    ),
    "not synchronised": _not_synchronised,
    "summed": _summed,
    "averaged twice": _averaged_twice,
    "accumulation": _accumulation,
    "scaled": _scaled,
    "batch norm": _batch_norm,
    "clipped early": lambda c: (
        f"gradients are shorter than the limit that they are clipped to on 1 device "
        f"({_difference_text(c)}): they are clipped before they are averaged"
    ),
    "kept gradients": _constant(
        "gradients of the step before are added to those of this step: they were not cleared"
    ),
    "no gradient": _constant("no gradient, and on 1 device there is one"),
    "other gradient": _other_gradient,
    "learning rate": _learning_rate,
    "weight decay": lambda c: (
        f"gradients are equal, and updates differ by a multiple of the weights "
        f"({_difference_text(c)}): weight decay is applied with another strength"
    ),
    "not updated": _not_updated,
    "other update": _other_update,
    "updates differ": lambda c: (
        f"{_ranks_text(c)} update their weights differently ({_difference_text(c)})"
    ),
    "buffers": lambda c: (
        f"{_ranks_text(c)} have different buffers ({_difference_text(c)}): they are not "
        "synchronised"
    ),
    "not finite": _constant("gradients are not finite, and on 1 device they are"),
    "no sketches": _no_sketches,
    "not finished": _constant("a run has not finished"),
    "global batch": _global_batch,
    "other samples": lambda c: (
        f"the samples of step 0 are not those of {c.reference} ({c.figures['common']:,} of "
        f"{c.figures['total']:,} are the same)"
    ),
    "other weights": lambda c: (
        f"layer {c.layer} begins with other weights than on 1 device ({_difference_text(c)})"
    ),
    "other layers": _other_layers,
    "rounding": _constant("rounding alone changes as much as a fault would"),
}
"""By cause: what was found, with its numbers."""
_LOADER_FIX = "Give the loader sampler=DistributedSampler(dataset), or split the data by rank."
_AVERAGE_FIX = "Average gradients once: DDP and FSDP do; by hand, divide the sum by the ranks."
FIXES: Mapping[Cause, str] = {
    "start weights": "Send rank 0's weights to all ranks before the first step, as DDP does.",
    "changed weights": "Leave the weights to the optimizer: keep moving averages in a copy of the "
    "model.",
    "same samples": _LOADER_FIX,
    "lost samples": "Use the same drop_last, and a data set that the global batch divides; pass "
    "all samples of the loader to the model.",
    "uneven batch": "Weigh the loss of each rank and micro-step by its samples, or by its targets "
    "that are not ignored; or, if only the last batch is uneven, set drop_last=True everywhere.",
    "order repeats": "Call sampler.set_epoch(epoch) at the start of every epoch.",
    "not synchronised": "Wrap the whole model in DistributedDataParallel, and leave no_sync before "
    "the last micro-step (FSDP: set_requires_gradient_sync(True)); by hand, average every gradient "
    "before the optimizer's step.",
    "summed": _AVERAGE_FIX,
    "averaged twice": _AVERAGE_FIX,
    "accumulation": "Divide the loss of every micro-step by the number of micro-steps, once.",
    "scaled": "Look for a factor in the loss, in the scaler or in a hook of the gradients.",
    "batch norm": "Use SyncBatchNorm.convert_sync_batchnorm(model), or sync_batchnorm = true; or "
    "accept it: many trainings do.",
    "clipped early": "Clip after the gradients were averaged, right before the optimizer's step.",
    "kept gradients": "Call optimizer.zero_grad() after every optimizer step, on every rank.",
    "no gradient": "Check that every rank uses the layer, and that its parameters are trained.",
    "other gradient": "Compare loss and forward pass of this layer on both numbers of devices.",
    "learning rate": "At an equal global batch, use an equal learning rate.",
    "weight decay": "Apply weight decay once, in the optimizer.",
    "not updated": "Give the layer's parameters to the optimizer on every rank.",
    "other update": "Compare the optimizer's settings and its state on both numbers of devices.",
    "updates differ": "Give all ranks the same gradients and the same optimizer settings.",
    "buffers": "Keep broadcast_buffers=True of DDP, or average the buffers yourself.",
    "not finite": "Look at the loss scale and the learning rate.",
    "no sketches": "See docs/guides/certify.md for what can be compared.",
    "not finished": "Run the same command again: it starts only what is missing.",
    "global batch": "Make it equal: --global-batch 64 -- train.py --batch-size {batch} gives each "
    "device its share; a script that divides its batch itself gets the whole one, without {batch}.",
    "other samples": "Make the order of samples depend on the seed only, not on the rank.",
    "other weights": "Seed the model equally for every number of devices.",
    "other layers": "Compare models whose parameters have the same names.",
    "rounding": "Compare in fp32, or with a larger batch.",
}
"""By cause: what to do."""


def certified_sentence(certificates: Sequence[Certificate]) -> str:
    """Return on which devices the training is that of one device, and where that is not known;
    empty without certificates. What differs is a doubt, which is shown first.
    """
    equal = [item for item in certificates if item.verdict == "equal"]
    unknown = [item for item in certificates if item.verdict == "cannot tell"]
    parts = []
    if several := [item for item in equal if item.devices > 1]:
        checked = _nearest(several).checked
        counts = list_counts(sorted({item.devices for item in several}))
        parts.append(
            f"{counts} devices learn what 1 device learns: gradients and updates of "
            f"{format_count(checked.layers, 'layer')} in {format_count(len(checked.steps), 'step')}"
            f" are equal ({_closeness(checked)})."
        )
    if single := [item for item in equal if item.devices == 1]:  # Another precision, for example.
        nearest = _nearest(single)
        parts.append(
            f"{nearest.candidate} learns what {nearest.reference} learns "
            f"({_closeness(nearest.checked)})."
        )
    if unknown:
        first = unknown[0]
        parts.append(f"On {format_count(first.devices)}: {verdict_text(first)}.")
    return " ".join(parts)


def _nearest(certificates: Sequence[Certificate]) -> Certificate:
    """Return the one whose largest difference is nearest to what rounding explains."""
    return max(certificates, key=lambda item: item.checked.largest / item.checked.tolerance)


def _closeness(checked: Checked) -> str:
    return (
        f"relative difference up to {_small(checked.largest)}; rounding explains "
        f"{_small(checked.tolerance)}"
    )


def certificate_lines(certificate: Certificate) -> list[str]:
    """Return a certificate as lines: the verdict, its conditions, what to do."""
    lines = [certificate_sentence(certificate)]
    if condition := condition_text(certificate):
        lines.append(f"  {condition}")
    if fix := fix_text(certificate):
        lines.append(f"  fix: {fix}")
    return lines


def certificate_values(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as values for JSON."""
    checked = certificate.checked
    return {
        "verdict": certificate.verdict,
        "reference": certificate.reference,
        "candidate": certificate.candidate,
        "devices": certificate.devices,
        "where": dict(certificate.where),
        "cause": certificate.cause and certificate.cause.replace(" ", "-"),
        "step": certificate.step,
        "kind": certificate.kind,
        "layer": certificate.layer,
        "layers": list(certificate.differing),
        "factor": certificate.factor,
        "checked": {
            "steps": list(checked.steps),
            "layers": checked.layers,
            "largest_difference": checked.largest if checked.steps else None,
            "tolerance": checked.tolerance if checked.steps else None,
            "samples": checked.samples,
            "learned": checked.is_learned,
        },
        "dropout_off": certificate.dropout_off,
        "says": verdict_text(certificate),
        "fix": fix_text(certificate) or None,
    }
