"""What our loop and its recording cost, against a minimal hand-written DDP loop.

    python benchmarks/overhead.py [ROUNDS]

In one process per rank, single steps of four variants alternate in seeded
order, the same on all ranks: a bare loop, the same bare loop again (the noise
of the comparison), our loop with recording on, our loop with recording off.
Same model, same data, same threads. Printed are ratios of medians with their
90 % interval, and the recorder's flush time apart, because alternation hides
it: it falls into one step of a hundred. Exits with 1 when a claim does not hold.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LIMITS = {"ours / bare": 1.02, "recording on / off": 1.01}
ROUNDS = 3000


def main() -> None:
    """Measure on one and on two ranks, and compare with what we claim."""
    rounds = sys.argv[1] if len(sys.argv) > 1 else str(ROUNDS)
    missed = False
    for ranks in (1, 2):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        argv = [*torchrun, "--local-addr=localhost", f"--nproc-per-node={ranks}", __file__, rounds]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True)
        answer = json.loads(done.stdout.splitlines()[-1])
        print(f"{ranks} rank(s), {rounds} steps each, median bare step {answer['bare_ms']:.2f} ms")
        for name, (ratio, low, high) in answer["ratios"].items():
            total = ratio + (answer["flush_share"] if name in LIMITS else 0.0)
            limit = LIMITS.get(name)
            verdict = "" if limit is None else f"  with flush {total:.4f}, limit {limit}"
            missed |= limit is not None and total > limit
            print(f"  {name:<20} {ratio:.4f}  ({low:.4f} to {high:.4f}){verdict}")
        print(f"  {'flush':<20} {100 * answer['flush_share']:.3f} % of a step")
    sys.exit("a claim does not hold" if missed else 0)


def work(rounds: int) -> None:
    """Be one rank: alternate the variants and let rank 0 tell the ratios."""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler

    from scalewise.frameworks.data_source import Source
    from scalewise.frameworks.torch.input.data_sets import load
    from scalewise.frameworks.torch.models.mnist_cnn import mnist_cnn
    from scalewise.frameworks.torch.session import TorchSession
    from scalewise.probe import Probe, Unwatched
    from scalewise.probe.heartbeat import Heartbeat
    from scalewise.record.write import RankFile
    from scalewise.spec import RunSpec

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    spec = RunSpec.from_dict(
        {"workload": "mnist-cnn", "topology": f"1x{world}", "batch": 64, "steps": 10**9}
    )
    data = load(Source.of("digits"))

    def model() -> torch.nn.Module:
        torch.manual_seed(0)
        return mnist_cnn(data.shape, data.classes)

    images, labels = data.train.inputs.reshape(-1, 1, 8, 8), data.train.labels

    class Batches(Dataset):
        """The same images, for whoever writes the loop by hand."""

        def __getitem__(self, index: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
            return images[index].float().mul_(1 / 16), labels[index]

    def bare() -> Iterator[None]:
        learner = DistributedDataParallel(model(), gradient_as_bucket_view=True)
        rule = torch.optim.SGD(learner.parameters(), lr=spec.lr, momentum=0.9)
        sampler: DistributedSampler[int] = DistributedSampler(data.train)
        loader = DataLoader(
            Batches(), batch_size=None, sampler=BatchSampler(sampler, spec.batch, drop_last=True)
        )
        epoch = 0
        while True:
            sampler.set_epoch(epoch)
            for images, labels in loader:
                rule.zero_grad()
                loss = cross_entropy(learner(images), labels)
                loss.backward()
                rule.step()
                yield
            epoch += 1

    def session() -> TorchSession:
        made = TorchSession(spec, data, torch.device("cpu"))
        made.begin(0)
        return made

    one, two, on, off = bare(), bare(), session(), session()
    with tempfile.TemporaryDirectory() as folder:
        probe = Probe(RankFile(Path(folder), rank, 1))
        watch = Heartbeat(probe)
        unwatched = Unwatched()
        probe.start()

        def recorded() -> None:
            probe.step(on.step(probe))

        variants: dict[str, Callable[[], object]] = {
            "bare": lambda: next(one),
            "bare again": lambda: next(two),
            "on": recorded,
            "off": lambda: off.step(unwatched),
        }
        seconds = alternate(variants, rounds)
        watch.close()
        flush = probe.flush_seconds / probe.steps_done
    if rank == 0:
        tell(seconds, flush)
    dist.barrier()
    dist.destroy_process_group()


def alternate(variants: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of every step: each round does all variants in another order."""
    chance = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds + 20):
        for name in chance.sample(list(variants), len(variants)):
            began = time.perf_counter()
            variants[name]()
            seconds[name].append(time.perf_counter() - began)
    return {name: each[20:] for name, each in seconds.items()}


def tell(seconds: dict[str, list[float]], flush: float) -> None:
    """Print the ratios of medians, each with its interval, as one line of JSON."""
    import numpy as np

    columns = {name: np.array(each) for name, each in seconds.items()}
    draws = np.random.default_rng(0).integers(0, len(columns["bare"]), (1000, len(columns["bare"])))

    def ratio(upper: str, lower: str) -> tuple[float, float, float]:
        each = np.median(columns[upper][draws], axis=1) / np.median(columns[lower][draws], axis=1)
        low, high = np.quantile(each, [0.05, 0.95])
        return float(np.median(columns[upper]) / np.median(columns[lower])), float(low), float(high)

    bare = float(np.median(columns["bare"]))
    answer = {
        "bare_ms": bare * 1000,
        "flush_share": flush / bare,
        "ratios": {
            "bare again / bare": ratio("bare again", "bare"),
            "ours / bare": ratio("on", "bare"),
            "recording on / off": ratio("on", "off"),
        },
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(int(sys.argv[1]))
    else:
        main()
