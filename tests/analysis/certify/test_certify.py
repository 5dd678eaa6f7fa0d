"""Certificates of a simulated training: every planted fault is named, and rounding is no fault."""

from dataclasses import replace

import numpy as np
import pytest

from scalewise.analysis.certify import SketchedRun, certify
from scalewise.analysis.certify.certificate import Cause
from scalewise.record.sketches import LayerCopy
from scalewise.report.text.certificate import CAUSE_TEXT, FIXES, certified_sentence, verdict_text
from simulated_training import Training, certified, sketch, train

CLEAN = [
    {},
    {"optimizer": "adam"},
    {"precision": "bf16"},
    {"precision": "bf16", "optimizer": "adam", "devices": 4},
    {"devices": 8},
    {"devices": 4, "accumulate": 2},
    {"clip": 0.1},
    {"samples": 260},  # The last batch of an epoch is short.
    {"samples": 265},  # It is uneven too, and weighed by samples.
]


@pytest.mark.parametrize("settings", CLEAN, ids=str)
def test_a_correct_training_is_equal(settings):
    certificate = certify(*certified(**settings))
    assert certificate.verdict == "equal", verdict_text(certificate)
    # In bf16 rounding may have grown too much at the end.
    assert certificate.checked.steps[:5] == (0, 1, 2, 8, 9)
    assert certificate.checked.steps[5:] == (20,) or settings.get("precision") == "bf16"
    assert certificate.checked.layers == 6
    assert certificate.checked.samples
    assert 0 < certificate.checked.largest < certificate.checked.tolerance


FAULTS = [
    # Settings, cause, step, layer, words of the sentence.
    ({"fault": "summed"}, "summed", 0, None, "factor 2.00 on 2 devices: gradients are summed"),
    ({"fault": "summed", "devices": 4}, "summed", 0, None, "factor 4.00 on 4 devices"),
    ({"fault": "summed", "precision": "bf16"}, "summed", 0, None, "in all 6 layers"),
    ({"fault": "one layer summed"}, "summed", 0, "fc2.bias", "in layer fc2.bias: factor 2.00"),
    ({"fault": "averaged twice"}, "averaged twice", 0, None, "factor 0.50 on 2 devices"),
    ({"fault": "not synchronised"}, "not synchronised", 0, None, "their mean is the gradient of"),
    (
        {"fault": "one layer not synchronised", "optimizer": "adam"},
        "not synchronised", 0, "fc2.weight", "in layer fc2.weight: rank 0 and rank 1",
    ),
    ({"fault": "start weights"}, "start weights", 0, None, "begin with different weights"),
    ({"fault": "same samples", "devices": 4}, "same samples", 0, None, "4 of 4 ranks train on"),
    ({"fault": "accumulation", "accumulate": 4}, "accumulation", 0, None, "factor 4.00"),
    (
        {"fault": "last micro-step lost", "accumulate": 4},
        "other gradient", 0, None, "rounding explains",
    ),
    ({"fault": "clipped early", "clip": 0.1}, "clipped early", 0, None, "before they are averaged"),
    (
        {"fault": "clipped early", "clip": 0.1, "width": 80},  # fc2 is sampled.
        "clipped early", 0, None, "before they are averaged",
    ),
    ({"batch_norm": True}, "batch norm", 0, None, "batch normalization (fc1.norm) uses"),
    ({"batch_norm": True, "fault": "summed"}, "summed", 0, None, "gradients are summed"),
    ({"fault": "zero layer"}, "no gradient", 0, "fc2.weight", "no gradient"),
    ({"fault": "learning rate"}, "learning rate", 0, None, "factor 2.00 on 2 devices"),
    ({"fault": "learning rate", "optimizer": "adam"}, "learning rate", 0, None, "scaled"),
    ({"fault": "weight decay"}, "weight decay", 0, None, "multiple of the weights"),
    ({"fault": "not updated"}, "not updated", 0, "fc2.weight", "its weights stay"),
    ({"fault": "kept gradients"}, "kept gradients", 1, None, "they were not cleared"),
    ({"fault": "averaged weights"}, "changed weights", 1, None, "they change between the steps"),
    ({"fault": "updates differ"}, "updates differ", 0, "fc2.weight", "rank 0 and rank 1 update"),
    (
        {"fault": "short first step"},
        "lost samples", 0, None, "32 samples are trained on 1 device and 16 on 2",
    ),
    ({"fault": "buffers"}, "buffers", 20, "mean", "different buffers"),
    (
        {"fault": "dropped last batch", "samples": 260},
        "lost samples", 8, None, "4 samples are trained on 1 device and 32 on 2",
    ),
    (
        {"fault": "order repeats", "samples": 256},
        "order repeats", 8, None, "the samples of step 0 again",
    ),
    ({"fault": "uneven batch", "samples": 265}, "uneven batch", 8, None, "5, 4 samples"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "cause", "step", "layer", "text"), FAULTS, ids=str)
def test_a_planted_fault_is_named_with_its_step_and_layer(settings, cause, step, layer, text):
    certificate = certify(*certified(**settings))
    assert (certificate.verdict, certificate.cause) == ("differs", cause)
    assert certificate.step == step
    if layer:
        assert (certificate.layer, certificate.differing) == (layer, (layer,))
    assert f"differs from step {step}" in verdict_text(certificate)
    assert text in verdict_text(certificate)


def test_another_global_batch_cannot_be_compared():
    reference, backwards, _ = certified()
    candidate = certified(global_batch=64)[2]
    certificate = certify(reference, backwards, candidate)
    assert (certificate.verdict, certificate.cause) == ("cannot tell", "global batch")
    says = "the global batch differs: 32 samples per step on 1 device, 64 on 2"
    assert says in verdict_text(certificate)


def test_other_samples_or_weights_cannot_be_compared():
    reference, backwards, _ = certified()
    other = certified(seed=1)[2]
    assert certify(reference, backwards, other).cause == "other weights"
    reordered = [
        {step: replace(taken, fingerprints=[f"{rank}{step}{n}" for n in range(taken.count)])
         for step, taken in steps.items()}
        for rank, steps in enumerate(other.samples)
    ]  # fmt: skip
    certificate = certify(reference, backwards, replace(other, samples=reordered))
    assert (certificate.verdict, certificate.cause) == ("cannot tell", "other samples")


def test_a_run_without_sketches_cannot_be_compared():
    reference, backwards, candidate = certified()
    empty = replace(candidate, layers={}, unsupported="FSDP1 flattens its parameters")
    certificate = certify(reference, backwards, empty)
    assert (certificate.verdict, certificate.cause) == ("cannot tell", "no sketches")
    assert "FSDP1 flattens its parameters" in verdict_text(certificate)


def test_without_the_reversed_reference_only_early_steps_are_judged():
    reference, _, candidate = certified()
    certificate = certify(reference, None, candidate)
    assert certificate.verdict == "equal"
    assert certificate.checked.steps == (0, 1, 2)
    assert "not learned" in verdict_text(certificate)
    assert certify(reference, None, certified(fault="summed")[2]).cause == "summed"


def test_layers_of_other_names_cannot_be_compared():
    reference, backwards, candidate = certified()
    renamed = {
        key: {f"net.{name}": copies for name, copies in layers.items()}
        for key, layers in candidate.layers.items()
    }
    certificate = certify(reference, backwards, replace(candidate, layers=renamed))
    assert (certificate.verdict, certificate.cause) == ("cannot tell", "other layers")
    assert "only 0 of 6 layers have the same name" in verdict_text(certificate)


def test_uneven_targets_of_the_loss_are_an_uneven_batch():
    reference, backwards, candidate = certified(fault="last micro-step lost", accumulate=4)
    counts = [(16, 16, 16, 8), (16, 16, 16, 16)]
    samples = [
        {step: replace(taken, targets=targets) for step, taken in steps.items()}
        for targets, steps in zip(counts, candidate.samples)
    ]
    certificate = certify(reference, backwards, replace(candidate, samples=samples))
    assert (certificate.verdict, certificate.cause) == ("differs", "uneven batch")
    assert "micro-steps have between 8 and 16 targets" in verdict_text(certificate)
    correct = replace(certified(accumulate=4)[2], samples=samples)
    assert certify(reference, backwards, correct).verdict == "equal"


def with_rows(run, count):
    """Return the run as it is recorded if each rank calls the model with so many rows in a step."""
    samples = [
        {step: replace(taken, rows=count) for step, taken in steps.items()} for steps in run.samples
    ]
    return replace(run, samples=samples)


def test_samples_that_the_model_does_not_get_are_lost():
    reference, backwards, candidate = certified(fault="last micro-step lost", accumulate=4)
    reference, candidate = with_rows(reference, 32), with_rows(candidate, 12)
    certificate = certify(reference, backwards, candidate)
    assert (certificate.verdict, certificate.cause) == ("differs", "lost samples")
    assert "with 32 rows on 1 device and with 24 on 2" in verdict_text(certificate)
    # A part of the tokens on each rank, say: gradients are equal.
    split = replace(with_rows(certified()[2], 16), is_split=True)
    assert certify(reference, backwards, split).verdict == "equal"


def test_gradients_that_fsdp_did_not_reduce_are_not_synchronised():
    reference, backwards, candidate = certified(fault="last micro-step lost", accumulate=2)
    samples = [
        {step: replace(taken, unreduced=6) for step, taken in steps.items()}
        for steps in candidate.samples
    ]
    certificate = certify(reference, backwards, replace(candidate, samples=samples))
    assert (certificate.verdict, certificate.cause) == ("differs", "not synchronised")
    assert "has not reduced the newest gradient of 6 parameters" in verdict_text(certificate)


def with_outputs(run, outputs, rows):
    """Return the run as it is recorded if its layers return these sums, on the first rank."""
    copies = {
        f"{name} {vector.size}": tuple(
            LayerCopy((rank,), sketch(f"{name}.bias", vector * (rank == 0)))
            for rank in range(run.devices)
        )
        for name, vector in outputs.items()
    }
    return with_rows(replace(run, layers={**run.layers, (0, "output"): copies}), rows)


@pytest.mark.parametrize("is_bias", [True, False])
def test_the_first_layer_whose_output_differs_is_named(is_bias):
    reference, backwards, candidate = certified(fault="last micro-step lost", accumulate=4)
    random = np.random.default_rng(3)
    outputs = {name: random.normal(size=48) for name in ("fc1", "fc2", "out")}
    bias = random.normal(size=48)  # As if the bias did not begin with zeros.
    weights = dict(reference.layers[0, "weight"])
    weights["fc2.bias"] = (LayerCopy((0,), sketch("fc2.bias", bias)),)
    reference = replace(reference, layers={**reference.layers, (0, "weight"): weights})
    copies = tuple(LayerCopy((rank,), weights["fc2.bias"][0].sketch) for rank in range(2))
    own = {**candidate.layers[0, "weight"], "fc2.bias": copies}
    candidate = replace(candidate, layers={**candidate.layers, (0, "weight"): own})
    wrong = outputs["fc2"] + 32 * bias if is_bias else outputs["fc2"] / 2
    changed = {**outputs, "fc2": wrong, "out": outputs["out"] * 3}
    certificate = certify(
        with_outputs(reference, outputs, 32), backwards, with_outputs(candidate, changed, 16)
    )
    assert certificate.cause == "other gradient"
    assert certificate.layer == ("fc2.bias" if is_bias else "fc2.weight")
    text = "fc2 is the first layer whose output differs"
    assert text + (", by a multiple of its bias" if is_bias else " (") in verdict_text(certificate)


def test_weights_that_change_between_steps_on_one_device_too_are_no_fault():
    runs = [Training(fault="averaged weights", reverse=reverse) for reverse in (False, True)]
    candidate = Training(fault="averaged weights", devices=2)
    assert certify(*map(train, runs), train(candidate)).verdict == "equal"


def without_optimizer(run, names):
    """Return the run as it is recorded if no optimizer has these layers."""
    layers = {
        key: {name: copies for name, copies in layers.items() if name not in names}
        for key, layers in run.layers.items()
    }
    return replace(run, layers=layers, not_updated=names)


def test_layers_that_no_optimizer_has_are_not_updated():
    reference, backwards, candidate = certified()
    names = ("fc1.weight", "fc1.bias", "fc2.weight")
    certificate = certify(reference, backwards, without_optimizer(candidate, names))
    assert (certificate.verdict, certificate.cause) == ("differs", "not updated")
    assert (certificate.step, certificate.differing) == (0, names)
    assert "no optimizer has its parameters" in verdict_text(certificate)


def test_a_model_that_neither_run_trains_is_no_fault():
    reference, backwards, candidate = certified()
    names = ("fc1.weight",)  # Another model, whose layer has the same name.
    reference, candidate = (replace(run, not_updated=names) for run in (reference, candidate))
    assert certify(reference, backwards, candidate).verdict == "equal"


def test_gradients_that_are_not_finite_differ():
    reference, backwards, candidate = certified()
    broken = sketch("fc1.bias", np.full(4, np.nan))
    layers = dict(candidate.layers)
    layers[1, "gradient"] = {
        **layers[1, "gradient"],
        "fc1.bias": (LayerCopy((0,), broken), LayerCopy((1,), broken)),
    }
    certificate = certify(reference, backwards, replace(candidate, layers=layers))
    assert (certificate.verdict, certificate.step) == ("differs", 1)
    assert certificate.layer == "fc1.bias"


def test_every_cause_has_a_sentence_and_a_fix():
    causes = {value for literal in Cause.__args__ for value in literal.__args__}
    assert CAUSE_TEXT.keys() == FIXES.keys() == causes


def noisy_runs(random, layers=100, steps=(0, 1, 2, 8)):
    """Return reference, reversed reference and candidate of a training whose rounding differs by
    layer, grows with the steps, and is up to three times as large on several devices; some layers
    have one element, and some gradients are nothing but rounding.
    """
    sizes = random.choice([1, 3, 64, 1000], size=layers)
    noise = 6e-8 * 10 ** random.uniform(0, 1.5, size=layers)
    runs = []
    gradients = {
        (step, layer): random.normal(size=sizes[layer]) * 10 ** random.uniform(-2, 0)
        for step in steps
        for layer in range(layers)
    }
    for key in random.permutation([*gradients])[: len(gradients) // 20]:
        gradients[tuple(key)] *= 1e-9
    for copies in range(3):
        sketched = {}
        for step in steps:
            growth = 1.2**step * (random.uniform(1, 3) if copies == 2 else copies)
            sketched[step, "gradient"] = {
                f"layer{layer}": (
                    LayerCopy(
                        (0,),
                        sketch(
                            f"layer{layer}",
                            gradients[step, layer]
                            + growth * noise[layer] * random.normal(size=sizes[layer]),
                        ),
                    ),
                )
                for layer in range(layers)
            }
        run = SketchedRun(
            label="noisy", devices=2, replicas=2, layers=sketched, is_reversed=copies == 1
        )
        runs.append(run)
    return runs


def test_rounding_in_thousands_of_layers_raises_no_alarm():
    random = np.random.default_rng(20)
    for _ in range(20):  # 2,000 layers in 4 steps.
        certificate = certify(*noisy_runs(random))
        assert certificate.verdict == "equal", verdict_text(certificate)


def test_a_difference_that_rounding_does_not_explain_is_seen_in_one_of_a_hundred_layers():
    random = np.random.default_rng(21)
    for _ in range(10):
        reference, backwards, candidate = noisy_runs(random)
        layers = dict(candidate.layers[0, "gradient"])
        (copy,) = layers["layer7"]
        scaled = replace(copy.sketch, sums=tuple(1.01 * value for value in copy.sketch.sums))
        layers["layer7"] = (replace(copy, sketch=scaled),)
        candidate = replace(candidate, layers={**candidate.layers, (0, "gradient"): layers})
        size = sum(reference.first_copies(0, "gradient")["layer7"].sums)
        certificate = certify(reference, backwards, candidate)
        if abs(size) > 1e-6:  # Otherwise that gradient is nothing but rounding.
            assert (certificate.verdict, certificate.layer) == ("differs", "layer7")


def test_several_correct_trainings_with_other_seeds_are_equal():
    for seed in range(1, 9):
        optimizer = ("sgd", "adam")[seed % 2]
        certificate = certify(*certified(seed=seed, optimizer=optimizer, devices=(2, 4)[seed // 5]))
        assert certificate.verdict == "equal", verdict_text(certificate)


def test_a_training_equals_itself():
    reference = certified()[0]
    assert certify(reference, None, reference).verdict == "equal"


def test_a_summary_says_apart_what_more_devices_and_what_another_precision_learn():
    equal = certify(*certified())
    apart = replace(equal.checked, largest=0.04, tolerance=0.05)
    other = replace(equal, devices=1, candidate="mlp on 1x1, bf16", checked=apart)
    sentence = certified_sentence([other, equal])
    assert sentence.startswith("2 devices learn what 1 device learns: gradients and updates of 6")
    assert sentence.endswith(
        "mlp on 1x1, bf16 learns what mlp on 1x1 learns (relative difference up to 0.04; rounding "
        "explains 0.05)."
    )
