"""Whether a simulated step takes as long as a real one, and how long simulating takes.

    python benchmarks/simulation.py [--ranks 1,2,4,8,16] [--steps 100] [--links 0.2,1,5]

Of each workload one rank is recorded; then N copies at once that exchange nothing, because
they share the memory of this machine; then the all-reduce between N ranks is swept. From
these a step of N ranks over Gloo is simulated, and held against real steps. A second column
has no sweep but the one of two ranks, and takes the all-reduce of more for a ring.

``--links`` (as root) puts two ranks into namespaces of their own, joined by a link of so many
Gbit/s, and does the same there. Use an idle machine with a core for each rank. Exits with 1 when
the median error is above 15 %, or 16,384 devices take longer than 10 s.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from scalewise.analysis.measure.ledger import build_ledger
from scalewise.analysis.measure.window import steady_window
from scalewise.analysis.simulate import (
    Bucket,
    Cores,
    Fsdp,
    Link,
    Machine,
    Network,
    SimulatedStep,
    SimulationInputs,
    Spread,
    Sweep,
    Work,
    concurrent_steps,
    fit_exchange,
    load_inputs,
    parse_sweep,
    simulate,
)
from scalewise.record.close import close
from scalewise.record.read import RunRecord, read_run
from scalewise.record.write import write_json
from scalewise.spec import RunSpec, Topology

ERROR, SECONDS = 0.15, 10.0
"""What is claimed: the median error, and how long 16,384 devices take."""
PATIENCE = 600.0
"""Seconds that all ranks of a run may take."""
WORKLOADS: dict[str, dict[str, Any]] = {
    "mlp": {"workload": "mlp", "batch": 64, "options": {"hidden": [1024] * 6}},
    "mnist-cnn": {"workload": "mnist-cnn", "batch": 64},
    "vit": {"workload": "vit", "batch": 16, "options": {"patch": 4, "width": 192, "depth": 4}},
}
Place = Callable[[int], tuple[list[str], dict[str, str]]]
"""What a rank is started with: a command before its own, and its surroundings."""


def here(rank: int) -> tuple[list[str], dict[str, str]]:
    """Start a rank on this machine as it is."""
    return [], {"MASTER_ADDR": "localhost"}


@contextmanager
def apart(gbit: str) -> Iterator[Place]:
    """Make two namespaces, joined by a link of this rate; take them away again."""
    names = [f"simulation-{os.getpid()}-{end}" for end in "ab"]
    link = f"rate {gbit}gbit burst 256kb latency 50ms"
    try:
        for name in names:
            ip(f"netns add {name}")
        ip(f"-n {names[0]} link add sw0 type veth peer name sw0 netns {names[1]}")
        for end, name in enumerate(names, start=1):
            ip(f"-n {name} address add 10.90.0.{end}/24 dev sw0")
            for device in ("sw0", "lo"):
                ip(f"-n {name} link set {device} up")
            ip(f"netns exec {name} tc qdisc replace dev sw0 root tbf {link}")
        meeting = {"MASTER_ADDR": "10.90.0.1", "GLOO_SOCKET_IFNAME": "sw0", "LOCAL_WORLD_SIZE": "1"}
        yield lambda rank: (["ip", "netns", "exec", names[rank]], {**meeting, "LOCAL_RANK": "0"})
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def ip(words: str) -> None:
    """Tell the system's network something."""
    subprocess.run(["ip", *words.split()], check=True)


def start(commands: Sequence[list[str]], world: int, place: Place) -> None:
    """Run processes until all have ended well: ranks of one world, or each a world of its own."""
    ports = [free_port() for _ in range(len(commands))]
    ranks = []
    for number, words in enumerate(commands):
        rank = number % world
        before, surroundings = place(rank)
        told = {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world), "MASTER_PORT": ports[number // world],
            "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **surroundings,
        }  # fmt: skip
        argv = [*before, sys.executable, "-m", "scalewise.frameworks", *words]
        ranks.append(subprocess.Popen(argv, env={**os.environ, **told}, stdout=subprocess.DEVNULL))
    try:
        until = time.monotonic() + PATIENCE
        while any(rank.poll() is None for rank in ranks):
            if any(rank.returncode for rank in ranks) or time.monotonic() > until:
                break  # The others would wait for it.
            time.sleep(0.05)
    finally:
        for rank in ranks:
            rank.kill()
    if any(rank.wait() for rank in ranks):
        sys.exit(f"a rank of {' '.join(commands[0])} failed")


def free_port() -> str:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("", 0))
        return str(free.getsockname()[1])


@dataclass
class Bench:
    """Runs and sweeps on this machine, each made once."""

    folder: Path
    steps: int
    place: Place = here
    sweeps: dict[int, Sweep] = field(default_factory=dict)

    def run(self, values: dict[str, Any], world: int, copies: int = 1) -> list[RunRecord]:
        """Train, in so many copies that know nothing of each other; return their records."""
        spec = RunSpec.from_dict({
            **values, "data": "synthetic:4096", "lr": 0.001, "topology": f"1x{world}",
            "steps": self.steps,
        })  # fmt: skip
        homes = [Path(tempfile.mkdtemp(dir=self.folder)) for _ in range(copies)]
        for home in homes:
            write_json(home / "spec.json", spec.to_dict())
        start([["train", str(home)] for home in homes for _ in range(world)], world, self.place)
        for home in homes:
            if cause := close(home, attempt=1, world=world, ended=time.time()):
                sys.exit(cause)
        return [read_run(home, spec) for home in homes]

    def sweep(self, ranks: int) -> Sweep:
        """Time the all-reduce between ranks; whatever the namespaces, they share one machine."""
        if ranks not in self.sweeps:
            file = self.folder / f"sweep-{ranks}.json"
            file.write_text(json.dumps({"ask": {"operations": ["all-reduce"]}}))
            start([["collectives", str(file)]] * ranks, ranks, self.place)
            found = parse_sweep(json.loads(file.read_text()))
            self.sweeps[ranks] = replace(found, topology=Topology(1, ranks))
        return self.sweeps[ranks]


@dataclass(frozen=True)
class Known:
    """What is measured of a workload without any exchange."""

    name: str
    seen: SimulationInputs
    alone: float
    """Seconds of a step of one copy."""

    @classmethod
    def of(cls, bench: Bench, name: str) -> "Known":
        """Record one rank."""
        records = bench.run(WORKLOADS[name], 1)
        return cls(name, load_inputs(records[0]), concurrent_steps(records)[0])

    def step(
        self, sweeps: Sequence[Sweep], ranks: int, sharing: float, spread: Spread
    ) -> SimulatedStep:
        """Return the simulated step of so many ranks."""
        exchange = fit_exchange(sweeps)
        machine = Machine(
            exchange=exchange,
            spread=spread,
            contention=Cores(len(os.sched_getaffinity(0)), exchange.busy_cores or 0.0),
            sharing={ranks: sharing},
        )
        (found,) = simulate(self.seen.work, [Topology(1, ranks)], machine)
        return found


def real(record: RunRecord) -> tuple[float, float]:
    """Return the measured seconds of a step, and of it those that wait for communication."""
    window = steady_window(record)
    seen = build_ledger(record, window.first)
    assert seen is not None
    return window.seconds / window.steps, float(seen.transfer.mean())


def compared(bench: Bench, known: Known, ranks: int, words: str) -> float:
    """Hold a simulated step against a real one; print both, return the error."""
    copies, spread = concurrent_steps(bench.run(WORKLOADS[known.name], 1, copies=ranks))
    ((step, exposed),) = map(real, bench.run(WORKLOADS[known.name], ranks))
    told = known.step([bench.sweep(ranks)], ranks, copies / known.alone, spread)
    by_law = known.step([bench.sweep(2)], ranks, copies / known.alone, spread)
    error = told.step / step - 1
    print(
        f"  {known.name:<10} {words:<18} copies {1000 * copies:7.1f} ms  simulated "
        f"{1000 * told.step:7.1f} ms, {1000 * told.exposed:7.1f} exposed  measured "
        f"{1000 * step:7.1f} ms, {1000 * exposed:7.1f} exposed  {100 * error:+6.1f} %  "
        f"(by the links of two ranks {100 * (by_law.step / step - 1):+6.1f} %)",
        flush=True,
    )
    return abs(error)


def many() -> float:
    """Simulate a large model on up to 16,384 devices; print and return the seconds it takes."""
    blocks = tuple(Bucket(400e6, number / 80) for number in range(1, 81))
    step = Work(forward=0.5, backward=1.0, buckets=blocks, optimizer=0.1, samples=1)
    spread = Spread(tuple(1 + number / 20_000 for number in range(1000)))
    network = Network(Link(5e-6, 400e9), Link(2e-5, 200e9), "quickest")
    places = [Topology(2**power, 8) for power in range(12)]
    began = time.perf_counter()
    for strategy in (None, Fsdp()):
        found = simulate(step, places, Machine(exchange=network, spread=spread), strategy)
    spent = time.perf_counter() - began
    print(
        f"{found[-1].topology.world:,} devices and {len(places) - 1} smaller machines, ddp and "
        f"fsdp of {len(blocks)} blocks: {spent:.3f} s (at most {SECONDS:.0f} s)"
    )
    return spent


def main() -> None:
    """Measure, simulate, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="1,2,4,8,16")
    parser.add_argument("--steps", type=int, default=100, help="of each run")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--links", default="", help="Gbit/s between two namespaces")
    asked = parser.parse_args()
    spent, errors = many(), []
    print(f"{len(os.sched_getaffinity(0))} cores, one thread per rank, Gloo")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), asked.steps)
        for name in asked.workloads.split(","):
            known = Known.of(bench, name)
            for ranks in map(int, asked.ranks.split(",")):
                if ranks > 1:
                    errors.append(compared(bench, known, ranks, f"{ranks} ranks"))
            for gbit in filter(None, asked.links.split(",")):
                with apart(gbit) as place:
                    there = replace(bench, place=place, sweeps={})
                    errors.append(compared(there, known, 2, f"2 over {gbit} Gbit/s"))
    wrong = ["16,384 devices take too long"] * (spent > SECONDS)
    if errors:
        print(f"median error {100 * median(errors):.1f} % of {len(errors)} (at most 15 %)")
        wrong += ["the median error"] * (median(errors) > ERROR)
    sys.exit("a claim does not hold: " + "; ".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
