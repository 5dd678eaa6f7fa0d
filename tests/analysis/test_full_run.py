"""The full run: times of the real training, from runs that only rehearsed it."""

import json
import re
from dataclasses import replace

import pytest

from builders import a_study
from commands import run_command
from fake_study import play_all
from scalewise.analysis.advise import Conditions, Purpose, advise
from scalewise.analysis.doubts import with_doubts
from scalewise.analysis.full_run import drifting, full_run_curve, per_unit_of_work
from scalewise.analysis.measure import (
    Doubt,
    Estimate,
    curve_from_csv,
    curve_from_numbers,
    scaling_curves,
)
from scalewise.errors import SpecError
from scalewise.report.text.measurement import full_run_line
from scalewise.spec import FullRun

THROUGHPUTS, TIMES = [(1, 240.0), (2, 460.0), (4, 880.0)], [(1, 1000.0), (2, 540.0), (4, 300.0)]


def played(folder, **changes):
    """Return the curve of a study on the fake machine."""
    study = a_study(data="synthetic:4096", batch=64, **changes)
    (curve,) = scaling_curves(study, play_all(study, folder))
    return curve


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("90 epochs", 90, "epochs"),
        ("1 epoch", 1, "epochs"),
        ("1e9 samples", 1e9, "samples"),
        ("30,000 steps", 30_000, "steps"),
        ("18x", 18, "x"),
        ("2.5 X", 2.5, "x"),
    ],
)
def test_a_full_run_is_an_amount_and_a_unit(text, amount, unit):
    parsed = FullRun.parse(text)
    assert (parsed.amount, parsed.unit) == (amount, unit)


@pytest.mark.parametrize(
    "text", ["", "90", "epochs", "-3 epochs", "0 epochs", "1e99 steps", "18xs", 7]
)
def test_anything_else_is_refused_with_the_examples(text):
    with pytest.raises(SpecError) as refused:
        FullRun.parse(text)
    assert "90 epochs" in refused.value.hint


def test_a_rehearsal_predicts_the_run_that_was_really_played(tmp_path):
    rehearsal = played(tmp_path / "short", epochs=3)
    played_run = played(tmp_path / "long", epochs=60)
    for length in ("60 epochs", "20x", f"{60 * 4096} samples", f"{60 * 64} steps"):
        predicted = full_run_curve(rehearsal, FullRun.parse(length))
        for point, real in zip(predicted.points, played_run.points):
            assert point.samples == real.samples
            assert point.time.value == pytest.approx(real.time.value, rel=0.03)
            assert point.overhead == pytest.approx(real.overhead, abs=0.02)
            assert point.speedup_time.value == pytest.approx(real.speedup_time.value, rel=0.05)


def test_the_measured_work_itself_takes_the_measured_time(tmp_path):
    measured = played(tmp_path, epochs=3)
    for point, same in zip(measured.points, full_run_curve(measured, FullRun.parse("1x")).points):
        assert same.time.value == pytest.approx(point.time.value)
        assert same.complete.keys() == point.complete.keys()


def test_runs_of_unequal_work_are_compared_by_the_same_full_run(tmp_path):
    measured = played(tmp_path, steps=60)  # Weak scaling: twice the devices, twice the samples.
    assert measured.points[1].speedup_time is None
    whole = full_run_curve(measured, FullRun.parse("10 epochs"))
    assert {point.samples for point in whole.points} == {10 * 4096}
    assert whole.points[1].speedup_time is not None
    assert not whole.points[1].warnings


def test_a_longer_run_has_a_wider_interval_than_its_window():
    rate = Estimate(100.0, 99.0, 101.0)
    assert drifting(rate, 1.0, blocks=4, floor=0.03) == rate
    assert 96 < drifting(rate, 100.0, blocks=4, floor=0.03).low < 97
    assert drifting(rate, 100.0, blocks=49, floor=0.03).low < 94


def test_a_resumed_run_is_scaled_by_the_samples_of_its_last_attempt(tmp_path):
    measured = played(tmp_path, epochs=4)
    point = measured.baseline
    # The same run, interrupted after half of its steps: its spans are those of the second half.
    halves = {
        name: part * 0.5 if name in ("train", "validate", "checkpoint") else part
        for name, part in point.complete.items()
    }
    doubt = Doubt("resumed", {"step": point.steps // 2, "rate_only": True})
    resumed = replace(point, complete=halves, warnings=(doubt,))
    length = FullRun.parse("40 epochs")
    whole = full_run_curve(measured, length).baseline
    again = full_run_curve(replace(measured, points=(resumed,)), length).baseline
    assert again.complete["train"].value >= again.samples / point.throughput.value
    assert again.time.value == pytest.approx(whole.time.value, rel=0.02)


def test_the_error_of_a_doubt_counts_once():
    rate = Estimate(100.0, 98.0, 100 / 0.98)
    plain = drifting(rate, 100.0, blocks=16, floor=0.03)
    doubted = drifting(rate.widened(0.4), 100.0, blocks=16, floor=0.03, doubted=0.4)
    expected = plain.widened(0.4)
    assert (doubted.low, doubted.high) == pytest.approx((expected.low, expected.high))


def test_a_doubted_point_has_no_exploding_interval(tmp_path):
    measured = played(tmp_path, steps=60, repeats=3)
    doubt = Doubt("overloaded", {"host": "a", "share": 0.5}, error=0.4)
    base = replace(measured.baseline, warnings=(doubt,))
    curve = replace(measured, points=(base, *measured.points[1:]))
    length = FullRun.parse("100 epochs")
    plain = full_run_curve(curve, length).baseline.time
    time = full_run_curve(with_doubts(curve), length).baseline.time
    assert 1.25 < time.high / plain.high < 1.45
    assert 0.7 < time.low / plain.low < 0.85


def test_the_interval_of_a_table_is_that_of_its_throughput():
    rows = "".join(
        f"{devices},{rate} ± {rate / 10},{60 + 240_000 / rate} ± {6 + 24_000 / rate}\n"
        for devices, rate in THROUGHPUTS
    )
    curve = curve_from_csv(f"devices,throughput,time\n{rows}", name="t")
    for point in full_run_curve(curve, FullRun.parse("100x")).points:
        assert point.time.high / point.time.value == pytest.approx(1.11, abs=0.03)
        assert point.time.low / point.time.value == pytest.approx(0.91, abs=0.03)


def test_a_row_without_a_time_has_the_fitted_start():
    seconds = [(devices, 60 + 240_000 / rate) for devices, rate in THROUGHPUTS[:2]]
    whole = full_run_curve(curve_from_numbers(THROUGHPUTS, times=seconds), FullRun.parse("10x"))
    assert whole.points[2].time.value == pytest.approx(60 + 2_400_000 / 880, rel=1e-3)


@pytest.mark.parametrize("length", ["0.01x", "0.5x", "1x", "3x"])
def test_a_noisy_table_has_positive_times(length):
    noisy = [(1, 1000.0), (2, 560.0), (4, 250.0), (8, 20.0), (16, 300.0)]
    rates = [(devices, 240.0 * devices) for devices, _ in noisy]
    for point in full_run_curve(
        curve_from_numbers(rates, times=noisy), FullRun.parse(length)
    ).points:
        assert point.complete["train"].value > 0


def test_epochs_of_a_table_do_not_have_the_samples_of_its_jobs():
    rows = "1,100,310,3000\n2,54,170,3000\n4,30,100,6000\n"
    curve = with_doubts(curve_from_csv(f"devices,epoch_time,time,samples\n{rows}", name="t"))
    whole = full_run_curve(curve, FullRun.parse("90 epochs"))
    assert [point.time.value for point in whole.points] == pytest.approx([9000, 4860, 2700])
    assert {(point.samples, point.overhead) for point in whole.points} == {(None, None)}
    assert "work differs" not in {doubt.kind for doubt in whole.doubts}


def test_an_empty_cell_of_samples_stays_unknown():
    curve = curve_from_numbers(times=TIMES, samples=[(1, 240_000), (4, 240_000)])
    whole = full_run_curve(with_doubts(curve), FullRun.parse("18x"))
    assert [point.samples for point in whole.points] == [18 * 240_000, None, 18 * 240_000]
    assert [d.devices for d in whole.doubts if d.kind == "work differs"] == [2]


def test_a_table_of_unequal_work_is_compared_by_the_same_full_run():
    work = [(1, 240_000), (2, 480_000), (4, 960_000)]
    times = [(1, 1000.0), (2, 1080.0), (4, 1200.0)]
    curve = with_doubts(curve_from_numbers(times=times, samples=work))
    assert "work differs" in {doubt.kind for doubt in curve.doubts}
    whole = full_run_curve(curve, FullRun.parse("1e6 samples"))
    assert {point.samples for point in whole.points} == {1_000_000}
    doubts = [*whole.doubts, *whole.warnings, *(d for p in whole.points for d in p.warnings)]
    assert {doubt.kind for doubt in doubts} == {"start unknown"}


def test_the_line_about_the_full_run_says_what_became_of_the_start():
    seconds = [(devices, 60 + 240_000 / rate) for devices, rate in THROUGHPUTS]
    fitted = curve_from_numbers(THROUGHPUTS, times=seconds)
    assert "start-up once" in full_run_line(full_run_curve(fitted, FullRun.parse("18x")))
    by_time = full_run_curve(curve_from_numbers(times=TIMES), FullRun.parse("18x"))
    assert "times are multiplied as they are" in full_run_line(by_time)
    by_rate = full_run_curve(curve_from_numbers(THROUGHPUTS), FullRun.parse("1e6 samples"))
    assert "at the measured rate, without start-up" in full_run_line(by_rate)


def test_a_table_with_times_and_throughputs_pays_its_start_once():
    seconds = [(devices, 60 + 240_000 / rate) for devices, rate in THROUGHPUTS]
    whole = full_run_curve(curve_from_numbers(THROUGHPUTS, times=seconds), FullRun.parse("10x"))
    for point, (_, rate) in zip(whole.points, THROUGHPUTS):
        assert point.time.value == pytest.approx(60 + 2_400_000 / rate, rel=1e-3)
    assert not whole.warnings


def test_tables_without_a_start_say_so():
    by_rate = full_run_curve(curve_from_numbers(THROUGHPUTS), FullRun.parse("240000 samples"))
    assert by_rate.baseline.time.value == pytest.approx(1000)
    by_time = full_run_curve(curve_from_numbers(times=TIMES), FullRun.parse("18x"))
    assert by_time.points[2].time.value == pytest.approx(18 * 300)
    for curve in (by_rate, by_time):
        assert [doubt.kind for doubt in curve.warnings] == ["start unknown"]
        assert curve.baseline.overhead is None


@pytest.mark.parametrize(
    ("columns", "length", "hint"),
    [
        ({"throughputs": THROUGHPUTS}, "90 epochs", "115e6 samples"),
        ({"throughputs": THROUGHPUTS}, "18x", "115e6 samples"),
        ({"throughputs": THROUGHPUTS}, "300 steps", "115e6 samples"),
        ({"times": TIMES}, "1e6 samples", "18x"),
    ],
)
def test_what_a_table_cannot_know_is_asked_for(columns, length, hint):
    with pytest.raises(SpecError) as refused:
        full_run_curve(curve_from_numbers(**columns), FullRun.parse(length))
    assert hint in refused.value.hint


def test_a_rehearsal_is_answered_per_epoch_without_start(tmp_path):
    measured = played(tmp_path, epochs=2)
    assert measured.rehearsal
    epoch = per_unit_of_work(measured)
    assert epoch.unit_of_work == "epoch"
    assert epoch.baseline.samples == 4096
    seconds = 4096 / measured.baseline.throughput.value
    assert epoch.baseline.complete["train"].value == pytest.approx(seconds)
    assert "launch" not in epoch.baseline.complete
    assert per_unit_of_work(epoch) is epoch


@pytest.mark.parametrize("purpose", ["deadline=2h", "budget=3", "cost=9"])
def test_a_limit_on_the_whole_training_needs_its_length(tmp_path, purpose):
    measured = played(tmp_path, epochs=2)
    with pytest.raises(SpecError) as refused:
        advise(measured, Purpose.parse(purpose), price=2.0)
    assert "90 epochs" in refused.value.hint
    whole = full_run_curve(measured, FullRun.parse("90 epochs"))
    assert advise(whole, Purpose.parse(purpose), price=2.0).closest.time


def test_advice_on_a_rehearsal_is_per_epoch(tmp_path):
    advice = advise(played(tmp_path, epochs=2), Purpose.parse("time"))
    assert advice.curve.unit_of_work == "epoch"


def test_a_target_and_a_full_run_are_two_lengths(tmp_path):
    whole = full_run_curve(played(tmp_path, epochs=2), FullRun.parse("90 epochs"))
    with pytest.raises(SpecError, match="both say how long"):
        advise(whole, Purpose.parse("time"), conditions=Conditions(target="epochs=9 at 64"))


def test_the_command_answers_for_the_full_run(tmp_path):
    rows = "devices,throughput\n1,240\n2,460\n4,880\n"
    (tmp_path / "t.csv").write_text(rows)
    answer = run_command(
        "advise", "t.csv", "--for", "time", "--full-run", "1e6 samples", "--json", cwd=tmp_path
    )
    values = json.loads(answer.stdout)
    assert values["full_run"] == {"text": "1e6 samples", "samples": 1_000_000}
    assert values["rehearsal"] is False
    assert values["scales"][0]["time"]["value"] == pytest.approx(1e6 / 240)


def test_explain_says_what_the_full_run_is_spent_on(tmp_path):
    folder = run_study(tmp_path, 'full_run = "500 epochs"\n')
    shares = []
    for length in ("1x", "500 epochs"):
        text = run_command("explain", folder, "--full-run", length, cwd=tmp_path).stdout
        shares += re.findall(r"full run takes .*start-up and shutdown\s+(\d+) %", text)
    assert [int(share) for share in shares] == [66, 1]
    whole = json.loads(run_command("explain", folder, "--json", cwd=tmp_path).stdout)
    assert whole["curves"][0]["full_run"] == {"text": "500 epochs", "samples": 500 * 4096}
    assert whole["receipt"]["bought"] < 1  # What was bought, not what the full run would take.


def test_plan_tells_the_cost_of_the_full_run(tmp_path):
    folder = run_study(tmp_path, "")
    toml = str(tmp_path / "study.toml")
    lines = run_command(
        "plan", toml, "-o", folder, "--full-run", "500 epochs", "--price", "2", cwd=tmp_path
    ).stdout
    assert "the full run of 500 epochs, in device-hours:" in lines
    unknown = run_command("plan", toml, "-o", "empty", "--full-run", "9 epochs", cwd=tmp_path)
    assert "no estimate of the full run yet" in unknown.stdout


def test_run_keeps_the_full_run_in_the_study(tmp_path):
    folder = run_study(tmp_path, "", "--full-run", "500 epochs")
    assert json.loads((tmp_path / folder / "study.json").read_text())["full_run"] == "500 epochs"
    again = run_command("run", "study.toml", "-o", folder, cwd=tmp_path)
    assert again.returncode == 0
    assert json.loads((tmp_path / folder / "study.json").read_text())["full_run"] == "500 epochs"


def run_study(tmp_path, keys, *options):
    """Run a fake study of 2 epochs on 1 and 2 devices; return its folder."""
    text = f"""name = "short"
{keys}
[run]
framework = "fake"
data = "synthetic:4096"
batch = 64
epochs = 2
[vary]
topology = ["1x1", "1x2"]
"""
    (tmp_path / "study.toml").write_text(text)
    done = run_command("run", "study.toml", "-o", "short", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return "short"
