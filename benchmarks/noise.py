"""What it costs a step to estimate the gradient noise every 25th time.

    python benchmarks/noise.py [SECONDS]

Two trainings of one model live in the same two processes, one with noise_every = 25 and one
without; a third is without again, which shows the noise of the comparison. The model is as
wide as a step of 50 ms takes here. They take turns of 25 steps in seeded order, the same on
both ranks. A block is one turn of each; ratios are of their times, the mean over blocks with
its 90 % interval (Student's t on the logarithms). A claim that the interval spans is unclear,
and needs more SECONDS or a quieter machine. Exits with 1 when the claim does not hold.
"""

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.01
SECONDS = 120.0
TARGET = 0.05
EVERY = 25
TRAININGS = {"noise": EVERY, "none": 0, "again": 0}
"""How many steps lie between two estimates."""


def main() -> None:
    """Start two ranks of this file."""
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    argv += [str(Path(__file__).absolute()), *sys.argv[1:]]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(argv, env=quiet, cwd=folder, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        sys.exit(tell(json.loads((Path(folder) / "blocks.json").read_text())))


def work(seconds: float) -> None:
    """Be one rank: let trainings take turns, and let rank 0 leave their times."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")

    def agreed(value: float) -> float:
        """Return the value of rank 0."""
        box = torch.tensor([float(value)])
        dist.broadcast(box, 0)
        return box.item()

    width = 400
    for _ in range(3):
        trial = training(width, 0)
        turn(trial)
        width = int(agreed(width * math.sqrt(TARGET * EVERY / turn(trial))))
    trainings = {name: training(width, every) for name, every in TRAININGS.items()}
    for each in trainings.values():
        turn(each)
    chance, blocks = random.Random(0), []
    until = time.monotonic() + seconds
    while agreed(time.monotonic() < until):
        order = chance.sample(list(trainings), len(trainings))
        blocks.append({name: turn(trainings[name]) for name in order})
    if dist.get_rank() == 0:
        Path("blocks.json").write_text(json.dumps(blocks))
    dist.barrier()
    dist.destroy_process_group()


def training(width: int, every: int):
    """Return a training of ours that has begun."""
    import torch

    from scalewise.frameworks.torch.data import load
    from scalewise.frameworks.torch.session import TorchSession
    from scalewise.frameworks.torch.source import Source
    from scalewise.spec import RunSpec

    spec = RunSpec.from_dict({
        "workload": "mlp", "topology": "1x2", "batch": 128, "steps": 1, "lr": 0.001,
        "noise_every": every, "options": {"hidden": [width] * 8},
    })  # fmt: skip
    session = TorchSession(spec, load(Source.of("synthetic:4096")), torch.device("cpu"))
    session.begin(0)
    return session


def turn(session) -> float:
    """Do as many steps as lie between two estimates; return the seconds they took."""
    from scalewise.probe import Unwatched

    began = time.perf_counter()
    for _ in range(EVERY):
        session.step(Unwatched())
    return time.perf_counter() - began


def tell(blocks: list[dict[str, float]]) -> str | int:
    """Print the ratios; return the exit code, or what it is about."""
    mean = sum(block["none"] for block in blocks) / len(blocks) / EVERY
    print(f"2 ranks, a step of {1000 * mean:.1f} ms, {len(blocks)} blocks of {EVERY} steps each")
    ratio, low, high = compared(blocks, "noise", "none")
    verdict = "holds" if high <= LIMIT else "does not hold" if low > LIMIT else "unclear"
    print(f"  noise / none    {ratio:.4f}  ({low:.4f} to {high:.4f})  at most {LIMIT}: {verdict}")
    ratio, low_none, high_none = compared(blocks, "again", "none")
    print(f"  none / none     {ratio:.4f}  ({low_none:.4f} to {high_none:.4f})")
    return "the claim does not hold" if low > LIMIT else 0


def compared(blocks: list[dict[str, float]], upper: str, lower: str) -> tuple[float, float, float]:
    """Return the mean ratio of two trainings' turns, and its interval."""
    from scalewise.analysis.measure import Estimate

    found = Estimate.of([block[upper] / block[lower] for block in blocks])
    return found.value, found.low, found.high


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
    else:
        main()
