"""Train a run whose ranks may be killed, and read what it left."""

import json
from pathlib import Path

import pytest
import torch

from paths import RANK_PROGRAMS
from scalewise.errors import SpecError
from scalewise.record.write import write_json
from scalewise.spec import RunSpec
from start_ranks import start

SCRIPT = RANK_PROGRAMS / "killed_rank.py"
BASE = {
    "workload": "mlp",
    "options": {"hidden": [32, 16, 16, 16]},
    "global_batch": 64,
    "epochs": 3,
    "optimizer": "adamw",
    "lr": 0.002,
    "schedule": "cosine",
    "ema": 0.9,
    "checkpoint_every": 8,
    "save": True,
}
STEPS = 22
"""Of an epoch."""


def a_training(**changes) -> RunSpec:
    return RunSpec.from_dict({"topology": "1x2", **BASE, **changes})


def train(spec: RunSpec, home: Path, *, attempt: int = 1, killed: str = "never") -> int:
    """Start the ranks of a run; return the exit code of the one that failed, or 0."""
    home.mkdir(exist_ok=True)
    write_json(home / "spec.json", spec.to_dict())
    code, said = start(spec.topology.world, SCRIPT, home, killed, SCALEWISE_ATTEMPT=str(attempt))
    if killed == "never":
        assert code == 0, said[-4000:]
    return code


def losses(home: Path, attempt: int) -> dict[int, list[float]]:
    """Return the losses of each epoch that an attempt ended."""
    lines = [json.loads(line) for line in (home / "rank-00000.jsonl").read_text().splitlines()]
    mine = [line for line in lines if line["attempt"] == attempt and "losses" in line]
    return {line["epoch"]: line["losses"] for line in mine}


def weights(home: Path) -> dict[str, torch.Tensor]:
    return torch.load(home / "weights.pt")


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def failure(function, *words) -> str:
    with pytest.raises(SpecError) as bad:
        function(*words)
    return str(bad.value)
