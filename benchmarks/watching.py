"""What it costs a stranger's script to be watched.

    python benchmarks/watching.py [SECONDS]

A plain DDP loop with a loader runs under ``scalewise run`` on 1 and on 2 ranks,
with a step of about 5 ms and one of about 100 ms. Inside one process single steps
alternate in seeded order, the same on all ranks: watched, not watched, and not
watched again (the noise of the comparison). Not watched means switched off: the
hooks are called and return at once. To take them out would be worse: changing a
class makes Python forget what it has learned of it, and the next steps pay for that.
What a hook that returns at once costs is printed apart, and so is the time of
writing, because medians hide it. Ratios are of medians, with their 90 % interval.
Exits with 1 when a claim does not hold.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.01
SECONDS = 60.0
SIZES = {"5 ms": 24, "100 ms": 640}
"""The batch for a step of about this long on one core."""
WIDTH = 500


def main() -> None:
    """Measure each step on one and on two ranks, and compare with what we claim."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    missed = False
    for name in SIZES:
        for ranks in (1, 2):
            answer = measure(ranks, name, seconds)
            ratio, low, high = answer["watched"]
            total = ratio + answer["writing"] + answer["returning"]
            again = answer["again"]
            missed |= total > LIMIT
            print(
                f"{ranks} rank(s), a step of {answer['ms']:.1f} ms ({name}), "
                f"{answer['rounds']} steps each\n"
                f"  watched / not    {ratio:.4f}  ({low:.4f} to {high:.4f})  "
                f"with all the rest {total:.4f}, limit {LIMIT}\n"
                f"  writing          {100 * answer['writing']:.3f} %, "
                f"returning at once {100 * answer['returning']:.3f} %\n"
                f"  not / not        {again[0]:.4f}  ({again[1]:.4f} to {again[2]:.4f})",
                flush=True,
            )
    sys.exit("a claim does not hold" if missed else 0)


def measure(ranks: int, name: str, seconds: float) -> dict:
    """Run this file as the script of a study, and return what its rank 0 found."""
    with tempfile.TemporaryDirectory() as folder:
        scalewise = Path(sys.executable).parent / "scalewise"
        argv = [scalewise, "run", "--on", str(ranks), "--", Path(__file__).absolute()]
        argv += [name, str(seconds)]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        return json.loads((Path(folder) / "answer.json").read_text())


def work(name: str, seconds: float) -> None:
    """Be one rank: alternate, and let rank 0 tell the ratios."""
    batch = SIZES[name]
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    from scalewise.frameworks.torch.attach import hooks

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    size = 64 * batch * dist.get_world_size()
    data = TensorDataset(torch.randn(size, 64), torch.randint(0, 10, (size,)))
    model = nn.Sequential(
        nn.Linear(64, WIDTH), nn.ReLU(), *[nn.Linear(WIDTH, WIDTH), nn.ReLU()] * 8,
        nn.Linear(WIDTH, 10),
    )  # fmt: skip
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(data, batch, sampler=DistributedSampler(data))

    def steps():
        while True:
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                yield

    watcher = hooks._hooks
    step, chance = steps(), random.Random(0)
    for _ in range(20):
        next(step)
    spent = {"watched": [], "not": [], "again": []}
    first, written = watcher.guest.steps, watcher.guest._probe.flush_seconds
    until = time.monotonic() + seconds
    while True:
        go_on = torch.tensor([float(time.monotonic() < until)])
        dist.broadcast(go_on, 0)
        if not go_on:
            break
        for _ in range(5):
            for variant in chance.sample(list(spent), len(spent)):
                watcher.guest.on = variant == "watched"
                began = time.perf_counter()
                next(step)
                spent[variant].append(time.perf_counter() - began)
    watcher.guest.on = True
    if dist.get_rank() == 0:
        probe = watcher.guest._probe
        writing = (probe.flush_seconds - written) / max(1, watcher.guest.steps - first)
        tell(spent, writing, returning(watcher))
    dist.barrier()
    dist.destroy_process_group()


def returning(watcher) -> float:
    """Return the seconds that a step's hooks take when they are switched off."""
    hook = watcher._safe(watcher._waited)
    watcher.guest.on = False
    began = time.perf_counter()
    for _ in range(10_000):
        hook()
    seconds = (time.perf_counter() - began) / 10_000
    watcher.guest.on = True
    return 9 * seconds  # As many as a step of this loop has.


def tell(spent: dict[str, list[float]], writing: float, returning: float) -> None:
    """Write the ratios of medians, each with its interval, where the other half reads them."""
    import numpy as np

    columns = {name: np.array(each) for name, each in spent.items()}
    count = len(columns["not"])
    draws = np.random.default_rng(0).integers(0, count, (500, count))

    def ratio(upper: str, lower: str) -> list[float]:
        each = np.median(columns[upper][draws], axis=1) / np.median(columns[lower][draws], axis=1)
        middle = np.median(columns[upper]) / np.median(columns[lower])
        return [float(middle), *map(float, np.quantile(each, [0.05, 0.95]))]

    bare = float(np.median(columns["not"]))
    answer = {
        "ms": 1000 * bare,
        "rounds": count,
        "watched": ratio("watched", "not"),
        "again": ratio("again", "not"),
        "writing": writing / bare,
        "returning": returning / bare,
    }
    Path("answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    if "SCALEWISE_RUN" in os.environ:
        work(sys.argv[1], float(sys.argv[2]))
    else:
        main()
