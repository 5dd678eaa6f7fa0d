"""Predictions: laws that are recovered, published tables, honest bands, nonsense refused."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import scalewise
from builders import a_study
from fake_study import play_all
from paths import ROOT
from scalewise import api, plugins
from scalewise.analysis.measure import curve_from_numbers, scaling_curves
from scalewise.analysis.predict import forecast, outliers, predict
from scalewise.analysis.predict.learned import load_learned
from scalewise.analysis.predict.next_measurement import best_next_measurement
from scalewise.analysis.predict.posterior import draw_machines, quasi_random_points
from scalewise.analysis.predict.series import curve_series, make_series, require_points
from scalewise.catalog.curves import CURVES_FOLDER, load_published_curves
from scalewise.errors import NotEnoughData, SpecError
from scalewise.frameworks.fake import Law
from scalewise.report import prediction_sections
from scalewise.report.text.prediction import (
    describe_reach,
    next_measurement,
    prediction_sentences,
    prediction_warnings,
)
from scalewise.report.write_figures import prediction_figures, write_prediction
from scalewise.spec import Topology

N = np.array([1.0, 2, 4, 8, 16, 32])
MICRO = {
    "throughput": {1: 240, 2: 464, 4: 892, 8: 1668, 16: 3075, 32: 5205},
    "time": {1: 556, 2: 439, 4: 380, 8: 347, 16: 330, 32: 328},
}
TINY = {
    "throughput": {1: 242, 2: 475, 4: 935, 8: 1817, 16: 3597, 32: 6914},
    "time": {1: 2350, 2: 1354, 4: 842, 8: 605, 16: 457, 32: 310},
}
LAWS = [
    "amdahl",
    "communication",
    "complete",
    "constant",
    "gustafson",
    "pmnf",
    "power",
    "universal",
]


def fit(name, values, metric="throughput", counts=N, **more):
    return plugins.load("laws", name)(make_series(counts, values, metric, **more))


def found(law):
    return {name: each.value for name, each in law.parameters.items()}


def rows(table, largest):
    return [(n, value) for n, value in table.items() if n <= largest]


def a_prediction(at=(16, 32), **more):
    return predict(curve_from_numbers(rows(MICRO["throughput"], 8), **more), at)


@pytest.mark.parametrize(
    ("name", "values", "parameters"),
    [
        ("constant", 100 * N, {"rate": 100}),
        ("amdahl", 100 / (0.07 + 0.93 / N), {"once": 100, "serial": 0.07}),
        ("gustafson", 100 * (N - 0.07 * (N - 1)), {"once": 100, "serial": 0.07}),
        ("power", 100 * N**0.9, {"once": 100, "exponent": 0.9}),
        ("universal", 100 * N / (1 + 0.02 * (N - 1) + 1e-3 * N * (N - 1)),
         {"rate": 100, "contention": 0.02, "crosstalk": 1e-3}),
        ("pmnf", N / (0.01 + 0.002 * np.log2(N)), {"fixed": 0.01, "factor": 0.002}),
        ("pmnf", N / (0.01 + 0.0003 * N**1.5), {"fixed": 0.01, "factor": 0.0003}),
        ("pmnf", 100 * N, {"fixed": 0.01}),
    ],
)  # fmt: skip
def test_a_law_gives_its_own_parameters_back(name, values, parameters):
    law = fit(name, values)
    assert found(law) == pytest.approx(parameters)
    assert law.error == pytest.approx(0, abs=1e-9)
    by_time = fit(name, 1e6 / values, "time")
    assert by_time.value(64) == pytest.approx(1e6 / law.value(64))


def test_the_law_of_the_complete_time_gives_its_parts_back():
    law = fit("complete", 300 + 2000 / N + 5 * np.log2(N), "time")
    assert found(law) == pytest.approx({"fixed": 300, "work": 2000, "growing": 5})
    assert str(law) == "T(N) = 300 + 2,000/N + 5 log2 N"
    with pytest.raises(NotEnoughData, match="needs times"):
        fit("complete", N)


def fake_throughput(law, counts, batch=64, per_node=8):
    return np.array(
        [n * batch / law.step(batch, Topology(max(1, int(n) // per_node), int(min(n, per_node))))
         for n in counts]
    )  # fmt: skip


def test_the_law_of_communication_gives_the_fake_machine_back():
    machine, counts = Law(ring=3e-3, network=5e-3, latency=2e-4), [*N, 64.0]
    law = fit("communication", fake_throughput(machine, counts), counts=counts, per_node=8)
    assert {name: 64 * value for name, value in found(law).items()} == pytest.approx(
        {"compute": 64e-3 + machine.host, "ring": 3e-3, "network": 5e-3, "latency": 2e-4}
    )
    assert law.value(256) == pytest.approx(fake_throughput(machine, [256])[0])


def test_intervals_of_parameters_hold_the_fake_machine():
    machine, counts = Law(ring=3e-3, network=8e-3, latency=5e-4), [*N, 64.0, 128.0]
    truth = {"compute": 66e-3, "ring": 3e-3, "network": 8e-3, "latency": 5e-4}
    rates, held = fake_throughput(machine, counts), []
    for seed in range(60):
        noise = np.exp(0.005 * np.random.default_rng(seed).normal(size=len(rates)))
        law = fit("communication", rates * noise, counts=counts, scaling="weak", per_node=8)
        told = {name: each * 64.0 for name, each in law.parameters.items()}
        held += [told[name].low <= value <= told[name].high for name, value in truth.items()]
    assert 0.82 <= np.mean(held) <= 0.97


def test_under_strong_scaling_the_exchange_grows_against_the_compute():
    machine = Law(host=0.0, latency=0.0)
    rates = [256 / machine.step(256 // n, Topology(1, n)) for n in (1, 2, 4, 8)]
    law = fit("communication", rates, counts=[1, 2, 4, 8], scaling="strong", per_node=8)
    assert law.value(8) == pytest.approx(rates[-1])
    assert found(law)["ring"] * 256 == pytest.approx(machine.ring)


@pytest.mark.parametrize("name", LAWS)
def test_every_law_prints_as_its_formula_with_intervals_where_points_are_spared(name):
    metric = "time" if name == "complete" else "throughput"
    noisy = 100 * N**0.9 * np.exp(0.02 * np.random.default_rng(1).normal(size=6))
    law = fit(name, 1e6 / noisy if metric == "time" else noisy, metric, per_node=4)
    assert str(law).startswith(("X(N) = ", "T(N) = ", "N/X(N) = "))
    assert "{" not in str(law)
    for each in law.parameters.values():
        assert each.low <= each.value <= each.high
    few = fit(name, law.points.values[:3], metric, counts=N[:3])
    assert few.value(64) > 0


@pytest.mark.parametrize("table", [MICRO, TINY], ids=["micro-224", "tiny-224"])
@pytest.mark.parametrize("metric", ["throughput", "time"])
@pytest.mark.parametrize("alone", [True, False])
def test_the_published_rows_on_16_and_32_lie_in_the_intervals_from_8(table, metric, alone):
    numbers = {name: rows(table[name], 8) for name in (metric,) if alone} or {
        name: rows(table[name], 8) for name in table
    }
    curve = scalewise.curve(
        numbers.get("throughput", ()), times=numbers.get("time", ()),
        scaling="weak", devices_per_node=4,
    )  # fmt: skip
    ahead = scalewise.predict(curve, at=[16, 32])
    for count in (16, 32):
        told = getattr(ahead.at(count), metric)
        if (table, metric, count) != (TINY, "time", 32):
            assert told.low <= table[metric][count] <= told.high


@pytest.mark.parametrize("more", [{}, {"throughput": TINY["throughput"]}])
def test_the_row_of_tiny_224_that_no_law_explains_is_flagged(more):
    curve = curve_from_numbers(
        more.get("throughput", {}).items(), times=TINY["time"].items(), scaling="weak"
    )
    told = predict(curve, at=[64])
    assert [(each.devices, each.metric) for each in told.outliers] == [(32, "time")]
    assert told.outliers[0].expected == pytest.approx(401, abs=3)
    assert "32 devices: 310 s is not explained by the other rows" in prediction_warnings(told)[0]


def test_rows_that_follow_their_law_are_not_flagged():
    curve = curve_from_numbers(MICRO["throughput"].items(), times=MICRO["time"].items())
    assert predict(curve, at=[64]).outliers == ()
    clean = make_series(N, 300 + 2000 / N, "time")
    assert outliers.find_outliers(clean) == []


def test_one_node_asks_for_two_and_says_what_it_cannot_know():
    inside = predict(curve_from_numbers(rows(MICRO["throughput"], 8), scaling="weak",
                                        devices_per_node=8), at=[16, 64])  # fmt: skip
    reach = describe_reach(inside.at(64))
    assert "8 × the largest measurement; data from one node cannot show the network" in reach
    assert (inside.next.devices, inside.next.nodes) == (16, 2)
    assert inside.next.shrinks < 0.7
    assert next_measurement(inside.next) == prediction_sentences(inside)[-1]
    expected = "Measure 16 devices (2 nodes) next, the first across nodes: the"
    assert expected in str(api.predict(inside.curve, at=[16, 64]))
    across = a_prediction([64], scaling="weak", devices_per_node=4)
    assert "network" not in describe_reach(across.at(64))
    assert across.next.devices in (16, 32)


def test_without_devices_per_node_the_reach_says_so():
    assert "devices per node are unknown" in describe_reach(a_prediction().at(16))


def test_a_measurement_that_comes_as_expected_shrinks_the_interval_as_announced():
    points = make_series([1, 2, 4, 8], [240, 464, 892, 1668], "throughput", "weak", 8)
    told = best_next_measurement(points, 64)
    target = np.array([64.0])
    cost = np.exp(forecast.forecast(points, np.array([16.0])).middle[0])
    then = forecast.forecast(points.with_point(16, cost), target)
    assert told.width == pytest.approx(forecast.forecast(points, target).width[0], rel=0.1)
    assert then.width[0] / told.width == pytest.approx(told.shrinks, rel=0.3)


def test_efficiency_does_not_rise_beyond_the_last_point_unless_it_rose_there():
    steep = {1: 332.6, 2: 666.8, 4: 1333, 8: 740, 16: 1088}
    curve = curve_from_numbers(steep.items(), scaling="weak", devices_per_node=4)
    made = predict(curve, [32, 64, 128])
    shares = [made.efficiency(point) for point in (curve.points[-1], *made.points)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] < 0.205

    rates = [332.6, 666.8, 1333, 500, 1088]
    rising = make_series([1, 2, 4, 8, 16], rates, scaling="weak", per_node=4)
    (beyond,) = forecast.forecast(rising, np.array([32.0])).by_machines
    assert beyond < np.log(rising.cost[-1])


def test_equal_curves_have_equal_answers_and_seeds_hardly_matter():
    points, at = make_series(N, 100 * N**0.9, "throughput", "weak", 8), np.array([64.0])
    first = forecast.forecast(points, at)
    assert forecast.forecast(points, at).middle[0] == first.middle[0]
    for seed in (1, 2, 3):
        other = forecast.forecast(points, at, seed=seed)
        assert other.middle[0] == pytest.approx(first.middle[0], abs=0.01)
        assert other.width[0] == pytest.approx(first.width[0], rel=0.2)


def test_the_sentences_carry_the_arithmetic():
    told = a_prediction(scaling="weak", devices_per_node=4)
    sentences = prediction_sentences(told)
    assert sentences[2].startswith(
        "Expected per-device throughput after each doubling: 97.1 % (logarithmic loss 2.9 % = 1.7 %"
    )
    value = told.at(16).throughput.value
    assert f"16 devices: 1,668 × 2 × {value / 3336:.3f} = {value:,.0f} samples/s" in "".join(
        sentences
    )
    assert told.law.startswith("X(N) = 1,668 N/8 · trend^0.50 models^0.50, trend = 0.971^log2")


def test_every_law_stands_beside_the_prediction():
    curve = curve_from_numbers(rows(MICRO["throughput"], 8), times=rows(MICRO["time"], 8))
    told = predict(curve, at=[16])
    of = {metric: [f.law for f in told.laws if f.points.metric == metric] for metric in MICRO}
    assert sorted(of["time"]) == LAWS
    assert sorted(of["throughput"]) == [name for name in LAWS if name != "complete"]


counts = some.sets(some.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 32, 64]), min_size=2, max_size=6)


@settings(deadline=None, max_examples=25)
@given(counts, some.floats(0.0, 1.2), some.booleans(), some.sampled_from([None, 4, 8]))
def test_every_prediction_keeps_the_order_and_the_measurements(places, loss, by_time, per_node):
    rates = [(n, 100 * n ** (1 - loss)) for n in sorted(places)]
    pairs = {"times": [(n, 1e6 / rate) for n, rate in rates]} if by_time else {"throughputs": rates}
    curve = curve_from_numbers(**pairs, devices_per_node=per_node)
    last = max(places)
    told = predict(curve, at=[min(places), last, 2 * last, 8 * last])
    metric = "time" if by_time else "throughput"
    for point in told.points:
        each = getattr(point, metric)
        assert 0 < each.low <= each.value <= each.high
        if point.devices in places:
            seen = next(p for p in curve.points if p.devices == point.devices)
            assert each.value == getattr(seen, metric).value
    near, far = (getattr(told.at(n), metric) for n in (2 * last, 8 * last))
    assert near.high / near.low < far.high / far.low


def covered(studies, counts=(1, 2, 4, 8, 16, 32), at=(64, 128)):
    """Return the share of measurements to come that lie in their interval, on noisy machines.

    Ring, network and latency differ by a factor of ten and more; noise goes from
    1 to 8 % of a measurement, as on a shared cluster.
    """
    inside = []
    for seed in range(studies):
        chance = np.random.default_rng(seed)
        ring, network, latency = np.exp(chance.uniform(np.log([1e-3, 1e-3, 5e-5]),
                                                       np.log([1e-2, 3e-2, 1e-3])))  # fmt: skip
        noise = np.exp(chance.uniform(np.log(0.01), np.log(0.08)))
        machine = Law(ring=ring, network=network, latency=latency)
        rates = fake_throughput(machine, [*counts, *at])
        rates = rates * np.exp(noise * chance.normal(size=len(rates)))
        points = make_series(counts, rates[: len(counts)], "throughput", "weak", 8)
        made = forecast.forecast(points, np.array(at, float), draws=2048)
        truth = np.log(np.array(at) / rates[len(counts) :])
        inside += list((made.low <= truth) & (truth <= made.high))
    return float(np.mean(inside))


def test_intervals_cover_as_they_say_on_a_hundred_noisy_machines():
    assert 0.85 <= covered(100) <= 0.97


@pytest.mark.soak
def test_intervals_cover_as_they_say_on_a_thousand_noisy_machines(capsys):
    share = covered(1000)
    with capsys.disabled():
        print(f"{share:.1%} of 2000 measurements to come lie in their interval")
    assert 0.87 <= share <= 0.96


def test_the_complete_time_of_records_is_the_sum_of_its_parts(tmp_path):
    options = {"launch": 20.0, "rendezvous": 2.0, "validate": 4.0}
    study = a_study(batch=64, epochs=3, options=options, scaling="weak",
                    topologies=["1x1", "1x2", "1x4", "1x8", "2x8"])  # fmt: skip
    (curve,) = scaling_curves(study, play_all(study, tmp_path))
    assert curve.devices_per_node == 8
    told = predict(curve, at=[32, 64])
    law = Law.of(options)
    for count in (32, 64):
        steps = 3 * 65536 // (64 * count)
        training = steps * law.step(64, Topology(count // 8, 8))
        start = law.launch + law.data + law.build + law.shutdown
        whole = training + start + law.rendezvous * (1 + np.log2(count)) + 3 * 4.0 / count
        assert told.at(count).time.value == pytest.approx(whole, rel=0.03)
        assert told.at(count).time.low <= whole <= told.at(count).time.high
    assert "launch 20" in told.law
    assert "rendezvous 2 + 2 log2 N" in told.law


def test_times_of_unlike_work_are_not_predicted():
    curve = curve_from_numbers(times=[(1, 10.0), (2, 9.0), (4, 8.0)],
                               samples=[(1, 100), (2, 150), (4, 250)])  # fmt: skip
    told = predict(curve, at=[8]).at(8)
    assert told.time is None
    assert told.throughput.value > 0


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ([], "no number of devices"),
        ([0], "from 1 to"),
        ([-4], "from 1 to"),
        ([10**9], "from 1 to 10,000,000, got 1,000,000,000"),
        ([2.5], "must be whole"),
        ([float("nan")], "must be whole"),
        ([True], "must be whole"),
        (["16"], "must be whole"),
    ],
)
def test_counts_that_are_no_prediction_are_refused(at, said):
    with pytest.raises(SpecError, match=said):
        a_prediction(at)


def test_one_point_is_not_enough():
    with pytest.raises(NotEnoughData, match="a prediction needs 2 device counts, got 1") as told:
        predict(curve_from_numbers([(1, 240.0)]), at=[8])
    assert "measure one more" in told.value.hint


def test_what_was_not_asked_for_is_not_there():
    with pytest.raises(SpecError, match="no prediction for 64 devices; there are: 16, 32"):
        a_prediction().at(64)


def test_a_series_knows_its_metric_and_its_nodes():
    points = make_series([4, 8, 12], [1.0, 2.0, 3.0], "time", None, 8)
    assert list(points.cost) == [4, 16, 36]
    assert list(points.values) == [1, 2, 3]
    assert list(points.nodes(points.devices)) == [1, 1, 2]
    assert curve_series(curve_from_numbers([(1, 1.0)]), "time") is None
    with pytest.raises(NotEnoughData):
        require_points(points, 4, "this")


def test_the_draws_fill_the_cube_evenly():
    drawn_points = quasi_random_points(0, 4096)
    assert drawn_points.mean(axis=0) == pytest.approx(0.5, abs=0.01)
    assert np.corrcoef(drawn_points.T) == pytest.approx(np.eye(drawn_points.shape[1]), abs=0.06)
    machines = draw_machines(load_learned()["weak"].priors)
    chance = [prior.probability for prior in load_learned()["weak"].priors.values()]
    assert (machines != 0).mean(axis=0) == pytest.approx(chance, abs=0.01)


def test_a_prediction_takes_a_blink():
    curve = curve_from_numbers(rows(MICRO["throughput"], 8), devices_per_node=4, scaling="weak")
    predict(curve, at=[16])
    took = []
    for _ in range(5):
        began = time.process_time()
        predict(curve, at=[16, 32, 64])
        took.append(time.process_time() - began)
    assert min(took) < 0.3


def test_published_curves_have_sources_and_grow():
    curves = load_published_curves()
    assert len(curves) > 200
    assert len({each.slug for each in curves}) == len(curves)
    for each in curves:
        assert each.facts["source_title"] and each.facts["source_url_or_repo_path"]
        assert each.metric in ("throughput", "time")
        devices = [count for count, _ in each.points]
        assert devices == sorted(set(devices))
        assert all(value > 0 for _, value in each.points)
    assert {path.stem for path in CURVES_FOLDER.glob("*.json")} == {each.family for each in curves}


def test_json_has_the_documented_shape():
    curve = curve_from_numbers(rows(TINY["throughput"], 8), times=rows(TINY["time"], 8),
                               devices_per_node=8)  # fmt: skip
    told = json.loads(prediction_sections.as_json(predict(curve, at=[16, 32])))
    assert told["schema"] == 1
    assert [point["devices"] for point in told["points"]] == [16, 32]
    fields = {"devices", "nodes", "throughput", "time", "reach", "held_out"}
    assert set(told["points"][0]) == fields
    assert set(told["points"][0]["throughput"]) == {"value", "low", "high", "count"}
    assert told["next"]["devices"] == 16
    assert 0 < told["next"]["shrinks"] < 1
    assert {"law", "metric", "formula", "parameters", "error", "values"} == set(told["laws"][0])


def test_the_band_is_drawn(tmp_path):
    curve = curve_from_numbers(rows(TINY["throughput"], 8), times=rows(TINY["time"], 8))
    prediction = predict(curve, at=[16, 32])
    for figure, metric in zip(prediction_figures(prediction), ("throughput", "time"), strict=True):
        (band,) = [line for line in figure.lines if line.role == "predicted"]
        low, high = band.low[1], band.high[1]
        expected = getattr(prediction.at(16), metric)
        assert high / low == pytest.approx(expected.high / expected.low)
        assert low < band.y[1] < high
    assert write_prediction(prediction, tmp_path / "p.png").stat().st_size > 5000
    with pytest.raises(SpecError, match="unknown ending"):
        write_prediction(prediction, tmp_path / "p.gif")


@pytest.fixture
def benchmark(monkeypatch):
    """The benchmark, and the published curves with what ships for every family."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import prediction as scores

    curves = [
        (each.family, scores.as_series(each))
        for each in load_published_curves()
        if not each.suspect
    ]
    return scores, curves, {family: load_learned() for family, _ in curves}


def test_published_curves_are_predicted_as_claimed(benchmark):
    """With what ships, which has seen them; ``benchmarks/prediction.py`` is without."""
    scores, curves, known = benchmark
    told = scores.summary(scores.by_default(curves, known, "largest"))
    assert scores.broken("largest", told) == []


@pytest.mark.soak
def test_one_point_on_two_nodes_gives_what_was_announced(benchmark):
    scores, curves, known = benchmark
    assert scores.two_nodes(curves, known) == []


@pytest.mark.soak
def test_what_ships_is_what_is_learned(benchmark):
    scores, curves, _ = benchmark
    for kind, known in scores.learn([points for _, points in curves]).items():
        assert load_learned()[kind].interval_factor == pytest.approx(
            known.interval_factor, rel=0.01
        )
        assert load_learned()[kind].typical_loss == pytest.approx(known.typical_loss, rel=0.01)
        assert load_learned()[kind].priors["ring"].probability == pytest.approx(
            known.priors["ring"].probability, rel=0.01
        )
