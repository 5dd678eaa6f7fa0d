"""``compare`` on the command line: answers, conditions for CI, a history, wrong input."""

import json
from dataclasses import replace

import pytest

from compared import QUIET, a_fake_folder
from fake_study import a_watched_folder
from paths import DOCS
from scalewise import api, results
from scalewise.analysis.compare import Condition, check_conditions, compare_sides
from scalewise.analysis.measure import Doubt
from scalewise.errors import DoubtfulData, SpecError

TWO = {"topologies": ["1x1", "1x4"], "steps": 30}
HOSTILE = "<script>alert(1)</script> =HYPERLINK(1) \\input{x} \u202eabc"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Studies before and after the links became slower."""
    home = tmp_path_factory.mktemp("compared")
    return (
        a_fake_folder(home / "before", QUIET, **TWO),
        a_fake_folder(home / "after", QUIET | {"ring": 6e-3}, seed=1, **TWO),
    )


def test_the_answer_comes_first_and_names_the_cause(folders, scalewise):
    code, out, err = scalewise("compare", *folders)
    title, verdict, cause, *_ = out.splitlines()
    assert (code, err) == (0, "")
    assert title == "before → after: slower"
    assert verdict.startswith("after is ")
    assert "slower than before on 4 devices (90 %: " in verdict
    assert cause.startswith("The exchange of gradients grew by ")
    assert "options.ring (not set → 0.006)" in out
    assert f"Next: scalewise explain {folders[1]}" in out


def test_faster_steps_of_a_slower_job_are_both_said(folders, tmp_path):
    after = a_fake_folder(tmp_path, QUIET | {"ring": 1e-4, "launch": 9.0}, seed=2, **TWO)
    comparison = api.compare(folders[0], after)
    assert comparison.verdict == "mixed"
    assert "faster than before on 4 devices" in comparison.lines[0]
    assert "; but a whole job takes " in comparison.lines[0]
    assert "start-up grew by 7 s" in comparison.lines[0]


def test_the_other_way_round_it_is_faster(folders):
    comparison = api.compare(*reversed(folders), at=[4])
    assert comparison.verdict == "faster"
    assert str(comparison).startswith("before is ")
    assert {row.devices for row in comparison.rows} == {4}


def test_every_field_of_the_json_is_in_the_reference(folders, scalewise):
    reference = (DOCS / "reference" / "json.md").read_text()
    for sources in (folders, (*folders, folders[0])):
        answer = json.loads(scalewise("compare", *sources, "--json")[1])
        for value in answer.values():
            (fields,) = value if isinstance(value, list) else [value]
            if isinstance(fields, dict):
                assert [name for name in fields if f"`{name}`" not in reference] == []


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("throughput at 4 drops 3%", 4),
        ("throughput drops by 3 %", 4),
        ("Throughput on 4 devices falls 5.5%", 4),
        ("throughput at 4 drops 90%", 0),
        ("throughput at 4 rises 3%", 0),
        ("memory rises 1%", 0),
        ("time at 4 rises 0.1%", 4),
    ],
)
def test_a_condition_that_is_shown_ends_with_4(condition, code, folders, scalewise):
    ended, out, err = scalewise("compare", *folders, "--fail-if", condition)
    assert (ended, out.startswith("before → after")) == (code, True)
    assert err.startswith("error: ") if code else not err


def test_a_condition_that_cannot_be_told_is_said_and_does_not_fail(folders, scalewise):
    runs = []
    for folder in folders:
        for spec in folder.glob("*/spec.json"):
            if json.loads(spec.read_text())["topology"] == "1x4":
                runs.append(spec.parent)
                break
    code, out, err = scalewise("compare", *runs, "--fail-if", "throughput drops 1%")
    assert code == 0
    assert "the noise is unknown; needs 2 more repeats of each side" in out
    assert err.startswith("cannot tell whether 'throughput drops 1%' holds: ")


def test_a_condition_names_the_row_that_is_nearest_to_it(tmp_path, scalewise):
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("devices,throughput,time\n1,240,556\n2,464,439\n4,892,380\n")
    new.write_text("devices,throughput,time\n1,240,556\n2,440,430\n4,892,395\n")
    conditions = ("--fail-if", "time rises 3%", "--fail-if", "throughput drops 3%")
    code, _, err = scalewise("compare", old, new, *conditions)
    assert (code, err.splitlines()) == (0, [
        "cannot tell whether 'time rises 3%' holds: time on 4 devices rose by 3.9 %;"
        " the noise is unknown",
        "cannot tell whether 'throughput drops 3%' holds: throughput on 2 devices dropped by 5.2 %;"
        " the noise is unknown",
    ])  # fmt: skip


def test_help_and_reference_have_the_exit_code_of_a_shown_condition(scalewise):
    assert "Exit with 4 if it is shown" in " ".join(scalewise("compare", "--help")[1].split())
    for page in ("cli", "errors"):
        text = (DOCS / "reference" / f"{page}.md").read_text()
        (row,) = [line for line in text.splitlines() if line.startswith("| 4 |")]
        assert "--fail-if" in row


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("throughput at 4", "not a condition"),
        ("", "not a condition"),
        ("speed drops 3%", "no metric named 'speed'"),
        ("throughput at 4 shrinks 3%", "not a change: 'shrinks'"),
        ("throughput at 64 drops 3%", "throughput was not compared on 64 devices"),
        ("accuracy drops 3%", "accuracy was not compared"),
        ("throughput at 4 drops 300%", "throughput cannot drop by 300 %"),
    ],
)
def test_a_wrong_condition_is_told_in_a_sentence(condition, problem, folders, scalewise):
    code, _, err = scalewise("compare", *folders, "--fail-if", condition)
    assert code == 1
    assert problem in err
    assert err.count("\n") == 2
    assert " hint: " in err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--difference", "0%"], "--difference takes a share between 0 and 100 %"),
        (["--difference", "much"], "--difference takes a share between 0 and 100 %"),
        (["--at", "64"], "have no number of devices in common"),
        (["--at", "x"], "--at takes whole numbers of devices"),
        (["--despite", "nothing"], "--despite takes the code of a blocking doubt"),
    ],
)
def test_a_wrong_option_is_told_in_a_sentence(options, problem, folders, scalewise):
    code, _, err = scalewise("compare", *folders, *options)
    assert (code, problem in err, " hint: " in err) == (1, True, True)


def test_several_curves_are_matched_by_their_settings(tmp_path, scalewise):
    vary = {"options.wait": [0.0, 0.02]}
    few = {"steps": 20, "repeats": 2, "topologies": ["1x2"], "vary": vary}
    first = a_fake_folder(tmp_path / "a", {"drift": 0.01}, **few)
    second = a_fake_folder(tmp_path / "b", {"drift": 0.01}, seed=1, **few)
    out = scalewise("compare", first, second)[1]
    assert out.count(" → ") >= 2
    assert out.count("Next: ") == 2
    with pytest.raises(SpecError, match="2 curves in common"):
        api.compare(first, second)
    assert api.compare(first, second, where={"options.wait": 0.02}).verdict != "slower"
    title, _, cause, *_ = scalewise("compare", first)[1].splitlines()  # Its own two curves.
    assert title.endswith(": slower")
    assert cause.startswith("Waiting for input grew by ")
    code, _, err = scalewise("compare", first, second, first)
    assert (code, "has 2 curves" in err) == (1, True)


def test_tables_are_compared_with_tables_and_studies(folders, tmp_path, scalewise):
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("devices,throughput\n1,100\n1,101\n1,99\n2,190\n2,192\n2,191\n")
    new.write_text("devices,throughput\n1,90\n1,91\n1,89\n2,191\n2,192\n2,190\n")
    out = scalewise("compare", old, new)[1]
    assert out.startswith("old.csv → new.csv: slower\nnew.csv is 10 % slower than old.csv on 1")
    assert api.compare(folders[0], old).verdict == "slower"
    old.write_text("devices,throughput\n1,100 ± 1\n2,190 ± 2\n")
    assert api.compare(old, new).verdict == "slower"
    old.write_text("devices,throughput\n1,100\n2,190\n")
    code, out, _ = scalewise("compare", old, new)
    assert (code, "3 rows of repeats" in out) == (0, True)
    for verb in ("compare", "report"):
        code, _, err = scalewise(verb, old, tmp_path / "." / "old.csv")
        assert (code, "old.csv is named twice" in err, err.count("\n")) == (1, True, 2)
    code, _, err = scalewise("compare", old)
    assert (code, "compare needs two results" in err) == (1, True)


def test_work_that_differs_is_not_compared_by_time(folders, tmp_path):
    longer = a_fake_folder(tmp_path, QUIET, **TWO | {"steps": 60})
    comparison = api.compare(folders[0], longer)
    assert ("time", "work") in comparison.not_compared
    assert "time" not in {row.metric for row in comparison.rows}
    assert any("Time is not compared" in line for line in comparison.lines)


def test_a_doubt_that_blocks_a_side_refuses_the_comparison(tmp_path, scalewise):
    right = a_watched_folder(tmp_path / "right")
    wrong = a_watched_folder(tmp_path / "wrong", "same samples")
    with pytest.raises(DoubtfulData, match=r"wrong.*same-samples"):
        api.compare(right, wrong)
    code, _, err = scalewise("compare", right, wrong)
    assert (code, "insist with --despite same-samples" in err) == (1, True)
    code, out, _ = scalewise("compare", right, wrong, "--despite", "same-samples")
    assert (code, "wrong: Not reliable [same-samples]" in out) == (0, True)


def test_a_weakening_doubt_about_one_side_widens_its_interval(folders):
    first, second = (results.comparison_sides(folder)[0] for folder in folders)
    doubt = Doubt("overloaded", {}, 4, error=0.5)
    doubtful = replace(second, curve=replace(second.curve, doubts=(doubt,)))
    plain, widened = (compare_sides(first, side) for side in (second, doubtful))
    assert plain.verdict == "slower"
    (row,) = [row for row in widened.speed_rows if row.devices == 4]
    assert row.verdict == "cannot tell"
    # Other load is never the same twice; runs that are too short are so on both sides.
    for kind, verdict in (("overloaded", "cannot tell"), ("rehearsed", "slower")):
        doubt = Doubt(kind, {}, 4, error=0.5)
        pair = [replace(s, curve=replace(s.curve, doubts=(doubt,))) for s in (first, second)]
        assert compare_sides(*pair, at=[4]).verdict == verdict


def test_more_than_two_results_are_a_history(folders, tmp_path, scalewise):
    code, out, _ = scalewise("compare", *folders, folders[0])
    assert code == 0
    assert out.startswith("3 results: throughput changed\nWith ")
    history = api.trend([*folders, folders[0]])
    (line,) = [line for line in history.series if line.devices == 4]
    assert history.by_time
    assert [step.is_better for step in line.steps] == [False]
    assert history.sides[-1].source == str(folders[1])  # It ran last.
    code, _, err = scalewise("compare", *folders, folders[0], "--fail-if", "time rises 1%")
    assert (code, "--fail-if compares two results" in err) == (1, True)


def test_a_history_of_single_numbers_shows_its_own_noise(tmp_path, scalewise):
    rates = [100.0, 100.4, 99.8, 100.3, 99.9, 90.1, 89.9, 90.2, 89.8]
    for number, rate in enumerate(rates):
        (tmp_path / f"day{number}.csv").write_text(f"devices,throughput\n4,{rate}\n")
    days = [tmp_path / f"day{number}.csv" for number in range(len(rates))]
    ((step,),) = [line.steps for line in api.trend(days).series]
    assert (step.index, step.is_better) == (5, False)
    assert step.ratio.low < 0.9 < step.ratio.high
    assert not api.trend(days[:5]).largest_step
    assert "With day5.csv, throughput on 4 devices dropped" in scalewise("compare", *days)[1]
    out = scalewise("compare", *days[:3])[1]
    assert out.startswith("3 results: cannot tell\nCannot tell where it changed: every number was")


def test_hostile_names_are_shown_as_text(tmp_path, scalewise):
    names = [f"{HOSTILE}\n{number}".replace("/", " ") for number in range(2)]
    folders = [
        a_fake_folder(tmp_path / name, {"drift": 0.01}, steps=20, repeats=2, seed=number)
        for number, name in enumerate(names)
    ]
    code, out, err = scalewise("compare", *folders)
    assert (code, err) == (0, "")
    assert "\u202e" not in out
    assert out.splitlines()[0].startswith("<script>alert(1)< script> =HYPERLINK(1)")
    long = tmp_path / f"{'x' * 200}.csv"
    long.write_text("devices,throughput\n1,10\n")
    short = tmp_path / "short.csv"
    short.write_text(long.read_text())
    assert max(map(len, scalewise("compare", long, short)[1].splitlines())) < 500


def test_a_condition_is_judged_by_estimate_and_noise(folders):
    first, second = (results.comparison_sides(folder)[0] for folder in folders)
    comparison = compare_sides(first, second)
    (row,) = [row for row in comparison.speed_rows if row.devices == 4]
    drop = 100 * (1 - row.ratio.value)
    below, above = (Condition.parse(f"throughput at 4 drops {drop + d:.2f}%") for d in (-1, 1))
    outcomes = [result.outcome for result in check_conditions([comparison], [below, above])]
    assert outcomes[0] == "shown"
    assert outcomes[1] in ("cannot tell", "not shown")
