"""Long tables: outliers are still found, and fewer points give the same answer."""

import numpy as np
import pytest

from scalewise.analysis.advise import Purpose, advise
from scalewise.analysis.doubts import with_doubts
from scalewise.analysis.measure import curve_from_numbers
from scalewise.analysis.predict import forecast, outliers, posterior, predict
from scalewise.analysis.predict.downsample import MAX_POINTS, downsample
from scalewise.analysis.predict.outliers import find_outliers
from scalewise.analysis.predict.series import make_series
from scalewise.report.text.prediction import method_sentences


def noisy_throughputs(count, seed=1):
    counts = np.arange(1, count + 1)
    noise = np.random.default_rng(seed).normal(1, 0.02, count)
    return counts, 100 * counts / (1 + 0.002 * (counts - 1)) * noise


def noisy_times(count, seed=1):
    counts = np.arange(1, count + 1)
    return counts, (30 + 5000 / counts) * np.random.default_rng(seed).normal(1, 0.02, count)


@pytest.mark.parametrize(
    ("metric", "factor"), [("throughput", 0.6), ("throughput", 1.5), ("time", 1.5)]
)
def test_outliers_planted_in_200_rows_are_found(metric, factor):
    counts, values = (noisy_throughputs if metric == "throughput" else noisy_times)(200)
    planted = [0, 99, 100, 199]
    values[planted] *= factor
    rows = find_outliers(make_series(counts, values, metric))
    assert sorted(row.devices for row in rows) == [int(counts[index]) for index in planted]
    for row in rows:
        assert row.measured / row.expected == pytest.approx(factor, rel=0.15)


def test_the_worst_outlier_of_a_long_table_comes_first():
    counts, values = noisy_times(200)
    values[50:60] *= 1.3
    values[55] *= 1.6  # Less far from its neighbours than the next one, and a larger error.
    values[150] *= 1.7
    rows = find_outliers(make_series(counts, values, "time"))
    errors = [abs(np.log(row.measured / row.expected)) for row in rows]
    assert [row.devices for row in rows[:2]] == [56, 151]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("metric", ["throughput", "time"])
def test_a_clean_table_of_2000_rows_has_no_outlier_and_needs_no_fit(metric, monkeypatch):
    monkeypatch.setattr(outliers, "forecast", None)
    counts, values = (noisy_throughputs if metric == "throughput" else noisy_times)(2000)
    assert find_outliers(make_series(counts, values, metric)) == []


def test_a_series_of_64_points_stays_as_it_is():
    points = make_series(*noisy_throughputs(MAX_POINTS))
    assert downsample(points) is points


def test_fewer_points_keep_both_ends_and_lie_on_the_curve():
    counts, values = noisy_throughputs(10_000)
    fewer = downsample(make_series(counts, values))
    assert len(fewer.devices) == MAX_POINTS
    assert (fewer.devices[0], fewer.last) == (1, 10_000)
    assert (np.diff(fewer.devices) > 0).all()
    exact = 100 * fewer.devices / (1 + 0.002 * (fewer.devices - 1))
    many = fewer.devices > 100  # Lines through many points have less noise than a point.
    assert np.abs(fewer.values / exact - 1)[many].max() < 0.02
    assert np.abs(fewer.values / exact - 1).max() < 0.08


@pytest.mark.parametrize(
    "counts", [[1, *range(1000, 1101)], [1, *range(500, 600)], [*range(1, 65), 10_000]]
)
def test_64_points_are_kept_of_counts_that_are_close_together(counts):
    fewer = downsample(make_series(counts, 100 * np.array(counts) ** 0.9))
    assert len(fewer.devices) == MAX_POINTS
    assert (fewer.devices[0], fewer.last) == (counts[0], counts[-1])
    assert fewer.values == pytest.approx(100 * fewer.devices**0.9)
    assert np.diff(fewer.devices)[1:-1].max() <= 4  # Spread over the counts.


def test_a_table_of_2000_rows_predicts_what_a_part_of_its_rows_predicts(monkeypatch):
    sizes = []
    weigh = posterior.weigh_machines

    def counted(points, at, *args):
        sizes.append((len(points.devices), len(at)))
        return weigh(points, at, *args)

    monkeypatch.setattr(posterior, "weigh_machines", counted)
    counts, values = noisy_throughputs(2000)
    prediction = predict(curve_from_numbers(zip(counts.tolist(), values)), at=[4000])
    part = [*range(9), *range(9, 1999, 74), 1999]
    part_forecast = forecast.forecast(make_series(counts[part], values[part]), np.array([4e3]))
    predicted, (expected,) = prediction.at(4000).throughput, part_forecast.estimates()
    assert expected.low < predicted.value < expected.high
    assert predicted.low < expected.value < predicted.high
    most_points, most_counts = map(max, zip(*sizes))
    assert most_points <= MAX_POINTS + 1  # One more: the next measurement.
    assert most_counts <= MAX_POINTS
    assert any("the 2,000 measured throughputs" in text for text in method_sentences(prediction))


def test_many_device_counts_are_interpolated():
    points = make_series([1, 2, 4, 8], [100, 190, 360, 660])
    at = np.arange(8.0, 208)
    told = forecast.forecast(points, at)
    exact = forecast.forecast(points, at[::10])
    for name in ("low", "middle", "high"):
        assert getattr(told, name)[::10] == pytest.approx(getattr(exact, name), abs=0.01)


def test_the_doubts_and_the_advice_about_a_long_table():
    counts, throughputs = noisy_throughputs(100)
    throughputs[69] *= 2
    times = 30 + 1e6 / throughputs
    times[39] *= 2
    curve = with_doubts(
        curve_from_numbers(zip(counts.tolist(), throughputs), times=zip(counts.tolist(), times))
    )
    doubts = {(doubt.kind, doubt.devices) for doubt in curve.doubts}
    assert {("implausible efficiency", 70), ("outlier", 70)} <= doubts
    assert ("outlier", 40) in doubts
    advice = advise(curve, Purpose.parse("efficiency=0.8"))
    assert len(advice.scales) == 100
    for scale in advice.pareto:
        assert not any(
            other.slowness < scale.slowness and other.device_time < scale.device_time
            for other in advice.scales
        )


def test_the_same_forecast_is_computed_once(monkeypatch):
    calls = []
    quantiles = forecast.posterior_quantiles

    def counted(*args):
        calls.append(args)
        return quantiles(*args)

    monkeypatch.setattr(forecast, "posterior_quantiles", counted)
    curve = curve_from_numbers([(1, 101.5), (2, 197.25), (4, 371.5), (8, 702.25), (16, 1300.5)])
    predict(curve, at=[32])
    first = len(calls)
    assert first > 0
    predict(with_doubts(curve), at=[32])
    assert len(calls) == first
