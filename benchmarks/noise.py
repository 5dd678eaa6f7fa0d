"""What it costs a step to estimate the gradient noise every 25th time.

    python benchmarks/noise.py [SECONDS]

Two trainings of one model live in the same two processes, one with noise_every = 25 and one
without; a third is without again, which shows the noise of the comparison. The model is as
wide as a step of 50 ms takes here. They take turns step by step in seeded order, the same on
both ranks. The steps with an estimate and those between are compared apart, and count by
their share: 1 and 24. rounds.py says how steps are compared. A claim that the interval spans
is unclear, and needs more SECONDS or a quieter machine. Exits with 1 when the claim does not
hold.
"""

import json
import math
import os
import random
import statistics
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
        sys.exit(tell(json.loads((Path(folder) / "spent.json").read_text())))


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
        width = int(agreed(width * math.sqrt(TARGET / statistics.median(turn(trial)))))
    trainings = {name: training(width, every) for name, every in TRAININGS.items()}
    for each in trainings.values():
        turn(each)
    chance, spent = random.Random(0), {name: [] for name in trainings}
    until = time.monotonic() + seconds
    while agreed(time.monotonic() < until):
        for _ in range(EVERY):
            for name in chance.sample(list(trainings), len(trainings)):
                spent[name] += turn(trainings[name], 1)
    if dist.get_rank() == 0:
        Path("spent.json").write_text(json.dumps(spent))
    dist.barrier()
    dist.destroy_process_group()


def training(width: int, every: int):
    """Return a training of ours that has begun."""
    import torch

    from scalewise.frameworks.data_source import Source
    from scalewise.frameworks.torch.input.data_sets import load
    from scalewise.frameworks.torch.session import TorchSession
    from scalewise.spec import RunSpec

    spec = RunSpec.from_dict({
        "workload": "mlp", "topology": "1x2", "batch": 128, "steps": 10**9, "lr": 0.001,
        "noise_every": every, "options": {"hidden": [width] * 8},
    })  # fmt: skip
    session = TorchSession(spec, load(Source.of("synthetic:4096")), torch.device("cpu"))
    session.begin(0)
    return session


def turn(session, steps: int = EVERY) -> list[float]:
    """Do some steps; return the seconds that each took."""
    from scalewise.probe import Unwatched

    spent = []
    for _ in range(steps):
        began = time.perf_counter()
        session.step(Unwatched())
        spent.append(time.perf_counter() - began)
    return spent


def tell(spent: dict[str, list[float]]) -> str | int:
    """Print the ratios; return the exit code, or what it is about."""
    import numpy as np
    from rounds import Rounds

    rounds = Rounds(spent)
    estimates = (np.arange(len(rounds)) + 1) % EVERY == 0
    between = rounds.ratio("noise", "none", ~estimates)
    during = rounds.ratio("noise", "none", estimates)
    ratio, low, high = (((EVERY - 1) * a + b) / EVERY for a, b in zip(between, during))
    again, low_again, high_again = rounds.ratio("again", "none")
    verdict = "holds" if high <= LIMIT else "does not hold" if low > LIMIT else "unclear"
    step = 1000 * statistics.median(spent["none"])
    print(
        f"2 ranks, a step of {step:.1f} ms, {len(rounds)} steps each\n"
        f"  noise / none    {ratio:.4f}  ({low:.4f} to {high:.4f})  at most {LIMIT}: {verdict}\n"
        f"  with an estimate {during[0]:.4f}, between {between[0]:.4f}\n"
        f"  none / none     {again:.4f}  ({low_again:.4f} to {high_again:.4f})"
    )
    return "the claim does not hold" if low > LIMIT else 0


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
    else:
        main()
