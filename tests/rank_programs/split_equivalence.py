"""Whether every way to split a model trains the same model: one launch, all cells of a world.

    torchrun --nproc-per-node=4 tests/rank_programs/split_equivalence.py ANSWER.json [--some]

Each cell trains a few steps with our session, and the same global batches with a plain loop on
one device, written here anew. Losses and final weights must agree. Rank 0 prints a table.
``--some`` takes one model for each cell, in turn.
"""

import json
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from scalewise.frameworks.data_source import Source
from scalewise.frameworks.sampler import Shards
from scalewise.frameworks.torch.input.data_sets import Data, load
from scalewise.frameworks.torch.session import TorchSession, initial_model
from scalewise.frameworks.torch.task import optimizer_factory
from scalewise.spec import RunSpec

STEPS = 4
BATCH = 16
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {
        "workload": "mlp",
        "data": "synthetic:80x8x8",
        "options": {"hidden": [48, 32, 32, 24, 24, 16, 16, 16]},
    },
    "vit": {
        "workload": "vit",
        "data": "synthetic:80x8x8",
        "options": {"patch": 2, "width": 32, "depth": 4, "heads": 4},
    },
    "gpt": {
        "workload": "gpt",
        "data": "tokens:80x16",
        "options": {"width": 32, "depth": 4, "heads": 4},
    },
    "class": {  # Five positions, which no group divides.
        "workload": "vit",
        "data": "synthetic:80x8x8",
        "options": {"patch": 4, "width": 32, "depth": 4, "heads": 4, "class_token": True},
    },
    "tied": {
        "workload": "gpt",
        "data": "tokens:80x16",
        "options": {"width": 32, "depth": 4, "heads": 4, "tied": True},
    },
    "own": {
        "workload": "small_model:residual",
        "data": "synthetic:80x8x8",
        "options": {"width": 24},
    },
}
MLP = ("mlp",)
BUCKETS = {"bucket_mb": 0.01, "first_bucket_mb": 0.002, "bucket_view": False, "static_graph": True}


@dataclass(frozen=True)
class Cell:
    """One way to split, as a study would write it."""

    name: str
    run: dict[str, Any] = field(default_factory=dict)
    topology: str = ""
    """Nodes and devices; unless said, one node."""
    models: tuple[str, ...] = ("mlp", "vit", "gpt")

    def spec(self, model: str, world: int) -> RunSpec:
        """Return the run of this cell."""
        base = {"topology": self.topology or f"1x{world}", "global_batch": BATCH, "lr": 0.05}
        given = {**base, "steps": STEPS, **MODELS[model], **self.run}
        options = {**MODELS[model]["options"], **self.run.get("options", {})}
        return RunSpec.from_dict({**given, "options": options})


def split(strategy: str, **degrees: int) -> dict[str, Any]:
    """Return the fields of a strategy with its degrees."""
    return {"strategy": strategy, "parallelism": degrees}


CELLS = {
    1: [
        Cell("ddp"),
        Cell("fsdp", split("fsdp")),
        Cell("accumulate 4", {"accumulate": 4}),
        Cell("recompute", {"recompute": "full"}),
        Cell("compiled blocks", {"compile": "blocks"}, models=("vit",)),
        Cell("clip", {"clip": 0.5}),
        *[
            Cell(
                f"{name}, {step}", {"optimizer": name, "lr": lr, "optimizer_step": step}, models=MLP
            )
            for name, lr in (("sgd", 0.05), ("adam", 0.001), ("adamw", 0.001))
            for step in ("loop", "foreach", "fused")
        ],
    ],
    2: [
        Cell("ddp", split("ddp")),
        Cell("ddp, accumulate 4", {**split("ddp"), "accumulate": 4}),
        Cell("ddp, buckets", {**split("ddp"), "options": BUCKETS}),
        Cell("zero1", split("zero1")),
        Cell("zero1, fused", {**split("zero1"), "optimizer_step": "fused"}),
        # Adam makes whole steps of the rounding errors of a gradient that is nothing, and
        # such are those of the biases of an attention's keys.
        Cell("zero1, adamw", {**split("zero1"), "optimizer": "adamw", "lr": 0.001}, models=MLP),
        Cell("fsdp", split("fsdp")),
        Cell("fsdp, accumulate 4", {**split("fsdp"), "accumulate": 4}),
        Cell("fsdp, no reshard", {**split("fsdp"), "options": {"reshard": False}}),
        Cell("ddp, recompute", {**split("ddp"), "recompute": "full"}),
        Cell("fsdp, selective recompute", {**split("fsdp"), "recompute": "selective"}),
        Cell("tensor, recompute", {**split("tensor"), "recompute": "full"}),
        Cell("ddp, clip", {**split("ddp"), "clip": 0.5}),
        Cell("ddp, average", {**split("ddp"), "ema": 0.7}),
        Cell("fsdp, average", {**split("fsdp"), "ema": 0.7}),
        Cell("pipeline, average", {**split("pipeline"), "ema": 0.7}),
        Cell("fsdp, clip", {**split("fsdp"), "clip": 0.5}),
        Cell("tensor", split("tensor")),
        Cell("pipeline, clip", {**split("pipeline"), "clip": 0.5}),
        Cell("tensor, clip", {**split("tensor"), "clip": 0.5}),
        Cell("pipeline gpipe", {**split("pipeline"), "pipeline_schedule": "gpipe"}),
        Cell("pipeline 1f1b", split("pipeline")),
        Cell("pipeline 1f1b, accumulate 2", {**split("pipeline"), "accumulate": 2}),
        Cell("pipeline interleaved", {**split("pipeline"), "pipeline_schedule": "interleaved"}),
        *[
            Cell(f"{name}, {model}", split(name), models=(model,))
            for model, names in (
                ("class", ("ddp", "zero1", "fsdp", "tensor", "pipeline")),
                ("tied", ("ddp", "zero1", "fsdp", "tensor")),
                ("own", ("ddp", "fsdp")),
            )
            for name in names
        ],
    ],
    4: [
        Cell("ddp", split("ddp")),
        Cell("zero1", split("zero1")),
        Cell("fsdp", split("fsdp")),
        Cell("hsdp", split("hsdp"), "2x2"),
        Cell("tensor", split("tensor")),
        Cell("pipeline", split("pipeline")),
        *[
            Cell(f"{name}, adamw", {**split(name), "optimizer": "adamw", "lr": 0.001}, models=MLP)
            for name in ("ddp", "zero1", "fsdp")
        ],
        Cell("ddp x tensor", split("ddp", tensor=2)),
        Cell("ddp x pipeline", split("ddp", pipeline=2)),
        Cell("fsdp x tensor", split("fsdp", tensor=2)),
        Cell("fsdp x pipeline", split("fsdp", pipeline=2)),
        Cell("tensor x pipeline", split("tensor", pipeline=2)),
        Cell("fsdp x tensor, class", split("fsdp", tensor=2), models=("class",)),
        Cell("fsdp x tensor, tied", split("fsdp", tensor=2), models=("tied",)),
    ],
    8: [
        Cell("fsdp", split("fsdp")),
        Cell("hsdp", split("hsdp"), "2x4"),
        Cell("hsdp x tensor", split("hsdp", tensor=2), "2x4"),
        Cell("ddp x tensor x pipeline", split("ddp", tensor=2, pipeline=2)),
        Cell("fsdp x tensor x pipeline", split("fsdp", tensor=2, pipeline=2)),
    ],
}


@cache
def data_of(source: str | None) -> Data:
    """Read a data set once."""
    return load(Source.of(source or "digits"))


@cache
def alone(
    model: str, name: str, lr: float, clip: float | None, ema: float | None
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train on one device, in a plain loop; return the losses and the weights."""
    spec = Cell("", {"optimizer": name, "lr": lr}).spec(model, 1)
    data = data_of(spec.data)
    net = initial_model(spec, data, torch.device("cpu"))
    names = [each for each, _ in net.named_parameters()]
    means = [each.detach().clone() for each in net.parameters()]
    learner = optimizer_factory(spec)(net.parameters())
    order, losses = iter(Shards(len(data.train), spec, 0)), []
    for _ in range(STEPS):
        inputs, labels = data.train.batch(torch.from_numpy(next(order)), 0)
        output = net(data.preprocessing.build(torch.device("cpu"))(inputs))
        loss = cross_entropy(output.flatten(0, -2), labels.flatten())
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        learner.step()
        learner.zero_grad()
        for mean, weight in zip(means, net.parameters()):
            mean.mul_(ema or 0.0).add_(weight.detach(), alpha=1 - (ema or 0.0))
        losses.append(loss.item())
    return losses, {**net.state_dict(), **dict(zip(names, means))}


class Phases:
    """Remembers which phases the steps told of."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def lap(self, phase: str) -> None:
        """Take a lap."""
        self.told.add(phase)


def compare(cell: Cell, model: str, folder: Path) -> dict[str, Any]:
    """Train one cell and say how far it is from one device."""
    spec = cell.spec(model, dist.get_world_size())
    training = TorchSession(spec, data_of(spec.data), torch.device("cpu"))
    training.begin(0)
    laps = Phases()
    seen = torch.tensor(sum(training.step(laps) for _ in range(STEPS)))
    dist.all_reduce(seen)
    assert seen == STEPS * BATCH, "each sample is counted once"
    losses, quality = training.losses(), training.validate()
    path = folder / "weights.pt"
    training.save(path)
    traffic: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(traffic, training.traffic())
    row: dict[str, Any] = {"cell": cell.name, "model": model, "traffic": traffic}
    if dist.get_rank() == 0:
        expected, weights = alone(model, spec.optimizer, spec.lr, spec.clip, spec.ema)
        found = torch.load(path)
        assert found.keys() == weights.keys(), (found.keys(), weights.keys())
        row["loss"] = max(abs(a - b) for a, b in zip(losses, expected))
        row["weights"] = max(float((found[k] - weights[k]).abs().max()) for k in weights)
        row["validation"] = quality.loss
        row["held"] = training.state_bytes()
        row["parameters"] = 4 * sum(each.numel() for each in weights.values())
        row["shapes"] = [list(each.shape) for each in weights.values()]
        row["phases"] = sorted(laps.told)
    return row


def main() -> None:
    """Compare all cells of this world, and leave the answer of rank 0."""
    answer = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rows = []
    for turn, cell in enumerate(CELLS[dist.get_world_size()]):
        one = cell.models[turn % len(cell.models)]
        for model in [one] if "--some" in sys.argv else cell.models:
            rows.append(compare(cell, model, answer.parent))
    if dist.get_rank() == 0:
        print(f"{'cell':<28} {'model':<5} {'loss':>9} {'weights':>9}")
        for row in rows:
            print(f"{row['cell']:<28} {row['model']:<5} {row['loss']:>9.1e} {row['weights']:>9.1e}")
        answer.write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
