"""OpenMetrics, Extra-P and MLLOG: parsed by hand, they give back what was measured."""

import io
import json
import math
import re
import shutil
from contextlib import redirect_stdout
from dataclasses import replace

import numpy as np
import pytest

from builders import a_study
from fake_study import a_watched_folder, play_all
from scalewise import load_run, results
from scalewise.analysis.measure import Doubt, Estimate, Point, ScalingCurve, curve_from_numbers
from scalewise.errors import SpecError
from scalewise.record.write import write_json
from scalewise.report.interchange import extrap, mllog, openmetrics
from scalewise.report.interchange.contents import export_curve, folder_names, run_scalars
from scalewise.spec import FullRun

ODD = 'a "b" <c> \\d\n:::MLLOG {"e->f"} \u202e' + "x" * 5000
SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\} (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\.)*)"')


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory):
    """A study on the fake machine: three numbers of devices, two epochs, two repeats."""
    folder = tmp_path_factory.mktemp("runs") / "fake"
    study = replace(a_study(batch=16, epochs=2, repeats=2, options={"noise": 0.03}), name="fake")
    write_json(folder / "study.json", {"schema": 1, **study.to_dict()})
    with redirect_stdout(io.StringIO()):
        list(play_all(study, folder))
    return folder


@pytest.fixture(scope="module")
def exported(study_folder):
    (loaded,) = results.curves_with_runs([study_folder])
    return export_curve(*loaded)


@pytest.fixture(scope="module")
def measured(study_folder):
    (curve,) = results.curves([study_folder])
    return curve


def samples(text):
    """Return each sample as its family, its labels and its value."""
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            family, labels, value = SAMPLE.fullmatch(line).groups()
            found.append((family, dict(LABEL.findall(labels)), float(value)))
    return found


def events(text):
    """Return the events of each block of a log."""
    blocks = []
    for line in text.splitlines():
        token, _, body = line.partition(" ")
        assert token == ":::MLLOG"
        event = json.loads(body)
        if event["key"] == "submission_benchmark":
            blocks.append({})
        blocks[-1].setdefault(event["key"], []).append(event)
    return blocks


def geometric_means(values):
    """Return the mean over repeats by number of devices, as measure computes it."""
    by_count = {}
    for devices, value in values:
        by_count.setdefault(devices, []).append(value)
    return {devices: Estimate.of(repeats).value for devices, repeats in by_count.items()}


def test_openmetrics_has_points_with_intervals_and_all_runs(exported, measured):
    found = samples(openmetrics.render([exported]))
    points = {
        int(labels["devices"]): value
        for family, labels, value in found
        if family == "scalewise_throughput"
    }
    assert points == {point.devices: point.throughput.value for point in measured.points}
    high = [value for family, _, value in found if family == "scalewise_time_high_seconds"]
    assert high == [point.time.high for point in measured.points]
    runs = [
        (int(labels["devices"]), value)
        for family, labels, value in found
        if family == "scalewise_run_throughput"
    ]
    assert len(runs) == 6
    assert geometric_means(runs) == pytest.approx(points)
    settings = [labels for family, labels, _ in found if family == "scalewise_run"]
    assert {labels["setting_framework"] for labels in settings} == {"fake"}


def test_openmetrics_declares_each_family_once_and_ends_as_it_must(exported):
    text = openmetrics.render([exported, exported])
    types = re.findall(r"^# TYPE (\w+) gauge$", text, re.M)
    assert len(types) == len(set(types)) > 20
    assert {family for family, _, _ in samples(text)} == set(types)
    units = re.findall(r"^# UNIT (\w+) (\w+)$", text, re.M)
    assert units and all(name.endswith(f"_{unit}") for name, unit in units)
    assert text.endswith("\n# EOF\n")


def test_extrap_has_every_repeat_with_the_parts_of_the_time(exported, measured):
    lines = [json.loads(line) for line in extrap.render([exported]).splitlines()]
    rates = [(line["params"]["devices"], line["value"])
             for line in lines if line["metric"] == "throughput"]  # fmt: skip
    means = {point.devices: point.throughput.value for point in measured.points}
    assert len(rates) == 6 and geometric_means(rates) == pytest.approx(means)
    paths = {line["callpath"] for line in lines if line["metric"] == "time"}
    assert {"fake", "fake->train", "fake->train->step", "fake->launch"} <= paths
    assert {line["run"] for line in lines} == {run.id for run in exported.runs}
    assert {line["nodes"] for line in lines} == {1}


def test_extrap_has_each_metric_on_all_devices_or_not_at_all(exported):
    points = list(exported.runs)
    points[0] = replace(points[0], values={**points[0].values, "energy": Estimate(5.0)})
    text = extrap.render([replace(exported, runs=points)])
    counts = {}
    for line in map(json.loads, text.splitlines()):
        key = line["callpath"], line["metric"]
        counts.setdefault(key, set()).add(line["params"]["devices"])
    assert set(map(frozenset, counts.values())) == {frozenset({1, 2, 4})}
    assert ("fake", "energy") not in counts


def test_extrap_refuses_curves_with_different_numbers_of_devices(exported):
    other = export_curve(curve_from_numbers([(1, 10.0), (8, 60.0)], name="other"))
    with pytest.raises(SpecError, match=r"fake has 1, 2, 4, other has 1, 8"):
        extrap.render([exported, other])


def test_mllog_has_a_block_for_each_run(exported, measured):
    blocks = events(mllog.render([exported]))
    assert len(blocks) == 6
    rates = [(block["scalewise_devices"][0]["value"], block["scalewise_throughput"][0]["value"])
             for block in blocks]  # fmt: skip
    means = {point.devices: point.throughput.value for point in measured.points}
    assert geometric_means(rates) == pytest.approx(means)
    times = [(block["scalewise_devices"][0]["value"], block["scalewise_time"][0]["value"])
             for block in blocks]  # fmt: skip
    assert geometric_means(times) == pytest.approx(
        {point.devices: point.time.value for point in measured.points}
    )
    for block in blocks:
        assert [event["metadata"]["epoch_num"] for event in block["epoch_stop"]] == [0, 1]
        assert block["tracked_stats"][0]["value"].keys() == {"throughput"}
        clock = [block[key][0]["time_ms"] for key in ("init_start", "run_start", "run_stop")]
        assert clock == sorted(clock)


def test_a_table_has_an_entry_for_each_number_of_devices_and_nothing_unknown():
    curve = curve_from_numbers([(1, 240.0), (2, 464.0)], times=[(2, 439.0)], name="table")
    exported = export_curve(curve)
    one, two = events(mllog.render([exported]))
    assert one["tracked_stats"][0]["value"] == {"throughput": 240.0}
    assert "scalewise_time" not in one and "scalewise_run" not in one
    assert two["scalewise_time"][0]["value"] == 439.0
    assert two["run_stop"][0]["time_ms"] == 439_000
    found = samples(openmetrics.render([exported]))
    assert [v for family, _, v in found if family == "scalewise_time_seconds"] == [439.0]
    metrics = {json.loads(line)["metric"] for line in extrap.render([exported]).splitlines()}
    assert "throughput" in metrics and not metrics & {"time", "memory", "energy"}


def test_times_are_the_measured_ones_also_with_a_full_run(study_folder, exported):
    (loaded,) = results.curves_with_runs([study_folder], full_run=FullRun.parse("90 epochs"))
    assert loaded[0].baseline.time.value > 10 * exported.points[0].values["time"].value
    assert export_curve(*loaded).points == exported.points


def test_runs_with_a_cache_are_written_the_same(study_folder, exported, tmp_path):
    shutil.copytree(study_folder, tmp_path / "cached")
    load_run.cache_runs(tmp_path / "cached")
    assert len([*tmp_path.glob("cached/*/cache.json")]) == 6
    (loaded,) = results.curves_with_runs([tmp_path / "cached"])
    cached = export_curve(*loaded)
    assert mllog.render([cached]) == mllog.render([exported])
    assert [[*run_scalars(run)] for run in cached.runs] == [
        [*run_scalars(run)] for run in exported.runs
    ]


def test_settings_have_no_environment_variables(study_folder):
    ((curve, records, nodes),) = results.curves_with_runs([study_folder])
    spec = replace(records[0].spec, env={"MY_TOKEN": "secret"})
    exported = export_curve(curve, [replace(records[0], spec=spec)], nodes)
    for render in (openmetrics.render, extrap.render, mllog.render):
        assert "secret" not in render([exported]) and "MY_TOKEN" not in render([exported])


def test_ten_thousand_runs_of_one_name_get_folders_of_their_own():
    assert len(set(folder_names(["a/b"] * 10_000))) == 10_000


def test_an_interval_without_end_is_left_out():
    wide = Estimate(np.float64(10.0), np.float64(0.0), math.inf, 2)
    curve = ScalingCurve(study="wide", points=(Point(devices=1, throughput=wide),))
    exported = export_curve(curve)
    assert samples(openmetrics.render([exported]))[0] == (
        "scalewise_throughput", {"curve": "wide", "devices": "1", "unit": "samples/s"}, 10.0
    )  # fmt: skip
    for text in (openmetrics.render([exported]), mllog.render([exported])):
        assert "inf" not in text.lower() and "np." not in text and "_low" not in text


def test_doubts_travel_along(tmp_path):
    folder = a_watched_folder(tmp_path / "watched", "same samples")
    (loaded,) = results.curves_with_runs([folder])
    exported = export_curve(*loaded)
    doubts = [labels for family, labels, _ in samples(openmetrics.render([exported]))
              if family == "scalewise_doubt"]  # fmt: skip
    assert ("same-samples", "blocks") in {(d["code"], d["severity"]) for d in doubts}
    blocks = events(mllog.render([exported]))
    codes = {event["value"] for block in blocks for event in block.get("scalewise_doubt", ())}
    assert "same-samples" in codes
    lines = map(json.loads, extrap.render([exported]).splitlines())
    assert all("same-samples" in line["doubts"] for line in lines if line["params"]["devices"] == 2)


def test_names_with_any_characters_stay_text():
    doubt = Doubt("left out", {"problem": ODD, "hint": ODD})
    curve = curve_from_numbers([(1, 240.0), (2, 464.0)], name=ODD)
    exported = export_curve(replace(curve, doubts=(doubt,)))
    assert len(exported.name) <= 400
    found = samples(openmetrics.render([exported]))
    assert {labels["curve"][:9] for _, labels, _ in found} == {'a \\"b\\" <'}
    log = mllog.render([exported])
    assert all(line.count(":::MLLOG") == 1 for line in log.splitlines())
    assert events(log)[0]["submission_benchmark"][0]["value"] == exported.name
    for line in map(json.loads, extrap.render([exported]).splitlines()):
        assert "->" not in line["callpath"]
