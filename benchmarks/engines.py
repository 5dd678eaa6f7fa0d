"""What recording costs in engines that have an environment of their own.

    PYTHONPATH=src envs/jax/bin/python benchmarks/engines.py jax [ROUNDS]
    PYTHONPATH=src envs/tensorflow/bin/python benchmarks/engines.py tensorflow [ROUNDS]

In one process, stretches of steps with recording and without it alternate in seeded order, on
the same session, each until its devices are done: inside of a stretch the host runs ahead of
them. Printed is the ratio of their medians with its 90 % interval, and what the recorder takes by
itself, files and waiting thread included, when its devices are always done: on a busy machine
the ratio says little. Exits with 1 when recording surely costs more than we claim.
"""

import os
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from scalewise.frameworks.jax import Jax
from scalewise.frameworks.tensorflow import TensorFlow
from scalewise.probe import Probe, Unwatched
from scalewise.record.write import RankFile
from scalewise.spec import RunSpec

LIMIT = 1.01
ROUNDS = 100
WARM = 2
STRETCH = 20
"""Steps in a row."""
ENGINES = {"jax": Jax, "tensorflow": TensorFlow}


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
            own = alone(probe)
    sys.exit(tell(name, seconds, own))


def alternate(session, probe, rounds: int) -> dict[str, list[float]]:
    """Return the seconds per step of every stretch; each round has one with and one without."""
    chance, unwatched = random.Random(0), Unwatched()
    seconds: dict[str, list[float]] = {"on": [], "off": []}
    for _ in range(rounds + WARM):
        for kind in chance.sample(["on", "off"], 2):
            probe.start()
            began = time.perf_counter()
            for _ in range(STRETCH):
                if kind == "on":
                    probe.step(session.step(probe))
                else:
                    session.step(unwatched)
            session.settle()
            seconds[kind].append((time.perf_counter() - began) / STRETCH)
    return {kind: each[WARM:] for kind, each in seconds.items()}


def alone(probe, steps: int = 2000) -> float:
    """Return the seconds that recording one step takes when there is nothing to wait for."""
    waits = hasattr(probe.clock, "about")
    there = _there() if waits else None
    probe.start()
    began = time.perf_counter()
    for _ in range(steps):
        for phase in ("input", "step"):
            if waits:
                probe.clock.about(there)
            probe.lap(phase)
        probe.step(64)
    if waits:
        probe.clock.settle()
    probe.flush()
    return (time.perf_counter() - began) / steps


def _there():
    """Return an array of JAX's that is there already."""
    import jax.numpy as jnp

    return jnp.zeros(()).block_until_ready()


def tell(name: str, seconds: dict[str, list[float]], own: float) -> int:
    """Print what recording costs; return whether that is more than we claim."""
    on, off = (np.array(seconds[kind]) for kind in ("on", "off"))
    draws = np.random.default_rng(0).integers(0, len(on), (1000, len(on)))
    ratios = np.median(on[draws], axis=1) / np.median(off[draws], axis=1)
    ratio, (low, high) = np.median(on) / np.median(off), np.quantile(ratios, [0.05, 0.95])
    share = own / np.median(off)
    bare = 1000 * np.median(off)
    print(f"{name}, {STRETCH * len(on)} steps each, median step without {bare:.2f} ms")
    print(f"  recording on / off   {ratio:.4f}  ({low:.4f} to {high:.4f})")
    print(f"  the recorder alone   {1e6 * own:.1f} us, {100 * share:.3f} % of a step")
    return int(low > LIMIT or 1 + share > LIMIT)


if __name__ == "__main__":
    main()
