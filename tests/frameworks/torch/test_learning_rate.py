"""How fast a run learns: rules for a larger batch, warm-up, schedules, 16-bit gradients."""

import pytest
import torch
import torch.distributed as dist

from builders import a_run
from scalewise.frameworks.lr_schedule import Rates
from scalewise.frameworks.torch.precision import LossScaler


def rates(epoch=10, total=40, **given):
    return Rates.of(a_run(lr=0.1, **given), epoch, total)


def test_without_rules_every_step_has_the_rate_that_was_said():
    plain = rates()
    assert plain.constant and {plain.at(step) for step in range(40)} == {0.1}


@pytest.mark.parametrize(("rule", "peak"), [("linear", 0.4), ("sqrt", 0.2)])
def test_a_larger_batch_learns_in_larger_steps(rule, peak):
    grown = rates(topology="1x4", lr_rule=rule, base_batch=8)
    assert grown.at(0) == pytest.approx(peak)
    assert str(grown) == f"{peak:g}"


def test_a_warm_up_climbs_from_the_rate_of_the_base_batch():
    grown = rates(topology="1x4", lr_rule="linear", base_batch=8, warmup_epochs=0.5)
    assert [round(grown.at(step), 3) for step in range(6)] == [0.16, 0.22, 0.28, 0.34, 0.4, 0.4]
    assert "after 5 steps of warm-up from 0.1" in str(grown)


def test_schedules_end_with_the_last_step_and_count_steps_alone():
    for name in ("cosine", "linear"):
        few, many = rates(schedule=name), rates(schedule=name, topology="1x4")
        assert few == many, "ranks do not change it"
        seen = [few.at(step) for step in range(40)]
        assert seen == sorted(seen, reverse=True) and seen[0] == 0.1 and seen[-1] < 0.01


@pytest.fixture
def alone(tmp_path):
    """A process group of one."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_an_overflow_is_left_out_and_the_scale_comes_down_until_it_fits():
    weight = torch.nn.Parameter(torch.ones(4))
    scaler, done = LossScaler(2.0**20), 0
    for _ in range(20):
        # The gradient of a loss times the scale, in 16 bits: too large from 2**13 on.
        weight.grad = (torch.full((4,), 9.0) * scaler.scale).half().float()
        fine = scaler.unscale([weight])
        if fine:
            assert weight.grad.tolist() == [9.0] * 4
            done += 1
        scaler.update(is_finite=fine)
    assert scaler.skipped_steps == 8 and done == 12 and scaler.scale == 2.0**12


@pytest.mark.usefixtures("alone")
def test_many_good_steps_raise_the_scale():
    weight = torch.nn.Parameter(torch.ones(1))
    scaler = LossScaler(8.0)
    for _ in range(2000):
        weight.grad = torch.ones(1)
        scaler.update(is_finite=scaler.unscale([weight]))
    assert scaler.scale == 16.0
