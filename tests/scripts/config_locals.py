"""``config = locals()`` holds the settings of a run, as in the examples of PyTorch-Ignite.

Before Python 3.13 the dict belongs to the frame: reading ``frame.f_locals`` from elsewhere resets
its entries to the local variables. The script changes some entries and fails if one is lost.
"""

import torch
from torch import nn

STEPS = 12


def training(local_rank, config):
    torch.manual_seed(config["seed"] + local_rank)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["learning_rate"])
    for step in range(STEPS):
        config["num_epochs"] = step  # A parameter of run(), which stays 24.
        optimizer.zero_grad()
        model(torch.randn(config["batch_size"], 8)).square().mean().backward()
        optimizer.step()
        assert config["num_epochs"] == step, config


def run(local_rank, seed=543, batch_size=512, learning_rate=0.4, num_epochs=24, **spawn_kwargs):
    config = locals()
    config.update(config["spawn_kwargs"])
    del config["spawn_kwargs"]
    config["batch_size"] = 16
    training(local_rank, config)
    assert config == {
        "local_rank": 0, "seed": 543, "batch_size": 16, "learning_rate": 0.4,
        "num_epochs": STEPS - 1, "backend": "gloo",
    }, config  # fmt: skip


def launch(backend="nccl"):
    global_batch_size = 16

    def run_in_closure(local_rank):
        inner = locals()
        inner["backend"] = "gloo"
        del inner["local_rank"]
        run(local_rank, backend=inner["backend"])
        assert inner == {"backend": "gloo", "global_batch_size": global_batch_size}, inner
        return backend

    outer = locals()
    outer["global_batch_size"] = 32
    del outer["run_in_closure"]
    assert run_in_closure(0) == "nccl"
    assert outer == {"backend": "nccl", "global_batch_size": 32}, outer


launch()
