"""Whether engines that train PyTorch's models train the same model as DDP does: one launch.

    torchrun --nproc-per-node=2 tests/rank_programs/compare_with_ddp.py FILE.json    (or horovodrun)

The file names the runs: ``{"base": {…}, "cells": {NAME: {…}}, "ways": [{…}, …]}``. In each cell,
which may have ``ways`` of its own, DDP and then every way train a few steps on the same batches;
rank 0 leaves in the file how far their losses and weights are from DDP's, and the weights of ranks
from each other.
"""

import json
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from scalewise.frameworks.data_source import Source
from scalewise.frameworks.torch.input.data_sets import load
from scalewise.frameworks.torch.session import TorchSession
from scalewise.probe import Unwatched
from scalewise.probe.rank_identity import set_torchrun_variables
from scalewise.spec import RunSpec


@dataclass(frozen=True)
class Trained:
    """What is left of a training."""

    losses: list[float]
    accuracy: float
    samples: int
    weights: Tensor
    apart: float
    """The largest difference between a weight of this rank and of rank 0, over all ranks."""
    held: dict[str, int] | None


def train(values: dict[str, Any]) -> Trained:
    """Train a run; all ranks call this."""
    spec = RunSpec.from_dict({**values, "topology": f"1x{dist.get_world_size()}"})
    training = TorchSession(spec, load(Source.of_run(spec), spec), torch.device("cpu"))
    training.begin(0)
    samples = sum(training.step(Unwatched()) for _ in range(spec.steps or 0))
    losses, quality = training.losses(), training.validate()
    with training._parallel.gathered():
        mine = [each.detach().flatten().float() for each in training._model.parameters()]
        weights = torch.cat(mine).clone()
    first = weights.clone()
    dist.broadcast(first, 0)
    apart = (weights - first).abs().max()
    dist.all_reduce(apart, dist.ReduceOp.MAX)
    training.close()
    assert quality is not None
    return Trained(losses, quality.accuracy, samples, weights, apart.item(), training.state_bytes())


def compare(found: Trained, like: Trained) -> dict[str, Any]:
    """Return how far a training is from another."""
    return {
        "loss": max(abs(a - b) for a, b in zip(found.losses, like.losses, strict=True)),
        "weights": (found.weights - like.weights).abs().max().item(),
        "apart": found.apart,
        "accuracy": found.accuracy - like.accuracy,
        "samples": found.samples - like.samples,
        "held": found.held,
    }


def main() -> None:
    """Compare all ways in all cells, and leave the answer of rank 0."""
    file = Path(sys.argv[1])
    asked = json.loads(file.read_text())
    set_torchrun_variables(os.environ)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    dist.barrier()
    rows = []
    for cell, changes in asked["cells"].items():
        run = {**asked["base"], **changes}
        ways = run.pop("ways", asked["ways"])
        like = train(run)
        for way in ways:
            options = {**run["options"], **way.get("options", {})}
            found = train({**run, **way, "options": options})
            row = {"cell": cell, **way, **compare(found, like)}
            rows.append(row)
            if dist.get_rank() == 0:
                print(row, flush=True)
    if dist.get_rank() == 0:
        file.write_text(json.dumps({**asked, "rows": rows}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
