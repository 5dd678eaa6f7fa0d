"""What two ranks exchange, compressed and not: one launch, all cases.

    torchrun --nproc-per-node=2 tests/rank_programs/compressed_exchange.py ANSWER.json

Each case trains with our session. What is given to all-reduce in a step is counted here anew.
Then the noise of gradients is estimated where it is known.
"""

import json
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from scalewise.frameworks.data_source import Source
from scalewise.frameworks.torch.input.data_sets import load
from scalewise.frameworks.torch.parallel.gradient_exchange import GradientExchange
from scalewise.frameworks.torch.session import TorchSession
from scalewise.probe import Unwatched
from scalewise.spec import RunSpec

STEPS = 60
RUN = {
    "workload": "mlp", "topology": "1x2", "global_batch": 64, "lr": 0.05, "steps": STEPS,
}  # fmt: skip
HIDDEN = {"hidden": [256, 256, 64]}
CASES: dict[str, dict[str, Any]] = {
    "none": {},
    "fp16": {"options": {"compression": "fp16"}},
    "bf16": {"options": {"compression": "bf16", "bucket_view": False}},
    "powersgd": {"options": {"compression": "powersgd", "bucket_mb": 0.1}},
    "powersgd rank 4": {"options": {"compression": "powersgd", "powersgd_rank": 4}},
    "accumulated": {"options": {"compression": "fp16"}, "accumulate": 2},
    "zero1": {"options": {"compression": "fp16"}, "strategy": "zero1"},
    "noise": {"noise_every": 3, "accumulate": 2},
    "noise in fp16": {"noise_every": 3, "precision": "fp16"},
    "bundled": {"options": {"compression": "fp16", "bucket_mb": 0.05}},
    "fp16 in fp16": {"options": {"compression": "fp16"}, "precision": "fp16"},
}

D, SIGNAL = 1000, 50.0
"""Of the quadratic: how many parameters, and the square of their distance from the best ones."""
NOISY: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulated": {"accumulate": 2},
    "scaled": {"scale": 1024.0},
    "compressed": {"compression": "powersgd"},
}


class Counted:
    """Counts the bytes that go through all-reduce, call by call."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self._all_reduce = dist.all_reduce
        dist.all_reduce = self

    def __call__(self, tensor: torch.Tensor, *words: Any, **named: Any) -> Any:
        """Count, then reduce."""
        self.calls.append(tensor.nbytes)
        return self._all_reduce(tensor, *words, **named)


def train(run: dict[str, Any], counted: Counted) -> dict[str, Any]:
    """Train one case; say what was exchanged in its last step, by its own account and by ours."""
    options = {**HIDDEN, **run.get("options", {})}
    spec = RunSpec.from_dict({**RUN, **run, "options": options})
    training = TorchSession(spec, load(Source.of("digits")), torch.device("cpu"))
    training.begin(0)
    for _ in range(STEPS):
        counted.calls = []
        training.step(Unwatched())
    last = [*counted.calls]
    size = 4 * training.outline.parameters
    measured = training.exchange_measurements()
    return {"size": size, "last": last, "losses": training.losses(), **measured}


class Quadratic(torch.nn.Module):
    """Half the squared distance of its parameters from samples, on the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.full((D // 10, 10), (SIGNAL / D) ** 0.5))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return the loss; samples are normal around 0, so theta is the gradient over all."""
        return (self.theta - samples).square().flatten(1).sum(1).mean() / 2


def quadratic(accumulate: int = 1, scale: float = 1.0, compression: str = "none") -> dict[str, Any]:
    """Estimate the noise of a model that stays where it is: tr Σ = D, |G|² = SIGNAL."""
    spec = RunSpec.from_dict({
        "topology": "1x2", "batch": 16 // accumulate, "accumulate": accumulate, "steps": 1,
        "noise_every": 2,
    })  # fmt: skip
    torch.manual_seed(dist.get_rank())
    model = torch.nn.parallel.DistributedDataParallel(Quadratic())
    exchange = GradientExchange(spec, compression)
    exchange.register_hook(model, dist.group.WORLD)
    scale *= exchange.loss_factor
    for _ in range(300):
        exchange.begin()
        for micro in range(accumulate):
            last = micro == accumulate - 1
            with nullcontext() if last else model.no_sync():
                loss = model(torch.randn(spec.batch, D // 10, 10))
                (loss * scale / accumulate).backward()
        exchange.end(scale)
        model.zero_grad()
    return exchange.noise()


def main() -> None:
    """Train all cases, and leave the answer of rank 0."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    counted = Counted()
    answers = {name: train(run, counted) for name, run in CASES.items()}
    answers |= {f"noise {name}": quadratic(**how) for name, how in NOISY.items()}
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(answers))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
