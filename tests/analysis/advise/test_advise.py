"""Advice: the sweet spots of published tables, chances, neighbours, nonsense refused."""

import json
import math
import re
from itertools import pairwise
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import scalewise
from builders import a_study
from fake_study import play_all
from paths import STUDIES
from scalewise.analysis.advise import Purpose
from scalewise.analysis.advise.purpose import GOALS, PURPOSES
from scalewise.analysis.measure import curve_from_numbers, scaling_curves
from scalewise.analysis.summary import summarize
from scalewise.cli import analysis_commands
from scalewise.errors import NotEnoughData, SpecError
from scalewise.frameworks.fake import Law
from scalewise.report import advice_sections, formats
from scalewise.report.text.advice import cause_sentence, scale_label
from scalewise.report.text.break_even import break_even_sentences
from scalewise.report.text.verdict import limit_title
from scalewise.spec import Topology

PUBLISHED = STUDIES / "published"
SMALL = [(1, 100.0), (2, 55.0), (4, 32.0), (8, 21.0)]


def published(name):
    return scalewise.measure(
        PUBLISHED / f"vit-h14-{name}-224.csv", scaling="weak", devices_per_node=4
    )


def devices(name, *purposes, **more):
    chosen = scalewise.advise(published(name), purposes, **more).chosen
    return chosen and chosen.devices


def some_advice(purpose="time", **more):
    return scalewise.advise(curve_from_numbers(times=SMALL), purpose, **more)


@pytest.mark.parametrize(
    ("purpose", "chosen"),
    [
        ("deadline=6min", 32),
        ("deadline=330s", 32),
        ("deadline=8min", 16),
        ("deadline=1h", 1),
        ("efficiency=0.93", 8),
        ("efficiency=0.9", 16),
        ("budget=1.5", 8),
        ("budget=2.1", 16),
        ("cost=5.1", 16),
        ("throughput=5000", 32),
        ("throughput=3000", 16),
        ("balanced", 4),
    ],
)
def test_the_larger_data_set_wants_many_devices_for_speed_and_fewer_to_spare(purpose, chosen):
    assert devices("tiny", purpose, price=2.5) == chosen


@pytest.mark.parametrize(("floor", "chosen"), [("0.8", 2), ("0.45", 8), ("0.3", 16)])
def test_where_only_times_are_known_efficiency_is_by_time(floor, chosen):
    times = [(point.devices, point.time.value) for point in published("tiny").points]
    found = scalewise.advise(curve_from_numbers(times=times), f"efficiency={floor}")
    assert found.chosen.devices == chosen


def test_on_the_smaller_data_set_more_than_8_buy_almost_no_time_for_fixed_costs():
    found = scalewise.advise(published("micro"), "deadline=350s")
    assert scale_label(found.chosen) == "8 devices (2x4)"
    assert found.returns.enough == 8
    assert "Going beyond 8 devices saves almost no time: 16 save 4.9 %" in str(found)
    assert found.returns.cause.kind == "fixed"
    cause = cause_sentence(found.returns.cause)
    assert cause.startswith("The cause is fixed costs")
    assert "about 309 of the 326 s that T(N) = 308.6 + 59,645/X(N) + " in cause
    assert devices("micro", "time") == 32  # Only time counts, and 32 are 0.6 % faster than 16.


@pytest.mark.parametrize(
    ("name", "purpose", "chosen"),
    [
        ("tiny", "deadline=6min", 32),
        ("tiny", "deadline=8min", 16),
        ("tiny", "budget=2.1", 16),
        ("tiny", "budget=1.5", 8),
        ("micro", "deadline=6min", 8),
    ],
)
def test_the_rows_up_to_8_devices_lead_to_the_same_advice(name, purpose, chosen):
    few = [point for point in published(name).points if point.devices <= 8]
    curve = curve_from_numbers(
        [(point.devices, point.throughput.value) for point in few],
        times=[(point.devices, point.time.value) for point in few],
        scaling="weak",
        devices_per_node=4,
    )
    found = scalewise.advise(curve, purpose, up_to=32)
    best = found.beyond.scale if found.beyond else found.chosen
    assert best.devices == chosen
    assert found.returns.enough == (8 if name == "micro" else None)


@pytest.mark.parametrize("times", [[(1, 10.0), (2, 10.0)], [(1, 10.0), (2, 12.0), (4, 15.0)]])
def test_devices_that_buy_no_time_are_not_advised(times):
    found = scalewise.advise(curve_from_numbers(times=times), "time")
    assert found.chosen.devices == 1
    assert "Going beyond 1 device saves no time." in found.sentences


def test_a_prediction_below_the_fixed_costs_is_warned_of():
    found = scalewise.advise(published("tiny"), "time", up_to=128)
    assert found.chosen.devices == 32 and found.beyond.scale.devices == 128
    assert any("is not explained by the other rows" in text for text in found.warnings)
    assert any("from 64 devices on the predicted time is below" in text for text in found.warnings)


def test_limits_together_leave_the_fewest_device_hours_and_a_goal_can_be_named():
    assert devices("tiny", "deadline=15min", "efficiency=0.9") == 4
    assert devices("tiny", "deadline=15min,efficiency=0.9", "time") == 16
    assert devices("tiny", "deadline=6min", "efficiency=0.9") is None


def test_the_reason_has_its_numbers_and_the_neighbours_what_they_would_cost():
    found = some_advice("deadline=60s", price=3.6)
    assert found.reason.startswith(
        "2 devices, measured, take the fewest device-hours of those that meet deadline=60s: 55 ["
    )
    assert (found.smaller.devices, found.larger.devices) == (1, 4)
    assert found.chosen.cost.value == pytest.approx(55 * 2 / 3600 * 3.6)
    fewer, more = found.sentences[1:3]
    assert fewer.startswith("Fewer: 1 device, measured: 100 s, 0.02778 device-hours, a cost of 0.1")
    assert "+82 % time, −9 % device-hours" in fewer
    assert "−42 % time, +16 % device-hours" in more


def test_returns_diminish_at_the_first_doubling_that_adds_less_than_half():
    times = [(1, 100.0), (2, 60.0), (4, 40.5), (8, 30.0)]
    found = scalewise.advise(curve_from_numbers(times=times), "time").returns
    assert found.diminish == 4
    assert found.gain == pytest.approx(60 / 40.5 - 1)


def test_without_times_scales_are_weighed_by_throughput():
    curve = curve_from_numbers([(1, 100.0), (2, 180.0), (4, 300.0)], devices_per_node=4)
    found = scalewise.advise(curve, "throughput=150", up_to=16)
    assert (found.chosen.devices, found.chosen.time, found.chosen.cost) == (2, None, None)
    assert [scale.devices for scale in found.scales] == [1, 2, 4, 8, 16]
    assert str(found.scales[-1].topology) == "4x4"


@pytest.mark.parametrize("asked", [{"at": [48]}, {"up_to": 48}])
def test_doublings_up_to_what_is_asked_are_predicted(asked):
    found = some_advice(price=1, **asked)
    assert [scale.devices for scale in found.scales] == [1, 2, 4, 8, 16, 32, 48]
    assert [scale.measured for scale in found.scales] == [True] * 4 + [False] * 3


@pytest.mark.parametrize("count", ["x", 1.5, float("nan"), float("inf"), 0, -4, True, 10**12, None])
def test_a_number_of_devices_to_weigh_is_whole(count):
    with pytest.raises(SpecError, match="a number of devices must be"):
        some_advice(at=[count])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"up_to": 4}, "up_to=4 is below the 8 devices that were measured"),
        ({"at": [6]}, "6 devices are fewer than the 8 that were measured"),
        ({"up_to": float("nan")}, "a number of devices must be whole, got nan"),
    ],
)
def test_advice_beyond_what_was_measured_wants_more_than_was_measured(asked, says):
    with pytest.raises(SpecError, match=says):
        some_advice(**asked)


def test_the_published_tables_are_answered_from_what_was_measured():
    found = scalewise.advise(published("tiny"), "time")
    assert found.chosen.devices == 32 and found.chosen.measured and found.beyond is None
    assert all(scale.measured for scale in found.scales)
    assert found.sentences[1] == ("More than 32 devices were not measured: up_to=64 predicts them.")
    assert any(text.startswith("32 devices: 310 s is not explained") for text in found.warnings)
    told = json.loads(advice_sections.as_json(found))
    assert (told["devices"], told["beyond"]) == (32, None)
    # On the smaller data set 32 devices are 0.6 % faster than 16.
    found = scalewise.advise(published("micro"), "time")
    assert found.chosen.devices == 32


def test_what_lies_beyond_the_measured_scales_is_the_second_sentence():
    found = scalewise.advise(published("tiny"), "time", up_to=64)
    assert found.chosen.devices == 32
    saved = found.beyond.saved
    assert saved.low < saved.value < saved.high < 1
    assert saved.value == pytest.approx(1 - found.scales[-1].time.value / 310)
    assert re.fullmatch(
        r"Predicted: 64 devices \(16x4\) would save 18 % of the time \(90 %: −10 % to 44 %\) at "
        r"\+63 % device-hours\. Measure them first\.",
        found.sentences[1],
    )
    told = json.loads(advice_sections.as_json(found))
    assert told["devices"] == 32
    assert told["beyond"]["devices"] == 64 and told["beyond"]["measured"] is False
    assert set(told["beyond"]["saved"]) == {"value", "low", "high", "count"}
    assert told["beyond"]["added_device_hours"] == pytest.approx(0.63, abs=0.01)


def test_a_limit_that_only_a_predicted_scale_meets_leaves_the_choice_open():
    found = scalewise.advise(published("tiny"), "deadline=290s", up_to=128)
    assert found.chosen is None and found.closest.devices == 32
    assert found.beyond.scale.devices == 64  # 128 would take more device-hours.
    assert found.sentences[1].startswith("Predicted: 64 devices (16x4) would meet it: 253.1 [")
    assert "; the chance to meet the limit is 78 %. Measure them first." in found.sentences[1]
    none = scalewise.advise(published("tiny"), "deadline=100s", up_to=64)
    assert none.beyond is None
    assert none.sentences[1] == "Predicted: no number of devices up to 64 meets it either."
    small = scalewise.advise(published("micro"), "balanced", up_to=64)
    assert (
        small.sentences[1] == "Predicted: no number of devices up to 64 serves the purpose better."
    )


def test_predicted_scales_end_where_the_global_batch_cannot_feed_more(tmp_path):
    study = a_study(global_batch=64, topologies=["1x1", "1x2", "1x4"])
    records = play_all(study, tmp_path)
    (curve,) = scaling_curves(study, records)
    found = scalewise.advise(curve, "time", up_to=512)
    assert found.batch_limit == 64
    assert [scale.devices for scale in found.scales] == [1, 2, 4, 8, 16, 32, 64]
    text = "A global batch of 64 can feed at most 64 devices: larger numbers are not considered."
    assert text in found.sentences
    assert scalewise.advise(published("tiny"), "time").batch_limit is None
    few = scalewise.advise(curve, "time", up_to=16)
    assert few.scales[-1].devices == 16 and text not in few.sentences


def test_a_node_that_is_used_in_part_can_be_charged_whole():
    assert devices("tiny", "deadline=1h") == 1
    assert devices("tiny", "deadline=1h", whole_nodes=True) == 4
    found = scalewise.advise(published("tiny"), "time", whole_nodes=True)
    assert [scale.charged for scale in found.scales[:4]] == [4, 4, 4, 8]
    assert found.scales[0].device_hours.value == pytest.approx(4 * 2350 / 3600)
    with pytest.raises(SpecError, match="the devices per node are not known"):
        some_advice(whole_nodes=True)


def test_it_says_from_where_on_overhead_dominates():
    told = str(scalewise.advise(published("tiny"), "budget=2"))
    assert "Training dominates up to 8 devices, overhead from 16." in told
    assert "Overhead dominates from 1 device on." in str(
        scalewise.advise(published("micro"), "time")
    )


def test_only_what_was_measured_is_weighed_if_nothing_larger_is_asked():
    found = scalewise.advise(published("tiny"), "efficiency=0.8", at=[32])
    assert found.chosen.devices == 32 and all(scale.measured for scale in found.scales)


FAKE = {"launch": 20.0, "rendezvous": 2.0, "validate": 4.0}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Return the curve of a simulated cluster of nodes of eight, up to two of them."""
    study = a_study(batch=64, epochs=3, options=FAKE, scaling="weak",
                    topologies=["1x1", "1x2", "1x4", "1x8", "2x8"])  # fmt: skip
    (curve,) = scaling_curves(study, play_all(study, tmp_path_factory.mktemp("simulated")))
    return curve


def seconds(devices):
    """Return the complete time by the simulated cluster's own law."""
    law, nodes = Law.of(FAKE), max(1, devices // 8)
    step = law.step(64, Topology(nodes, devices // nodes))
    start = law.launch + law.data + law.build + law.shutdown
    exchange = law.rendezvous * (1 + np.log2(devices)) if devices > 1 else law.rendezvous
    return 3 * 65536 // (64 * devices) * step + start + exchange + 3 * 4.0 / devices


@pytest.mark.parametrize("slack", [1.1, 1.4])
@pytest.mark.parametrize("wanted", [1, 2, 4, 8, 16, 32])
def test_the_simulated_cluster_is_advised_on_as_its_law_says(simulated, wanted, slack):
    limit = slack * seconds(wanted)
    right = min(n for n in (1, 2, 4, 8, 16, 32, 64) if seconds(n) <= limit)
    found = scalewise.advise(simulated, f"deadline={limit:.3f}s", up_to=64)
    best = found.chosen or found.beyond.scale
    assert best.devices == right
    assert best.measured == (right <= 16)
    truth = right * seconds(right) / 3600
    assert best.device_hours.low <= truth <= best.device_hours.high


def test_a_recorded_study_names_the_spans_that_are_no_training(simulated):
    found = scalewise.advise(simulated, "time", at=[32])
    assert str(found.scales[-1].topology) == "4x8"
    cause = cause_sentence(found.returns.cause)
    assert cause.startswith("Of the ")
    assert "is not training: launch 20 s, rendezvous 10 s, " in cause


def test_chances_fall_with_the_limit_and_are_a_half_at_the_expected_value():
    middle = some_advice().scales[-1].time.value
    chances = [
        some_advice(f"deadline={share * middle:.9f}s").scales[-1].chance
        for share in (0.5, 0.9, 1.0, 1.1, 2.0)
    ]
    assert chances == sorted(chances)
    assert chances[2] == pytest.approx(0.5, abs=1e-6)
    assert chances[0] < 0.05 and chances[-1] > 0.95


def test_the_end_of_an_interval_is_kept_in_nineteen_of_twenty():
    high = some_advice().scales[-1].time.high
    assert some_advice(f"deadline={high:.9f}s").scales[-1].chance == pytest.approx(0.95, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(
    some.floats(0.0, 0.9),
    some.sampled_from(["time", "balanced", "deadline=30s", "efficiency=0.7", "budget=0.02"]),
)
def test_what_is_chosen_meets_its_limits_and_lies_on_the_front_of_time_and_spending(fixed, purpose):
    counts = np.array([1, 2, 4, 8, 16])
    times = zip(counts.tolist(), (100 * (fixed + (1 - fixed) / counts)).tolist())
    found = scalewise.advise(curve_from_numbers(times=times), purpose)
    front = found.pareto
    assert all(
        a.slowness > b.slowness and a.device_time < b.device_time for a, b in pairwise(front)
    )
    if found.chosen is None:
        assert "No measured scale of 1 to 16 devices meets" in found.reason
        return
    if found.purpose.limits:
        assert found.chosen.chance >= 0.5 - 1e-9
    best = min(scale.slowness for scale in found.scales)
    if purpose == "time":
        assert found.chosen.slowness <= 1.01 * best


def test_no_scale_that_meets_the_purpose_is_a_sentence_with_the_closest():
    found = some_advice("deadline=1s")
    assert found.chosen is None
    assert found.closest.devices == 8
    assert found.reason.startswith(
        "No measured scale of 1 to 8 devices meets deadline=1s; the closest is 8 devices, measured:"
    )
    told = json.loads(advice_sections.as_json(found))
    assert (told["devices"], told["topology"], told["chosen"]) == (None, None, None)
    assert told["closest"]["devices"] == 8


@pytest.mark.parametrize(
    ("text", "bound", "goal"),
    [
        ("deadline=2h", 7200, "device-hours"),
        ("deadline=1h30m", 5400, "device-hours"),
        ("deadline = 0.5 d", 43200, "device-hours"),
        ("deadline=90min", 5400, "device-hours"),
        ("efficiency=80%", 0.8, "time"),
        ("budget=200 device-hours", 200, "time"),
        ("cost=500 EUR", 500, "time"),
        ("energy=2kWh", 7.2e6, "time"),
        ("energy=0.5 MWh", 1.8e9, "time"),
        ("energy=900J", 900, "time"),
        ("throughput=5000/s", 5000, "device-hours"),
        ("throughput=.5e-3", 5e-4, "device-hours"),
    ],
)
def test_a_purpose_is_read_as_people_write_it(text, bound, goal):
    found = Purpose.parse(text)
    assert (found.limits[0].bound, found.goal) == (pytest.approx(bound), goal)
    assert Purpose.parse(str(found)) == found


@pytest.mark.parametrize("name", PURPOSES)
def test_every_purpose_is_complete_and_is_in_the_help_and_the_guide(name):
    kind = PURPOSES[name]
    purpose = Purpose.parse(kind.example)
    assert str(purpose) == kind.example
    assert purpose.goal == kind.goal in GOALS
    assert [limit.name for limit in purpose.limits] == ([name] if kind.quantity else [])
    help_text = (
        get_type_hints(analysis_commands.advise, include_extras=True)["purposes"]
        .__metadata__[0]
        .help
    )
    guide = (PUBLISHED.parent.parent / "docs/guides/advise.md").read_text()
    assert kind.example in help_text
    assert f"| `{kind.example}`" in guide


@pytest.mark.parametrize(
    ("purpose", "problem", "hint"),
    [
        ("", "not a purpose: ''", "deadline=2h"),
        ([], "no purpose was given", "deadline=2h"),
        ("fastest", "not a purpose: 'fastest'", "time, balanced"),
        ("deadlin=2h", "not a purpose: 'deadlin=2h'", "did you mean 'deadline'?"),
        ("deadline", "deadline needs a number", "deadline=2h"),
        ("deadline=2", "not a time span: 'deadline=2'", "deadline=90min"),
        ("deadline=nan", "not a time span", "deadline=90min"),
        ("deadline=2020-01-01", "not a time span", "deadline=90min"),
        ("deadline=0h", "deadline must be above 0, got 'deadline=0h'", "deadline=2h"),
        ("deadline=-2h", "deadline must be above 0, got 'deadline=-2h'", "deadline=2h"),
        ("deadline=1e999s", "deadline must be above 0", "deadline=2h"),
        ("efficiency=80", "an efficiency is a share from 0 to 1", "efficiency=80%"),
        ("efficiency=0", "efficiency must be above 0", "efficiency=0.8"),
        ("efficiency=high", "efficiency must be a number", "efficiency=0.8"),
        ("budget=-1", "budget must be above 0", "budget=200"),
        ("budget=200 EUR", "budget must be a number", "budget=200"),
        ("cost=nan", "cost must be a number, got 'cost=nan'", "cost=500"),
        ("energy=40 kWh", "energy=40 kWh cannot be checked: no energy was measured", "watts=700"),
        ("energy=40", "energy must be a number with J, Wh, kWh, MWh, got 'energy=40'", "40kWh"),
        ("energy=40 kcal", "energy must be a number with J, Wh, kWh, MWh", "40kWh"),
        ("energy=-1kWh", "energy must be above 0", "energy=40kWh"),
        ("energy=1e999J", "energy must be above 0", "energy=40kWh"),
        ("time=2h", "time takes no number", "time alone"),
        ("time,balanced", "time and balanced are two goals", "keep one"),
        (["deadline=2h", "deadline=3h"], "deadline was given twice", "keep one"),
        ([7], "a purpose is text, got 7", "deadline=2h"),
        ("cost=500", "cost=500 needs the price of one device for one hour", "price=2.5"),
        (
            "throughput=5",
            "throughput=5 cannot be checked: there is no throughput",
            "another purpose",
        ),
    ],
)
def test_nonsense_is_refused_with_a_hint(purpose, problem, hint):
    with pytest.raises(SpecError) as refused:
        some_advice(purpose)
    assert problem in str(refused.value)
    assert hint in refused.value.hint


def test_what_the_curve_does_not_tell_is_refused():
    rates = curve_from_numbers([(1, 100.0), (2, 180.0)])
    with pytest.raises(SpecError, match="deadline=2h cannot be checked: there is no time"):
        scalewise.advise(rates, "deadline=2h")
    with pytest.raises(
        NotEnoughData, match="advice needs measurements on 2 numbers of devices, got 1"
    ):
        scalewise.advise(curve_from_numbers([(4, 100.0)]), "time")


@pytest.mark.parametrize("price", [0, -1, float("nan"), float("inf"), "cheap"])
def test_a_price_is_a_number_above_0(price):
    with pytest.raises(SpecError, match="price must be a number above 0"):
        some_advice(price=price)


def test_a_price_by_its_name_says_where_it_is_from():
    found = scalewise.advise(published("tiny"), "cost=5 USD", price="aws:p4d.24xlarge")
    assert found.chosen.devices == 8
    assert found.price == pytest.approx(21.95764 / 8)
    assert "a cost of 3.69 [3.314, 4.047] USD" in found.reason
    assert "is that of aws:p4d.24xlarge (skypilot-org/skypilot-catalog" in found.sentences[-1]
    told = json.loads(advice_sections.as_json(found))
    assert (told["rate"]["name"], told["rate"]["currency"]) == ("aws:p4d.24xlarge", "USD")
    (section,) = advice_sections.sections(found)
    assert "cost USD" in section.tables[0].header


def test_different_money_is_not_compared():
    with pytest.raises(SpecError, match=r"cost=5 EUR is not in USD, the currency of the price of "):
        some_advice("cost=5 EUR", price="aws:p4d.24xlarge")
    assert some_advice("cost=5 EUR", price=2.5).chosen
    assert some_advice("cost=5 $", price="aws:p4d.24xlarge").chosen


def test_the_table_and_the_json_hold_every_scale():
    found = scalewise.advise(published("tiny"), "efficiency=0.9", up_to=128, price=2.5)
    (section,) = advice_sections.sections(found)
    assert section.lines[:2] == (
        "for efficiency=0.9; efficiency is by throughput; intervals are 90 % (of numbers measured "
        "once: by a prediction from all points)",
        "on 32 devices, efficiency is 89.3 % by throughput (training steps alone) and 23.7 % by "
        "complete time (with start-up)",
    )
    rows = section.tables[0].rows
    assert [row[0] for row in rows] == ["1", "2", "4", "8", "16", "32", "64", "128"]
    assert rows[4][-2:] == ("yes", "measured, chosen")
    told = json.loads(advice_sections.as_json(found))
    assert (told["devices"], told["topology"], told["purpose"]) == (16, "4x4", "efficiency=0.9")
    assert [each["devices"] for each in told["alternatives"]] == [8, 32]
    assert told["chosen"]["time"]["value"] == 457
    assert set(told["chosen"]["cost"]) == {"value", "low", "high", "count"}


SHOWN = [
    ("advise", "tiny", {"purpose": "efficiency=0.9", "price": 2.5}),
    ("advise", "micro", {"purpose": "deadline=350s"}),
    ("advise", "tiny", {"purpose": "time", "up_to": 64}),
    ("advise", "tiny", {"purpose": "energy=2kWh", "device": "h100"}),
    ("advise", "tiny", {"purpose": "deadline=20min", "wait": "8=2min,32=15min"}),
    ("advise", "tiny", {"purpose": "efficiency=0.8", "worth": 32}),
    ("advise", "tiny", {"purpose": "budget=1.5", "runs": 8}),
    ("advise", "tiny", {
        "purpose": "deadline=6h", "target": "samples=50e6 at 512", "batch": 64,
        "critical_batch": 8192, "interrupted_every": "12h per node", "save": "30s",
        "restart": "3min", "price": 0.9,
    }),
    ("time-to-target", "tiny", {
        "purpose": "deadline=6h", "target": "samples=50e6 at 512", "batch": 64,
        "critical_batch": 8192, "up_to": 128,
    }),
]  # fmt: skip
"""Guides, and what the commands in them ask."""


@pytest.mark.parametrize("guide", ["advise", "time-to-target"])
def test_the_guides_show_what_is_printed(guide):
    page = (PUBLISHED.parent.parent / f"docs/guides/{guide}.md").read_text()
    printed = {
        line
        for where, name, question in SHOWN
        if where == guide
        for line in formats.plain_text(
            advice_sections.sections(scalewise.advise(published(name), **question)), brief=True
        ).splitlines()
    }
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.M | re.S)
    shown = "".join(text for language, text in blocks if not language).splitlines()
    lines = [line for line in shown if line and line != "…"]
    assert len(lines) > 10
    assert [line for line in lines if line not in printed] == []


def test_with_throughputs_what_grows_is_outside_the_steps():
    throughputs = [(1, 10.0), (2, 20.0), (4, 38.0), (8, 70.0), (16, 100.0)]
    times = [(count, 10_000 / rate + 5 * math.log2(count)) for count, rate in throughputs]
    found = scalewise.advise(curve_from_numbers(throughputs, times=times), "time")
    assert cause_sentence(found.returns.cause) == (
        "The cause is what grows with devices outside the steps (such as the launch): about 20 of "
        "the 120 s that T(N) = 10,000/X(N) + 5 log2 N gives for 16 devices."
    )
    title = "Costs outside the steps that grow with the devices are about 17 % of the time"
    assert limit_title(summarize(found.curve, source="")) == f"{title} on 16 devices"


def test_a_time_that_grows_is_not_laid_to_fixed_costs():
    found = scalewise.advise(
        scalewise.curve(times=[(1, 1000.0), (2, 1100.0), (4, 1300.0), (8, 1500.0)]), "time"
    )
    assert any(
        text.startswith("The cause is what grows with devices (a start that takes longer, or an ")
        for text in found.sentences
    )
    worth = scalewise.advise(found.curve, "efficiency=0.8", worth=8).worth
    assert any(
        "if all time that more devices do not shorten is the start" in text
        for text in break_even_sentences(worth)
    )


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: scalewise.advise(published("tiny"), 5), "a purpose is text, got 5"),
        (lambda: scalewise.curve([(1, 1e308), (2, 1.5e308)]), "from 1e-100 to 1e\\+100"),
        (lambda: scalewise.advise(published("tiny"), "time", price=1e12), "price must be at most"),
        (lambda: scalewise.advise(published("tiny"), "time", watts=1e9), "watts must be at most"),
    ],
)
def test_what_no_machine_has_is_refused(ask, says):
    with pytest.raises(SpecError, match=says):
        ask()


def test_one_number_of_devices_can_be_predicted_without_a_list():
    assert scalewise.predict(published("tiny"), at=64).at(64).devices == 64
