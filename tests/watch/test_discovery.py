"""A watched class behaves as before for those who pickle it by value, or trace it."""

import functools
import pickle

import pytest
import torch
from torch import nn

from scalewise.watch.torch.discovery import WatchedCall, set_call


class Layer(nn.Linear):
    """A class whose ``__call__`` the tests wrap."""


@pytest.fixture
def calls():
    """Wrap the calls of ``Layer``; yield a list that grows with each."""
    seen = []
    original = nn.Module.__call__

    @functools.wraps(original)
    def watched(*args, **kwargs):
        seen.append(args[0])
        return original(*args, **kwargs)

    set_call(Layer, watched)
    yield seen
    del Layer.__call__


def test_calls_are_watched(calls):
    layer = Layer(2, 1)
    assert layer(torch.ones(3, 2)).shape == (3, 1)
    assert calls == [layer]


def test_a_wrapper_is_pickled_as_the_original():
    original = nn.Module.__call__

    @functools.wraps(original)
    def watched(*args, **kwargs):
        raise AssertionError

    assert pickle.loads(pickle.dumps(WatchedCall(watched))) is original


def test_fx_traces_the_layers(calls, monkeypatch):
    monkeypatch.setattr(Layer, "__module__", "torch.nn.modules.linear")  # As a layer of PyTorch.
    graph = torch.fx.symbolic_trace(nn.Sequential(Layer(2, 3), nn.ReLU())).graph
    assert [node.op for node in graph.nodes if node.op == "call_module"] == ["call_module"] * 2
    assert calls == []
