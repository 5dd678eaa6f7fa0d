"""Published curves: how they are found, and how they went on."""

import re
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from scalewise.analysis.measure import curve_from_numbers
from scalewise.analysis.predict import predict
from scalewise.analysis.predict.published_curves import compare_published, efficiency
from scalewise.catalog.curves import find_curves, load_published_curves
from scalewise.errors import SpecError
from scalewise.report import published_sections as report


def test_words_find_curves_whatever_their_spelling():
    assert {each.slug for each in find_curves("ResNet-50")} == {
        each.slug for each in find_curves("resnet50")
    }
    both = find_curves("resnet50 v100")
    names = [each.slug for each in find_curves("resnet50")]
    assert both and {each.slug for each in both} < set(names)
    assert all("v100" in re.sub(r"\W", "", str(each.facts).lower()) for each in both)
    (one,) = find_curves("seed-mn5-vith14-micro-224-throughput")
    assert one.facts["model"] == "ViT-H/14"
    for family in {each.family for each in load_published_curves()}:
        assert {each.family for each in find_curves(family)} >= {family}
    with pytest.raises(SpecError, match="matches all of vit, graphcore"):
        find_curves("vit graphcore")


@given(some.text(max_size=20))
def test_whatever_is_asked_finds_something_or_is_refused(text):
    with suppress(SpecError):
        assert find_curves(text)


def test_efficiency_is_against_the_smallest_by_throughput_or_time():
    (rates,), (times,) = (
        find_curves("vith14 micro throughput"),
        find_curves("vith14 micro total time"),
    )
    assert efficiency(rates)[32] == pytest.approx(5205 / 240 / 32)
    assert efficiency(times)[1] == 1 and efficiency(times)[32] < 0.1
    assert times.metric == "time"


def a_published(slug, *points, scaling="weak", metric="throughput"):
    (any_curve,) = find_curves("seed-mn5-vith14-micro-224-throughput")
    return replace(any_curve, slug=slug, points=points, scaling=scaling, metric=metric)


def test_others_are_followed_beyond_the_same_growth():
    curve = curve_from_numbers([(1, 100.0), (2, 200.0), (4, 400.0)], scaling="weak")
    found = compare_published(
        predict(curve, at=[8, 16]),
        [
            a_published("half", (2, 100.0), (8, 400.0), (16, 400.0)),
            a_published("all", (1, 10.0), (8, 80.0), (16, 160.0), (32, 320.0)),
            a_published("short", (1, 10.0), (2, 20.0), (4, 40.0)),
            a_published("strong", (1, 10.0), (4, 20.0), (8, 30.0), scaling="strong"),
            a_published("times", (1, 10.0), (4, 20.0), (8, 30.0), metric="time"),
        ],
    )
    told = [(each.curve.slug, each.first, each.last, each.retained) for each in found.continuations]
    assert told == [("half", 8, 16, 0.5), ("all", 8, 32, 1.0)]
    assert found.growth == 4 and found.curve_count == 5
    assert found.retained == (0.5, 0.75, 1.0)
    assert found.at(16) == pytest.approx((400.0, 400 * 1.5**2, 1600.0))
    assert found.predicted == pytest.approx(
        (predict(curve, at=[16]).at(16).throughput.value / 1600) ** 0.5
    )


def test_times_follow_as_times():
    curve = curve_from_numbers(times=[(1, 100.0), (2, 50.0)])
    known = [a_published("a", (1, 9.0), (2, 8.0), (4, 8.0), metric="time", scaling=None)]
    found = compare_published(predict(curve, at=[4]), known)
    assert found.retained == (0.5, 0.5, 0.5)
    assert found.at(4) == pytest.approx((50.0, 50.0, 50.0))


def test_nobody_to_follow_is_said():
    curve = curve_from_numbers([(1, 100.0), (2**20, 200.0)])
    made = predict(curve, at=[2**21])
    found = compare_published(made, find_curves("resnet50"))
    assert found.retained is None and found.at(2**21) is None and not found.continuations
    section = report.comparison_section("resnet50", made, found)
    assert section.lines[0].startswith("0 of ") and section.tables == ()
