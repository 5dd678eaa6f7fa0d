"""A training that is killed continues with the same bits, here or on other devices."""

import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from builders import a_run
from killed_training import STEPS, a_training, equal, failure, losses, train, weights
from scalewise.errors import SpecError
from scalewise.export import export
from scalewise.frameworks.torch import Torch
from scalewise.frameworks.torch.checkpoint.checkpoint_files import tensor_metadata
from scalewise.record import checkpoints

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]


WAYS = ("ddp", "fsdp", "zero1", "pipeline", "tensor")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder of a training that nobody killed, made once for each way to split."""
    made: dict[str, Path] = {}

    def of(way: str) -> Path:
        if way not in made:
            made[way] = tmp_path_factory.mktemp(way)
            train(a_training(strategy=way), made[way])
        return made[way]

    return of


def kills(count: int) -> list[tuple[str, str]]:
    """Return ways to split, each with a moment to be killed at."""
    chance = random.Random(1)
    moments = [f"step:{chance.randrange(10, 3 * STEPS)}" for _ in range(count)]
    moments[1::3] = [f"save:{chance.randrange(2, 8)}" for _ in moments[1::3]]
    moments[2::3] = [f"edge:{chance.randrange(1, 4)}" for _ in moments[2::3]]
    return [(WAYS[n % len(WAYS)], moment) for n, moment in enumerate(moments)]


CAMPAIGN = [
    pytest.param(way, moment, marks=[] if n == 1 else pytest.mark.soak)
    for n, (way, moment) in enumerate(kills(20))
]


@pytest.mark.parametrize(("way", "moment"), CAMPAIGN)
def test_a_killed_training_goes_on_bit_by_bit(way, moment, whole, tmp_path):
    spec, expected = a_training(strategy=way), whole(way)
    assert train(spec, tmp_path, killed=moment) != 0
    left = checkpoints.complete(tmp_path / checkpoints.FOLDER)
    assert left, "the one before is whole"
    train(spec, tmp_path, attempt=2)
    found = losses(tmp_path, 2)
    assert found
    assert found == {epoch: losses(expected, 1)[epoch] for epoch in found}
    assert max(found) == 2
    assert equal(weights(tmp_path), weights(expected))


def test_weights_are_the_same_on_other_devices_and_in_one_process(tmp_path):
    four = a_training(topology="1x4", strategy="fsdp", epochs=1)
    train(four, tmp_path / "four")
    two = a_training(epochs=1, resume=str(tmp_path / "four"))
    train(two, tmp_path / "two")
    one = a_training(topology="1x1", epochs=1, resume=str(tmp_path / "two"))
    train(one, tmp_path / "one")
    expected = weights(tmp_path / "four")
    assert equal(weights(tmp_path / "two"), expected)
    assert equal(weights(tmp_path / "one"), expected)
    for name in ("weights.safetensors", "weights.pt"):
        export(tmp_path / "four", tmp_path / name)
    assert equal(load_file(tmp_path / "weights.safetensors"), expected)
    assert equal(torch.load(tmp_path / "weights.pt"), expected)
    assert "no checkpoint after step 7" in failure(export, tmp_path / "four", tmp_path / "a.pt", 7)
    assert "not end in a known format" in failure(export, tmp_path / "four", tmp_path / "weights")
    another = a_training(options={"hidden": [32, 16]}, resume=str(tmp_path / "four"))
    with pytest.raises(SpecError, match=r"is of another model: its hidden is \[32, 16, 16, 16\]"):
        Torch().check(another)
    another = a_training(optimizer="sgd", resume=str(tmp_path / "four"))
    with pytest.raises(SpecError, match="was written with adamw, but this run's optimizer is sgd"):
        Torch().check(another)


def test_less_data_goes_on_with_another_pass(tmp_path):
    some = {"topology": "1x1", "epochs": None, "global_batch": 4}
    train(a_training(**some, data="synthetic:64x8x8", steps=10), tmp_path / "first")
    less = a_training(**some, data="synthetic:16x8x8", steps=14, resume=str(tmp_path / "first"))
    train(less, tmp_path / "then")
    (found,) = losses(tmp_path / "then", 1).values()
    assert len(found) == 14  # Those of the first are kept.


def test_weights_that_are_tied_are_saved_once_and_go_on_elsewhere(tmp_path):
    tied = {
        "workload": "gpt",
        "options": {"width": 16, "depth": 2, "heads": 2, "tied": True},
        "data": "tokens:256x16",
        "checkpoint_every": 2,
        "ema": None,
    }
    train(a_training(**tied, strategy="fsdp", epochs=1), tmp_path / "two")
    found = weights(tmp_path / "two")
    assert [name for name in found if found[name].shape[0] == 36] == ["tokens.weight"]
    shapes = tensor_metadata(checkpoints.find(tmp_path / "two"))
    assert "model.tokens.weight" in shapes and "optimizer.tokens.weight.exp_avg" in shapes
    assert not [name for name in shapes if "head" in name]
    one = a_training(**tied, topology="1x1", epochs=1, resume=str(tmp_path / "two"))
    train(one, tmp_path / "one")
    assert equal(weights(tmp_path / "one"), found)
    export(tmp_path / "two", tmp_path / "weights.safetensors")
    assert equal(load_file(tmp_path / "weights.safetensors"), found)


@pytest.mark.parametrize(
    ("batch", "steps"),
    [
        pytest.param(32, 60, marks=pytest.mark.soak),
        pytest.param(128, 30, marks=pytest.mark.soak),
        (32, 26),
    ],
)
def test_so_many_steps_go_on_with_another_batch(batch, steps, tmp_path):
    some = {"epochs": None, "ema": None, "topology": "1x1"}
    train(a_training(**some, steps=25), tmp_path / "first")
    train(a_training(**some, steps=steps, global_batch=batch, resume=str(tmp_path / "first")),
          tmp_path / "then")  # fmt: skip
    (found,) = losses(tmp_path / "then", 1).values()
    assert len(found) == steps - 25


@pytest.mark.soak
def test_one_device_goes_on_as_four_would(tmp_path):
    train(a_training(topology="1x4", strategy="fsdp", epochs=1), tmp_path / "four")
    train(a_training(topology="1x4", strategy="fsdp", resume=str(tmp_path / "four")),
          tmp_path / "more")  # fmt: skip
    train(a_training(topology="1x1", resume=str(tmp_path / "four")), tmp_path / "alone")
    apart, together = weights(tmp_path / "alone"), weights(tmp_path / "more")
    assert max(float((apart[name] - together[name]).abs().max()) for name in apart) < 1e-4


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path):
    assert "there is no folder" in failure(export, tmp_path / "gone", tmp_path / "a.pt")
    with pytest.raises(SpecError, match="there is no complete checkpoint in"):
        Torch().check(a_run(framework="torch", workload="mlp", resume=str(tmp_path)))
