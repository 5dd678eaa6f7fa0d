"""DeepSpeed trains the models of torch: the same samples, losses and weights as DDP."""

import pytest

import framework_envs
from builders import a_run
from scalewise.errors import FrameworkMissing, SpecError
from scalewise.frameworks import deepspeed
from scalewise.frameworks.deepspeed import Deepspeed, make_config

STAGES = range(4)
NEAR = 1e-5
"""Sums in another order."""


def of_deepspeed(**changes):
    """Return a run of DeepSpeed's."""
    return a_run(**{"framework": "deepspeed", "workload": "mnist-cnn", **changes})


def zero(stage, **changes):
    """Return the fields of a stage of ZeRO."""
    return {"framework": "deepspeed", "strategy": f"zero{stage}", **changes}


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_all_stages_end_with_the_weights_of_ddp(tmp_path):
    mlp = {
        "workload": "mlp", "options": {"hidden": [64, 64]}, "optimizer": "adamw", "lr": 1e-3,
        "data": "synthetic:400x8x8", "recompute": "full",
    }  # fmt: skip
    asked = {
        "base": {
            "workload": "mnist-cnn", "batch": 8, "steps": 6, "lr": 0.05,
            "options": {"dropout": 0.0},
        },
        "cells": {
            "digits": {"accumulate": 2, "clip": 0.5},
            "adamw": mlp,
            "memory": {**mlp, "ways": [zero(each, options={"offload": "cpu"}) for each in (1, 3)]},
            "bf16": {**mlp, "ways": [zero(each, precision="bf16") for each in (1, 2, 3)]},
        },
        "ways": [zero(stage) for stage in STAGES],
    }  # fmt: skip
    starter = [
        framework_envs.python_of("deepspeed"), "-m", "torch.distributed.run", "--standalone",
        "--local-addr=localhost", "--nproc-per-node=2",
    ]  # fmt: skip
    rows = framework_envs.compare(starter, asked, tmp_path)
    assert len(rows) == 2 * len(STAGES) + 5
    for row in rows:
        assert row["apart"] == 0.0 and row["samples"] == 0, row
        if "precision" in row:  # Numbers of three digits, weights too.
            assert row["loss"] < 0.05 and row["weights"] < 0.01, row
        else:
            assert row["accuracy"] == 0.0 and row["loss"] < NEAR and row["weights"] < 10 * NEAR, row
    held = {row["strategy"]: row["held"] for row in rows if row["cell"] == "adamw"}
    whole = held["zero0"]
    assert held["zero1"]["optimizer"] < whole["optimizer"] * 0.8  # Its copy of weights included.
    assert held["zero2"]["gradients"] == whole["gradients"] // 2
    assert held["zero3"]["parameters"] < whole["parameters"] * 0.6


def test_a_run_without_clip_has_none_though_deepspeed_would_clip():
    assert make_config(of_deepspeed())["gradient_clipping"] == 0.0


def test_settings_are_made_of_the_run():
    run = of_deepspeed(
        strategy="zero2", topology="1x2", batch=4, accumulate=2, clip=1.0, precision="bf16",
        options={"offload": "cpu"},
    )  # fmt: skip
    assert make_config(run) == {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"compile": True}, "compile does not go together with deepspeed's zero1"),
        ({"checkpoint_every": 5}, "checkpoint_every does not go together"),
        ({"resume": "runs/x"}, "resume does not go together"),
        ({"noise_every": 5}, "noise_every does not go together"),
        ({"parallelism": {"tensor": 2}, "topology": "1x2"}, "parallelism does not go together"),
        ({"strategy": "zero3", "ema": 0.9}, "ema does not go together with deepspeed's zero3"),
        ({"strategy": "zero0", "options": {"offload": "cpu"}}, "zero0 shards no optimizer state"),
        ({"options": {"offload": "disk"}}, "offload must be one of none, cpu, got 'disk'"),
        ({"options": {"ofload": "cpu"}}, "has no option 'ofload'"),
        ({"start": "node"}, "a deepspeed run takes start = .torchrun"),
        ({"data": "synthetic:1", "topology": "1x2"}, "1 samples are too few for 2 replicas"),
    ],
)
def test_what_cannot_work_is_refused_before_any_rank_starts(monkeypatch, changes, said):
    monkeypatch.setattr(deepspeed, "installed_version", lambda package, extra: "0.19.8")
    with pytest.raises(SpecError, match=said):
        Deepspeed().check(of_deepspeed(**changes))


def test_an_engine_that_is_old_or_not_there_is_told(monkeypatch):
    with pytest.raises(FrameworkMissing, match="framework 'deepspeed' needs deepspeed") as missing:
        Deepspeed().check(of_deepspeed())
    assert "scalewise[deepspeed]" in missing.value.hint
    monkeypatch.setattr(deepspeed, "installed_version", lambda package, extra: "0.9.5")
    with pytest.raises(
        FrameworkMissing, match=r"needs DeepSpeed 0.19, and 0.9.5 is installed"
    ) as old:
        Deepspeed().check(of_deepspeed())
    assert old.value.hint == "pip install --upgrade deepspeed"


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(SpecError, match="global_batch 63 does not divide over 2 replicas"):
        of_deepspeed(global_batch=63, topology="1x2")
