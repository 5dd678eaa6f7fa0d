"""What a study will cost, the limit it keeps, and when more devices stop paying."""

import json
import math
import re
import time
from dataclasses import dataclass, field, replace

import pytest
import tomllib
from hypothesis import given, settings
from hypothesis import strategies as some

from builders import a_study
from commands import install_framework, run_command, study_toml
from fake_slurm import fake_slurm, wait_for_jobs
from fake_study import play
from paths import DOCS
from recording_watcher import RecordingWatcher
from scalewise import results, study
from scalewise.analysis.advise import Purpose
from scalewise.analysis.advise.choice import stop_advice
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.measure import curve_from_numbers
from scalewise.errors import LaunchError, SpecError
from scalewise.frameworks.fake import Law
from scalewise.launch import Job, State
from scalewise.launch.slurm import SlurmLauncher
from scalewise.record.attempts import bought
from scalewise.record.study_files import finished
from scalewise.record.write import write_json
from scalewise.report import formats
from scalewise.report.receipt_table import section
from scalewise.report.text.advice import stop_sentence
from scalewise.report.text.doubts import warning_text
from scalewise.report.text.spending import estimate_lines, receipt_lines
from scalewise.spec import StudySpec
from scalewise.study.budget import SpendingLimit, StudyBudget, load_bill
from scalewise.study.runner import execute_runs
from scalewise.study.stop_rule import PurposeRule

LOSSY = {"ring": 0.02, "latency": 0.004, "noise": 0.02}
"""A machine on which more devices soon do not pay."""
GOOD = {"ring": 1e-4, "latency": 0.0, "launch": 0.1, "noise": 0.02}
EPOCHS = {"epochs": 2, "data": "synthetic:8192", "batch": 16}
SLURM = {"name": "slurm", "time": "00:30:00"}


class Watched(RecordingWatcher):
    """A watcher that also remembers what was noted."""

    def __init__(self):
        super().__init__()
        self.notes = []

    def note(self, sentence):
        self.notes.append(sentence)


def played(question, folder, worlds):
    """Play the runs of a study on these numbers of devices."""
    write_json(folder / "study.json", question.to_dict())
    for run in question.runs():
        if run.topology.world in worlds:
            play(run, folder)
            write_json(folder / run.id / "job.json", {"attempt": 1, "world": run.topology.world})
    return folder


def a_purse(question, folder, hours, **more):
    return StudyBudget(question, folder, SpendingLimit.of(None, hours, None), **more)


def there(question, folder):
    return [str(run.topology) for run in question.runs() if finished(folder / run.id)]


# The bill.


def test_nothing_is_made_up_before_the_first_run(tmp_path):
    found = load_bill(a_study(), tmp_path)
    assert [item.basis for item in found.items] == ["unknown"] * 3
    assert (found.bought, found.expected, found.max_hours) == (0.0, None, None)
    assert estimate_lines(found, Rate(2.5)) == [
        "no cost estimate yet: run the smallest configuration first"
    ]


def test_one_scale_tells_of_its_repeats_and_of_no_other(tmp_path):
    question = a_study(repeats=2, topologies=["1x1", "1x2"])
    first = question.runs()[0]
    play(first, tmp_path)
    write_json(tmp_path / first.id / "job.json", {"attempt": 1, "world": 1})
    found = load_bill(question, tmp_path)
    assert [item.basis for item in found.items] == ["bought", "measured", "unknown", "unknown"]
    assert found.items[1].hours.value == pytest.approx(found.bought)
    assert found.max_hours is None
    last = estimate_lines(found, None)[-1]
    assert last.startswith("total: bought 0.003") and "2 runs not known yet" in last


def test_two_scales_predict_the_others_with_an_interval_that_holds_the_law(tmp_path):
    question = a_study(topologies=["1x1", "1x2", "1x4", "1x8"], options=LOSSY, **EPOCHS)
    found = load_bill(question, played(question, tmp_path, (1, 2)))
    assert [item.basis for item in found.items] == ["bought", "bought", "predicted", "predicted"]
    law = Law.of(LOSSY)
    for item in found.missing:
        where = item.run.topology
        steps = 2 * (8192 // (16 * where.world))
        rest = 4 + 0.5 * (1 + math.log2(where.world)) + 2 + 3 + 2 / where.world + 0.5
        truth = where.world * (rest + steps * law.step(16, where)) / 3600
        assert item.hours.low < truth < item.hours.high
        assert item.max_hours == item.hours.high
    assert found.expected.value == pytest.approx(sum(i.hours.value for i in found.missing))
    told = estimate_lines(found, Rate(10.0))
    assert len(told) == 6 and told[0] == "estimated cost, in device-hours:"
    assert "predicted" in told[-2] and "]" in told[-2] and "expected to come" in told[-1]


def test_a_time_limit_bounds_what_nobody_has_measured(tmp_path):
    question = a_study(topologies=["1x1", "1x2"], launcher=SLURM)
    found = load_bill(question, tmp_path)
    assert [(item.basis, item.max_hours) for item in found.items] == [
        ("limited", 0.5),
        ("limited", 1.0),
    ]
    assert (found.max_hours, found.expected) == (1.5, None)
    assert estimate_lines(found, Rate(2.0))[1].endswith(
        "at most 0.5000 for 1.000, by the time limit"
    )
    assert (
        estimate_lines(found, Rate(2.0))[-1]
        == "total: bought 0 for 0; at most 1.500 for 3.000 to come"
    )


def test_runs_that_share_an_allocation_pay_for_all_of_it(tmp_path):
    question = a_study(topologies=["1x1", "1x2", "2x2"], launcher={**SLURM, "jobs": "one"})
    found = load_bill(question, tmp_path)
    assert [item.devices for item in found.items] == [4, 4, 4]
    assert found.max_hours == 2.0  # One job of four devices for half an hour.
    alone = SlurmLauncher(SLURM)
    assert alone.billed_devices(question.runs()[0], question.runs()) == 1


def test_a_plan_ends_with_the_bill(tmp_path):
    (tmp_path / "s.toml").write_text(study_toml(["1x1", "1x2"]))
    played(study.load(tmp_path / "s.toml"), tmp_path / "runs" / "a study", (1,))
    told = run_command("plan", "s.toml", "--price", "1000", cwd=tmp_path).stdout.splitlines()
    assert told[-4] == "estimated cost, in device-hours:"
    assert ": bought 0.003" in told[-3] and " for 3.1" in told[-3]
    assert told[-2].endswith("(fake on 1x2, repeat 1): not known yet")


def test_the_guide_shows_what_is_printed(tmp_path):
    guide = (DOCS / "guides" / "costs.md").read_text()
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", guide, re.M | re.S)
    (text,) = (block for language, block in fenced if language == "toml")
    stops, asks, quotes, refuses, receipt = (block for language, block in fenced if not language)
    question = StudySpec.from_dict(tomllib.loads(text))
    stop_rule = PurposeRule(question, tmp_path, Purpose.parse("efficiency=0.8"), Rate(2.5))
    played(question, tmp_path, (1, 2))
    assert quotes.splitlines() == estimate_lines(load_bill(question, tmp_path), Rate(2.5))
    assert stop_rule.stop_reason(4) in stops.splitlines()
    assert stops.splitlines()[-2:] == receipt_lines(results.receipt(tmp_path, price=2.5))
    with pytest.raises(SpecError) as told:
        StudyBudget(question, tmp_path, SpendingLimit.of(2.0, None, Rate(2.5))).check()
    refused = refuses.replace("--max-cost 2", "max_cost=2")  # As Python spells it.
    assert refused == f"error: {told.value}\n hint: {told.value.hint}\n"
    played(question, tmp_path, (4, 8))
    longer = replace(stop_rule, purpose=Purpose.parse("deadline=100s"))
    assert longer.stop_reason(16) == asks.strip()
    found = results.explanations(tmp_path)
    whole = section(found, results.receipt(tmp_path, found))
    assert formats.plain_text([whole], brief=True) == receipt.rstrip()


# The limit.


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_limit_is_a_number_above_0(bad):
    with pytest.raises(SpecError, match="max_device_hours= must be a number above 0"):
        SpendingLimit.of(None, bad, None)
    with pytest.raises(SpecError, match="max_cost= must be a number above 0"):
        SpendingLimit.of(bad, None, Rate(2.5))


def test_money_needs_a_price_and_one_limit_is_enough():
    with pytest.raises(SpecError, match="max_cost= needs the price") as told:
        SpendingLimit.of(20.0, None, None)
    assert "max_device_hours=8" in told.value.hint
    with pytest.raises(SpecError, match="set the same limit"):
        SpendingLimit.of(20.0, 8.0, Rate(2.5))
    assert SpendingLimit.of(None, None, Rate(2.5)) is None
    assert SpendingLimit.of(20.0, None, Rate(2.5)) == SpendingLimit(
        8.0, "max_cost=20 (8 device-hours at 2.5)"
    )


def test_what_is_known_to_be_too_dear_is_refused_before_anything_starts(tmp_path):
    question = a_study(topologies=["1x1", "1x2", "1x4"], launcher=SLURM)
    with pytest.raises(SpecError, match=r"3 missing runs take up to 3\.5 device") as told:
        study.run(question, tmp_path / "new", Watched(), budget=a_purse(question, tmp_path, 2.0))
    assert told.value.hint.startswith("all runs on up to 2 devices fit")
    assert not (tmp_path / "new").exists()
    with pytest.raises(SpecError, match="too little") as told:
        a_purse(question, tmp_path, 0.4).check()
    assert "not even the smallest" in told.value.hint
    a_purse(question, tmp_path, 3.5).check()


def test_what_was_bought_counts_and_so_does_what_failed(tmp_path):
    question = a_study(topologies=["1x1", "1x2"])
    home = played(question, tmp_path, (1,)) / question.runs()[1].id
    write_json(home / "job.json", {"attempt": 1, "world": 2})
    write_json(home / "failure-1.json", {"attempt": 1, "started": 0.0, "ended": 1800.0})
    purse = a_purse(question, tmp_path, 1.0)
    assert purse.bill.bought == pytest.approx(1.0 + 11.2 / 3600, rel=1e-3)
    assert purse.refusal([question.runs()[1]], []).startswith("0 device-hours are left of")


def test_jobs_that_nobody_watches_need_a_time_limit_by_which_they_fit(tmp_path):
    endless = a_study(launcher={"name": "slurm"})
    with pytest.raises(SpecError, match="enforced on detached jobs"):
        a_purse(endless, tmp_path, 100.0).check(detach=True)
    a_purse(a_study(launcher=SLURM), tmp_path, 3.5).check(detach=True)


def test_a_run_that_is_expected_to_be_too_dear_is_not_started(tmp_path):
    question = a_study(topologies=["1x1", "1x2", "1x4"])
    purse = a_purse(question, tmp_path, 0.0125)  # 11.2 s, 2 × 11.2 s, and 4 × 11.5 s to come.
    with pytest.raises(
        LaunchError, match=r"1x4, repeat 1\) was not started: 0\.01\d+ device-h"
    ) as t:
        study.run(question, tmp_path, Watched(), budget=purse)
    assert "higher limit" in t.value.hint
    assert there(question, tmp_path) == ["1x1", "1x2"]
    told = Watched()
    study.run(question, tmp_path, told)
    assert [str(run.topology) for run in told.runs] == ["1x4"]


def test_a_run_that_reaches_the_limit_is_ended_and_its_record_says_why(tmp_path):
    env = install_framework(tmp_path / "site", "if spec.topology.world > 1: time.sleep(300)")
    (tmp_path / "s.toml").write_text(study_toml(["1x1", "1x2", "1x4"], framework="odd"))
    began = time.monotonic()
    words = ("--max-cost", "3.8", "--price", "1000")  # 3.1 for the first run.
    ended = run_command("run", "s.toml", *words, cwd=tmp_path, env=env)
    assert time.monotonic() - began < 120
    assert ended.returncode == 3
    assert "1x2, repeat 1) failed: ended at --max-cost 3.8 (0.0038 device-hours at 1,000)" in (
        ended.stderr
    )
    assert "bought 0.00" in ended.stderr and "lost: start-up" in ended.stderr
    folder = tmp_path / "runs" / "a study"
    (failed,) = folder.glob("*/failure-1.json")
    assert json.loads(failed.read_text())["cause"].startswith("ended at --max-cost 3.8")
    assert 0.0038 <= bought(folder) < 0.02
    (curve,) = results.curves([folder])
    assert [point.devices for point in curve.points] == [1]
    assert "2 of 3 runs are not finished" in map(warning_text, curve.warnings)
    again = run_command("run", "s.toml", *words, cwd=tmp_path, env=env)
    assert again.returncode == 1 and "was not started, and 1 more: 0 device-hours" in again.stderr


def test_the_limit_is_kept_on_a_cluster_too(tmp_path):
    sleepy = install_framework(tmp_path / "site", "if spec.topology.world > 1: time.sleep(600)")
    env = fake_slurm(tmp_path, sleepy)
    text = study_toml(["1x1", "1x2"], name="queued", framework="odd")
    (tmp_path / "s.toml").write_text(text + '[launcher]\nname = "slurm"\n')
    ended = run_command("run", "s.toml", "--max-device-hours", "0.005", cwd=tmp_path, env=env)
    assert ended.returncode == 3, ended.stderr
    assert "1x2, repeat 1) failed: ended at --max-device-hours 0.005" in ended.stderr
    folder = tmp_path / "runs" / "queued"
    assert there(study.load(tmp_path / "s.toml"), folder) == ["1x1"]
    assert 0.005 <= bought(folder) < 0.02  # Ending takes its time too.
    (cause,) = (json.loads(path.read_text()) for path in folder.glob("*/failure-1.json"))
    assert cause["cause"].startswith("ended at --max-device-hours 0.005")
    assert cause["started"] is not None
    wait_for_jobs(folder)


@dataclass
class Cluster:
    """A launcher of many runs at once; each ends at its third look."""

    at_once: float = math.inf
    looks: dict = field(default_factory=dict)
    cancelled: list = field(default_factory=list)
    order: list = field(default_factory=list)

    def together(self, runs):
        return [[run] for run in runs]

    def plan(self, runs, folder):
        return runs

    def submit(self, runs):
        (run,) = runs
        self.order.append(("start", run.topology.world))
        return [Job(self.home / run.id, 1, run.topology.world, {})]

    def poll(self, job):
        self.looks[job.folder] = self.looks.get(job.folder, 0) + 1
        over = self.looks[job.folder] > 2
        return State("ended", "no rank was ever there") if over else State("running")

    def cancel(self, job, *, stuck=False):
        self.cancelled.append(job.world)


class Careful:
    """A budget who lets one run go at a time, and ends all after so many looks."""

    def __init__(self, looks=1000):
        self.refused, self.left, self.ended = {}, looks, 0

    def refusal(self, runs, active):
        return "one at a time" if active or runs[0].topology.world > 4 else ""

    def end_reason(self, active):
        self.left -= 1
        return "the purse is empty" if self.left < 0 else ""

    def clear_bill(self):
        self.ended += 1


def test_a_cluster_waits_with_what_would_be_too_much_now(tmp_path):
    runs = a_study(topologies=["1x1", "1x2", "1x4", "1x8"]).runs()
    cluster, budget = Cluster(), Careful()
    cluster.home = tmp_path
    failed = execute_runs(cluster, {run: n for n, run in enumerate(runs, 1)}, tmp_path, Watched(),
                       detach=False, budget=budget)  # fmt: skip
    assert cluster.order == [("start", 1), ("start", 2), ("start", 4)]
    assert len(failed) == budget.ended == 3
    assert list(budget.refused.values()) == ["one at a time"]


def test_an_empty_purse_ends_all_that_is_under_way(tmp_path):
    runs = a_study(topologies=["1x1", "1x2"]).runs()
    cluster, budget, told = Cluster(), Careful(looks=1), Watched()
    cluster.home, budget.refusal = tmp_path, lambda runs, active: ""
    failed = execute_runs(cluster, {run: n for n, run in enumerate(runs, 1)}, tmp_path, told,
                       detach=False, budget=budget)  # fmt: skip
    assert sorted(cluster.cancelled) == [1, 2]
    assert set(failed.values()) == set(told.causes) == {"the purse is empty"}


# More devices only while they pay.

FLAT = [(1, 100.0), (2, 190.0), (4, 210.0)]
FINE = [(1, 100.0), (2, 198.0), (4, 392.0)]


def why(points, purpose, ahead=(8, 16), **more):
    curve = curve_from_numbers(points, scaling="weak")
    advice = stop_advice(curve, Purpose.parse(purpose), ahead, **more)
    return stop_sentence(advice) if advice else ""


def test_a_scale_that_would_be_chosen_is_worth_going_on_for():
    assert why(FINE, "efficiency=0.8") == ""
    assert why(FINE, "time") == ""
    assert why(FINE[:1], "efficiency=0.99") == ""  # One scale cannot tell.


def test_a_study_that_stops_says_why_with_its_numbers():
    told = why(FLAT, "efficiency=0.8")
    assert told.startswith("curve: stopped after 4 devices: 8 are predicted to do ")
    assert "time and" in told and "more device-hours" in told
    assert "2 devices, measured, are the fastest of those that meet efficiency=0.8" in told
    assert told.count("chance to meet the limit is ") == 2  # Of the next scale, and of the best.


def test_a_purpose_that_no_scale_meets_is_not_chased():
    told = why(FINE, "throughput=1e9")
    assert "No scale of 1 to 16 devices meets throughput=1e9" in told


def test_a_deadline_that_is_met_by_few_asks_for_no_more():
    times = [(1, 1000.0), (2, 510.0), (4, 270.0)]
    curve = curve_from_numbers(times=times)
    met = stop_sentence(stop_advice(curve, Purpose.parse("deadline=600s"), [8]))
    assert "2 devices, measured, take the fewest device-hours" in met
    assert "8 are predicted to take" in met and "less, for" in met
    assert stop_advice(curve, Purpose.parse("deadline=200s"), [8]) is None
    assert stop_advice(curve, Purpose.parse("cost=0.76"), [8], price=2.5)


@settings(max_examples=12, deadline=None)
@given(
    gains=some.lists(some.floats(0.3, 2.0), min_size=1, max_size=3),
    purpose=some.sampled_from(["time", "efficiency=0.7", "balanced", "throughput=300"]),
)
def test_stopping_always_names_a_measured_scale_or_says_that_none_serves(gains, purpose):
    points = [(1, 100.0)]
    for gain in gains:
        points.append((2 * points[-1][0], points[-1][1] * gain))
    ahead = [2 * points[-1][0], 4 * points[-1][0]]
    told = why(points, purpose, ahead)
    if told:
        reason = told.partition(". ")[2] or told
        assert ", measured," in reason or reason.startswith("No scale of 1 to")


def test_run_for_a_purpose_stops_and_goes_on_when_asked_for_more(tmp_path):
    question = a_study(topologies=["1x1", "1x2", "1x4"], options=LOSSY, repeats=2, **EPOCHS)
    told = Watched()
    stop_rule = PurposeRule(question, tmp_path, Purpose.parse("efficiency=0.8"))
    study.run(question, tmp_path, told, stop_rule=stop_rule)
    assert there(question, tmp_path) == ["1x1", "1x1", "1x2", "1x2"]
    (note,) = told.notes
    assert note.startswith("a study: stopped after 2 devices: 4 are predicted to take ")
    assert [s.phase for s in study.status(tmp_path)][4:] == ["missing", "missing"]
    more = Watched()
    study.run(question, tmp_path, more, stop_rule=replace(stop_rule, purpose=Purpose.parse("time")))
    assert there(question, tmp_path)[4:] == ["1x4", "1x4"] and not more.notes
    assert more.opening == (2, 4)


def test_a_study_goes_on_while_any_of_its_curves_wants_it(tmp_path):
    both = {"options.ring": [1e-4, 0.1], "options.launch": [0.1]}
    question = a_study(vary=both, topologies=["1x1", "1x2", "1x4"], **EPOCHS)
    played(question, tmp_path, (1, 2))
    stop_rule = PurposeRule(question, tmp_path, Purpose.parse("efficiency=0.8"))
    assert stop_rule.stop_reason(4) == ""
    bad = a_study(vary={**both, "options.ring": [0.09, 0.1]}, topologies=["1x1", "1x2", "1x4"],
                  **EPOCHS)  # fmt: skip
    played(bad, tmp_path / "bad", (1, 2))
    told = PurposeRule(bad, tmp_path / "bad", Purpose.parse("efficiency=0.8")).stop_reason(4)
    assert told.count("stopped after 2 devices") == 2
    assert stop_rule.stop_reason(2) == ""  # Not larger than what is there.


def test_equal_steps_are_unequal_work_and_weighed_by_throughput(tmp_path):
    question = a_study(topologies=["1x1", "1x2", "1x4"], options=GOOD, steps=50)
    played(question, tmp_path, (1, 2))
    assert PurposeRule(question, tmp_path, Purpose.parse("efficiency=0.8")).stop_reason(4) == ""
    with pytest.raises(SpecError, match="deadline=9s cannot be checked") as told:
        PurposeRule(question, tmp_path, Purpose.parse("deadline=9s")).stop_reason(4)
    assert told.value.hint.startswith("measure equal epochs")


def test_a_purpose_of_energy_is_weighed_by_what_the_samplers_saw(tmp_path):
    watts = {"watts": 400.0, "idle_watts": 90.0}
    question = a_study(topologies=["1x1", "1x2", "1x4"], options=LOSSY | watts, **EPOCHS)
    played(question, tmp_path, (1, 2))
    assert PurposeRule(question, tmp_path, Purpose.parse("energy=1MWh")).stop_reason(4) == ""
    told = PurposeRule(question, tmp_path, Purpose.parse("energy=1J")).stop_reason(4)
    assert "No scale of 1 to 4 devices meets energy=1J" in told
    assert "Wh" in told


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (["--for", "eficiency=0.8"], "not a purpose: 'eficiency=0.8'", "'efficiency'"),
        (["--for", "cost=5"], "cost=5 needs the price", "--price"),
        (["--for", "cost=5 EUR", "--price", "aws:p5.48xlarge"], "cost=5 EUR is not in USD", "USD"),
        (["--for", "time", "--again"], "--for decides after each device count", "leave one"),
        (["--for", "time", "--launcher", "slurm", "--detach"], "--for decides after", "leave one"),
        (["--max-cost", "5"], "--max-cost needs the price", "--max-device-hours 8"),
        (["--max-cost", "0", "--price", "1"], "--max-cost must be a number above 0, got 0.0", ""),
        (["--max-device-hours", "nan"], "--max-device-hours must be a number above 0", ""),
        (["--price", "0"], "price must be a number above 0, got 0.0", "price = 2.5"),
        (["--price", "-1"], "price must be a number above 0, got -1.0", ""),
        (["--price", "nan"], "price must be a number above 0, got nan", ""),
    ],
)
def test_bad_bounds_are_refused_in_a_sentence_before_anything_starts(words, says, hint, tmp_path):
    (tmp_path / "s.toml").write_text(study_toml(["1x1"]))
    ended = run_command("run", "s.toml", *words, cwd=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: {says}") and hint in ended.stderr
    assert "Traceback" not in ended.stderr and not (tmp_path / "runs").exists()


def test_the_command_stops_with_a_sentence_and_exit_code_0(tmp_path):
    text = study_toml(["1x1", "1x2", "1x4"], **EPOCHS)
    law = "".join(f"{name} = {value}\n" for name, value in LOSSY.items())
    (tmp_path / "s.toml").write_text(f"{text}[run.options]\n{law}")
    ended = run_command("run", "s.toml", "--for", "efficiency=0.8", cwd=tmp_path)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "runs/a study")
    assert "a study: stopped after 2 devices: 4 are predicted to take" in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("lost: ")
