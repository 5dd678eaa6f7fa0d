"""Time to target: start, work and speed put together, by records or by a CSV; nonsense refused."""

import json
from dataclasses import replace
from math import log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import scalewise
from builders import a_study
from fake_study import play_all
from paths import STUDIES
from scalewise.analysis.advise import Conditions, Purpose, advise, work_to_target
from scalewise.analysis.advise.quality.target import Target, quality_trace, work_to_reach
from scalewise.analysis.measure import Estimate, curve_from_numbers, scaling_curves
from scalewise.errors import NotEnoughData, ScalewiseError, SpecError
from scalewise.frameworks.fake import Law
from scalewise.report import advice_sections, formats
from scalewise.report.text.advice import advice_sentences, advice_warnings
from scalewise.spec import Topology

PUBLISHED = STUDIES / "published"
RATES = [(1, 100.0), (2, 190.0), (4, 350.0), (8, 600.0)]
START, SAMPLES = 30.0, 50_000
CRITICAL = 512.0


def a_curve(scaling="weak", rates=RATES, start=START, samples=SAMPLES, **more):
    times = [(n, start + samples / rate) for n, rate in rates]
    return curve_from_numbers(rates, times=times, scaling=scaling, **more)


def asked(curve=None, purpose="time", target="samples=1e6 at 64", batch=64, **more):
    more.setdefault("critical_batch", CRITICAL)
    return scalewise.advise(curve or a_curve(), purpose, target=target, batch=batch, **more)


def work(batch, least=1e6 / (1 + 64 / CRITICAL), critical=CRITICAL):
    return least * (1 + batch / critical)


def test_the_time_is_the_start_and_the_work_at_the_scales_own_batch():
    for scale in asked().scales[:4]:
        speed = dict(RATES)[scale.devices]
        truth = START + work(64 * scale.devices) / speed
        assert scale.time.value == pytest.approx(truth, rel=0.02)
        assert scale.target.batch == 64 * scale.devices
        assert scale.target.start == pytest.approx(START, rel=1e-6)
        assert scale.target.steps.value == pytest.approx(
            scale.target.work.value / (64 * scale.devices)
        )
        assert scale.device_hours.value == pytest.approx(scale.devices * scale.time.value / 3600)


def test_efficiency_to_target_is_that_of_the_devices_times_that_of_the_batch():
    for scale in asked().scales:
        found = scale.target
        together = found.hardware.value * found.statistical.value
        assert scale.efficiency.value == pytest.approx(together)
        batch = 64 * scale.devices
        assert found.statistical.value == pytest.approx(
            (CRITICAL + 64) / (CRITICAL + batch), rel=0.01
        )
        assert found.hardware.low <= found.hardware.value <= found.hardware.high
    assert asked().scales[0].efficiency.value == 1


def test_under_strong_scaling_the_work_is_the_same_and_no_critical_batch_is_needed():
    found = asked(a_curve("strong"), target="samples=1e6", critical_batch=None, batch=512)
    for scale in found.scales:
        assert scale.target.work == Estimate(1e6, 1e6, 1e6)
        assert scale.target.statistical.value == 1
    assert "the same on all scales" in str(found)


def test_past_the_critical_batch_more_devices_buy_little_and_what_to_do_instead_is_said():
    found = asked(critical_batch=100)
    assert found.closest.target.batch > 100
    told = " ".join(found.sentences)
    assert "so more devices buy" in told and "give further devices to other runs" in told
    below = " ".join(asked(purpose="deadline=5h", critical_batch=1e5).sentences)
    assert "From a global batch of" in below and "devices with 64 each) on" in below


def test_a_purpose_is_judged_by_the_time_to_target():
    curve = a_curve()
    by_speed = scalewise.advise(curve, "deadline=150s").chosen.devices
    limit = START + work(64 * 4) / 350.0
    found = asked(curve, f"deadline={1.05 * limit:.1f}s")
    assert (by_speed, found.chosen.devices) == (8, 4)
    assert "s to target" in found.reason
    assert asked(curve, "efficiency=0.75").chosen.devices == 2  # 95 % × 90 % there.


@settings(max_examples=15, deadline=None)
@given(
    some.floats(1.0, 1e6),
    some.floats(1e3, 1e12),
    some.floats(0.0, 1e4),
    some.floats(0.0, 0.5),
    some.integers(1, 4096),
)
def test_no_number_of_devices_beats_the_start_and_the_fewest_steps(
    critical, samples, start, lost, batch
):
    rates = [(n, 100.0 * n / (1 + lost * log2(n))) for n in (1, 2, 4, 8)]
    curve = a_curve(rates=rates, start=start)
    found = asked(curve, target=f"samples={samples:.6e}", batch=batch, critical_batch=critical)
    least = found.conditions.target.law.least_steps.value
    for scale in found.scales:
        rate = found.conditions.target.job.rates[scale.devices].value
        step = scale.target.batch / rate
        assert scale.time.value >= (scale.target.start + least * step) * (1 - 1e-6)
        assert scale.time.low <= scale.time.value <= scale.time.high
        assert scale.efficiency.low <= scale.efficiency.value <= scale.efficiency.high
    works = [scale.target.work.value for scale in found.scales]
    assert works == sorted(works)


def test_both_the_work_and_the_speed_widen_the_interval():
    surely, hardly = asked(critical_batch=Estimate(512.0, 500.0, 524.0)), asked()
    for sure, less in zip(surely.scales[2:], hardly.scales[2:]):
        assert sure.time.high / sure.time.low < less.time.high / less.time.low
        alone = work_to_target([(64, 1e6)], critical=CRITICAL).work(less.target.batch)
        assert less.time.high / less.time.value > 1 + 0.9 * (
            (alone.high / alone.value - 1) * (1 - START / less.time.value)
        )


def test_a_table_without_times_counts_no_start_and_says_so():
    found = asked(curve_from_numbers(RATES, scaling="weak"))
    assert found.scales[0].target.start is None
    assert found.scales[0].time.value == pytest.approx(1e6 / 100, rel=0.01)
    assert any("the time to start is unknown" in text for text in found.warnings)


def test_a_table_of_times_and_samples_is_split_by_its_law():
    times = [(n, 30 + 800 / n) for n in (1, 2, 4, 8)]
    samples = [(n, 80_000) for n, _ in times]
    curve = curve_from_numbers(times=times, samples=samples, scaling="strong")
    found = asked(curve, target="samples=160e3", critical_batch=None)
    for scale in found.scales[:4]:
        assert scale.time.value == pytest.approx(30 + 1600 / scale.devices, rel=1e-3)
    assert any("assumes an efficiency of 100 % in training" in text for text in found.warnings)
    with pytest.raises(NotEnoughData, match="there are only times"):
        asked(curve_from_numbers(times=times, scaling="strong"), critical_batch=None)


FAKE = {"launch": 20.0, "rendezvous": 2.0, "validate": 4.0}
TOPOLOGIES = ["1x1", "1x2", "1x4", "1x8"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return the curve and the records of a simulated study."""
    study = a_study(batch=64, epochs=2, options=FAKE, scaling="weak", topologies=TOPOLOGIES)
    records = list(play_all(study, tmp_path_factory.mktemp("recorded")))
    (curve,) = scaling_curves(study, records)
    return curve, records


def learned(records, losses, accuracies=None):
    """Return records in which each run has told these epoch means; nothing: none."""
    found = []
    for record in records:
        lines = []
        for epoch, loss in enumerate(losses(record.spec.topology.world)):
            line = {"epoch": epoch, "loss": loss}
            if accuracies:
                line["validation"] = {"accuracy": accuracies[epoch], "loss": loss, "samples": 100}
            lines.append(line)
        first = replace(record.ranks[0], lines=(*record.ranks[0].lines, *lines))
        found.append(replace(record, ranks=(first, *record.ranks[1:])))
    return found


def with_records(curve, records, target, **more):
    conditions = Conditions(target=target, records=records, **more)
    return advise(curve, Purpose.parse("time"), conditions=conditions)


def test_epochs_are_those_of_the_records_and_so_is_the_batch(recorded):
    curve, records = recorded
    found = with_records(curve, records, "epochs=10", critical_batch=4096)
    law = Law.of(FAKE)
    for scale in found.scales[:4]:
        place = Topology(1, scale.devices)
        step = law.step(64, place)
        epochs = scale.target.work.value / 65536
        truth = epochs * (65536 / (64 * scale.devices) * step + 4.0 / scale.devices)
        assert scale.target.batch == 64 * scale.devices
        assert scale.time.value == pytest.approx(truth + scale.target.start, rel=0.01)
        assert 22 <= scale.target.start < 40
    with pytest.raises(SpecError, match="the batches of a study are recorded"):
        with_records(curve, records, "epochs=10", batch=3, critical_batch=7)


def test_a_run_that_was_to_do_steps_has_no_epochs(tmp_path):
    study = a_study(scaling="weak", topologies=["1x1", "1x2"])
    records = list(play_all(study, tmp_path))
    (curve,) = scaling_curves(study, records)
    with pytest.raises(SpecError, match="needs the number of samples of an epoch"):
        with_records(curve, records, "epochs=3 at 8", critical_batch=5)


def test_a_loss_that_runs_have_reached_tells_the_work_at_each_batch(recorded):
    """The loss falls by 1 an epoch on one device; work doubles at a batch of 256."""
    curve, records = recorded

    def slower(devices):
        return (1 + 64 * devices / 256) / (1 + 64 / 256)

    seen = learned(records, lambda n: [9 - epoch / slower(n) for epoch in range(1, 9)])
    found = with_records(curve, seen, "loss=7")
    told = found.conditions.target
    for devices, (batch, samples, runs) in zip((1, 2, 4, 8), told.points):
        assert (batch, runs) == (64 * devices, 1)
        assert samples == pytest.approx(2 * slower(devices) * 65536)
    assert told.critical is None
    assert told.law.critical.value == pytest.approx(256, rel=0.1)
    sentences = advice_sentences(found)
    (work,) = [text for text in sentences if "critical batch fitted to these points" in text]
    assert "took" in work


def test_the_work_lies_between_the_two_looks_where_a_loss_was_passed(recorded):
    _, records = recorded
    (first, *_) = learned(records, lambda _: [3.0, 2.0])
    line = {"epoch": 0, "losses": [4.0] * 10 + [2.0] * 10, "every": 1, "loss": 3.0}
    rank = replace(first.ranks[0], lines=(*records[0].ranks[0].lines, line))
    one = replace(first, ranks=(rank,))
    assert quality_trace(one, "loss") == [(32768.0, 4.0), (65536.0, 2.0)]
    ((batch, samples, runs),) = work_to_reach(Target.parse("loss=2.5"), [one])[0]
    assert (batch, samples, runs) == (64, 32768 + 0.75 * 32768, 1)
    ((_, at_once, _),) = work_to_reach(Target.parse("loss=5"), [one])[0]
    assert at_once == 32768


def test_a_run_that_never_reached_it_is_left_out_and_named(recorded):
    curve, records = recorded
    slow = learned(records, lambda devices: [3.0, 2.0 if devices < 8 else 2.9])
    found = with_records(curve, slow, "loss=2.5")
    assert [batch for batch, _, _ in found.conditions.target.points] == [64, 128, 256]
    text = "1 of 1 runs on 8 devices (global batch 512) never reached loss=2.5"
    assert any(text in each for each in advice_warnings(found))


def test_an_accuracy_is_reached_by_rising(recorded):
    curve, records = recorded
    seen = learned(records, lambda _: [3.0, 2.0], accuracies=[0.5, 0.9])
    found = with_records(curve, seen, "accuracy=70%")
    assert {samples for _, samples, _ in found.conditions.target.points} == {1.5 * 65536}


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("loss=0.1", "no run reached loss=0.1: the best is 2, on 1 device"),
        ("accuracy=0.5", "no run recorded its accuracy"),
    ],
)
def test_what_no_run_has_reached_is_refused_with_the_best(recorded, target, problem):
    curve, records = recorded
    with pytest.raises(NotEnoughData, match=problem) as refused:
        with_records(curve, learned(records, lambda _: [3.0, 2.0]), target)
    assert "train longer" in refused.value.hint


def test_numbers_that_are_none_are_not_a_quality(recorded):
    _, records = recorded
    broken = learned(records, lambda _: [float("nan"), float("inf")])
    with pytest.raises(NotEnoughData, match="no run recorded its loss"):
        work_to_reach(Target.parse("loss=2"), broken)


def noisy(curve, noise):
    points = [replace(point, noise=noise if point.devices > 1 else None) for point in curve.points]
    return replace(curve, points=tuple(points))


def test_the_critical_batch_is_the_given_one_or_the_noise_or_refused(recorded):
    curve, records = recorded
    scale = Estimate(2000.0, 1500.0, 2600.0)
    by_default = with_records(noisy(curve, scale), records, "epochs=4")
    assert by_default.conditions.target.critical.noise_devices == 2
    assert "from the gradient noise on 2 devices" in " ".join(advice_sentences(by_default))
    assert by_default.conditions.target.law.critical.value == pytest.approx(2000, rel=0.1)
    named = with_records(noisy(curve, scale), records, "epochs=4", critical_batch="noise")
    assert named.conditions.target.critical == by_default.conditions.target.critical
    given_one = with_records(noisy(curve, scale), records, "epochs=4", critical_batch="300")
    assert "with the critical batch as given" in " ".join(advice_sentences(given_one))
    with pytest.raises(NotEnoughData, match="known at a global batch of 64 only") as refused:
        with_records(curve, records, "epochs=4")
    assert "critical_batch=8192" in refused.value.hint
    with pytest.raises(NotEnoughData, match="has no record of gradient noise"):
        with_records(curve, records, "epochs=4", critical_batch="noise")


def test_a_public_critical_batch_is_taken_with_more_doubt():
    advice = asked(critical_batch="like:resnet")
    assert "with the critical batch like that of resnet in public tables" in str(advice)
    found = advice.conditions.target
    assert found.critical.batch.high / found.critical.batch.low > 4
    with pytest.raises(SpecError, match="no convergence table of 'resnet50'") as refused:
        asked(critical_batch="like:resnet50")
    assert refused.value.hint == "did you mean 'resnet'?"


@pytest.mark.parametrize(
    "target",
    ["", "foo", "epochs", "epochs=", "epochs=x", "epochs=nan", "epochs=0", "epochs=-3",
     "epochs=inf", "samples=1e999", "loss=-1", "loss=2 at 256", "accuracy=75", "accuracy=0",
     "epochs=90 at 0", "epochs=90 at -256", "epochs=90 at nan", "samples=1e6 at 0.5",
     "epochs=90 256", 90, ["loss=2"]],
)  # fmt: skip
def test_a_target_that_is_none_is_refused_in_a_sentence(target):
    with pytest.raises(SpecError) as refused:
        asked(target=target)
    assert refused.value.hint


@pytest.mark.parametrize(
    "more",
    [
        {"critical_batch": 0},
        {"critical_batch": -5},
        {"critical_batch": float("nan")},
        {"critical_batch": "many"},
        {"critical_batch": "like:"},
        {"critical_batch": ""},
        {"critical_batch": Estimate(5.0, 6.0, 7.0)},
        {"batch": 0},
        {"batch": -1},
        {"batch": float("inf")},
        {"batch": None},
        {"batch": "64"},
        {"target": "epochs=90 at 64"},
        {"target": "loss=2"},
        {"target": None},
        {"curve": curve_from_numbers(RATES)},
    ],
)
def test_details_that_are_none_are_refused_in_a_sentence(more):
    with pytest.raises(ScalewiseError) as refused:
        asked(**more)
    assert str(refused.value) and "Error" not in str(refused.value)


def test_the_table_and_the_json_hold_the_target():
    found = asked()
    (section,) = advice_sections.sections(found)
    header = section.tables[0].header
    assert {"to target s", "batch", "work", "device efficiency", "batch efficiency"} <= set(header)
    told = json.loads(advice_sections.as_json(found))
    at = told["chosen"]["target"]
    assert set(at) == {"batch", "work", "steps", "start", "hardware", "statistical"}
    assert set(at["work"]) == {"value", "low", "high", "count"}
    plain = json.loads(advice_sections.as_json(scalewise.advise(a_curve(), "time")))
    assert plain["chosen"]["target"] is None
    assert "to target" not in formats.plain_text(
        advice_sections.sections(scalewise.advise(a_curve(), "time"))
    )
