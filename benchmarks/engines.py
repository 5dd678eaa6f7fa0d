"""What recording costs in engines that have an environment of their own.

    PYTHONPATH=src envs/jax/bin/python benchmarks/engines.py jax [ROUNDS]

In one process, single steps with recording and without it alternate in seeded order, on the
same session, each until its devices are done. Printed is the ratio of their medians with its
90 % interval, and the recorder's flush time apart, because alternation hides it: it falls into
one step of a hundred. Exits with 1 when recording costs more than we claim.
"""

import os
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from scalewise.frameworks.jax import Jax
from scalewise.probe import Probe, Unwatched
from scalewise.record.write import RankFile
from scalewise.spec import RunSpec

LIMIT = 1.01
ROUNDS = 1000
WARM = 20
ENGINES = {"jax": Jax}


def main() -> None:
    """Measure, and compare with what we claim."""
    name = sys.argv[1] if len(sys.argv) > 1 else "jax"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    said = {"framework": name, "workload": "mnist-cnn", "batch": 64, "steps": 10**9}
    spec = RunSpec.from_dict({**said, "topology": "1x1"})
    with tempfile.TemporaryDirectory() as folder:
        probe = Probe(RankFile(Path(folder), 0, 1))
        with ENGINES[name]().session(spec, 0, probe) as session:
            session.begin(0)
            seconds = alternate(session, probe, rounds)
        flush = probe.flush_seconds / probe.steps_done
    sys.exit(tell(name, seconds, flush))


def alternate(session, probe, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of every step: each round does one with recording and one without."""
    chance, unwatched = random.Random(0), Unwatched()
    seconds: dict[str, list[float]] = {"on": [], "off": []}
    for _ in range(rounds + WARM):
        for kind in chance.sample(["on", "off"], 2):
            probe.start()
            began = time.perf_counter()
            if kind == "on":
                probe.step(session.step(probe))
            else:
                session.step(unwatched)
            session.settle()
            seconds[kind].append(time.perf_counter() - began)
    return {kind: each[WARM:] for kind, each in seconds.items()}


def tell(name: str, seconds: dict[str, list[float]], flush: float) -> int:
    """Print what recording costs; return whether that is more than we claim."""
    on, off = (np.array(seconds[kind]) for kind in ("on", "off"))
    draws = np.random.default_rng(0).integers(0, len(on), (1000, len(on)))
    ratios = np.median(on[draws], axis=1) / np.median(off[draws], axis=1)
    ratio, (low, high) = np.median(on) / np.median(off), np.quantile(ratios, [0.05, 0.95])
    share = flush / np.median(off)
    print(f"{name}, {len(on)} steps each, median step without {1000 * np.median(off):.2f} ms")
    print(f"  recording on / off   {ratio:.4f}  ({low:.4f} to {high:.4f})")
    print(f"  flush                {100 * share:.3f} % of a step")
    print(f"  together             {ratio + share:.4f}, limit {LIMIT}")
    return int(ratio + share > LIMIT)


if __name__ == "__main__":
    main()
