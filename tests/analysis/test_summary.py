"""Summaries of studies with a known law: verdict, devices, largest cost and next command."""

import json
from contextlib import redirect_stdout
from io import StringIO

import pytest

from builders import a_study
from fake_study import play_all
from scalewise import api
from scalewise.record.write import write_json

CLEAN = {
    "host": 0.0, "compute": 2e-3, "ring": 0.0, "network": 0.0, "latency": 0.0,
    "launch": 1.0, "data": 0.1, "build": 0.1, "validate": 0.0, "noise": 0.01,
}  # fmt: skip
COUNTS = ["1x1", "1x2", "1x4", "1x8"]


def a_folder(path, options, *, full_run=None, steps=60, topologies=COUNTS):
    """Play a study on the fake machine with these parameters of its law."""
    study = a_study(
        options=CLEAN | options, steps=steps, batch=16, topologies=topologies, repeats=2,
        scaling="weak", **({"full_run": full_run} if full_run else {}),
    )  # fmt: skip
    write_json(path / "study.json", {"schema": 1, **study.to_dict()})
    with redirect_stdout(StringIO()):
        list(play_all(study, path))
    return path


@pytest.mark.parametrize(
    ("options", "length", "verdict", "devices", "cause"),
    [
        ({"ring": 3e-4}, "1e6 samples", "yes", 8, None),
        ({"wait": 0.05}, "1e6 samples", "yes", 8, "input"),
        ({"ring": 0.1}, "1e6 samples", "no", 1, "transfer"),
        ({"launch": 300.0}, "1e5 samples", "no", 1, "start-up"),
        ({"slow": 0.05}, "1e6 samples", None, None, "balance"),
    ],
    ids=["scales well", "input", "network", "start-up", "slow rank"],
)
def test_a_summary_finds_the_law(options, length, verdict, devices, cause, tmp_path):
    answer = api.summary(a_folder(tmp_path, options), full_run=length)
    assert (answer.cost and answer.cost.cause) == cause
    if verdict:
        assert (answer.verdict, answer.chosen.devices) == (verdict, devices)
    assert answer.lines[0].startswith("Worth it? ")
    assert answer.lines[-1].startswith("Next: scalewise ")


def test_what_stops_at_the_advised_number_is_named(tmp_path):
    folder = a_folder(tmp_path, {"network": 0.25}, topologies=["1x1", "1x2", "1x4", "2x4"])
    answer = api.summary(folder, full_run="1e6 samples")
    assert answer.chosen.devices == 4 and answer.cost is None
    assert answer.limit.cause == "transfer" and answer.beyond.devices == 8
    (line,) = [line for line in answer.lines if line.startswith("Why not more? ")]
    slower = "8 devices (2 nodes) are slower than 4: moving gradients between devices takes "
    assert line.startswith(f"Why not more? {slower}")
    assert line.endswith(" % of the time (0 % on 4 devices).")


def test_the_lost_time_is_that_of_the_full_run(tmp_path):
    folder = a_folder(tmp_path, {"launch": 30.0, "ring": 0.004})
    for length in ("1e4 samples", "1e7 samples"):
        answer = api.summary(folder, full_run=length)
        launch, total = 30.0, answer.examined.facts.point.time.value
        assert answer.start_up.seconds == pytest.approx(launch, rel=0.2)
        assert answer.start_up.share == pytest.approx(answer.start_up.seconds / total)
    assert answer.start_up.share < 0.05


def test_a_rehearsal_is_answered_per_unit_of_work_and_asks_for_the_full_run(tmp_path):
    answer = api.summary(a_folder(tmp_path, {"launch": 60.0, "ring": 0.004}))
    assert answer.start_excluded and answer.verdict == "yes"
    assert "--full-run" in answer.lines[-1]
    assert any("start-up" in line.lower() and "pays it once" in line for line in answer.lines)


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ("1,240\n2,475\n4,930\n", "yes"),
        ("1,240\n2,250\n4,255\n", "no"),
        ("1,240\n2,475\n4,48000\n", "not reliable"),
        ("4,930\n", "unknown"),
    ],
)
def test_a_table_has_a_summary_too(rows, verdict, scalewise, tmp_path):
    table = tmp_path / "my table.csv"
    table.write_text("devices,throughput\n" + rows)
    code, out, err = scalewise("summary", table)
    assert code == 0, err
    assert len(out.splitlines()) <= 24
    code, told, _ = scalewise("summary", table, "--json")
    (values,) = json.loads(told)["summaries"]
    assert values["verdict"] == verdict and values["says"] in " ".join(out.split())
    assert (values["devices"] is None) == (verdict in ("unknown", "not reliable"))
    assert f"'{table}'" in values["next"]


def test_a_narrow_interval_holds_its_value(scalewise, tmp_path):
    table = tmp_path / "narrow.csv"
    table.write_text("devices,throughput\n1,380 ± 1\n2,750 ± 1\n4,1476 ± 1\n")
    _, out, _ = scalewise("summary", table)
    assert "is 1,475 to 1,477 samples per second" in " ".join(out.split())
