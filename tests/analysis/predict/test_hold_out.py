"""Predictions that are checked on measured points, and compared with the laws that fit."""

import json

import numpy as np
import pytest

import scalewise
from paths import STUDIES
from scalewise.analysis.measure import curve_from_numbers
from scalewise.analysis.predict import law_disagreements, predict
from scalewise.errors import NotEnoughData, SpecError
from scalewise.report import prediction_sections, write_figures
from scalewise.report.text.prediction import answer_sentences, describe_reach

COUNTS = [1, 2, 4, 8, 16, 32]


def published(name="tiny"):
    path = STUDIES / "published" / f"vit-h14-{name}-224.csv"
    return scalewise.measure(path, scaling="weak", devices_per_node=4)


def smaller(curve, largest):
    """Return the curve of the rows with at most so many devices."""
    few = [point for point in curve.points if point.devices <= largest]
    return curve_from_numbers(
        [(point.devices, point.throughput.value) for point in few],
        times=[(point.devices, point.time.value) for point in few],
        scaling=curve.scaling,
        devices_per_node=curve.devices_per_node,
    )


@pytest.mark.parametrize("count", [4, 16, 32])
def test_a_measured_count_is_predicted_from_the_smaller_ones_only(count):
    told = scalewise.predict(published(), at=count).at(count)
    without = predict(smaller(published(), count // 2), [count]).at(count)
    assert told.throughput == without.throughput and told.time == without.time
    rate, seconds = told.checks
    assert (rate.metric, seconds.metric) == ("throughput", "time")
    truth = next(point for point in published().points if point.devices == count)
    assert rate.measured == truth.throughput
    assert rate.error == pytest.approx(told.throughput.value / truth.throughput.value - 1)
    assert rate.inside  # The odd time on 32 devices is not.
    assert seconds.inside == (count != 32)
    assert (rate.fewest, rate.most) == (1, count // 2)


def test_the_check_is_the_answer_in_text_and_json(tmp_path):
    told = scalewise.predict(published(), at=[16])
    assert told.sentences == answer_sentences(told)
    assert told.sentences[0] == (
        "On 16 devices, predicted from 1 to 8: 3,558 samples/s (90 %: 3,360 to 3,731); measured: "
        "3,597; error −1.1 %, inside the interval."
    )
    (section,) = prediction_sections.sections(told)
    assert section.lines[0] == told.sentences[0]
    (table,) = section.tables
    assert [row[0] for row in table.rows] == ["16", "16"]
    (point,) = json.loads(prediction_sections.as_json(told))["points"]
    assert point["held_out"] is True and point["inside"] is True
    assert point["measured"]["value"] == 3597 and point["error"] == pytest.approx(-0.011, abs=1e-3)
    assert [check["metric"] for check in point["checks"]] == ["throughput", "time"]
    assert write_figures.write_prediction(told, tmp_path / "p.svg").stat().st_size > 5000


def test_checks_and_predictions_stand_in_two_tables():
    told = scalewise.predict(published(), at=[16, 64])
    (section,) = prediction_sections.sections(told)
    points, checks, *laws = section.tables
    assert [row[0] for row in points.rows] == [*map(str, COUNTS), "64"]
    assert points.rows[4][-1] == "measured"
    assert [row[0] for row in checks.rows] == ["16", "16"]
    assert [heading for heading in laws[0].header if heading.startswith("on ")] == ["on 64"]
    assert section.lines[2].startswith("On 64 devices: 13,553 samples/s (90 %: ")


def test_a_count_between_measured_ones_is_predicted_from_all_points():
    told = scalewise.predict(published(), at=12)
    point = told.at(12)
    assert point.checks == () and describe_reach(point) == "between measured points"
    assert told.sentences[0].startswith("On 12 devices, between measured points: 2,700 samples/s")
    assert 1817 < point.throughput.low < 2700 < point.throughput.high < 3597
    (section,) = prediction_sections.sections(told)
    assert [row[0] for row in section.tables[0].rows] == ["1", "2", "4", "8", "12", "16", "32"]


@pytest.mark.parametrize(
    ("counts", "at", "says"),
    [
        (COUNTS, 2, "2 devices cannot be checked: .* two smaller numbers of devices, and 1 was"),
        (COUNTS, 1, "1 device cannot be checked: .* two smaller numbers of devices, and 0 were"),
    ],
)
def test_a_check_needs_two_smaller_counts(counts, at, says):
    curve = curve_from_numbers([(n, 100.0 * n) for n in counts])
    with pytest.raises(NotEnoughData, match=says):
        scalewise.predict(curve, at=at)


def test_fewer_devices_than_were_measured_are_refused():
    curve = curve_from_numbers([(n, 100.0 * n) for n in (4, 8, 16)])
    with pytest.raises(SpecError, match="2 devices are fewer than the 4 that were measured"):
        scalewise.predict(curve, at=2)


def test_advice_keeps_measured_values():
    told = predict(published(), [16])
    assert told.at(16).throughput.value == 3597 and told.at(16).measured


def test_leaving_the_node_explains_a_prediction_below_all_laws():
    rates = [(n, 1000.0 * n) for n in (1, 2, 4, 8)]
    told = scalewise.predict(curve_from_numbers(rates, scaling="weak", devices_per_node=8), at=64)
    (row,) = law_disagreements(told)
    assert (row.metric, row.devices, row.reason) == ("throughput", 64, "network")
    assert row.predicted < row.low <= row.high
    (sentence,) = [text for text in told.sentences if "textbook laws" in text]
    assert sentence.startswith(f"All {row.laws} textbook laws that fit these points predict 64,0")
    assert sentence.endswith(
        f"the prediction is lower ({row.predicted:,.0f}) because 64 devices need more than one "
        "node and no measured point does."
    )
    told_json = json.loads(prediction_sections.as_json(told))
    assert told_json["outside_laws"][0]["reason"] == "network"


def test_a_loss_unlike_that_of_published_curves_is_the_reason():
    """The smaller data set loses 7.5 % per doubling and more at the end; published curves less."""
    told = scalewise.predict(published("micro"), at=64)
    (row,) = [row for row in law_disagreements(told) if row.metric == "throughput"]
    assert row.reason == "typical loss" and row.predicted > row.high
    assert row.expected_loss < row.measured_loss
    assert "expects each doubling to lose 3.7 %" in "".join(told.sentences)


def test_a_point_that_does_not_fit_the_others_is_the_reason():
    (row,) = law_disagreements(scalewise.predict(published("tiny"), at=64))
    assert (row.metric, row.laws, row.reason) == ("time", 1, "outlier")


def test_laws_that_fit_any_two_points_say_nothing():
    told = scalewise.predict(curve_from_numbers([(1, 100.0), (2, 60.0)]), at=64)
    assert min(fit.error for fit in told.laws) < 1e-9
    assert law_disagreements(told) == []


def test_a_prediction_between_the_laws_needs_no_sentence():
    counts = np.array(COUNTS)
    rates = zip(COUNTS, (100 * counts**0.95).tolist())
    told = scalewise.predict(curve_from_numbers(rates, scaling="weak", devices_per_node=4), at=64)
    values = [fit.value(64) for fit in told.laws if fit.error <= 0.03]
    assert min(values) <= told.at(64).throughput.value <= max(values)
    assert law_disagreements(told) == []
    # Up to the largest measurement there is nothing to compare.
    assert law_disagreements(scalewise.predict(told.curve, at=[12, 16])) == []
