"""Sides of a comparison whose truth is known: the fake machine's law with noise between runs."""

import math
import random
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from builders import a_study
from fake_study import play_all
from scalewise.analysis.compare import Comparison, compare_sides
from scalewise.analysis.compare.side import RunFigures, Side
from scalewise.analysis.measure import Estimate, Point, ScalingCurve
from scalewise.frameworks.fake import Law
from scalewise.record.write import write_json
from scalewise.spec import Topology

COUNTS = (1, 2, 4)
BATCH, STEPS = 16, 1000
SLOW = 1.03
"""A slow-down of 3 %."""
MAX_ROUNDS = 4


START_SECONDS = 4.0
Factors = float | Mapping[int, float]
"""A number, or one for each number of devices."""


def at(factors: Factors, devices: int) -> float:
    """Return the number for so many devices; one that is not named is 1."""
    return factors.get(devices, 1.0) if isinstance(factors, Mapping) else factors


def a_side(
    seed: object, noise: Factors, repeats: int, slow: Factors = 1.0, machine: float = 0.0
) -> Side:
    """Return a side as the law gives it; more repeats of the same seed begin with the fewer. Its
    machine is slower or faster by a factor whose logarithm has the standard deviation ``machine``.
    """
    points, runs = [], []
    speed = math.exp(random.Random(f"{seed} machine").gauss(0, machine))
    for devices in COUNTS:
        rng = random.Random(f"{seed} {devices}")
        step = Law().step(BATCH, Topology(1, devices)) * at(slow, devices) * speed
        values = []
        for _ in range(repeats):
            seconds = step * math.exp(rng.gauss(0, at(noise, devices)))
            launch = START_SECONDS * math.exp(rng.gauss(0, at(noise, devices))) * speed
            job = launch + STEPS * seconds
            values.append({"throughput": devices * BATCH / seconds, "time": job, "memory": 2e9})
            runs.append(RunFigures((devices, 1), values[-1], None, STEPS, {}, launch))
        estimates = {
            name: Estimate.of([each[name] for each in values])
            for name in ("throughput", "time", "memory")
        }
        samples = devices * BATCH * STEPS
        points.append(Point(devices=devices, nodes=1, samples=samples, **estimates))
    curve = ScalingCurve(study="law", points=tuple(points))
    return Side(source=str(seed), curve=curve, runs=tuple(runs))


def a_comparison(
    seed: int, noise: Factors, repeats: int, slow: Factors = 1.0, machine: float = 0.0
) -> Comparison:
    """Compare two sides; the second one's steps take ``slow`` times as long."""
    before = a_side(f"a{seed}", noise, repeats, machine=machine)
    return compare_sides(before, a_side(f"b{seed}", noise, repeats, slow, machine))


def asked_for(
    seed: int, noise: Factors, repeats: int, slow: Factors = 1.0, machine: float = 0.0
) -> Comparison:
    """Compare again with the repeats that were asked for, until none are."""
    for _ in range(MAX_ROUNDS):
        comparison = a_comparison(seed, noise, repeats, slow, machine)
        if comparison.verdict != "cannot tell" or not comparison.more_repeats:
            break
        repeats += comparison.more_repeats
    return comparison


QUIET = {"noise": 0.01, "drift": 0.01, "launch": 2.0, "wait": 1e-3, "jitter": 0.01}
"""The machine before anything is injected; ``drift`` is the noise between runs."""
INJECTED: list[tuple[dict[str, Any], str]] = [
    ({"compute": 1.1e-3}, "computation"),
    ({"compute": 1.06e-3}, "computation"),
    ({"compute": 0.9e-3}, "computation"),
    ({"host": 4e-3}, "computation"),
    ({"wait": 3e-3}, "input"),
    ({"wait": 2.5e-3}, "input"),
    ({"wait": 6e-3}, "input"),
    ({"wait": 0.0}, "input"),
    ({"ring": 4e-3}, "transfer"),
    ({"ring": 3e-3}, "transfer"),
    ({"ring": 0.5e-3}, "transfer"),
    ({"latency": 1e-3}, "transfer"),
    ({"slow": 2e-3}, "balance"),
    ({"slow": 5e-3}, "balance"),
    ({"uneven": 0.1}, "balance"),
    ({"jitter": 0.1}, "balance"),
    ({"launch": 5.0}, "start-up"),
    ({"build": 6.0}, "start-up"),
    ({"rendezvous": 2.0}, "start-up"),
    ({"checkpoint": 4.0}, "checkpoints"),
]
"""Changes of the law, and the cause that each moves."""


def a_fake_folder(path: Path, options: dict[str, Any], **changes: Any) -> Path:
    """Play a study on the fake machine with these parameters of its law."""
    whole = {"repeats": 3, "topologies": ["1x4"], "steps": 30, "batch": 16} | changes
    study = a_study(options=options, **whole)
    write_json(path / "study.json", {"schema": 1, **study.to_dict()})
    with redirect_stdout(StringIO()):
        list(play_all(study, path))
    return path
