"""Comparisons with a known truth: noise alone, a slow-down of 3 %, causes that were injected."""

import json
import re
from collections import Counter
from dataclasses import replace

import pytest

from compared import INJECTED, QUIET, SLOW, a_comparison, a_fake_folder, a_side, asked_for
from scalewise import api, results
from scalewise.analysis.compare import (
    Condition,
    check_conditions,
    compare_sides,
    trend_of_sources,
)
from scalewise.analysis.compare.side import Side
from scalewise.analysis.measure import Doubt, Estimate, Point, ScalingCurve
from scalewise.errors import NotEnoughData
from scalewise.report import compare_sections, trend_sections
from scalewise.report.figures.trend import trend_figure
from scalewise.report.text.compare import compare_lines, condition_sentence
from scalewise.report.text.trend import trend_lines
from unsealed import unseal

PAIRS = range(100)


# All of noise × repeats, with other seeds: benchmarks/comparison.py.
@pytest.mark.parametrize(("noise", "repeats"), [(0.01, 2), (0.02, 3), (0.03, 5)])
def test_noise_alone_is_no_difference(noise, repeats):
    comparisons = [a_comparison(seed, noise, repeats) for seed in PAIRS]
    verdicts = Counter(comparison.verdict for comparison in comparisons)
    assert verdicts["no difference"] + verdicts["cannot tell"] >= 95
    assert sum(bool(comparison.machine) for comparison in comparisons) <= 16  # 10 are expected.


def test_noise_alone_is_no_difference_at_the_repeats_asked_for():
    verdicts = Counter(asked_for(seed, 0.01, 3).verdict for seed in PAIRS)
    assert verdicts["no difference"] >= 95


@pytest.mark.parametrize(("noise", "repeats"), [(0.01, 2), (0.01, 5), (0.02, 3)])
def test_a_slow_down_is_found_at_the_repeats_asked_for(noise, repeats):
    verdicts = Counter(asked_for(seed, noise, repeats, SLOW).verdict for seed in PAIRS)
    assert verdicts["slower"] >= 90


def test_a_machine_whose_speed_changes_is_no_difference():
    verdicts = Counter(asked_for(seed, 0.02, 2, machine=0.1).verdict for seed in PAIRS)
    assert verdicts["no difference"] + verdicts["cannot tell"] >= 95


def test_a_difference_that_the_start_of_the_processes_shares_may_be_the_machines():
    before = a_side("a", 0.01, 5)
    after = started(a_side("b", 0.01, 5, slow=1.2), 1.25)
    comparison = compare_sides(before, after)
    assert (comparison.verdict, comparison.more_repeats) == ("cannot tell", None)
    sentence, *_, next_step = compare_lines(comparison)
    assert re.search(r"17 % slower .* starting the processes took 2\d % longer too\.", sentence)
    assert sentence.endswith("The machine itself may have been slower while b ran.")
    assert "in turn, one repeat at a time" in next_step
    for row in comparison.speed_rows:
        assert row.ratio.low < 1 / 1.2 < 1 < row.ratio.high
    condition = Condition.parse("throughput drops 3%")
    assert check_conditions([comparison], [condition])[0].outcome == "cannot tell"
    (value,) = json.loads(compare_sections.as_json([comparison]))["comparisons"]
    assert [item["devices"] for item in value["machine"]] == [1, 2, 4]
    # A larger difference, one in the other direction, and steps that did not change are sure.
    slower = compare_sides(before, started(a_side("b", 0.01, 5, slow=1.5), 1.1))
    assert slower.verdict == "slower"
    assert any("as much of the difference may be" in line for line in compare_lines(slower))
    plain = compare_sides(before, a_side("b", 0.01, 5, slow=1.5))
    assert plain.headline.ratio.high < slower.headline.ratio.high
    assert compare_sides(before, started(a_side("b", 0.01, 5, slow=1.2), 0.8)).verdict == "slower"
    assert compare_sides(before, started(a_side("b", 0.01, 5), 1.25)).machine_row is None
    # A difference in energy that may be the machine's says nothing about speed.
    rows = tuple(replace(row, metric="energy") for row in comparison.rows if row.machine)
    assert rows and replace(comparison, rows=(*plain.rows, *rows)).machine_row is None


def test_other_machines_differ_in_speed_and_no_part_of_a_step_is_named(before, tmp_path):
    (first,) = results.comparison_sides(before)
    slow = {"compute": 1.3e-3, "wait": 1.3e-3, "launch": 2.6}
    (second,) = results.comparison_sides(a_fake_folder(tmp_path, QUIET | slow, seed=3))
    assert compare_sides(first, second).verdict == "cannot tell"
    other = replace(second, environment={**second.environment, "processor": "another"})
    comparison = compare_sides(first, other)
    assert (comparison.verdict, comparison.moved) == ("slower", None)
    assert compare_lines(comparison)[1] == (
        "Everything is slower, not one part of a step: starting the processes took 30 % longer too."
        " The machine or its software is slower."
    )


def started(side, factor):
    """The side with processes that take so many times as long to start."""
    return replace(side, runs=tuple(replace(run, launch=run.launch * factor) for run in side.runs))


def test_a_table_without_repeats_or_intervals_has_unknown_noise():
    study = a_side("a", 0.01, 5)
    single = {"throughput": lambda p: Estimate(p.throughput.value), "samples": lambda p: None}
    comparison = compare_sides(study, changed(a_side("b", 0.01, 1, slow=1.5), **single))
    assert comparison.verdict == "cannot tell"
    lines = compare_lines(comparison)
    assert "b has neither repeats nor intervals, so its noise is unknown; needs 2 more" in lines[0]
    assert "Time is not compared: only one side says how much work was done." in lines
    tables = [changed(a_side(name, 0.01, 3), samples=lambda p: None) for name in "ab"]
    bare = [changed(side, time=lambda p: None, **single) for side in tables]
    for sides, reason in (
        ((bare[0], tables[1]), "a has neither repeats nor intervals"),
        ((tables[0], bare[1]), "b has neither repeats nor intervals"),
        ((bare[0], bare[1]), "every number was measured once"),
    ):
        assert f": {reason}, so " in compare_lines(compare_sides(*sides))[0]
    assert any("neither side states it" in line for line in compare_lines(compare_sides(*tables)))


def test_points_on_the_same_number_of_nodes_are_compared():
    rates = {1: 390.0, 2: 300.0}
    packed, spread, both = (
        on_nodes({n: Estimate(rates[n], rates[n] * 0.99, rates[n] * 1.01) for n in nodes})
        for nodes in ((1,), (2,), (1, 2))
    )
    for pair in ((both, spread), (spread, both)):
        (row,) = compare_sides(*pair).rows
        assert (row.before.value, row.after.value) == (300, 300)
    (row,) = compare_sides(packed, spread).rows  # There is no such pair.
    assert (row.before.value, row.after.value) == (390, 300)
    (line,) = a_history(both, spread, spread).series
    assert [value.value for value in line.values] == [300, 300, 300]


def on_nodes(throughput):
    """A table of 4 devices with these throughputs, by the number of nodes."""
    points = [Point(devices=4, nodes=n, throughput=rate) for n, rate in throughput.items()]
    return Side(source="table", curve=ScalingCurve(study="table", points=tuple(points)))


def test_would_have_seen_is_found_nine_times_of_ten():
    seen = max(row.would_see for row in a_comparison(7, 0.01, 5).speed_rows)
    verdicts = Counter(a_comparison(seed, 0.01, 5, 1 + seen).verdict for seed in PAIRS)
    assert verdicts["slower"] >= 90


def test_a_condition_and_the_result_of_a_row_are_one_test():
    small = Condition.parse("throughput at 2 drops 0.1%")
    rows = set()
    for seed in range(20):
        comparison = a_comparison(seed, 0.02, 3, slow=1.06)
        (result,) = check_conditions([comparison], [small])
        assert (result.outcome == "shown") == (result.row.verdict == "lower")
        is_unsure = result.row.ratio.high < 1 and result.outcome == "cannot tell"
        rows.add(is_unsure)
        if is_unsure:  # Its own interval is without 0: both places say why.
            assert condition_sentence(result).endswith(" %), which may be noise")
            assert any("sure over all rows together" in line for line in compare_lines(comparison))
    assert rows == {True, False}
    certain = compare_lines(a_comparison(0, 0.001, 5, slow=1.2))
    assert not any("over all rows together" in line for line in certain)


def test_without_repeats_the_noise_is_unknown():
    comparison = a_comparison(0, 0.01, 1, slow=1.5)
    assert comparison.verdict == "cannot tell"
    assert comparison.more_repeats == 2
    assert all(row.ratio.low is None for row in comparison.rows)


def test_repeats_of_one_side_show_the_noise_of_both():
    comparison = compare_sides(a_side("a", 0.01, 5), a_side("b", 0.01, 1, slow=1.2))
    assert comparison.verdict == "slower"


def test_the_interval_holds_the_true_ratio():
    inside = 0
    for seed in PAIRS:
        (row, *_) = a_comparison(seed, 0.02, 5, SLOW).rows
        inside += row.ratio.low <= 1 / SLOW <= row.ratio.high
    assert 82 <= inside <= 97


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    return a_fake_folder(tmp_path_factory.mktemp("before"), QUIET)


def test_injected_causes_are_named(before, tmp_path):
    (side,) = results.comparison_sides(before)
    named = []
    for number, (change, cause) in enumerate(INJECTED):
        folder = a_fake_folder(tmp_path / str(number), QUIET | change, seed=100 + number)
        (other,) = results.comparison_sides(folder)
        moved = compare_sides(side, other).moved
        named.append((moved.cause if moved else None) == cause)
    assert len(named) == 20
    assert sum(named) >= 18, [INJECTED[k] for k, right in enumerate(named) if not right]


def test_a_study_is_equal_to_itself(before):
    comparison = compare_sides(*results.comparison_sides(before) * 2)
    assert comparison.verdict in ("no difference", "cannot tell")
    assert all(row.ratio.value == 1 for row in comparison.rows)
    assert not comparison.settings


def test_a_cause_that_moved_is_named_also_where_speed_does_not_differ_clearly(before, tmp_path):
    # Noise hides 0.4 ms in a step of 20 ms, but waiting for input hardly varies.
    after = a_fake_folder(tmp_path, QUIET | {"wait": 1.4e-3}, seed=7)
    comparison = api.compare(before, after)
    assert not comparison.headline.is_different
    assert comparison.moved.cause == "input"
    assert any(line.startswith("But waiting for input grew by ") for line in comparison.lines)


def test_settings_and_environments_that_differ_are_listed(before, tmp_path):
    after = a_fake_folder(tmp_path, QUIET, batch=32, seed=0)
    for path in after.glob("*/rank-*.jsonl"):
        unseal(path.parent)
        path.write_text(re.sub(r'("python": ?)"', r'\1"9.', path.read_text()))
    comparison = api.compare(before, after)
    listed = {(item.kind, item.name): (item.before, item.after) for item in comparison.settings}
    assert listed.pop(("configuration", "batch")) == ("16", "32")
    ((kind, name),) = listed
    assert (kind, name) == ("environment", "Python")


def test_another_backend_is_listed(before, tmp_path):
    after = a_fake_folder(tmp_path, QUIET, seed=0)
    for path in after.glob("*/rank-*.jsonl"):
        unseal(path.parent)
        noted = re.sub(r'"device": ?"', r'"backend": "gloo", \g<0>', path.read_text())
        path.write_text(noted)
    listed = {item.name: (item.before, item.after) for item in api.compare(before, after).settings}
    assert listed["exchange between ranks"] == (None, "gloo")


def test_variables_of_a_study_are_named_without_their_values(tmp_path):
    first, second = (
        a_fake_folder(tmp_path / name, QUIET, env={"TOKEN": f"secret-{name}"}, repeats=1)
        for name in "ab"
    )
    comparison = compare_sides(*(results.comparison_sides(folder)[0] for folder in (first, second)))
    (item,) = [item for item in comparison.settings if item.name == "env.TOKEN"]
    assert (item.before, item.after) == ("hidden", "hidden")
    shown = compare_sections.as_json([comparison]) + str(compare_sections.sections(comparison))
    assert "env.TOKEN" in shown and "secret" not in shown


def test_a_larger_batch_is_compared_by_the_time_of_a_sample(before, tmp_path):
    after = a_fake_folder(tmp_path, QUIET, batch=32, seed=3)
    comparison = api.compare(before, after)
    assert comparison.verdict == "faster"
    assert comparison.moved.cause in ("transfer", "computation")  # Per sample, both shrink.
    assert comparison.moved.change.value < 0


def test_a_step_of_a_history_that_the_start_of_the_processes_shares_may_be_the_machines():
    first, slow = a_side("a", 0.01, 5), started(a_side("b", 0.01, 5, slow=1.2), 1.25)
    assert compare_sides(first, slow).verdict == "cannot tell"  # As for the pair.
    slower = started(a_side("c", 0.01, 5, slow=1.8), 1.25)
    trend = a_history(first, slow, slower)
    for line in trend.series:
        assert [step.index for step in line.steps] == [2]
        assert [step.index for step in line.machine_steps] == [1]
    lines = trend_lines(trend)  # In the order of the results.
    assert [line[:7] for line in lines[:6]] == ["With b,"] * 3 + ["With c,"] * 3
    assert re.search(r"17 %, but starting the processes took 2\d % longer too: the mach", lines[0])
    value = json.loads(trend_sections.as_json(trend))["trend"]
    assert value["says"].startswith("With c,")
    assert value["series"][0]["machine_steps"][0]["launch"]["value"] > 1.2
    assert len(trend_figure(trend).marks) == 3
    # Alone, it is no change that is shown; on another machine nothing is withdrawn.
    (section,) = trend_sections.sections(a_history(first, slow, slow))
    assert section.title == "3 results: cannot tell"
    hosts = [replace(side, environment={"processor": side.source}) for side in (first, slow)]
    assert a_history(*hosts).verdict == "changed"


def test_load_that_changes_hides_a_step_of_a_history(before):
    first = results.comparison_sides(before)
    slower = [a_side(name, 0.01, 3, slow) for name, slow in (("a", 1.0), ("b", 1.0), ("c", 1.2))]
    assert trend_of_sources([[side] for side in slower]).largest_step
    doubt = Doubt("overloaded", {}, 4, error=0.5)
    busy = [replace(side, curve=replace(side.curve, doubts=(doubt,))) for side in slower]
    by_devices = {line.devices: line.steps for line in trend_of_sources([[s] for s in busy]).series}
    assert by_devices[2]
    assert not by_devices[4]
    with pytest.raises(NotEnoughData, match="measured in two of the results"):
        trend_of_sources([first, first], at=[64])


def changed(side, unit="samples", **fields):
    """The side with other fields of its points, each a function of the point."""
    points = [replace(p, **{k: of(p) for k, of in fields.items()}) for p in side.curve.points]
    curve = replace(side.curve, unit=unit, points=tuple(points))
    return replace(side, curve=curve, runs=())


def a_history(*sides):
    return trend_of_sources([[side] for side in sides])


def test_a_history_of_longer_jobs_is_not_compared_by_time():
    long = {"samples": lambda p: 10 * p.samples, "time": lambda p: p.time * 10}
    first, second = a_side("a", 0.001, 3), a_side("b", 0.001, 3)
    third = changed(a_side("c", 0.001, 3), unit="images", **long)
    trend = a_history(first, second, third)  # "samples" may be an unnamed unit.
    assert (trend.metric, trend.largest_step) == ("throughput", None)
    # A gap in the rates of one result is a gap of the history.
    gap = changed(third, throughput=lambda p: p.throughput if p.devices > 1 else None)
    trend = a_history(first, second, gap)
    assert (trend.metric, trend.largest_step) == ("throughput", None)
    assert [line.values[2] is None for line in trend.series] == [True, False, False]
    named = [changed(first, unit="tokens"), changed(second, unit="tokens")]
    assert a_history(*named, changed(first, unit="images")).metric == "time"  # Of the same work.
    with pytest.raises(NotEnoughData, match="neither throughput nor time of the same work"):
        a_history(*named, third)


def test_a_history_has_the_numbers_of_devices_that_two_results_measured_with_its_metric():
    sides = [
        changed(
            a_side(k, 0.01, 3), throughput=lambda p, k=k: p.throughput if p.devices > k else None
        )
        for k in range(3)
    ]
    trend = a_history(*sides)
    assert [line.devices for line in trend.series] == [2, 4]
    assert all(line.noise_known for line in trend.series)
    lost = [changed(side, throughput=lambda _: None, time=lambda _: None) for side in sides]
    with pytest.raises(NotEnoughData, match="neither throughput nor time"):
        a_history(*lost)


def test_many_doubtful_results_of_a_history_are_counted():
    doubt = Doubt("overloaded", {"host": "n1", "share": 0.9}, 4, error=0.5)
    sides = [a_side(name, 0.01, 3) for name in "abcd"]
    busy = [replace(side, curve=replace(side.curve, doubts=(doubt,))) for side in sides]
    (section,) = trend_sections.sections(a_history(*busy))
    assert section.alerts[-1].startswith("Also doubtful: 1 more result (")
    (section,) = trend_sections.sections(a_history(*busy[:3]))
    assert not any(line.startswith("Also doubtful") for line in section.alerts)
