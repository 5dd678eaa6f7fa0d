"""What two ranks exchange, compressed and not: one launch, all cases.

    torchrun --nproc-per-node=2 tests/exchanged.py ANSWER.json

Each case trains with our session. What is given to all-reduce in a step is counted here anew.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from scalewise.frameworks.torch.data import load
from scalewise.frameworks.torch.session import TorchSession
from scalewise.frameworks.torch.source import Source
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
    "fp16 in fp16": {"options": {"compression": "fp16"}, "precision": "fp16"},
}


class Counted:
    """Counts the bytes that go through all-reduce."""

    def __init__(self) -> None:
        self.bytes, self._all_reduce = 0, dist.all_reduce
        dist.all_reduce = self

    def __call__(self, tensor: torch.Tensor, *words: Any, **named: Any) -> Any:
        """Count, then reduce."""
        self.bytes += tensor.nbytes
        return self._all_reduce(tensor, *words, **named)


def train(run: dict[str, Any], counted: Counted) -> dict[str, Any]:
    """Train one case; say what was exchanged in its last step, by its own account and by ours."""
    options = {**HIDDEN, **run.get("options", {})}
    spec = RunSpec.from_dict({**RUN, **run, "options": options})
    training = TorchSession(spec, load(Source.of(None)), torch.device("cpu"))
    training.begin(0)
    for _ in range(STEPS):
        counted.bytes = 0
        training.step(Unwatched())
    last = counted.bytes
    size = 4 * training.outline.parameters
    return {"size": size, "last": last, "losses": training.losses(), **training.exchanged()}


def main() -> None:
    """Train all cases, and leave the answer of rank 0."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    counted = Counted()
    answers = {name: train(run, counted) for name, run in CASES.items()}
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(answers))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
