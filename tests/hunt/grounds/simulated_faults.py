"""Faults on the fake machine, drawn at random: every answer names what is wrong, and nothing else.

What is compared with the truth: the rank, host and cost of a straggler or slow disk, the doubt
about a loss, the cause of a failure, and that a healthy machine is accused of nothing.
"""

import io
import json
import os
from contextlib import redirect_stdout
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import scalewise
from builders import a_study
from fake_study import play_attempt, play_to_the_end
from scalewise.analysis.explain.rank_times import MIN_LAG
from scalewise.frameworks.fake import Law
from scalewise.record.attempts import attempts
from scalewise.record.read import read_run
from scalewise.record.write import write_json
from scalewise.spec import RunSpec

LIMIT = 240.0
NEAR = 0.02
"""The relative error that an answer without noise may have."""


def draw(random: Random) -> Any:
    devices = random.choice((1, 2, 3, 4, 8))
    nodes = random.choice((1, 1, 2, 2, 3, 4, 8))
    if random.random() < 0.03:
        devices, nodes = 8, 128
    world = max(2, devices * nodes)
    topology = f"{nodes}x{devices}" if devices * nodes > 1 else "1x2"
    steps = random.randrange(30, 61 if world > 100 else 250)
    law = {
        "compute": round(10 ** random.uniform(-4, -1), 6),
        "host": round(10 ** random.uniform(-4, -2), 6),
        "wait": random.choice((0.0, 0.001)),
        "ring": round(10 ** random.uniform(-4, -2), 6),
        "network": round(10 ** random.uniform(-4, -2), 6),
        "checkpoint": random.choice((0.0, 0.5)),
        "jitter": random.choice((0.0, 0.0, 0.01)),
        "noise": random.choice((0.0, 0.0, 0.02)),
    }
    kinds = ("healthy", "straggler", "slow disk", "nan loss", "hang", "lost rank", "two attempts")
    kind = random.choice(kinds)
    rank, step = random.randrange(world), random.randrange(steps)
    fault: dict[str, Any] = {"kind": kind, "rank": rank, "step": step}
    if kind == "straggler":
        fault |= {"factor": round(random.uniform(1.1, 3.0), 3), "step": 0}
    elif kind == "slow disk":
        seconds = 10 ** random.uniform(-3, -1)
        fault |= {"input": round(seconds, 6), "checkpoint": 2.0, "step": 0}
    elif kind == "nan loss":
        del fault["rank"]
    faults = [fault]
    if kind == "healthy":
        faults = []
    elif kind == "two attempts":
        faults = [
            {"kind": random.choice(("lost rank", "hang")), "rank": rank, "step": step},
            {"kind": "lost rank", "rank": rank // 2, "step": step, "attempt": 2},
        ]
    return {
        "kind": kind, "topology": topology, "steps": steps, "law": law, "faults": faults,
        "batch": random.randrange(1, 33), "seed": random.randrange(1000),
        "checkpoint_every": random.choice((None, random.randrange(1, steps + 1))),
    }  # fmt: skip


def try_case(case: Any, folder: Path) -> str | None:
    changes: dict[str, Any] = {"checkpoint_every": case["checkpoint_every"]}
    study = a_study(
        topologies=["1x1", case["topology"]], batch=case["batch"], steps=case["steps"],
        seed=case["seed"], options={**case["law"], "faults": case["faults"]},
        **{name: value for name, value in changes.items() if value},
    )  # fmt: skip
    write_json(folder / "study.json", study.to_dict())
    baseline, run = study.runs()
    # A hang of a simulated rank waits in real time, unless the ranks know how long they may wait.
    with redirect_stdout(io.StringIO()), patch.dict(os.environ, {"SCALEWISE_PATIENCE": "30"}):
        causes = play_to_the_end(baseline, folder)
        if causes and case["faults"][0].get("rank") != 0:  # The baseline has a rank 0 too.
            return f"the baseline failed: {causes[0]}"
        return _wrong_attempts(case, run, folder) or _wrong_answers(case, run, folder)


def _wrong_attempts(case: Any, run: RunSpec, folder: Path) -> str | None:
    """Play the attempts at the run; return what is wrong with the causes of those that failed."""
    stops = [fault for fault in case["faults"] if fault["kind"] in ("hang", "lost rank")]
    world, home, number = run.topology.world, folder / run.id, 0
    for number, fault in enumerate(stops, 1):
        resumed = _resumed(home)
        cause = play_attempt(run, folder, number)
        if fault["step"] < resumed:  # It had been done by an earlier attempt.
            return None if not cause else f"attempt {number} failed after its fault: {cause}"
        host = f"node-{fault['rank'] // run.topology.devices}"
        if not cause.startswith(f"rank {fault['rank']} on {host} "):
            return f"attempt {number}: {fault} was told as: {cause}"
        word = "SIGKILL" if fault["kind"] == "lost rank" else "no progress for 30 s"
        # After a checkpoint, steps are counted from where the attempt went on.
        if word not in cause or (fault["step"] > resumed and "after step " not in cause):
            return f"attempt {number}: {fault} was told as: {cause}"
        failed = json.loads((home / f"failure-{number}.json").read_text())
        if (failed["rank"], failed["host"]) != (fault["rank"], host):
            return f"attempt {number}: {fault} is recorded as {failed}"
        (last,) = [a for a in attempts(home) if a.number == number and not a.succeeded]
        hours = _least_hours(case, run, fault["step"] - resumed)
        if not hours <= last.device_hours:
            return f"attempt {number} took at least {hours} device-hours, not {last.device_hours}"
    if cause := play_attempt(run, folder, number + 1):
        return f"attempt {number + 1} of {world} ranks failed: {cause}"
    notes, resumed = read_run(home, run).ranks[-1].notes, _resumed_from(case, stops)
    if (notes.resumed or 0) != resumed:
        return f"the last attempt went on after {notes.resumed} steps, not {resumed}"
    return None


def _resumed(home: Path) -> int:
    """Return after how many steps the next attempt goes on."""
    names = [path.name for path in home.glob("checkpoints/step-*")]
    return max((int(name.partition("-")[2]) for name in names), default=0)


def _resumed_from(case: Any, stops: list[Any]) -> int:
    """Return after how many steps the last attempt should go on."""
    every, done = case["checkpoint_every"], 0
    for fault in stops:
        if every and fault["step"] >= done:
            done = fault["step"] // every * every
    return done


def _least_hours(case: Any, run: RunSpec, steps: int) -> float:
    """Return the device-hours of so many steps without noise, a little less for jitter."""
    step = Law.of(case["law"]).step(case["batch"], run.topology)
    return 0.8 * steps * step * run.topology.world / 3600


def _wrong_answers(case: Any, run: RunSpec, folder: Path) -> str | None:
    """Return what ``explain``, ``measure`` and ``summary`` say that is not the truth."""
    found = scalewise.explain(folder).points[-1]
    faults = {fault["kind"]: fault for fault in case["faults"]}
    assert found.heat
    slowest, told = found.heat.slowest, found.heat.is_straggler
    law = Law.of(case["law"])
    work = law.work_seconds(case["batch"], 0, 2) + law.wait
    lag = 0.0
    slow = faults.get("straggler") or faults.get("slow disk")
    if slow:
        own = law.work_seconds(case["batch"], 0, 2)
        lag = ((slow.get("factor", 1) - 1) * own + slow.get("input", 0.0)) / work
    noise = 0.0 if not law.jitter else 4 * law.jitter
    if lag > MIN_LAG + noise + 0.005:
        if not told or slowest.rank != slow["rank"]:
            return f"{slow} with a lag of {lag:.3f} was told as {slowest}, {told}"
        if slowest.host != f"node-{slow['rank'] // run.topology.devices}":
            return f"{slow} is said to be on {slowest.host}"
        if abs(slowest.lag - lag) > NEAR * lag + noise:
            return f"{slow} has a lag of {lag:.4f}, not {slowest.lag:.4f}"
        cause = "balance" if slow["kind"] == "straggler" else "input"
        cost = (slow.get("factor", 1) - 1) * law.work_seconds(case["batch"], 0, 2)
        cost = cost if cause == "balance" else slow["input"]
        said = found.seconds[cause]
        allowed = NEAR * cost + (noise + (0.05 if law.noise else 0.0)) * (work + cost)
        if said is None or abs(said - cost) > allowed:
            return f"{slow} costs {cost:.6f} s, and {cause} is {said}"
    elif told and lag < MIN_LAG - noise:
        return f"nobody is slow, and {slowest} was accused"
    for answer in (scalewise.measure(folder), scalewise.summary(folder)):
        doubted = {doubt.devices for doubt in answer.doubts if doubt.code == "loss-not-finite"}
        if doubted != ({1, run.topology.world} if "nan loss" in faults else set()):
            return f"loss-not-finite of {doubted} by {type(answer).__name__}"
        others = {doubt.code for doubt in answer.doubts} - EXPECTED
        if others:
            return f"{type(answer).__name__} has the doubts {others}"
    save = found.complete.get("checkpoint", 0.0)
    return _wrong_saves(case, faults, save)


EXPECTED = {"loss-not-finite", "few-steps", "resumed", "work-differs", "failed-run"}
"""Doubts that faults may bring; none is expected of the machine itself."""


def _wrong_saves(case: Any, faults: Any, seconds: float) -> str | None:
    """Return what is wrong with the time for checkpoints, where the run had one attempt."""
    every, steps, one = case["checkpoint_every"], case["steps"], case["law"]["checkpoint"]
    if len(faults) != len(case["faults"]) or faults.keys() & {"hang", "lost rank"}:
        return None
    one += faults.get("slow disk", {}).get("checkpoint", 0.0)
    count = -(-steps // every) if every else int(case["law"]["checkpoint"] > 0)
    if abs(seconds - count * one) > 1e-3:
        return f"{count} checkpoints of {one} s took {seconds} s"
    return None
