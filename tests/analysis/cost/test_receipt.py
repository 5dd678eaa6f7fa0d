"""What was bought, what of it was useful, and what the rest was lost to."""

import json
import math
import shutil
from dataclasses import fields

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from builders import a_study
from commands import install_framework, run_command, study_toml
from fake_study import play_all
from paths import DOCS
from recording_watcher import RecordingWatcher
from scalewise import results, study
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain import CAUSES, LOSSES, Receipt, sum_receipts, wasted_receipt
from scalewise.errors import RecordError
from scalewise.record.attempts import ALLOCATION_LOG, Attempt, attempts, bought
from scalewise.record.json_files import read_json
from scalewise.record.schema import SPANS
from scalewise.record.write import RankFile, write_json
from scalewise.report import receipt_table
from scalewise.report.text.spending import receipt_lines, unreadable_receipt
from unsealed import unseal

LAW = {
    name: some.floats(0.0, most)
    for name, most in {
        "wait": 0.02, "ring": 0.02, "latency": 1e-3, "slow": 0.02, "uneven": 0.4, "jitter": 0.2,
        "noise": 0.1, "drift": 0.1, "launch": 30.0, "validate": 3.0, "checkpoint": 2.0,
    }.items()
}  # fmt: skip
CLOCK = 1e-8
"""How well sums agree: times are seconds since 1970, which a float holds to 0.2 µs."""
QUIET = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def played(question, folder):
    """Play a study in this process, and return its folder as one that was run."""
    write_json(folder / "study.json", question.to_dict())
    list(play_all(question, folder))
    for run in question.runs():
        job = {"attempt": 1, "world": run.topology.world}
        write_json(folder / run.id / "job.json", job)
    return folder


def home_of(question, folder, topology):
    (run,) = (run for run in question.runs() if str(run.topology) == topology)
    return folder / run.id


def an_outcome(home, ranks=2, **values):
    write_json(home / "outcome.json", {**values, "ranks": ranks})


def whole(found):
    return found.useful + math.fsum(found.lost.values())


@QUIET
@given(
    law=some.fixed_dictionaries({"compute": some.floats(1e-4, 1e-2)}, optional=LAW),
    work=some.sampled_from([{"steps": 12}, {"epochs": 2, "data": "synthetic:640"}]),
    batch=some.sampled_from([{"batch": 16}, {"global_batch": 64}]),
    repeats=some.integers(1, 2),
)
def test_useful_and_lost_sum_to_what_was_bought(law, work, batch, repeats, tmp_path, capsys):
    folder = tmp_path / "runs"
    shutil.rmtree(folder, ignore_errors=True)
    question = a_study(options=law, repeats=repeats, **work, **batch)
    found = results.explanations(played(question, folder))
    capsys.readouterr()
    for curve in found:
        for point, measured in zip(curve.points, results.curves([folder])[0].points):
            paid = point.receipt
            assert whole(paid) == pytest.approx(paid.bought, rel=CLOCK)
            assert paid.runs == repeats and set(paid.lost) <= set(LOSSES)
            if repeats == 1:
                assert paid.bought == pytest.approx(
                    measured.devices * measured.time.value / 3600, rel=CLOCK
                )
    every = results.receipt(folder)
    assert whole(every) == pytest.approx(every.bought, rel=CLOCK)
    assert every.bought == pytest.approx(bought(folder), rel=CLOCK)
    assert every.bought == pytest.approx(
        sum(p.receipt.bought for curve in found for p in curve.points), rel=CLOCK
    )
    assert results.receipt(folder, found) == every


def test_the_law_of_the_fake_machine_is_on_the_receipt(tmp_path):
    law = {"compute": 1e-3, "host": 2e-3, "ring": 4e-3, "latency": 0.0, "slow": 3e-3, "wait": 1e-3}
    question = a_study(batch=10, steps=100, options=law, topologies=["1x1", "1x2"])
    (curve,) = results.explanations(played(question, tmp_path), price=3600)
    one, two = (point.receipt for point in curve.points)
    assert one.useful == pytest.approx(100 * 0.013 / 3600, rel=1e-4)
    assert one.lost["start-up"] == pytest.approx((4 + 0.5 + 2 + 3) / 3600)
    assert (
        not set(one.lost) & set(CAUSES)
        or max(abs(one.lost.get(cause, 0.0)) for cause in CAUSES) < 1e-9
    )
    assert two.useful == pytest.approx(2 * one.useful, rel=1e-4)  # Twice the work.
    assert two.lost["transfer"] == pytest.approx(2 * 100 * 4e-3 / 3600, rel=1e-4)
    assert two.lost["balance"] == pytest.approx(2 * 100 * 3e-3 / 3600, rel=1e-4)
    assert two.lost["validation"] == pytest.approx(2 * 0.5 / 3600)
    assert two.lost["start-up"] == pytest.approx(2 * (4 + 1 + 2 + 3) / 3600)
    assert two.cost == pytest.approx(3600 * two.bought)


def test_every_part_of_a_life_has_a_cause_and_every_cause_its_place():
    assert {span.lost_to for span in SPANS if span.name != "train"} <= set(LOSSES)


def test_a_faster_device_than_the_baseline_is_a_gain(tmp_path):
    question = a_study(vary={"options.compute": [1e-3]}, topologies=["1x1"])
    folder = played(question, tmp_path)
    found = Receipt(runs=1, bought=10.0, useful=11.0, lost={"start-up": 1.0, "computation": -2.0})
    assert receipt_lines(found) == [
        "bought 10.00 device-hours, 110.0 % useful",
        "lost: start-up 10.0 %",
        "gained over the baseline: computation 20.0 %",
    ]
    assert results.receipt(folder).bought > 0


def test_first_steps_that_are_the_fastest_leave_a_receipt_that_adds_up():
    lost = {"start-up": 2.0, "warm-up": -3.0, "shutdown": 1.0}
    assert receipt_lines(Receipt(runs=1, bought=10.0, useful=10.0, lost=lost)) == [
        "bought 10.00 device-hours, 100.0 % useful",
        "lost: start-up 20.0 %, shutdown 10.0 %",
        "negative losses: warm-up -30.0 %",
    ]


def test_failed_repeated_idle_and_unasked_hours_are_lost(tmp_path):
    question = a_study(topologies=["1x1", "1x2", "1x4"])
    folder = played(question, tmp_path)
    before = results.receipt(folder)
    ours = home_of(question, folder, "1x2")
    write_json(ours / "failure-2.json", {"attempt": 2, "started": 0.0, "ended": 1800.0})
    write_json(ours / "job.json", {"attempt": 2, "world": 2})
    lost = home_of(question, folder, "1x4")
    (lost / "outcome.json").unlink()
    write_json(lost / "failure-1.json", {"attempt": 1, "started": 0.0, "ended": 900.0})
    write_json(folder / "other" / "job.json", {"attempt": 1, "world": 8})
    an_outcome(folder / "other", attempt=1, started=0.0, ended=450.0)
    line = {"job": "7", "run": ours.name, "devices": 2, "of": 4, "began": 0.0, "ended": 3600.0}
    (folder / ALLOCATION_LOG).write_text(json.dumps(line) + "\n{cut off")
    after = results.receipt(folder)
    assert after.lost["repeated"] == pytest.approx(1.0)
    assert after.lost["failed"] == pytest.approx(1.0)
    assert after.lost["not asked"] == pytest.approx(1.0)
    assert after.lost["idle"] == pytest.approx(2.0)
    assert whole(after) == pytest.approx(after.bought)
    assert after.bought == pytest.approx(bought(folder))
    assert after.useful < before.useful  # Of one run nothing is left.


def test_what_a_checkpoint_carried_over_was_not_in_vain(tmp_path):
    question = a_study(topologies=["1x1"], steps=40)
    folder = played(question, tmp_path)
    once = results.receipt(folder)
    home = home_of(question, folder, "1x1")
    outcome = read_json(home / "outcome.json")
    began = outcome["started"]
    # The same steps, as the second attempt of a job: it went on after 20, of an hour ago.
    path = unseal(home) / "rank-00000.jsonl"
    text = path.read_text().replace('"attempt":1,', '"attempt":2,')
    text = text.replace('"steps":40,"samples"', '"steps":60,"samples"')
    lines = text.splitlines()
    lines[-1] = lines[-1].replace(f'"launched":{began}', f'"launched":{began - 3600}')
    lines[1:1] = [
        json.dumps({"attempt": 2, "span": "earlier", "start": began - 3600, "end": began}),
        json.dumps({"attempt": 2, "resumed": 20}),
    ]
    path.write_text("\n".join(lines) + "\n")
    an_outcome(home, ranks=1, attempt=2, started=began - 3600, ended=outcome["ended"])
    write_json(home / "job.json", {"attempt": 2, "world": 1})
    failed = {"attempt": 1, "started": began - 3600, "ended": began - 3540}
    write_json(home / "failure-1.json", failed)
    twice = results.receipt(folder)
    assert twice.bought == pytest.approx(once.bought + 60 / 3600)
    assert twice.useful == pytest.approx(1.5 * once.useful, rel=1e-3)  # 20 steps more.
    assert twice.lost["repeated"] == pytest.approx(60 / 3600 - once.useful / 2, rel=1e-3)
    assert whole(twice) == pytest.approx(twice.bought) == pytest.approx(bought(folder))


def test_a_finished_run_that_cannot_be_read_was_paid_for(tmp_path):
    question = a_study(topologies=["1x1", "1x2"])
    folder = played(question, tmp_path)
    before = results.receipt(folder)
    (home_of(question, folder, "1x2") / "rank-00001.jsonl").write_text("")
    after = results.receipt(folder)
    assert after.bought == pytest.approx(before.bought)
    assert after.lost["unexplained"] > 0.9 * 2 * 11 / 3600
    assert whole(after) == pytest.approx(after.bought)


def test_energy_is_on_the_receipt_where_counters_tell_it(tmp_path):
    options = {"watts": 400, "idle_watts": 90}
    question = a_study(topologies=["1x1", "1x2"], options=options, repeats=2)
    found = results.receipt(played(question, tmp_path))
    (curve,) = results.curves([tmp_path])
    assert found.energy == pytest.approx(sum(2 * point.energy.value for point in curve.points))
    assert " Wh or more, " in receipt_lines(found)[0]


def test_a_study_that_cannot_be_read_has_its_price_and_one_sentence(tmp_path):
    question = a_study(topologies=["1x1"])
    folder = played(question, tmp_path)
    hours = results.receipt(folder).bought
    (home_of(question, folder, "1x1") / "rank-00000.jsonl").write_text("")
    with pytest.raises(RecordError) as told:
        results.receipt(folder)
    said = unreadable_receipt(hours, Rate(1000.0), told.value)
    assert said.startswith("bought 0.003") and " for 3.1" in said
    assert "the useful share is unknown: " in said and "rank-00000.jsonl" in said


def test_a_folder_without_a_finished_run_has_bought_what_failed(tmp_path):
    write_json(tmp_path / "study.json", a_study().to_dict())
    assert results.receipt(tmp_path) == Receipt()
    assert receipt_lines(Receipt()) == ["no device-hours used yet"]
    home = home_of(a_study(), tmp_path, "1x4")
    write_json(home / "job.json", {"attempt": 1, "world": 4})
    write_json(home / "failure-1.json", {"attempt": 1, "started": 0.0, "ended": 360.0})
    found = results.receipt(tmp_path, price=2.0)
    assert (found.bought, found.useful, found.lost, found.cost) == (0.4, 0.0, {"failed": 0.4}, 0.8)
    assert receipt_lines(found)[0] == "bought 0.4000 device-hours for 0.8000, 0.0 % useful"


def test_attempts_are_told_by_their_files_and_by_rank_0(tmp_path):
    write_json(tmp_path / "job.json", {"attempt": 5, "world": 2})
    preempted = RankFile(tmp_path, 0, 1)  # Nobody has closed it.
    preempted.line({"guest": True})
    preempted.line({"span": "launch", "start": 100.0, "end": 110.0})
    preempted.line({"steps": [0, 10], "seconds": 20.0})
    repeated = RankFile(tmp_path, 0, 2)
    repeated.line({"launched": 200.0})
    repeated.line({"ended": 260.0, "launched": 200.0})
    write_json(tmp_path / "failure-3.json", {"attempt": 3, "started": None, "closed": 300.0})
    RankFile(tmp_path, 0, 4).line({"launched": 400.0})
    RankFile(tmp_path, 0, 4).line({"ended": 440.0, "launched": 100.0})
    an_outcome(tmp_path, attempt=4, started=100.0, ended=450.0)
    RankFile(tmp_path, 0, 5).line({"launched": 500.0})  # Under way.
    assert attempts(tmp_path) == (
        Attempt(1, 2, 100.0, 130.0, succeeded=False),
        Attempt(2, 2, 200.0, 260.0, succeeded=False),
        Attempt(4, 2, 400.0, 450.0, succeeded=True),
    )


def test_ranks_that_one_launch_has_started_twice_are_paid_for_once(tmp_path):
    write_json(tmp_path / "job.json", {"attempt": 1, "world": 2})
    RankFile(tmp_path, 0, 1).line({"launched": 100.0})
    RankFile(tmp_path, 0, 2).line({"launched": 100.0})
    an_outcome(tmp_path, attempt=2, started=100.0, ended=150.0)
    (found,) = attempts(tmp_path)
    assert (found.number, found.device_hours) == (2, pytest.approx(2 * 50 / 3600))


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 1}', '{"schema": 1, "attempt": "x"}'])
def test_damaged_files_count_nothing_and_break_nothing(tmp_path, text):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "job.json").write_text(text)
    assert attempts(tmp_path / "run") == ()
    assert bought(tmp_path) == 0.0


def test_sums_of_receipts_keep_their_parts():
    made = [Attempt(n, 4, 0.0, 900.0, succeeded=False) for n in (1, 2)]
    found = sum_receipts(
        [
            wasted_receipt("failed", made),
            wasted_receipt("repeated", made[:1]),
            wasted_receipt("idle", []),
        ]
    )
    assert (found.bought, found.lost) == (3.0, {"repeated": 1.0, "failed": 2.0})
    assert found.runs == 2  # One of them is still under way.


def test_again_makes_the_first_time_a_loss(tmp_path):
    question = a_study(topologies=["1x1"])
    study.run(question, tmp_path, RecordingWatcher())
    once = results.receipt(tmp_path)
    study.run(question, tmp_path, RecordingWatcher(), again=True)
    twice = results.receipt(tmp_path)
    assert twice.bought == pytest.approx(2 * once.bought, rel=1e-3)
    assert twice.lost["repeated"] == pytest.approx(once.bought, rel=1e-3)
    assert twice.useful == pytest.approx(once.useful, rel=1e-3)


def test_a_run_ends_with_its_receipt_on_stderr(tmp_path):
    (tmp_path / "s.toml").write_text(study_toml(["1x1", "1x2"]))
    ended = run_command("run", "s.toml", "--price", "10", cwd=tmp_path)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "runs/a study")
    last = ended.stderr.splitlines()[-2:]
    assert last[0].startswith("bought 0.009") and " for 0.09" in last[0] and "useful" in last[0]
    assert last[1].startswith("lost: start-up 8")
    again = run_command("run", "s.toml", cwd=tmp_path)
    assert again.stderr == "0 to run, 2 finished already\n"


def test_a_failed_run_ends_with_its_receipt_too(tmp_path):
    env = install_framework(tmp_path / "site", "time.sleep(0.2)\nraise RuntimeError('out of luck')")
    (tmp_path / "s.toml").write_text(study_toml(["1x2"], framework="odd"))
    ended = run_command("run", "s.toml", cwd=tmp_path, env=env)
    assert ended.returncode == 3
    assert "device-hours, 0.0 % useful\nlost: failed 100.0 %\nerror: " in ended.stderr
    (home,) = {path.parent for path in tmp_path.glob("runs/*/*/failure-1.json")}
    failed = read_json(home / "failure-1.json")
    assert 0.2 < failed["ended"] - failed["started"] < 60


def test_explain_shows_the_receipt_of_every_scale_and_of_the_study(tmp_path):
    folder = played(a_study(vary={"options.wait": [0.0, 0.01]}), tmp_path)
    found = results.explanations(folder, price=2.0)
    section = receipt_table.section(found, results.receipt(folder, found, price=2.0))
    (shape,) = section.tables
    assert shape.header[:5] == ("devices", "runs", "bought", "useful", "share")
    assert shape.header[-1] == "cost" and "transfer" in shape.header
    assert shape.rows[0][0] == "options.wait 0.0: 1"
    assert shape.rows[-1][:2] == ("study", "6")


def test_every_field_and_every_cause_is_in_the_reference():
    after = (DOCS / "reference/json.md").read_text().partition("### A receipt")[2]
    told = after.partition("\n#")[0]
    assert [each.name for each in fields(Receipt) if f"`{each.name}`" not in told] == []
    card = (DOCS / "metrics/receipt.md").read_text()
    assert [cause for cause in LOSSES if f"`{cause}`" not in card] == []
