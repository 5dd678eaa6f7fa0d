"""Work to target: a known law is found again, hidden batches are covered, nonsense is refused."""

import doctest
import re
from math import inf, log, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from paths import DOCS
from scalewise.analysis.advise import critical_from_noise, published_work, work_to_target
from scalewise.analysis.advise.quality.target_posterior import T_HALF_WIDTH, stated_prior
from scalewise.analysis.measure import Estimate
from scalewise.catalog.convergence import find_table, load_tables
from scalewise.errors import NotEnoughData, ScalewiseError, SpecError
from scalewise.report.text.advice_conditions import batch_limit, batch_verdict

BATCHES = [64, 128, 256, 512, 1024, 2048, 4096]
LEAST, CRITICAL = 1e6, 2000.0


def law(batch, least=LEAST, critical=CRITICAL):
    return least * (1 + batch / critical)


def points(batches=BATCHES, **changes):
    return [(batch, law(batch, **changes), 10) for batch in batches]


def holds(estimate, truth):
    return estimate.low <= truth <= estimate.high


def test_a_known_law_is_found_again():
    found = work_to_target(points())
    assert found.critical.value == pytest.approx(CRITICAL, rel=0.05)
    assert found.least_work.value == pytest.approx(LEAST, rel=0.01)
    assert found.least_steps.value == pytest.approx(LEAST / CRITICAL, rel=0.05)
    assert found.work(16384).value == pytest.approx(law(16384), rel=0.05)
    assert found.reach(16384) == 4
    assert found.critical.count == 7
    assert str(found).startswith("work(B) = 1,0") and str(found).endswith(" samples")


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("factor", [0.5, 1.6])
def test_one_odd_point_does_not_bend_the_law(place, factor):
    measured = points()
    batch, work, runs = measured[place]
    measured[place] = (batch, factor * work, runs)
    found = work_to_target(measured)
    assert holds(found.critical, CRITICAL)
    assert found.work(8192).value == pytest.approx(law(8192), rel=0.1)


@pytest.mark.parametrize(
    ("noise", "runs", "batches"),
    [(0.03, 10, [64, 256, 1024, 2048]), (0.07, 1, BATCHES), (0.03, 10, [20, 40])],
)
def test_noisy_points_are_covered(noise, runs, batches):
    random = np.random.default_rng(0)
    held = {"work": 0, "critical": 0}
    for _ in range(40):
        off = np.exp(noise * random.standard_normal(len(batches)))
        found = work_to_target([(b, law(b) * o, runs) for b, o in zip(batches, off)])
        beyond = 2 * batches[-1]
        held["work"] += holds(found.work(beyond), law(beyond))
        held["critical"] += holds(found.critical, CRITICAL)
    assert held["work"] >= 34
    assert held["critical"] >= 32


def test_hidden_batches_of_public_workloads_are_near_and_covered():
    """Here the package has seen the tables; the benchmark leaves each out in turn."""
    errors, covered = [], []
    for each in load_tables().values():
        for hidden in (1, 2):
            found = work_to_target(each.points[:-hidden])
            for batch, work, _ in each.points[-hidden:]:
                made = found.work(batch)
                errors.append(abs(made.value / work - 1))
                covered.append(holds(made, work))
    assert np.median(errors) < 0.06
    assert np.mean(covered) >= 0.85


@pytest.mark.parametrize(
    ("workload", "critical"),
    [("resnet", 46_900), ("bert", 12_700), ("rnnt", 3_690), ("gnn", 116_000), ("maskrcnn", 830)],
)
def test_the_critical_batch_of_public_workloads_is_that_of_least_squares(workload, critical):
    assert published_work(workload).critical.value == pytest.approx(critical, rel=0.08)
    assert holds(published_work(workload).critical, critical)


def test_more_points_and_more_runs_make_it_surer():
    def width(found):
        made = found.work(16384)
        return log(made.high / made.low)

    few = work_to_target(points([64, 512]))
    many = work_to_target(points())
    once = work_to_target([(batch, work, 1) for batch, work, _ in points()])
    unknown = work_to_target([(batch, work) for batch, work, _ in points()])
    assert width(many) < width(once) < width(few)
    assert width(once) == width(unknown)


@settings(max_examples=10, deadline=None)
@given(
    some.lists(some.integers(1, 10**6), min_size=2, max_size=6, unique=True),
    some.floats(1e-3, 1e9),
    some.floats(1, 1e7),
    some.floats(1, 1e7),
)
def test_whatever_was_measured_the_answers_are_in_order(batches, least, critical, at):
    found = work_to_target([(batch, law(batch, least, critical)) for batch in batches])
    for each in (found.critical, found.least_work, found.least_steps, found.work(at)):
        assert 0 < each.low <= each.value <= each.high < inf
    slack = 1.001  # Quantiles between laws are interpolated.
    assert found.least_work.value <= slack * found.work(at).value
    assert found.work(at).value <= slack * found.work(2 * at).value
    assert found.least_steps.value <= slack * found.steps(2 * at).value
    assert found.steps(2 * at).value <= slack * found.steps(at).value


def test_units_do_not_matter():
    samples, thousands = work_to_target(points()), work_to_target(points(least=LEAST / 1000))
    assert thousands.critical.value == pytest.approx(samples.critical.value)
    assert thousands.work(9000).high == pytest.approx(samples.work(9000).high / 1000)


def test_a_given_critical_batch_and_one_point_are_enough():
    found = work_to_target([(1000, 3e6, 10)], critical=Estimate(1000.0, 800.0, 1250.0))
    assert found.work(1000).value == pytest.approx(3e6, rel=0.01)
    assert found.work(3000).value == pytest.approx(6e6, rel=0.01)
    assert found.least_work.value == pytest.approx(1.5e6, rel=0.01)
    vague = work_to_target([(1000, 3e6, 10)], critical=1000)
    assert vague.critical.high / vague.critical.low > found.critical.high / found.critical.low
    assert vague.work(8000).low < found.work(8000).low < found.work(8000).value
    assert stated_prior(1000.0, 800.0, 1250.0)[1] * T_HALF_WIDTH == pytest.approx(log(1.25))


def test_a_noise_scale_is_trusted_less_than_its_own_interval_says():
    noise = Estimate(2000.0, 1900.0, 2100.0, 150)
    critical = critical_from_noise(noise)
    assert (critical.value, critical.count) == (2000.0, 150)
    assert critical.low < noise.low / 2 and critical.high > noise.high * 2
    assert critical_from_noise(Estimate(2000.0)).high == 6000.0
    both = work_to_target(points([64, 512]), critical=critical)
    alone = work_to_target(points([64, 512]))
    assert both.critical.high / both.critical.low < alone.critical.high / alone.critical.low


def test_time_to_target_and_the_floor_that_no_number_of_devices_beats():
    found = work_to_target(points())
    step = Estimate(0.5, 0.45, 0.55, 3)
    by_step = found.time(2000, step=step)
    by_rate = found.time(2000, throughput=step.through(lambda seconds: 2000 / seconds))
    assert by_step.value == pytest.approx(found.steps(2000).value * 0.5)
    assert (by_rate.value, by_rate.low) == pytest.approx((by_step.value, by_step.low))
    assert by_step.low < by_step.value * 0.9 and by_step.high > by_step.value * 1.1
    later = found.time(2000, step=step, fixed=100.0)
    assert later.value - by_step.value == pytest.approx(100)
    floor = found.floor(step)
    assert floor.value == pytest.approx(LEAST / CRITICAL * 0.5, rel=0.05)
    assert all(floor.value < found.time(10**k, step=step).value for k in range(1, 7))
    assert found.time(2000, throughput=Estimate(4000.0)).low is None


def test_epochs_need_the_size_of_the_data_for_steps_and_times():
    epochs = work_to_target(points(least=30.0), unit="epochs")
    assert epochs.work(256).value == pytest.approx(law(256, 30.0), rel=0.01)
    assert epochs.steps(256) is epochs.least_steps is None
    assert epochs.time(256, throughput=Estimate(1000.0)) is None
    assert epochs.floor(Estimate(0.1)) is None
    sized = work_to_target(points(least=30.0), unit="epochs", samples=50_000)
    assert sized.steps(256).value == pytest.approx(sized.work(256).value * 50_000 / 256)


def test_where_more_devices_stop_paying():
    found = work_to_target(points())
    critical = found.critical.value
    assert found.useful(critical).value == pytest.approx(0.5)
    assert found.saved(critical).value == pytest.approx(0.25)
    assert found.enough.value == pytest.approx(4 * critical)
    assert found.saved(found.enough.value).value == pytest.approx(0.1)
    assert "buy" not in batch_verdict(found, 500)
    assert "more devices buy little" in batch_verdict(found, 2 * critical)
    assert "more devices buy almost nothing" in batch_verdict(found, 5 * critical)
    limit = batch_limit(found, per_device=64)
    assert f"{-(-found.enough.value // 64):,.0f} devices with 64 each" in limit
    assert "save less than 10 % of the steps" in limit and "other runs" in limit
    assert "no number of devices needs fewer than" in limit and "known to a factor" not in limit
    assert "no number" not in batch_limit(work_to_target(points(), unit="epochs"))


def test_batches_that_are_too_small_to_tell_ask_for_a_larger_one():
    flat = work_to_target([(32, 10.0), (64, 10.1), (128, 10.2)], unit="epochs")
    assert flat.critical.low > 128
    assert "measure a batch of 512 too" in batch_limit(flat)


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ([], NotEnoughData, "no work to target"),
        ([(256, 40.0)], NotEnoughData, r"one batch \(256\)"),
        ([(256, 40.0), (256, 41.0)], SpecError, "batch 256 appears twice"),
        ([(256, 40.0), (512, nan)], SpecError, "work must be .* got nan"),
        ([(256, 40.0), (512, inf)], SpecError, "work must be .* got inf"),
        ([(256, 40.0), (512, -1.0)], SpecError, "work must be .* got -1"),
        ([(0, 40.0), (512, 41.0)], SpecError, "batch must be .* got 0"),
        ([("256", 40.0), (512, 41.0)], SpecError, "batch must be .* got '256'"),
        ([(256, 40.0, 0), (512, 41.0, 1)], SpecError, "runs must be .* got 0"),
        ([(256,), (512, 41.0)], SpecError, r"not a point: \(256,\)"),
        ([(256, 40.0), (512, 20.0)], SpecError, "work falls from 40 .* to 20"),
        ([(64, 8e3), (128, 4e3), (256, 2e3), (512, 1e3)], SpecError, "work falls"),
    ],
)
def test_nonsense_is_refused_with_a_hint(given, kind, says):
    with pytest.raises(kind, match=says) as refused:
        work_to_target(given)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("critical", "says"),
    [
        (0, "critical must be"),
        (nan, "critical must be"),
        (Estimate(100.0, 200.0, 300.0), "100 does not lie from 200 to 300"),
        (Estimate(100.0, 50.0, inf), "does not lie from 50 to inf"),
        (10, "the points show a critical batch of .* and 10 "),
        (1e7, "the points show a critical batch of"),
    ],
)
def test_a_critical_batch_that_cannot_be_is_refused(critical, says):
    with pytest.raises(SpecError, match=says) as refused:
        work_to_target(points(), critical=critical)
    assert refused.value.hint


@pytest.mark.parametrize(
    "question",
    [
        lambda found: found.work(0),
        lambda found: found.time(256),
        lambda found: found.time(256, throughput=Estimate(1.0), step=Estimate(1.0)),
        lambda found: found.time(256, step=Estimate(0.0)),
        lambda found: found.time(256, throughput=Estimate(nan)),
        lambda found: found.floor(Estimate(-1.0)),
    ],
)
def test_questions_without_sense_are_refused(question):
    with pytest.raises(ScalewiseError) as refused:
        question(work_to_target(points()))
    assert refused.value.hint


def test_every_public_table_has_its_source_and_date():
    assert len(load_tables()) == 7
    for each in load_tables().values():
        assert "mlcommons/logging" in each.source and each.note
        assert each.date is None or re.fullmatch(r"20\d\d(-\d\d)?", each.date)
        assert each.unit in ("samples", "epochs")
        batches = [batch for batch, *_ in each.points]
        assert len(batches) >= 5 and batches == sorted(set(batches))
        assert all(work > 0 and runs >= 10 for _, work, runs in each.points)


def test_an_unknown_workload_is_answered_with_the_nearest():
    with pytest.raises(SpecError, match=r"no convergence table of 'resnet50'; there are: bert,"):
        published_work("resnet50")
    with pytest.raises(SpecError) as refused:
        find_table("resnet50")
    assert refused.value.hint == "did you mean 'resnet'?"


def test_the_example_of_the_card_is_what_python_says():
    card = DOCS / "metrics" / "work-to-target.md"
    (block,) = re.findall(r"^```python\n(.*?)^```$", card.read_text(), re.M | re.S)
    example = doctest.DocTestParser().get_doctest(block, {}, card.name, None, 0)
    assert doctest.DocTestRunner().run(example).failed == 0
