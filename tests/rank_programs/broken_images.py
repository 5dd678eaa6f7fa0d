"""Train on folders with broken images, on as many ranks as there are; rank 0 writes what came.

python tests/rank_programs/broken_images.py RUNS.json ANSWER.json
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from scalewise.frameworks.data_source import Source
from scalewise.frameworks.torch.input.data_sets import load
from scalewise.frameworks.torch.session import TorchSession
from scalewise.probe import Unwatched
from scalewise.spec import RunSpec


def train(run: dict[str, Any]) -> dict[str, Any]:
    """Train one run to its end; say what it counted, lost and learned."""
    spec = RunSpec.from_dict(run)
    training = TorchSession(spec, load(Source.of_run(spec), spec), torch.device("cpu"))
    before = [each.detach().clone() for each in training._model.parameters()]
    losses, samples = [], 0
    for epoch in range(training.outline.epochs or 1):
        training.begin(epoch)
        samples += sum(training.step(Unwatched()) for _ in range(training.outline.steps))
        losses += training.losses()
    quality = training.validate()
    after = list(training._model.parameters())
    training.close()
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, (samples, training.unreadable_files()))
    return {
        "losses": losses,
        "samples": [each for each, _ in told],
        "left out": sorted({Path(path).stem for _, paths in told for path in paths}),
        "validation": quality and [quality.accuracy, quality.loss, quality.samples],
        "moved": not all(torch.equal(a, b) for a, b in zip(before, after)),
        "finite": all(bool(each.isfinite().all()) for each in after),
    }


if __name__ == "__main__":
    dist.init_process_group("gloo")
    runs = json.loads(Path(sys.argv[1]).read_text())
    answer = {name: train(run) for name, run in runs.items()}
    if dist.get_rank() == 0:
        Path(sys.argv[2]).write_text(json.dumps(answer))
    dist.destroy_process_group()
