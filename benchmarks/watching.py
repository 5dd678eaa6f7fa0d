"""What it costs a stranger's script to be watched.

    python benchmarks/watching.py [SECONDS [MS]]

A plain DDP loop with a loader runs under ``scalewise run`` on 1 and on 2 ranks,
with a step of 5 ms and one of 100 ms: the model is made as wide as that takes on
this machine; MS chooses one of them. Inside one process single steps alternate in
seeded order, the same on all ranks: watched, not watched, and not watched again (the
noise of the comparison). Not watched means switched off: the hooks are called and return at
once. To take them out would be worse: changing a class makes Python forget what
it has learned of it, and the next steps pay for that.

Two things hide behind that comparison of medians and are measured apart, then
added: understanding and writing, once a second, and what hooks that return at once
cost when the training has emptied the caches. rounds.py says how steps are compared.
A claim that the interval spans is unclear, and needs more SECONDS or a quieter
machine. Exits with 1 when a claim does not hold.
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
SECONDS = 60.0
BATCHES = {0.005: 24, 0.1: 640}
"""The batch for a step of so many seconds."""
WIDTH = 400
"""How wide the model is at first."""
EPOCH = 500
"""Steps between two beginnings of the data, which are no usual steps."""
HOOKS = 5
"""Functions of ours that a step of this loop passes: fetch, forward, backward, its last
gradient, optimizer."""


def main() -> None:
    """Measure each step on one and on two ranks, and compare with what we claim."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    chosen = [float(ms) / 1000 for ms in sys.argv[2:]] or list(BATCHES)
    missed = False
    for target in chosen:
        for ranks in (1, 2):
            answer = measure(ranks, target, seconds)
            ratio, low, high = answer["watched"]
            rest = answer["writing"] + answer["returning"]
            least, most = low + rest, high + rest
            verdict = "holds" if most <= LIMIT else "does not hold" if least > LIMIT else "unclear"
            again = answer["again"]
            missed |= verdict == "does not hold"
            print(
                f"{ranks} rank(s), a step of {answer['ms']:.1f} ms, "
                f"{answer['rounds']} steps each\n"
                f"  watched / not    {ratio:.4f}  ({low:.4f} to {high:.4f})  "
                f"with all the rest {ratio + rest:.4f}, {answer['us']:.0f} µs; "
                f"at most {LIMIT}: {verdict}\n"
                f"  understanding and writing {100 * answer['writing']:.3f} %, "
                f"returning at once {100 * answer['returning']:.3f} %\n"
                f"  not / not        {again[0]:.4f}  ({again[1]:.4f} to {again[2]:.4f})",
                flush=True,
            )
    sys.exit("a claim does not hold" if missed else 0)


def measure(ranks: int, target: float, seconds: float) -> dict:
    """Run this file as the script of a study, and return what its rank 0 found."""
    command = "import sys; sys.argv[0] = 'scalewise'; from scalewise.cli import main; main()"
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-c", command, "run", "--on", str(ranks), "--"]
        argv += [Path(__file__).absolute(), str(target), str(seconds)]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        return json.loads((Path(folder) / "answer.json").read_text())


def work(target: float, seconds: float) -> None:
    """Be one rank: alternate, and let rank 0 tell the ratios."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    from scalewise.watch.torch import hooks

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    batch = BATCHES[target]
    size = EPOCH * batch * dist.get_world_size()
    data = TensorDataset(torch.randn(size, 64), torch.randint(0, 10, (size,)))
    loader = DataLoader(data, batch, sampler=DistributedSampler(data))

    def steps(width):
        model = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), *[nn.Linear(width, width), nn.ReLU()] * 8,
            nn.Linear(width, 10),
        )  # fmt: skip
        model = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        while True:
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                yield

    def timed(step, count):
        spent = []
        for _ in range(count):
            began = time.perf_counter()
            next(step)
            spent.append(time.perf_counter() - began)
        return spent

    def agreed(value):
        """Return the value of rank 0."""
        box = torch.tensor([float(value)])
        dist.broadcast(box, 0)
        return box.item()

    width, tries = WIDTH, max(40, round(3 / target))
    for _ in range(4):
        usual = statistics.median(timed(steps(width), tries)[tries // 2 :])
        width = int(agreed(width * math.sqrt(target / usual)))

    hooked, chance, step = hooks._hooks, random.Random(0), steps(width)
    timed(step, 20)
    spent = {"watched": [], "not": [], "again": []}
    rounds = math.ceil(1 / target / len(spent))  # A second between two questions to rank 0.
    until = time.monotonic() + 0.8 * seconds
    while agreed(time.monotonic() < until):
        for _ in range(rounds):
            for variant in chance.sample(list(spent), len(spent)):
                hooked.watcher.set_enabled(enabled=variant == "watched")
                spent[variant] += timed(step, 1)
    hooked.watcher.set_enabled(enabled=True)
    writing = Stopwatch(hooked.buffer, "process")
    began, until = time.monotonic(), time.monotonic() + 0.2 * seconds
    while agreed(time.monotonic() < until):
        timed(step, rounds * len(spent))
    if dist.get_rank() == 0:
        tell(spent, writing.seconds / (time.monotonic() - began), returning(hooked))
    dist.barrier()
    dist.destroy_process_group()


class Stopwatch:
    """Adds up what the calls of one method take."""

    def __init__(self, owner, name) -> None:
        self.seconds, self._method = 0.0, getattr(owner, name)
        setattr(owner, name, self)

    def __call__(self) -> None:
        began = time.perf_counter()
        self._method()
        self.seconds += time.perf_counter() - began


def returning(hooked) -> float:
    """Return the seconds that a step's hooks take when they are switched off."""
    import torch

    def nothing(*words, **named):
        return None

    much, spent = torch.zeros(2_000_000), {}
    hooked.watcher.set_enabled(enabled=False)
    for function in (nothing, hooked.hot.around_backward(nothing)):
        each = spent[function] = []
        for _ in range(500):
            much.add_(1)
            began = time.perf_counter()
            function(much)
            each.append(time.perf_counter() - began)
    hooked.watcher.set_enabled(enabled=True)
    bare, watched = (statistics.median(each) for each in spent.values())
    return HOOKS * (watched - bare)


def tell(spent: dict[str, list[float]], writing: float, returning: float) -> None:
    """Write the ratios of medians, each with its interval, where the other half reads them."""
    from rounds import Rounds

    bare, rounds = statistics.median(spent["not"]), Rounds(spent)
    watched = rounds.ratio("watched", "not")
    answer = {
        "ms": 1000 * bare,
        "rounds": len(rounds),
        "watched": watched,
        "again": rounds.ratio("again", "not"),
        "us": 1e6 * bare * (watched[0] - 1 + writing + returning / bare),
        "writing": writing,
        "returning": returning / bare,
    }
    Path("answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    if "SCALEWISE_RUN" in os.environ:
        work(float(sys.argv[1]), float(sys.argv[2]))
    else:
        main()
