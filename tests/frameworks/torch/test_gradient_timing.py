"""When gradients come: told in the order of the backward, in a few steps, and then no more."""

import time

import pytest
import torch
from torch import nn

from builders import a_run
from scalewise.analysis.simulate import Link, Machine, Network, load_inputs, simulate
from scalewise.frameworks.torch.timing.gradient_timing import FIRST_STEP, LAST_STEP, GradientTimer
from scalewise.probe import Unwatched
from scalewise.record.close import close
from scalewise.record.read import read_run
from scalewise.record.write import write_json
from scalewise.spec import Topology
from start_ranks import start

CPU = torch.device("cpu")


def a_model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10, bias=False))


def step(model, arrivals, laps, micro=1, part=None):
    """Do one step's forward and backward, with the laps of a whole model."""
    taken = arrivals.wrap(laps)
    for _ in range(micro):
        taken.lap("input")
        loss = (part or model)(torch.randn(8, 64)).sum()
        taken.lap("forward")
        loss.backward()
        taken.lap("backward")
    taken.lap("optimizer")
    return taken


class Names(list):
    lap = list.append


@pytest.mark.parametrize("micro", [1, 2])
def test_gradients_are_told_in_the_order_in_which_they_come(micro):
    model, laps = a_model(), Unwatched()
    arrivals = GradientTimer(a_run(), model, CPU)
    assert arrivals.arrivals() is None
    watched = [step(model, arrivals, laps, micro) is not laps for _ in range(LAST_STEP + 4)]
    assert [at for at, yes in enumerate(watched) if yes] == [*range(FIRST_STEP, LAST_STEP + 1)]
    sizes, shares = zip(*arrivals.arrivals())
    # The last layer's comes first, the first layer's weight last or right before its bias.
    assert sizes[0] == 4 * 2560 and sorted(sizes[1:]) == [4 * 256, 4 * 64 * 256]
    assert list(shares) == sorted(shares) and 0 < shares[0] < shares[-1] <= 1


def test_laps_go_on_to_the_probe_and_hooks_are_taken_away():
    model, laps = a_model(), Names()
    arrivals = GradientTimer(a_run(), model, CPU)
    for _ in range(LAST_STEP + 2):
        step(model, arrivals, laps)
    assert laps == ["input", "forward", "backward", "optimizer"] * (LAST_STEP + 2)
    before = arrivals.arrivals()
    step(model, arrivals, laps)
    assert arrivals.arrivals() == before and not arrivals._hooks


def test_a_gradient_that_does_not_always_come_is_left_out():
    model = a_model()
    arrivals = GradientTimer(a_run(), model, CPU)
    for number in range(LAST_STEP + 1):
        last = nn.Sequential(model[0], model[1])
        step(model, arrivals, Unwatched(), part=last if number == LAST_STEP else None)
    assert sorted(size for size, _ in arrivals.arrivals()) == [4 * 256, 4 * 64 * 256]


def test_a_run_that_is_too_short_tells_nothing():
    model = a_model()
    arrivals = GradientTimer(a_run(), model, CPU)
    for _ in range(FIRST_STEP):
        step(model, arrivals, Unwatched())
    assert arrivals.arrivals() is None


def test_what_is_split_is_not_watched():
    spec = a_run(framework="torch", workload="mlp", strategy="fsdp", topology="1x2")
    arrivals, laps = GradientTimer(spec, a_model(), CPU), Unwatched()
    assert all(arrivals.wrap(laps) is laps for _ in range(LAST_STEP + 4))
    assert arrivals.arrivals() is None


def test_an_engine_that_tells_of_no_gradient_costs_only_that(monkeypatch):
    def gone(parameter):
        raise AttributeError("no such edge")

    monkeypatch.setattr("scalewise.frameworks.torch.timing.gradient_timing.get_gradient_edge", gone)
    model = a_model()
    arrivals = GradientTimer(a_run(), model, CPU)
    for _ in range(LAST_STEP + 2):
        step(model, arrivals, Unwatched())
    assert arrivals.arrivals() is None


@pytest.mark.torch
def test_a_larger_machine_is_simulated_from_a_real_run_on_one_device(tmp_path):
    run = a_run(framework="torch", workload="mlp", steps=20, options={"hidden": [64, 64]})
    write_json(tmp_path / "spec.json", run.to_dict())
    code, said = start(1, "-m", "scalewise.frameworks", "train", tmp_path)
    assert code == 0, said
    assert not close(tmp_path, attempt=1, world=1, ended=time.time())
    record = read_run(tmp_path, run)
    seen = load_inputs(record)
    assert not seen.notes and seen.work.samples == 8
    assert seen.work.size == 4 * record.ranks[0].outline.parameters
    machine = Machine(exchange=Network(Link(1.0, 1e9)), spread=seen.spread)
    alone, pair = simulate(seen.work, [Topology(1, 1), Topology(1, 2)], machine)
    assert alone.exposed == 0 < pair.exposed
    assert alone.step == pytest.approx(seen.work.seconds, rel=1e-6)
