"""Play a fake study inside the test's own process: no process to start, same files."""

import io
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from builders import a_study
from guard_cases import FAULTY, healthy
from scalewise.analysis.measure import scaling_curves
from scalewise.analysis.simulate import Link, Network
from scalewise.frameworks.__main__ import do_train
from scalewise.frameworks.fake import Law
from scalewise.record.close import close
from scalewise.record.read import RunRecord, read_run
from scalewise.record.write import rank_file, write_json
from scalewise.spec import RunSpec, StudySpec, Topology
from unsealed import unseal

PAIR = Topology(1, 2)


def play(run: RunSpec, folder: Path) -> RunRecord:
    """Play one run and read what it left."""
    home = folder / run.id
    write_json(home / "spec.json", run.to_dict())
    assert do_train(str(home)) == 0
    assert not close(home, attempt=1, world=run.topology.world, ended=time.time())
    return read_run(home, run)


def play_attempt(
    run: RunSpec, folder: Path, number: int = 1, *, requeued: float | None = None
) -> str:
    """Play one attempt at a run, in which something may go wrong; return the cause, or empty.

    ``requeued``: the time at which the job of this attempt and of those before it was launched. No
    real time passes between the attempts of such a job.
    """
    home = folder / run.id
    write_json(home / "spec.json", run.to_dict())
    write_json(home / "job.json", {"attempt": number, "world": run.topology.world})
    env = {"SCALEWISE_ATTEMPT": str(number), "SCALEWISE_FIRST": str(number)}
    if requeued is not None:
        env |= {"SCALEWISE_FIRST": "1", "SCALEWISE_LAUNCHED": str(requeued)}
    with patch.dict(os.environ, env), redirect_stdout(io.StringIO()):
        code = do_train(str(home))
    exits = {os.getpid(): code} if code else {}
    cause = close(home, attempt=number, world=run.topology.world, ended=time.time(), exits=exits)
    assert bool(cause) == bool(code)
    return cause


def play_to_the_end(run: RunSpec, folder: Path, *, requeued: bool = False) -> list[str]:
    """Play attempts at a run until one succeeds; return the causes of those that failed."""
    causes: list[str] = []
    launched = time.time() if requeued else None
    while cause := play_attempt(run, folder, len(causes) + 1, requeued=launched):
        causes.append(cause)
    return causes


def play_study(study: StudySpec, folder: Path) -> Path:
    """Play every run of a study to its end; return its folder as one that was run."""
    write_json(folder / "study.json", study.to_dict())
    for run in study.runs():
        play_to_the_end(run, folder)
    return folder


def play_all(study: StudySpec, folder: Path) -> Iterator[RunRecord]:
    """Play every run of a study."""
    for run in study.runs():
        yield play(run, folder)


def law_throughput(study: StudySpec, topology: str) -> float:
    """Return what the law says, from the formula alone."""
    where = Topology.parse(topology)
    batch = study.run["batch"]
    return where.world * batch / Law.of(study.run.get("options", {})).step(batch, where)


def held(folder: Path, topologies: list[str], seeds: range) -> list[bool]:
    """Return, for every point, whether its 90 % interval holds the law's throughput."""
    inside = []
    for seed in seeds:
        noise = {"noise": 0.05, "drift": 0.03}
        study = a_study(batch=64, options=noise, seed=seed, repeats=3, topologies=topologies)
        with redirect_stdout(io.StringIO()):
            (curve,) = scaling_curves(study, play_all(study, folder))
        for point, topology in zip(curve.points, topologies, strict=True):
            truth = law_throughput(study, topology)
            inside.append(bool(point.throughput.low <= truth <= point.throughput.high))
        shutil.rmtree(folder)
    return inside


def a_sweep(
    topology: Topology = PAIR, backend: str = "gloo", processor: float = 0.5
) -> dict[str, Any]:
    """Return what doctor keeps of links with 10 µs and 1 GB/s."""
    rows = [
        {"operation": "all-reduce", "bytes": size, "processor": processor * seconds,
         "seconds": {"value": seconds, "low": seconds, "high": seconds, "count": 5}}
        for size in (2**10, 2**16, 2**20, 2**26)
        for seconds in [Network(Link(1e-5, 1e9), Link(1e-4, 1e8)).ring(size, topology)]
    ]  # fmt: skip
    return {
        "hosts": [f"node-{place}" for place in range(topology.nodes)], "backend": backend,
        "ranks": topology.world, "ranks_per_node": topology.devices, "rows": rows,
    }  # fmt: skip


def retold(run: RunSpec, folder: Path, **told: Any) -> RunRecord:
    """Play a run that says other things of itself: its ``device``, ``flops``, ``uncounted``.

    ``device`` may be a list, one for each rank. What else is given changes the law.
    """
    outline = {name: told.pop(name) for name in ("flops", "uncounted") if name in told}
    device = told.pop("device", "simulated")
    world = run.topology.world
    names = device if isinstance(device, list) else [device] * world
    home = folder / run.id
    stand_in = replace(run, device=None, options={**run.options, **told})
    write_json(home / "spec.json", stand_in.to_dict())
    with redirect_stdout(io.StringIO()):
        assert do_train(str(home)) == 0
    unseal(home)
    for rank, name in enumerate(names):
        path = rank_file(home, rank)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "device" in line:
                line["device"] = name
            if "outline" in line and rank == 0:
                line["outline"] |= outline
        path.write_text("".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines))
    assert not close(home, attempt=1, world=world, ended=time.time())
    return read_run(home, run)


def a_watched_folder(folder: Path, fault: str | None = None, name: str = "a study") -> Path:
    """Play a study of a program, of which facts were noted; on two devices it has a fault."""
    study = replace(a_study(steps=40, batch=16, topologies=["1x1", "1x2"]), name=name)
    write_json(folder / "study.json", {"schema": 1, **study.to_dict()})
    with redirect_stdout(io.StringIO()):
        list(play_all(study, folder))
    for run in study.runs():
        world = run.topology.world
        unseal(folder / run.id)
        made: dict[str, Any] = FAULTY[fault] if fault and world == 2 else {}
        for rank in range(world):
            path = rank_file(folder / run.id, rank)
            *lines, end = path.read_text().splitlines()
            own = healthy(rank) | {"epoch_samples": 10_000 // world}
            facts = own | made.get("facts", {}) | made.get("by_rank", ({}, {}))[rank]
            lines.append(json.dumps({"attempt": 1, "facts": facts}))
            if rank and "steps" in made:
                outline = next(json.loads(line)["outline"] for line in lines if "outline" in line)
                fewer = {**outline, "steps": 30}
                lines.append(json.dumps({"attempt": 1, "outline": fewer}))
            path.write_text("\n".join([*lines, end, ""]))
    return folder
