"""One number for one thing: what several verbs say about a measured point is equal in all of them.

The measured values are those of ``measure``. A value that was measured once has no interval there;
where another verb gives it one, that verb says so (``fitted_interval``).
"""

import json

import pytest
from typer.testing import CliRunner

from paths import ROOT
from scalewise.analysis.explain.receipt import LOSS_OF_SPAN
from scalewise.cli import app

FOLDER = ROOT / "tests" / "folders" / "requeued"
TABLE = ROOT / "studies" / "published" / "vit-h14-tiny-224.csv"
FULL_RUN = {FOLDER: ["--full-run", "10x"], TABLE: []}
"""Without it, summary and advise would have the times of a rehearsal per unit of work."""
METRICS = ("throughput", "time", "efficiency")


def ask(verb, source, *options):
    done = CliRunner().invoke(app, [verb, str(source), *FULL_RUN[source], *options, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def measured_points(source):
    (curve,) = ask("measure", source)["curves"]
    return {point["devices"]: point for point in curve["points"]}


def assert_same(told, measured, *, may_be_fitted=False):
    """Compare an estimate of a verb with the measured one: its value, and its interval."""
    if measured["low"] is None and may_be_fitted:
        assert told["value"] == pytest.approx(measured["value"])
        assert told["low"] <= told["value"] <= told["high"]
    else:
        assert told == measured


@pytest.mark.parametrize("source", [FOLDER, TABLE], ids=["folder", "table"])
def test_measured_numbers_are_the_same_in_every_verb(source, tmp_path):
    points = measured_points(source)
    (summary,) = ask("summary", source)["summaries"]
    advice = ask("advise", source, "--for", summary["purpose"])
    assert advice["devices"] == summary["devices"]
    assert {scale["devices"] for scale in advice["scales"]} == points.keys()
    for scale in (*advice["scales"], *summary["scales"]):
        point = points[scale["devices"]]
        for metric in METRICS:
            if scale[metric]:
                assert_same(scale[metric], point[metric], may_be_fitted=scale["fitted_interval"])
        if scale["time"]:
            assert scale["fitted_interval"] == (point["time"]["low"] is None)

    largest = max(points)
    prediction = ask("predict", source, "--at", f"{largest},{2 * largest}")
    at_largest = prediction["points"][0]
    for check in at_largest.get("checks", []):  # Held out.
        assert check["measured"] == points[largest][check["metric"]]
    if not at_largest["held_out"]:
        for metric in ("throughput", "time"):
            if at_largest[metric]:
                assert_same(at_largest[metric], points[largest][metric], may_be_fitted=True)

    page_data = tmp_path / "report.json"
    done = CliRunner().invoke(app, ["report", str(source), *FULL_RUN[source], "-o", str(page_data)])
    assert done.exit_code == 0, done.output
    (curve,) = json.loads(page_data.read_text())["curves"]
    assert {point["devices"]: point for point in curve["points"]} == points


def test_the_causes_and_the_start_up_of_a_folder_are_those_of_its_measured_spans():
    points = measured_points(FOLDER)
    (curve,) = ask("explain", FOLDER)["curves"]
    for explained in curve["points"]:
        point = points[explained["devices"]]
        assert explained["efficiency"] == point["efficiency"]["value"]
        assert explained["complete"] == {
            name: span["value"] for name, span in point["complete"].items()
        }
    (summary,) = ask("summary", FOLDER)["summaries"]
    start_ups = [
        sum(
            span["value"]
            for name, span in point["complete"].items()
            if LOSS_OF_SPAN.get(name) == "start-up"
        )
        for point in points.values()
    ]
    assert any(summary["start_up"]["seconds"] == pytest.approx(start) for start in start_ups)


def test_a_table_has_one_start_up():
    points = measured_points(TABLE)
    starts = {point["overhead"] * point["time"]["value"] for point in points.values()}
    assert max(starts) == pytest.approx(min(starts))
    law = f"T(N) = {max(starts):.1f} + "
    assert law in ask("advise", TABLE, "--for", "time")["returns"]["cause"]
    (summary,) = ask("summary", TABLE)["summaries"]
    assert law in summary["costs_most"]
    prediction = ask("predict", TABLE, "--at", "64")
    (beyond,) = prediction["points"]
    assert beyond["time"]["value"] < max(starts)  # A contradiction, which is said.
    assert any(law in warning and "below" in warning for warning in prediction["warnings"])
