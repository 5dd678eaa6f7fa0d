"""What recording costs in each engine, in the Python that its user has named for it.

    python benchmarks/engines.py [ENGINE …] [--rounds 100]

In one process of each, stretches of steps with recording and without it alternate in seeded
order, on the same session, each until its devices are done: inside of a stretch the host runs
ahead of them. A row has the ratio of their medians with its 90 % interval, and what the recorder
takes by itself, files and waiting thread included, when its devices are always done: on a busy
machine the ratio says little. Exits with 1 when recording surely costs more than we claim.
"""

import argparse
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.01
WARM = 2
STRETCH = 20
"""Steps in a row."""
ENGINES = ("torch", "horovod", "tensorflow", "jax", "deepspeed")


def main() -> None:
    """Measure engine after engine, a row for each, and compare with what we claim."""
    asked = argparse.ArgumentParser()
    asked.add_argument("engines", nargs="*", default=ENGINES)
    asked.add_argument("--rounds", type=int, default=100)
    words = asked.parse_args()
    print(f"{'engine':<12}{'step, ms':>9}{'on / off':>10}  {'90 %':<18}{'recorder':>10}  of a step")
    rows = [row(engine, words.rounds) for engine in words.engines]
    sys.exit(any(rows))


def row(engine: str, rounds: int) -> bool:
    """Measure an engine and print its row; say whether it surely costs more than we claim."""
    import numpy as np

    from scalewise.launch import worker_zip
    from scalewise.launch.interpreters import Interpreters

    python = Interpreters.load({}).python(engine)
    with tempfile.TemporaryDirectory() as folder:
        env = {
            **os.environ, "OMP_NUM_THREADS": "1", "SCALEWISE_UNWATCHED": "1", "RANK": "0",
            "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost",
            "MASTER_PORT": free_port(), "PYTHONPATH": str(worker_zip.pack(Path(folder))),
        }  # fmt: skip
        argv = [python, __file__, "--inside", engine, str(rounds), folder]
        if not shutil.which(python) or subprocess.run(argv, env=env, stdout=sys.stderr).returncode:
            print(f"{engine:<12}not measured with {python}")
            return False
        found = json.loads(Path(folder, "found.json").read_text())
    on, off = (np.array(found[kind]) for kind in ("on", "off"))
    draws = np.random.default_rng(0).integers(0, len(on), (1000, len(on)))
    low, high = np.quantile(np.median(on[draws], 1) / np.median(off[draws], 1), [0.05, 0.95])
    ratio, step, own = np.median(on) / np.median(off), np.median(off), found["own"]
    print(
        f"{engine:<12}{1e3 * step:>9.2f}{ratio:>10.4f}  {f'{low:.4f} to {high:.4f}':<18}"
        f"{1e6 * own:>7.1f} us  {100 * own / step:.3f} %"
    )
    return bool(low > LIMIT or 1 + own / step > LIMIT)


def free_port() -> str:
    """Return a port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return str(probe.getsockname()[1])


def inside(engine: str, rounds: int, folder: Path) -> None:
    """Train with an engine, in its own Python, and leave what was measured."""
    from scalewise import plugins
    from scalewise.probe import Probe
    from scalewise.record.write import RankFile
    from scalewise.spec import RunSpec

    said = {"framework": engine, "workload": "mnist-cnn", "batch": 64, "steps": 10**9}
    spec = RunSpec.from_dict({**said, "topology": "1x1"})
    framework = plugins.load("frameworks", engine)()
    probe = Probe(RankFile(folder, 0, 1))
    with framework.session(spec, 0, probe) as session:
        session.begin(0)
        seconds = alternate(session, probe, rounds)
        own = alone(session, probe)
    (folder / "found.json").write_text(json.dumps({**seconds, "own": own}))


def alternate(session, probe, rounds: int) -> dict[str, list[float]]:
    """Return the seconds per step of every stretch; each round has one with and one without."""
    from scalewise.probe import Unwatched

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


class Named:
    """Remembers the laps of a step."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def lap(self, phase: str) -> None:
        """Take it down."""
        self.phases.append(phase)


class There:
    """Something that a device has made already."""

    def block_until_ready(self) -> None:
        """Do not wait."""


def alone(session, probe, steps: int = 2000) -> float:
    """Return the seconds that recording one step takes when there is nothing to wait for."""
    named, there = Named(), There()
    session.step(named)
    session.settle()
    about = getattr(probe.clock, "about", None)
    probe.start()
    began = time.perf_counter()
    for _ in range(steps):
        for phase in named.phases:
            if about:
                about(there)
            probe.lap(phase)
        probe.step(64)
    if about:
        probe.clock.settle()
    probe.flush()
    return (time.perf_counter() - began) / steps


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
