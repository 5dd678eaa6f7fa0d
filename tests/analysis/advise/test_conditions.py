"""Advice beyond the bare job: queues, interruptions, what makes devices worthwhile, many runs."""

import json
from dataclasses import replace
from math import ceil, exp, inf, log
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import scalewise
from builders import a_study
from fake_study import play_all
from paths import STUDIES
from scalewise.analysis.advise import Conditions, Purpose, advise
from scalewise.analysis.advise.interruptions import (
    InterruptionInterval,
    daly_interval,
    expected_time,
    recorded_save,
    young_interval,
)
from scalewise.analysis.advise.queue_wait import QueueWait
from scalewise.analysis.measure import curve_from_numbers, scaling_curves
from scalewise.errors import ScalewiseError, SpecError
from scalewise.record.read import Span
from scalewise.report import advice_sections
from scalewise.report.text.advice import advice_sentences
from scalewise.report.text.advice_conditions import condition_warnings
from scalewise.report.text.break_even import break_even_sentences

PUBLISHED = STUDIES / "published" / "vit-h14-tiny-224.csv"
TIMES = [(1, 1000.0), (2, 540.0), (4, 310.0), (8, 195.0)]


def a_curve(**more):
    return curve_from_numbers(times=TIMES, **more)


def asked(purpose="time", curve=None, **more):
    return scalewise.advise(curve or a_curve(), purpose, **more)


def published(**more):
    curve = scalewise.measure(PUBLISHED, scaling="weak", devices_per_node=4)
    return scalewise.advise(curve, **{"purpose": "time", **more})


# The queue.


def test_a_wait_comes_on_top_of_the_time_and_of_no_device_hours():
    plain, waited = asked(), asked(wait="10min")
    for bare, scale in zip(plain.scales, waited.scales):
        assert scale.time.value == pytest.approx(bare.time.value + 600)
        assert scale.time.low == pytest.approx(bare.time.low + 600)
        assert (scale.device_hours, scale.wait) == (bare.device_hours, 600)
        assert scale.device_time == pytest.approx(bare.device_time)


def test_a_deadline_counts_the_wait_and_the_sentence_shows_it():
    assert asked("deadline=20min").chosen.devices == 1
    found = asked("deadline=20min", wait="8min")
    assert found.chosen.devices == 2
    assert "(480 s of it in the queue)" in found.reason
    assert asked("deadline=20min", wait="1h").chosen is None


def test_a_queue_that_is_longer_for_more_devices_makes_fewer_the_fastest():
    assert asked(at=[8]).chosen.devices == 8
    found = asked(at=[8], wait="1=1s,2=1s,4=10min,8=2h")
    assert found.chosen.devices == 2
    assert not condition_warnings(found.conditions)


@pytest.mark.parametrize("wait", ["0s", "0min", "1=0s,8=0s", "1=0s"])
def test_no_wait_changes_nothing(wait):
    for purpose in ("time", "deadline=10min", "balanced"):
        plain, waited = asked(purpose, at=[8]), asked(purpose, at=[8], wait=wait)
        assert waited.reason == plain.reason
        assert waited.returns == plain.returns
        assert [s.time for s in waited.scales] == [s.time for s in plain.scales]
        assert waited.pareto[0].devices == plain.pareto[0].devices


def test_between_told_counts_the_wait_is_a_line_in_logarithms_and_said_so():
    wait = QueueWait.parse("1=1min,8=8min")
    assert wait.seconds(2) == pytest.approx(120)
    assert wait.seconds(4) == pytest.approx(240)
    told = str(asked(at=[8], wait="1=1min,8=8min"))
    assert "The wait on 2 and 4 devices is interpolated between those given for 1 and 8." in told


def test_beyond_told_counts_the_wait_is_a_guess_and_warned_of():
    found = asked(wait="2=1min,4=2min", up_to=32)
    assert found.scales[-1].wait == pytest.approx(60 * 16)
    assert found.scales[0].wait == pytest.approx(30)
    text = "the wait on 1, 8, 16 and 32 devices is only extrapolated from those of 2 and 4"
    assert text in found.warnings
    alone = asked(wait="4=2min")
    assert {scale.wait for scale in alone.scales} == {120}
    assert any("extrapolated from that of 4 alone" in text for text in alone.warnings)
    assert not condition_warnings(asked(wait="2min").conditions)


def test_a_wait_of_nothing_has_no_logarithm():
    wait = QueueWait.parse("1=0s,4=10min")
    assert wait.seconds(2) == pytest.approx(300)
    assert wait.seconds(16) == pytest.approx(1200)
    assert QueueWait.parse("2=10min,4=0s").seconds(64) == 0


@settings(max_examples=50, deadline=None)
@given(
    some.dictionaries(some.integers(1, 4096), some.floats(0.0, 1e6), min_size=1, max_size=5),
    some.integers(1, 4096),
)
def test_a_wait_is_a_time_and_between_its_neighbours(told, devices):
    wait = QueueWait(dict(sorted(told.items())), same_for_all=False)
    try:
        found = wait.seconds(devices)
    except SpecError:
        return
    assert 0 <= found < inf
    if min(told) <= devices <= max(told):
        below = [told[n] for n in sorted(told) if n <= devices][-1]
        above = next(told[n] for n in sorted(told) if n >= devices)
        assert min(below, above) * (1 - 1e-9) <= found <= max(below, above) * (1 + 1e-9)


@pytest.mark.parametrize(
    "wait",
    ["", "10", "-5min", "nan", "inf", "1e999s", "8=", "=5min", "0=5min", "-8=5min", "1.5=3h",
     "x=1h", "8=1h,8=2h", "8=1h,", "8=-1h", "8=nan", "99999999999=1h", "1=1s,2=1e300s", 600, []],
)  # fmt: skip
def test_a_wait_that_is_none_is_refused_in_a_sentence(wait):
    with pytest.raises(SpecError) as refused:
        asked(wait=wait)
    assert refused.value.hint


# Interruptions.

OFTEN = {"interrupted_every": "24h", "save": "10s", "restart": "60s"}


def test_interruptions_lengthen_the_time_and_the_device_hours_by_dalys_law():
    plain, found = asked(), asked(**OFTEN)
    for bare, scale in zip(plain.scales, found.scales):
        mean = 86400 / scale.devices
        assert scale.interrupted.mean == mean
        work, tau = bare.time.value, daly_interval(10.0, mean)
        saving = mean * exp(60 / mean) * (exp((tau + 10) / mean) - 1) * work / tau
        without = mean * exp(60 / mean) * (exp(work / mean) - 1)
        assert scale.time.value == pytest.approx(min(saving, without) if tau < work else without)
        assert scale.interrupted.lost.value == pytest.approx(scale.time.value - work)
        assert scale.interrupted.count == pytest.approx(scale.time.value / mean)
        assert scale.device_hours.value == pytest.approx(scale.devices * scale.time.value / 3600)
        assert scale.time.low < scale.time.value < scale.time.high


def test_devices_that_are_never_interrupted_are_as_before():
    plain, found = asked("deadline=10min"), asked(
        "deadline=10min", interrupted_every="1e7d", save="10s", restart="60s"
    )  # fmt: skip
    assert found.chosen.devices == plain.chosen.devices
    for bare, scale in zip(plain.scales, found.scales):
        assert scale.time.value == pytest.approx(bare.time.value, rel=1e-3)
        assert scale.chance == pytest.approx(bare.chance, abs=0.01)


@settings(max_examples=100, deadline=None)
@given(some.floats(0.1, 600.0), some.floats(1.0, 1e3), some.floats(0.0, 3600.0))
def test_the_interval_beats_its_neighbours(save, times, restart):
    """Daly's interval is a series: where saves are short against M it is the best to 1 %."""
    mean = save * 2 * times
    work = 1e4 * mean

    def cost(between):
        return expected_time(work, mean=mean, save=save, restart=min(restart, mean), every=between)

    best = daly_interval(save, mean)
    for other in (0.25, 0.5, 0.8, 1.25, 2.0, 4.0):
        assert cost(best) <= cost(other * best) * (1 + 1e-9)
    found = min(cost(best * (1 + share / 200)) for share in range(-100, 101))
    assert cost(best) <= 1.002 * found
    if times > 10:
        assert cost(best) <= cost(young_interval(save, mean)) * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(some.floats(1.0, 1e6), some.floats(1.0, 1e8), some.floats(0.01, 1e3), some.floats(0.0, 1e4))
def test_interruptions_never_shorten_a_job_and_more_of_them_lengthen_it(work, mean, save, restart):
    def cost(each):
        return expected_time(
            work, mean=each, save=save, restart=restart, every=daly_interval(save, each)
        )

    assert cost(mean) >= work * (1 - 1e-9)
    assert cost(mean / 4) >= min(cost(mean), expected_time(
        work, mean=mean, save=save, restart=restart, every=inf)) * (1 - 1e-9)  # fmt: skip


def test_what_is_expected_is_the_mean_of_what_happens():
    """Played with a die: a stretch is trained and saved; an interruption begins it anew."""
    mean, save, restart, between, stretches = 900.0, 20.0, 60.0, 170.0, 20_000
    random = Random(0)
    clock, done, back = 0.0, 0, 0.0
    while done < stretches:
        needed = back + between + save
        alive = random.expovariate(1 / mean)
        clock += min(alive, needed)
        done, back = (done + 1, 0.0) if alive >= needed else (done, restart)
    law = expected_time(stretches * between, mean=mean, save=save, restart=restart, every=between)
    assert clock == pytest.approx(law, rel=0.01)


def test_a_node_is_interrupted_as_a_whole():
    nodes = a_curve(devices_per_node=4)
    per_node = asked(curve=nodes, up_to=32, **{**OFTEN, "interrupted_every": "24h per node"})
    means = [scale.interrupted.mean for scale in per_node.scales]
    assert means == [86400 / n for n in (1, 1, 1, 2, 4, 8)]
    assert InterruptionInterval.parse("24h per device").per == "device"
    with pytest.raises(SpecError, match="the devices per node are not known"):
        asked(**{**OFTEN, "interrupted_every": "24h per node"})


def test_the_formula_is_printed_with_its_numbers():
    long = curve_from_numbers(times=[(n, 100 * t) for n, t in TIMES])
    told = str(asked("deadline=1d", curve=long, at=[8], **OFTEN))
    assert "With an interruption of each device every 24 h, a job on" in told
    assert "by Daly's correction of Young's √(2 × 10 × " in told
    assert "s of every hour." in told
    assert "too short for a save to pay" in str(asked(at=[8], **OFTEN))


def test_a_purpose_is_judged_with_what_is_lost():
    long = curve_from_numbers(times=[(n, 100 * t) for n, t in TIMES])
    assert asked("deadline=9h", curve=long, at=[8]).chosen.devices == 4
    often = {"interrupted_every": "6h", "save": "60s", "restart": "5min"}
    assert asked("deadline=9h", curve=long, at=[8], **often).chosen.devices == 8
    found = asked("time", curve=long, at=[512], **often)
    assert found.chosen.devices < 64


def test_scales_that_never_get_done_are_left_out_and_named():
    often = {"interrupted_every": "20min", "save": "60s", "restart": "5min"}
    found = asked(up_to=32, **often)
    assert found.scales[-1].devices < 32
    assert any("interrupted too often to finish" in text for text in found.warnings)
    with pytest.raises(SpecError, match="no scale finishes"):
        asked(**{**often, "interrupted_every": "10s"})


def test_the_restart_is_the_start_that_was_measured_and_the_save_that_was_recorded(tmp_path):
    study = a_study(batch=64, epochs=2, checkpoint_every=100, scaling="weak",
                    options={"launch": 20.0}, topologies=["1x1", "1x2", "1x4"])  # fmt: skip
    records = list(play_all(study, tmp_path))
    (curve,) = scaling_curves(study, records)
    assert recorded_save([]) is None
    assert recorded_save(records) is None  # The simulated machine saves in no time.
    asked_for = Conditions(interrupted_every="2h", save="5s", records=records)
    found = advise(curve, Purpose.parse("time"), conditions=asked_for)
    restarts = found.conditions.interruptions.restarts
    assert all(20 < restarts[scale.devices] < 60 for scale in found.scales)
    assert "(the restart as measured)" in " ".join(advice_sentences(found))
    with pytest.raises(SpecError, match="needs the time that a save takes"):
        advise(curve, Purpose.parse("time"),
               conditions=Conditions(interrupted_every="2h", records=records))  # fmt: skip


def test_a_save_lasts_until_the_last_rank_has_saved(tmp_path):
    study = a_study(topologies=["1x2"])
    (record,) = play_all(study, tmp_path)
    spans = [
        (Span("checkpoint", 10.0, 10.0 + took, checkpoint_step=5), Span("checkpoint", 50.0, 90.0))
        for took in (2.0, 4.0)
    ]
    ranks = [replace(rank, spans=more) for rank, more in zip(record.ranks, spans)]
    assert recorded_save([replace(record, ranks=tuple(ranks))]) == 4.0


@pytest.mark.parametrize(
    "more",
    [
        {"interrupted_every": ""},
        {"interrupted_every": "0h"},
        {"interrupted_every": "-3h"},
        {"interrupted_every": "nan"},
        {"interrupted_every": "often"},
        {"interrupted_every": "12h per rack"},
        {"interrupted_every": "12h per node per day"},
        {"interrupted_every": 12},
        {"save": "0s"},
        {"save": "-1s"},
        {"save": "5"},
        {"save": "nan"},
        {"save": 5},
        {"save": None},
        {"restart": "-1s"},
        {"restart": "soon"},
        {"restart": 3},
        {"interrupted_every": None},
    ],
)
def test_interruptions_that_are_none_are_refused_in_a_sentence(more):
    with pytest.raises(SpecError) as refused:
        asked(**{**OFTEN, **more})
    assert refused.value.hint


# Worth.


def test_more_data_makes_fixed_costs_worthwhile_by_just_the_factor_that_is_told():
    """T(N) = 60 + 1000/N: with k times the data 80 % on 16 devices."""
    curve = curve_from_numbers(
        [(n, 10.0 * n) for n in (1, 2, 4, 8)],
        times=[(n, 60 + 1000 / n) for n in (1, 2, 4, 8)],
    )
    found = scalewise.advise(curve, "time", worth=8).worth
    k = found.data
    assert (60 + 1000 * k) / (8 * (60 + 125 * k)) == pytest.approx(0.8)
    assert found.efficiency == pytest.approx((60 + 1000) / (8 * (60 + 125)))
    assert found.batch is None and found.batch_of_steps == 1
    assert found.model == k
    assert "A larger batch does not help" in " ".join(break_even_sentences(found))


def test_the_purposes_efficiency_is_the_one_to_meet():
    assert published(worth=32).worth.floor == 0.8
    assert published(purpose="efficiency=0.5", worth=32).worth.floor == 0.5
    easy, hard = (published(purpose=f"efficiency={e}", worth=32).worth.data for e in (0.5, 0.85))
    assert easy < hard
    never = published(purpose="efficiency=0.95", worth=32).worth
    assert never.data is None and never.model is None
    assert (
        "No amount of data is enough: the training itself has an efficiency of 89.3 %"
        in " ".join(break_even_sentences(never))
    )


def test_what_is_worthwhile_already_needs_nothing():
    found = asked(worth=2, purpose="efficiency=0.5").worth
    (sentence,) = break_even_sentences(found)
    assert found.data == 1 and "worthwhile as it is" in sentence


def test_a_larger_batch_hides_what_is_lost_in_steps_alone():
    """Efficiency 50 % on 8: with 4 times the batch, 4 / (4 + 1) of a step is computation."""
    curve = curve_from_numbers([(1, 100.0), (2, 180.0), (4, 300.0), (8, 400.0)])
    found = scalewise.advise(curve, "time", worth=8).worth
    assert found.data is None
    assert found.batch == pytest.approx(4)
    assert "its start is not known" in break_even_sentences(found)[0]


@settings(max_examples=10, deadline=None)
@given(some.floats(0.0, 500.0), some.floats(0.0, 0.5), some.floats(0.3, 0.95))
def test_the_factors_just_meet_the_floor(start, lost, floor):
    rates = [(n, 10.0 * n / (1 + lost * (n - 1) / n)) for n in (1, 2, 4, 8)]
    curve = curve_from_numbers(rates, times=[(n, start + 10_000 / x) for n, x in rates])
    found = scalewise.advise(curve, f"efficiency={floor}", worth=8).worth
    s, a0, a = start, 1000.0, 10_000 / rates[-1][1]
    share = 1 - a0 / (8 * a)
    if found.data is not None:
        k = found.data
        met = (s + k * a0) / (8 * (s + k * a))
        assert met >= floor - 1e-3
        assert k == 1 or met == pytest.approx(floor, abs=1e-3)
    else:
        assert a0 / (8 * a) <= floor + 1e-3
    if found.batch is not None and found.batch > 1:
        kept = a * (1 - share) + a * share / found.batch
        assert (s + a0) / (8 * (s + kept)) == pytest.approx(floor, abs=2e-3)


def test_times_alone_do_not_tell_what_a_batch_would_do():
    found = asked(worth=8).worth
    assert found.batch is None
    assert "What a larger batch would do is not known" in " ".join(break_even_sentences(found))


@pytest.mark.parametrize("devices", [0, 1, -4, 2.5, "8", True, 2**40])
def test_devices_that_nobody_can_ask_about_are_refused(devices):
    with pytest.raises(ScalewiseError) as refused:
        asked(worth=devices)
    assert refused.value.hint


# Many runs.


def test_eight_runs_side_by_side_or_one_after_another():
    found = asked(runs=8, at=[8]).runs
    by_each = {way.each: way for way in found.on(8)}
    assert by_each[1].time.value == 1000  # All at once.
    assert by_each[8].time.value == 8 * 195  # One after another.
    assert by_each[2].time.value == 2 * 540
    assert found.best(8).each == 1
    assert by_each[1].device_hours.value == pytest.approx(8 * 1000 / 3600)
    assert by_each[8].device_hours.value == pytest.approx(8 * 8 * 195 / 3600)
    assert found.best(1).rounds == 8


def test_few_runs_on_many_devices_share_them():
    found = asked(runs=2, at=[8]).runs
    assert found.best(8).each == 4
    assert found.best(8).at_once == 2
    assert asked(runs=1, at=[8]).runs.best(8).each == 8


@settings(max_examples=15, deadline=None)
@given(some.integers(1, 500), some.floats(0.0, 0.9))
def test_every_way_has_room_for_all_runs_and_the_best_is_the_soonest(count, fixed):
    times = [(n, 100 * (fixed + (1 - fixed) / n)) for n in (1, 2, 4, 8)]
    found = scalewise.advise(curve_from_numbers(times=times), "time", at=[8], runs=count).runs
    for way in found.ways:
        assert way.at_once * way.each <= way.devices
        assert way.rounds == ceil(count / way.at_once)
        assert way.rounds * way.at_once >= count
        assert found.best(way.devices).time.value <= way.time.value
    assert log(found.best(8).time.value) <= log(found.best(1).time.value) + 1e-9


def test_the_queue_is_waited_for_once():
    plain, waited = asked(runs=8, at=[8]).runs, asked(runs=8, at=[8], wait="10min").runs
    for bare, way in zip(plain.ways, waited.ways):
        assert way.time.value == pytest.approx(bare.time.value + 600)
        assert way.device_hours.value == pytest.approx(bare.device_hours.value)


def test_runs_are_told_in_a_sentence_a_table_and_json():
    found = published(purpose="budget=1.5", runs=8)
    assert (
        "8 equal runs on 8 devices finish soonest on 1 device each, 8 at a time, in 2,350 s"
        in str(found)
    )
    assert "one after another on all in 4,840 s" in str(found)
    (section,) = advice_sections.sections(found)
    assert section.tables[1].title == "8 runs, done soonest"
    told = json.loads(advice_sections.as_json(found))
    assert told["runs"]["count"] == 8
    assert set(told["runs"]["ways"][0]) == {
        "devices", "each", "at_once", "rounds", "time", "device_hours"
    }  # fmt: skip
    assert json.loads(advice_sections.as_json(published()))["runs"] is None


@pytest.mark.parametrize("runs", [0, -8, 2.5, "8", True, 10**7, 2**40])
def test_a_number_of_runs_is_whole_and_above_0(runs):
    with pytest.raises(SpecError, match="runs must be"):
        asked(runs=runs)


@pytest.mark.parametrize(
    "more", [{"wait": "5min"}, OFTEN, {"runs": 8}], ids=["wait", "interrupted", "runs"]
)
def test_what_needs_times_is_refused_where_there_are_none(more):
    rates = curve_from_numbers([(1, 100.0), (2, 180.0), (4, 300.0)])
    with pytest.raises(SpecError, match="only throughputs"):
        scalewise.advise(rates, "time", **more)


def test_all_of_it_together():
    curve = scalewise.measure(PUBLISHED, scaling="weak", devices_per_node=4)
    found = scalewise.advise(
        curve, "deadline=12h", at=[32], price=2.5, target="samples=20e6 at 64", batch=64,
        critical_batch=4000, wait="10min", interrupted_every="12h per node", save="30s",
        worth=32, runs=8,
    )  # fmt: skip
    scale = found.chosen
    assert scale.wait == 600 and scale.interrupted.lost.value > 0 and scale.target.work.value > 2e7
    whole = scale.time.value - 600
    assert scale.device_hours.value == pytest.approx(scale.devices * whole / 3600)
    assert scale.cost.value == pytest.approx(2.5 * scale.device_hours.value)
    told = json.loads(advice_sections.as_json(found))
    assert told["chosen"]["wait"] == 600
    assert set(told["chosen"]["interrupted"]) == {"mean", "interval", "count", "lost"}
    assert {"devices", "floor", "efficiency", "data", "batch", "batch_of_steps", "model"} <= set(
        told["worth"]
    )
