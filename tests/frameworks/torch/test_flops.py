"""Operations of a model: as a hand counts them, without computing them."""

import json
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import start_ranks
from builders import a_run
from scalewise.frameworks.torch.models.gpt import gpt
from scalewise.frameworks.torch.models.mlp import HIDDEN, mlp
from scalewise.frameworks.torch.models.mnist_cnn import mnist_cnn
from scalewise.frameworks.torch.models.vit import vit
from scalewise.frameworks.torch.timing.flops import count_flops, flops_per_sample
from scalewise.record.write import write_json


def blocks(width, depth, tokens):
    """Return a transformer's forward: four products of width², two of 4 width², two of tokens."""
    projections = 2 * tokens * (4 * width**2 + 8 * width**2)
    looks = 2 * (2 * tokens**2 * width)
    return depth * (projections + looks)


def on_meta(factory, *shape, **options):
    with torch.device("meta"):
        return factory(*shape, **options)


def test_vit_h14_takes_what_a_hand_counts():
    shape, width, depth, patch = (3, 224, 224), 1280, 32, 14
    tokens = (224 // patch) ** 2
    patches = 2 * tokens * (3 * patch**2) * width
    head = 2 * width * 1000
    # Nobody asks for the gradient of the picture: the first layer's backward is one product.
    by_hand = 3 * (blocks(width, depth, tokens) + head) + 2 * patches
    model = on_meta(vit, shape, 1000, patch=patch, width=width, depth=depth, heads=16)
    assert by_hand == 999_358_279_680
    assert count_flops(model, shape, batch=2) == by_hand


def test_a_gpt_of_1_3_billion_takes_what_a_hand_counts():
    length, vocabulary, width, depth = 2048, 50257, 2048, 24
    head = 2 * length * width * vocabulary
    by_hand = 3 * (blocks(width, depth, length) + head)
    model = on_meta(gpt, length, vocabulary, width=width, depth=depth, heads=16)
    published = 72 * depth * length * width**2  # Narayanan et al., arXiv:2104.04473, B = 1.
    published *= 1 + length / (6 * width) + vocabulary / (12 * width * depth)
    assert by_hand == pytest.approx(published)
    assert count_flops(model, length, batch=1) == by_hand


@pytest.mark.parametrize("batch", [1, 32])
def test_dense_layers_count_exactly_whatever_the_batch(batch):
    pairs = list(pairwise([784, *HIDDEN, 10]))
    by_hand = sum(6 * a * b for a, b in pairs) - 2 * 784 * HIDDEN[0]
    assert count_flops(on_meta(mlp, (1, 28, 28), 10), (1, 28, 28), batch) == by_hand


def test_convolutions_count_exactly():
    first, second = 2 * 26 * 26 * 32 * 9 * 1, 2 * 24 * 24 * 64 * 9 * 32
    dense = 2 * (64 * 12 * 12) * 128 + 2 * 128 * 10
    assert count_flops(mnist_cnn((1, 28, 28), 10), (1, 28, 28), 8) == 2 * first + 3 * (
        second + dense
    )


def test_groups_strides_and_batch_normalization_of_a_strangers_network():
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=4), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    convolution, dense = 2 * 8 * 8 * 8 * 9 * 1, 2 * 8 * 5
    assert count_flops(model, (4, 16, 16), batch=2) == 2 * convolution + 3 * dense
    assert model[1].num_batches_tracked == 0


class Lookup(nn.Module):
    """A stranger's model: tied weights, the engine's own layers, a cache that comes by itself."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.scale = torch.ones(16)
        self.cache = None

    def forward(self, x):
        if self.cache is None:
            self.cache = torch.arange(x.shape[1], device=x.device)
        return self.layer(self.table(x) * self.scale) @ self.table.weight.T


def test_a_strangers_model_is_left_as_it_was():
    model = Lookup()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    dense = 2 * 7 * (4 * 16**2 + 2 * 16 * 32) + 2 * (2 * 7**2 * 16)
    assert count_flops(model, 7, batch=3) == 3 * (dense + 2 * 7 * 16 * 50)
    assert model.cache is None and model.scale.device.type == "cpu"
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())


def test_what_is_frozen_takes_no_gradient():
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 8), nn.Linear(8, 4))
    model[1].requires_grad_(requires_grad=False)
    # The last layer's input needs no gradient either: there is nothing behind it to learn.
    assert count_flops(model, (2, 2, 2), batch=2) == 2 * 8 * 8 + 2 * (2 * 8 * 4)


class Saving(nn.Module):
    """Recomputes inside itself."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(8, 8)

    def forward(self, x):
        return checkpoint(self.dense, x.flatten(1), use_reentrant=False)


def test_what_a_strangers_model_computes_again_counts_once():
    assert count_flops(Saving(), (2, 2, 2), batch=2) == 2 * (2 * 8 * 8)


def test_the_rule_for_backward_is_what_the_engine_does_there():
    model = on_meta(vit, (3, 32, 32), 10, depth=2)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(torch.empty(2, 3, 32, 32, device="meta")).sum().backward()
    assert count_flops(model, (3, 32, 32), batch=2) == counter.get_total_flops() / 2


class Choosy(nn.Module):
    """Looks at its numbers before it computes."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(4, 2)

    def forward(self, x):
        x = x.flatten(1)
        return self.dense(x) if x.sum().item() > 0 else self.dense(-x)


def test_a_model_that_needs_real_numbers_has_no_count_and_a_reason():
    found, why = flops_per_sample(Choosy(), (1, 2, 2), batch=2)
    assert found is None
    assert "meta" in why and "\n" not in why


def test_counting_takes_nothing_of_chance():
    model = mnist_cnn((1, 28, 28), 10)
    before = torch.get_rng_state()
    count_flops(model, (1, 28, 28), 4)
    assert torch.equal(torch.get_rng_state(), before)


def outline_of(path):
    lines = map(json.loads, path.read_text().splitlines())
    return next(line["outline"] for line in lines if "outline" in line)


@pytest.mark.torch
def test_a_run_records_the_models_work_once_and_not_what_it_computes_again(tmp_path):
    run = a_run(
        framework="torch", workload="gpt", data="tokens:64x32", batch=8, steps=2, device="cpu",
        options={"width": 32, "depth": 2, "heads": 2}, recompute="full", topology="1x2",
    )  # fmt: skip
    write_json(tmp_path / "spec.json", run.to_dict())
    assert start_ranks.start(2, "-m", "scalewise.frameworks", "train", tmp_path) == (0, "")
    first, second = (outline_of(tmp_path / f"rank-0000{rank}.jsonl") for rank in range(2))
    vocabulary = (first["parameters"] - 32 * 32 - 2 * (12 * 32**2 + 13 * 32) - 2 * 32) // 64
    assert first["flops"] == 3 * (blocks(32, 2, 32) + 2 * 32 * 32 * vocabulary)
    assert (first["uncounted"], second["flops"], second["uncounted"]) == ("", None, "")
