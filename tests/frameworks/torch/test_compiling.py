"""What is compiled of a model: all of it at once, or each kind of block once, and never nothing."""

import os
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.utils import counters

from builders import a_run
from scalewise.frameworks.data_source import Source
from scalewise.frameworks.torch.input.data_sets import load
from scalewise.frameworks.torch.models.block_compile import (
    NO_MULTI_KERNEL_CACHE,
    apply_activation_checkpointing,
    compile_model,
)
from scalewise.frameworks.torch.models.gpt import gpt
from scalewise.frameworks.torch.models.mlp import mlp
from scalewise.frameworks.torch.models.mnist_cnn import mnist_cnn
from scalewise.frameworks.torch.models.resnet import resnet50, resnet50v2
from scalewise.frameworks.torch.models.vit import vit_ti16
from scalewise.frameworks.torch.session import TorchSession

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
"""The compiler looks at what lies between two blocks."""

GREY, COLOUR = (1, 28, 28), (3, 32, 32)


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Find the graphs and make no kernels of them."""
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    with torch._dynamo.config.patch(recompile_limit=8):
        yield


def compiled(model: nn.Module, inputs: torch.Tensor, how) -> int:
    """Return the graphs that training on a batch of this shape compiles; twice is not more."""
    expected = model(inputs)
    compile_model(model, a_run(compile=how))
    found = model(inputs)
    found.sum().backward()
    model(inputs).sum().backward()
    assert torch.allclose(found, expected, atol=1e-4)
    assert not counters["graph_break"]
    return counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (mnist_cnn, GREY),
        (mlp, GREY),
        (vit_ti16, COLOUR),
        pytest.param(resnet50, COLOUR, marks=pytest.mark.soak),
        pytest.param(resnet50v2, COLOUR, marks=pytest.mark.soak),
    ],
)
def test_a_whole_model_is_one_graph(model, shape):
    torch.manual_seed(0)
    assert compiled(model(shape, 10).eval(), torch.randn(2, *shape), how=True) == 1


def test_a_batch_that_is_compiled_on_teaches_nothing():
    """Neither weights nor the statistics of batch norms."""
    data = Source.of("synthetic:20x32x32x3")
    said = {"workload": "resnet50v2", "data": "synthetic:20x32x32x3", "batch": 4}
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        spec = a_run(framework="torch", compile="graphs", **said)
        training = TorchSession(spec, load(data), torch.device("cpu"))
        before = {name: each.clone() for name, each in training._model.state_dict().items()}
        training.compile()
        assert counters["stats"]["unique_graphs"] == 1
        after = training._model.state_dict()
        assert all(torch.equal(after[name], each) for name, each in before.items())
        assert all(each.grad is None for each in training._model.parameters())
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("model", "shape", "anew"), [(mlp, GREY, None), (vit_ti16, COLOUR, "1")])
def test_norms_that_are_made_in_two_ways_are_chosen_anew(model, shape, anew, monkeypatch):
    """Whether that is enough, the second run of a wide model in test_gpu shows."""
    monkeypatch.setenv(NO_MULTI_KERNEL_CACHE, "")  # So that it is as before when this is over.
    monkeypatch.delenv(NO_MULTI_KERNEL_CACHE)
    compile_model(model(shape, 10), a_run(compile=True))
    assert os.environ.get(NO_MULTI_KERNEL_CACHE) == anew


@pytest.mark.parametrize(
    ("model", "shape", "kinds"),
    [
        (vit_ti16, COLOUR, 1),
        pytest.param(resnet50, COLOUR, 8, marks=pytest.mark.soak),
        pytest.param(resnet50v2, COLOUR, 11, marks=pytest.mark.soak),
        (mlp, GREY, 4),
    ],
)
def test_each_kind_of_block_is_compiled_once(model, shape, kinds):
    torch.manual_seed(0)
    assert compiled(model(shape, 10).eval(), torch.randn(2, *shape), how="blocks") == kinds


@pytest.mark.parametrize("how", ["full", "selective"])
def test_blocks_that_keep_less_are_compiled_all_the_same(how):
    torch.manual_seed(0)
    model = gpt(32, 64, width=32, depth=2, heads=2)
    apply_activation_checkpointing(
        model, a_run(workload="gpt", data="tokens:100x32", recompute=how)
    )
    assert compiled(model, torch.randint(64, (2, 32)), how="blocks") == 1
