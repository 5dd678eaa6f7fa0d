"""Numbers in, numbers out: known truths, published tables, properties, bad tables."""

import re
from math import exp, hypot, inf, log, nan, pi, tan
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from builders import a_run
from scalewise.analysis.measure import (
    Estimate,
    condition_differences,
    curve_from_csv,
    curve_from_numbers,
    summary,
)
from scalewise.analysis.measure.curve import ScalingCurve, compare
from scalewise.analysis.measure.estimate import estimate_from_steps
from scalewise.analysis.measure.point import Point
from scalewise.analysis.measure.window import count_warmup_steps, steady_window
from scalewise.errors import NotEnoughData, SpecError
from scalewise.record.read import RankRecord, RunRecord, Steps
from scalewise.report.text.doubts import warning_text
from scalewise.spec import StudySpec

T1 = tan(0.45 * pi)
"""Student's t at 90 % with one degree of freedom: 6.31."""
MICRO = {
    "throughput": {1: 240, 2: 464, 4: 892, 8: 1668, 16: 3075, 32: 5205},
    "time": {1: 556, 2: 439, 4: 380, 8: 347, 16: 330, 32: 328},
}
TINY = {
    "throughput": {1: 242, 2: 475, 4: 935, 8: 1817, 16: 3597, 32: 6914},
    "time": {1: 2350, 2: 1354, 4: 842, 8: 605, 16: 457, 32: 310},
}
RESNET50 = {"time": {1: 14, 2: 8, 4: 5}}
RESNET152 = {"time": {1: 33, 2: 18, 4: 10}}


def a_curve(throughput=None, time=None, **more):
    return curve_from_numbers(
        (throughput or {}).items(), times=(time or {}).items(), name="t", **more
    )


def values(curve, name, scale=1):
    return [scale * getattr(point, name).value for point in curve.points[1:]]


@pytest.mark.parametrize(
    ("numbers", "published"),
    [
        (MICRO, [96.7, 92.9, 86.9, 80.1, 67.7]),
        (TINY, [98.1, 96.5, 93.8, 92.9, 89.3]),
        (RESNET50, [87.5, 70.0]),
        (RESNET152, [91.7, 82.5]),  # Printed as 91.5, which 33/18/2 is not.
    ],
    ids=["micro-224", "tiny-224", "resnet50v2", "resnet152v2"],
)
def test_published_efficiencies_are_reproduced(numbers, published):
    found = values(a_curve(**numbers), "efficiency", 100)
    if rate := numbers.get("throughput"):
        exact = [100 * rate[n] / rate[1] / n for n in rate if n > 1]
    else:
        time = numbers["time"]
        exact = [100 * time[1] / time[n] / n for n in time if n > 1]
    assert found == pytest.approx(exact, rel=1e-12)
    assert found == pytest.approx(published, abs=0.1)


@pytest.mark.parametrize(
    ("numbers", "published"), [(MICRO, [93, 92, 87, 84, 69]), (TINY, [96, 97, 94, 98, 92])]
)
def test_published_gains_per_doubling_are_reproduced(numbers, published):
    assert [round(gain) for gain in values(a_curve(**numbers), "gain", 100)] == published


def test_published_savings_of_time_are_reproduced():
    curve = a_curve(**MICRO)
    previous = values(curve, "saved_previous", 100)
    assert [round(each) for each in previous[:4]] == [21, 13, 9, 5]
    assert previous[4] == pytest.approx(0.6, abs=0.05)
    baseline = values(curve, "saved_baseline", 100)
    assert [round(each) for each in baseline] == [21, 32, 38, 41, 41]


def test_throughput_decides_efficiency_and_time_gives_its_own_speedup():
    point = a_curve(**MICRO).points[1]
    assert point.efficiency.value == pytest.approx(464 / 480)
    assert point.speedup.value == pytest.approx(464 / 240)
    assert point.speedup_time.value == pytest.approx(556 / 439)
    assert point.gain_absolute == 224
    assert point.ideal.value == 480


def test_a_baseline_of_several_devices_is_what_all_is_compared_with():
    curve = a_curve({4: 892, 8: 1668})
    assert curve.baseline.devices == 4
    assert curve.baseline.efficiency.value == 1.0
    assert curve.points[1].speedup.value == pytest.approx(1668 / 892)
    assert curve.points[1].efficiency.value == pytest.approx(1668 / (2 * 892))
    assert curve.points[1].ideal.value == 1784


@pytest.mark.parametrize(("devices", "rate", "gain"), [(4, 400, 1.0), (8, 800, 1.0), (4, 100, 0.0)])
def test_a_gain_is_per_doubling_however_far_the_step(devices, rate, gain):
    assert values(a_curve({1: 100, devices: rate}), "gain") == pytest.approx([gain])


def test_a_gain_beyond_all_numbers_is_unknown():
    point = a_curve({1218: 1.0, 1219: 6.0}).points[1]
    assert point.speedup.value == 6
    assert point.gain is None


def test_the_serial_fraction_of_amdahls_law_is_recovered():
    rates = {n: 100 / (0.07 + 0.93 / n) for n in (1, 2, 4, 64)}
    assert values(a_curve(rates), "serial_fraction") == pytest.approx([0.07] * 3)


def test_fixed_seconds_are_recovered_from_totals():
    rates = {1: 100.0, 2: 200.0, 4: 400.0}
    curve = a_curve(rates, {n: 9 + 1000 / rate for n, rate in rates.items()})
    shares = [point.overhead for point in curve.points]
    assert shares == pytest.approx([9 / 19, 9 / 14, 9 / 11.5])
    assert [point.regime for point in curve.points] == ["compute", "overhead", "overhead"]
    assert curve.turns_at == 2


@pytest.mark.parametrize(
    ("stop_after", "steps", "says"),
    [
        (30, (30, 30), "30 steps of the program"),
        (30, (22, 22), "the whole program"),
        (30, (30, 22), "at most 30 steps of the program"),
        (None, (22, 11), "the whole program"),
    ],
)
def test_a_program_that_ends_by_itself_was_done_whole(stop_after, steps, says):
    asked = {"program": ["train.py"], "topology": "1x1", "stop_after": stop_after}
    (spec,) = StudySpec.from_dict({"name": "own", "run": asked}).runs()
    none = Steps(*(np.zeros(0),) * 3, phases={})
    records = [
        RunRecord(Path(), spec, 0.0, 1.0, {}, (
            RankRecord(0, "here", (), none, ({"outline": {"steps": count}},)),
        ))
        for count in steps
    ]  # fmt: skip
    assert summary._work_text(records) == says


@pytest.mark.parametrize(("resume", "way"), [(None, "`again`"), ("runs/a/b", "leave resume out")])
def test_a_run_with_nothing_left_to_do_has_no_rate(resume, way):
    rank = RankRecord(0, "here", (), Steps(*(np.zeros(0),) * 3, phases={}), ())
    record = RunRecord(Path("there"), a_run(resume=resume), 0.0, 1.0, {}, (rank,))
    with pytest.raises(NotEnoughData, match="there was resumed after its last step") as told:
        steady_window(record)
    assert way in told.value.hint


def test_where_the_work_differs_nothing_is_said_by_time():
    work = {1: 100, 2: 150, 4: 200}
    curve = a_curve(None, {1: 10.0, 2: 9.0, 4: 8.0}, samples=work.items())
    assert values(curve, "speedup") == pytest.approx([150 / 9 / 10, 200 / 8 / 10])
    for point in curve.points[1:]:
        assert point.speedup_time is None
        assert point.saved_previous is None
        assert point.saved_baseline is None
    assert [point.overhead for point in curve.points] == [None, None, None]


def test_time_saved_against_a_point_of_other_work_is_unknown():
    work = {1: 100, 2: 200, 4: 100}
    last = a_curve(None, {1: 10.0, 2: 9.0, 4: 4.0}, samples=work.items()).points[2]
    assert last.saved_baseline.value == pytest.approx(0.6)
    assert last.saved_previous is None


@pytest.mark.parametrize(("accuracy", "told"), [(0.90, 0), (0.88, 0), (0.80, 1)])
def test_an_accuracy_that_falls_with_devices_is_flagged(accuracy, told):
    points = [
        Point(devices=n, accuracy=Estimate(share), validation_samples=1000)
        for n, share in ((1, 0.9), (2, accuracy))
    ]
    flagged = compare(ScalingCurve(study="t", points=tuple(points))).points[1].warnings
    assert len(flagged) == told
    said = "80.0% differs from the baseline's 90.0%"
    assert all(said in warning_text(each) for each in flagged)


def test_unlike_curves_are_told_apart():
    one, other = a_curve({1: 1.0}, scaling="weak"), a_curve({1: 1.0}, scaling="strong")
    assert condition_differences([one, one]) == []
    (told,) = condition_differences([one, other])
    assert warning_text(told) == "these curves differ in scaling: weak, strong"


def test_repeats_become_an_interval_of_student_t_on_logarithms():
    found, middle, half = Estimate.of([90.0, 110.0]), 9900**0.5, T1 * log(110 / 90) / 2
    assert found.value == pytest.approx(middle)
    assert found.low == pytest.approx(middle * exp(-half))
    assert found.high == pytest.approx(middle * exp(half))
    assert found.count == 2


def test_shares_may_be_zero():
    found = Estimate.of_shares([0.0, 0.2])
    assert (found.value, found.count) == (pytest.approx(0.1), 2)
    assert (found.low, found.high) == (pytest.approx(0.1 - T1 / 10), pytest.approx(0.1 + T1 / 10))


def test_one_number_has_no_interval_and_none_is_refused():
    assert Estimate.of([5.0]) == Estimate(5.0, None, None, 1)
    with pytest.raises(NotEnoughData, match="no values to summarize"):
        Estimate.of([])
    with pytest.raises(NotEnoughData, match="t: a curve needs at least one point"):
        ScalingCurve(study="t", points=())


def test_a_ratio_adds_independent_errors_in_squares():
    found = Estimate(100, 90, 110, 3) / Estimate(50, 45, 60, 2)
    assert found.value == 2
    assert found.low == pytest.approx(2 * exp(-hypot(log(100 / 90), log(60 / 50))))
    assert found.high == pytest.approx(2 * exp(hypot(log(110 / 100), log(50 / 45))))
    assert found.count == 2
    assert Estimate(100, 90, 110, 3) / Estimate(50) == Estimate(2, None, None, 1)


def test_a_falling_function_turns_the_interval_round():
    assert Estimate(2, 1, 4, 3).through(lambda x: 1 / x) == Estimate(0.5, 0.25, 1, 3)
    assert Estimate(2, 1, 4, 3) * 10 == Estimate(20, 10, 40, 3)
    assert Estimate(2).through(lambda x: x + 1) == Estimate(3)


@pytest.mark.parametrize("seconds", [[], [0.1], [0.0, 0.1]])
def test_steps_without_a_spread_give_no_interval(seconds):
    assert estimate_from_steps(7.0, np.array(seconds)) == Estimate(7.0)


def test_few_steps_give_students_wide_interval_and_equal_ones_a_tight_one():
    assert estimate_from_steps(7.0, np.full(50, 0.1)) == Estimate(7.0, 7.0, 7.0)
    found = estimate_from_steps(7.0, np.array([1.0, exp(0.2)]))
    assert (found.low, found.high) == pytest.approx((7 * exp(-T1 / 10), 7 * exp(T1 / 10)))


def test_intervals_within_a_run_hold_the_truth_nine_times_in_ten():
    held = 0
    for seed in range(200):
        steps = np.random.default_rng(seed).gamma(25, 1 / 25, 400)  # One second on average.
        found = estimate_from_steps(1 / steps.mean(), steps)
        held += found.low <= 1.0 <= found.high
    assert 165 <= held <= 195


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("slow", [[30.0], [9.0] * 3, [50.0, *[3.0] * 7], [2.0] * 30], ids=len)
def test_the_warm_up_is_found_where_it_was_put(slow, noise):
    steps = np.array([*slow, *[1.0] * 70]) * np.exp(
        noise * np.random.default_rng(1).normal(size=len(slow) + 70)
    )
    assert count_warmup_steps(steps) == len(slow)


@pytest.mark.parametrize("seconds", [1e-4, 0.0121, 3.0])
@pytest.mark.parametrize("count", [1, 4, 50, 1000, 3000])
def test_flat_steps_have_no_warm_up(seconds, count):
    assert count_warmup_steps(np.full(count, seconds)) == 0


@pytest.mark.parametrize("seed", range(10))
def test_noise_and_a_fast_start_are_no_warm_up(seed):
    noise = np.exp(0.1 * np.random.default_rng(seed).normal(size=200))
    assert count_warmup_steps(noise) == 0
    assert count_warmup_steps(np.array([0.3] * 10 + [1.0] * 100)) == 0


@settings(deadline=None)
@given(some.lists(some.floats(1e-6, 1e3), max_size=60))
def test_at_most_half_is_dropped_as_warm_up(seconds):
    assert 0 <= count_warmup_steps(np.array(seconds)) <= len(seconds) // 2


positive = some.floats(1e-3, 1e6)
counts = some.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 4096])
rates = some.dictionaries(counts, positive, min_size=1)


@settings(deadline=None)
@given(rates, some.booleans(), some.randoms())
def test_every_curve_keeps_the_arithmetic(numbers, by_time, chance):
    rows = list(numbers.items())
    chance.shuffle(rows)
    curve = a_curve(time=dict(rows)) if by_time else a_curve(dict(rows))
    base = curve.baseline
    assert [point.devices for point in curve.points] == sorted(numbers)
    assert base.efficiency == Estimate(1.0)
    for point in curve.points:
        growth = point.devices / base.devices
        speedup = point.speedup_time if by_time else point.speedup
        assert speedup.value == pytest.approx(point.efficiency.value * growth)
        if not by_time:
            assert point.ideal.value == pytest.approx(base.throughput.value * growth)
            share = point.throughput.value / point.ideal.value
            assert point.efficiency.value == pytest.approx(share)


@settings(deadline=None)
@given(some.lists(positive, min_size=2, max_size=6), some.lists(positive, min_size=2, max_size=6))
def test_an_interval_holds_its_value(some_values, others):
    first, second = Estimate.of(some_values), Estimate.of(others)
    for found in (first, first / second, Estimate.of_shares(others), first * 3):
        assert found.low <= found.value <= found.high


@settings(deadline=None)
@given(rates, some.randoms())
def test_the_order_of_rows_does_not_matter(numbers, chance):
    lines = [f"{devices},{rate!r}" for devices, rate in numbers.items()]
    first = curve_from_csv("\n".join(["devices,time", *lines]), name="t")
    chance.shuffle(lines)
    assert curve_from_csv("\n".join(["devices,time", *lines]), name="t") == first


def test_a_csv_may_have_comments_gaps_spaces_and_a_mark():
    text = "\ufeff# from a paper\r\n\r\n Devices , throughput,TIME\n 1 , 240 ,556\n2,464,\n4,,380\n"
    curve = curve_from_csv(text, name="t", scaling="weak", devices_per_node=2)
    assert [(p.devices, p.nodes) for p in curve.points] == [(1, 1), (2, 1), (4, 2)]
    assert [p.throughput and p.throughput.value for p in curve.points] == [240, 464, None]
    assert [p.time and p.time.value for p in curve.points] == [556, None, 380]
    assert curve.points[2].efficiency is None  # By throughput, and there it has none.
    assert curve.points[2].speedup_time.value == pytest.approx(556 / 380)
    assert curve.scaling == "weak"


def test_work_that_is_unknown_at_one_point_is_not_taken_as_equal():
    curve = curve_from_csv("devices,time,samples\n1,100,1000\n2,60,", name="t")
    assert curve.points[1].speedup_time is None and curve.points[1].saved_baseline is None
    assert "an unknown number of samples" in warning_text(curve.points[1].warnings[0])


def test_samples_over_time_are_throughput():
    curve = curve_from_csv("devices,time,samples\n1,10,1000\n2,5,1000", name="t")
    assert [p.throughput.value for p in curve.points] == [100, 200]
    assert curve.points[1].speedup_time.value == 2


CELLS = ["nan", "inf", "-inf", "0", "-240", "fast", "1e999", "240 img/s", "0x10"]
BAD_CSV = [
    *((f"devices,time\n1,240\n2,{cell}", f"t, line 3: time.*'{cell}'") for cell in CELLS),
    *((f"# x\ndevices,time\n{cell},9", f"t, line 3: devices.*'{cell}'") for cell in CELLS),
    ("devices,time\n1.5,9", "t, line 2: devices.*'1.5'"),
    ("devices,time\n,9", "t, line 2: devices and"),
    ("devices,time,samples\n1,,9", "t has no throughput or time in any row"),
    ("devices,time\n1,2,3", "t, line 2: 3 cells under 2 columns"),
    ("devices,time\n1,2\n\n2", "t, line 4: 1 cells under 2 columns"),
    ("devices,time\n1," + "9" * 200_000, "t, line 2"),
    ("devices,thruput\n1,2", "column 'thruput'.*did you mean 'throughput'"),
    ("devices,time,time\n1,2,2", "'time' twice"),
    ("devices,samples\n1,2", "only the columns devices, samples"),
    ("time,throughput\n1,2", "only the columns time, throughput"),
    ("", "t is empty.*the first line is devices,throughput"),
    ("# only\n\n# comments", "t is empty"),
    ("devices,time\n", "t has a header and no rows"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD_CSV, ids=lambda each: repr(each)[:40])
def test_a_bad_csv_is_refused_with_its_line_and_value(text, said):
    with pytest.raises(SpecError) as problem:
        curve_from_csv(text, name="t")
    assert re.search(said, f"{problem.value} {problem.value.hint}")


@pytest.mark.parametrize(
    ("numbers", "more", "said"),
    [
        ([], {}, "at least one number"), ([(2, 1.0), (2, 2.0)], {}, "devices = 2 appears twice"),
        ([(1, 0.0)], {}, "throughput on 1 devices must be a number above 0, got 0.0"),
        ([(1, nan)], {}, "got nan"), ([(1, inf)], {}, "got inf"), ([(1, "fast")], {}, "'fast'"),
        ([(0, 1.0)], {}, "from 1 up, got 0"), ([(1.5, 1.0)], {}, "got 1.5"),
        ([(True, 1.0)], {}, "got True"), ([(nan, 1.0)], {}, "got nan"),
        ([("two", 1.0)], {}, "'two'"), ([(1, 1.0)], {"scaling": "wek"}, "'wek'"),
        ([(1, 1.0)], {"devices_per_node": 0}, "got 0"),
    ],
)  # fmt: skip
def test_wrong_numbers_are_refused(numbers, more, said):
    with pytest.raises(SpecError, match=said):
        curve_from_numbers(numbers, **more)
