"""Built-in workloads in certificate mode: every way to split a model has the same sketches."""

import numpy as np
import pytest

from builders import a_run
from certificate_runs import train
from compared_sketches import differences, layers
from scalewise.frameworks.sampler import Shards

GPT = {
    "workload": "gpt", "data": "tokens:200x16x32", "global_batch": 16, "steps": 3,
    "options": {"width": 16, "depth": 2, "heads": 2}, "device": "cpu", "backend": "gloo",
}  # fmt: skip
SPLITS = {
    "reversed": (1, {"certify_order": "reversed"}),
    "ddp": (2, {}),
    "accumulate": (2, {"accumulate": 2}),
    "fsdp": (2, {"strategy": "fsdp"}),
    "tensor": (2, {"strategy": "tensor"}),
    "pipeline": (2, {"strategy": "pipeline"}),
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return train(tmp_path_factory.mktemp("reference") / "run", 1, **GPT)


@pytest.mark.training
@pytest.mark.parametrize("name", SPLITS)
def test_a_split_model_has_the_sketches_of_the_whole_one(name, reference, tmp_path):
    world, fields = SPLITS[name]
    run = train(tmp_path / "run", world, **GPT, **fields)
    assert layers(run).keys() == layers(reference).keys()
    for kind, tolerance in {"weight": 1e-3, "gradient": 1e-5, "update": 1e-3}.items():
        apart = differences(reference, run, kind)
        assert {step for step, _ in apart} == {0, 1, 2}
        assert max(apart.values()) <= tolerance, kind
        if kind == "weight":
            assert {value for (step, _), value in apart.items() if step == 0} == {0.0}
    facts = run.ranks[0].notes.certificate
    assert (facts.world, facts.unsupported, facts.precision) == (world, None, "fp32")
    assert facts.order == fields.get("certify_order", "usual")
    replicas = {rank.sketch_samples[1].replica: rank.sketch_samples[1] for rank in run.ranks}
    together = sorted(each for samples in replicas.values() for each in samples.fingerprints)
    assert together == reference.ranks[0].sketch_samples[1].fingerprints
    assert sum(samples.count for samples in replicas.values()) == 16


@pytest.mark.training
def test_dropout_is_off_and_local_batch_norms_are_named(tmp_path):
    images = {"data": "synthetic:64x32x32", "steps": 2, "device": "cpu", "backend": "gloo"}
    run = train(tmp_path / "cnn", 1, workload="mnist-cnn", batch=8, **images)
    again = train(tmp_path / "again", 1, workload="mnist-cnn", batch=8, repeat=0, **images)
    assert run.ranks[0].notes.certificate.dropout_off == 2
    assert set(differences(run, again, "gradient").values()) == {0.0}
    resnet = train(tmp_path / "resnet", 1, workload="resnet50", batch=4, **images)
    assert len(resnet.ranks[0].notes.certificate.batch_norm) == 53
    assert layers(resnet, "buffer") == {}  # Only at the last sketched step.
    assert {sketch.step for sketch in resnet.ranks[0].sketches if sketch.kind == "buffer"} == {1}


@pytest.mark.parametrize("remainder", ["drop", "pad", "short"])
def test_reversed_order_stays_inside_each_global_batch(remainder):
    fields = {"topology": "1x2", "batch": 6, "remainder": remainder}
    orders = []
    for order in ("usual", "reversed"):
        spec = a_run(**fields, certify=True, certify_order=order)
        replicas = [np.concatenate([*Shards(40, spec, replica)]) for replica in range(2)]
        orders.append(np.stack(replicas, axis=1).reshape(-1))
    usual, other = ([each[n : n + 12] for n in range(0, len(each), 12)] for each in orders)
    assert [[*batch[::-1]] for batch in usual] == [[*batch] for batch in other]
