"""The mean of the weights over the last steps."""

import torch
from torch import nn

from scalewise.frameworks.torch.checkpoint.ema import EMA


def test_weights_that_are_tied_have_one_average_under_every_name():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    torch.nn.init.ones_(model[0].weight)
    average = EMA(model, 0.5)
    torch.nn.init.zeros_(model[0].weight)
    average.update()
    with average.swapped_in():
        assert (model[0].weight == 0.5).all()
    assert (model[0].weight == 0).all()
    assert set(average.state) == {"average.0.weight", "average.1.weight"}
    assert all((mean == 0.5).all() for mean in average.state.values())
