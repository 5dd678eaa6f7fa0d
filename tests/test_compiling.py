"""What is compiled of a model: all of it at once, or each kind of block once, and never nothing."""

from functools import partial

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from builders import a_run
from scalewise.frameworks.torch.blocks import compile_model, recompute
from scalewise.frameworks.torch.models.gpt import gpt
from scalewise.frameworks.torch.models.mlp import mlp
from scalewise.frameworks.torch.models.mnist_cnn import mnist_cnn
from scalewise.frameworks.torch.models.resnet import resnet50, resnet50v2
from scalewise.frameworks.torch.models.vit import vit_ti16

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
    [(mnist_cnn, GREY), (mlp, GREY), (vit_ti16, COLOUR), (resnet50, COLOUR), (resnet50v2, COLOUR)],
)
def test_a_whole_model_is_one_graph(model, shape):
    torch.manual_seed(0)
    assert compiled(model(shape, 10).eval(), torch.randn(2, *shape), how=True) == 1


@pytest.mark.parametrize(
    ("model", "shape", "kinds"),
    [(vit_ti16, COLOUR, 1), (resnet50, COLOUR, 8), (resnet50v2, COLOUR, 11), (mlp, GREY, 4)],
)
def test_each_kind_of_block_is_compiled_once(model, shape, kinds):
    torch.manual_seed(0)
    assert compiled(model(shape, 10).eval(), torch.randn(2, *shape), how="blocks") == kinds


@pytest.mark.parametrize("how", ["full", "selective"])
def test_blocks_that_keep_less_are_compiled_all_the_same(how):
    torch.manual_seed(0)
    model = gpt(32, 64, width=32, depth=2, heads=2)
    recompute(model, a_run(workload="gpt", data="tokens:100x32", recompute=how))
    assert compiled(model, torch.randint(64, (2, 32)), how="blocks") == 1
