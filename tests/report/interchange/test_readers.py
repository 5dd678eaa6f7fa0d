"""Exports open in the tools' own readers, each in its environment: ``make test-interchange``.

They are written without a network, and leave nothing behind: no file elsewhere, no process.
"""

import io
import json
import os
import shutil
import subprocess
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path

import psutil
import pytest

from builders import a_study
from fake_study import play_all
from framework_envs import python_of
from paths import ROOT
from scalewise import results
from scalewise.analysis.measure import Estimate
from scalewise.record.write import write_json

pytestmark = pytest.mark.interchange
COUNTS = [1, 2, 4, 8, 16, 32]
"""Those of the table, because Extra-P reads curves of one file with the same counts only."""
TABLE = ROOT / "studies/published/vit-h14-tiny-224.csv"
FORMATS = {"tensorboard": "tracking", "mlflow": "tracking", "wandb": "tracking",
           "openmetrics": "tracking", "mllog": "tracking", "extrap": "extrap"}  # fmt: skip
NAME = 'a "study" <b>=HYPERLINK(1)'
USER = {"WANDB_MODE": "online", "WANDB_RUN_ID": "mine", "WANDB_API_KEY": "x" * 40,
        "MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_RUN_ID": "mine"}  # fmt: skip
"""What a user may have set for other work: an export neither needs nor follows it."""
WRITE = "import sys; sys.argv[0] = 'scalewise'; from scalewise.cli import main; main()"


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory):
    """A study of two repeats of two epochs."""
    folder = tmp_path_factory.mktemp("runs") / "fake"
    topologies = [f"1x{count}" for count in COUNTS]
    study = a_study(batch=256, epochs=2, repeats=2, options={"noise": 0.03}, topologies=topologies)
    study = replace(study, name=NAME)
    write_json(folder / "study.json", {"schema": 1, **study.to_dict()})
    with redirect_stdout(io.StringIO()):
        list(play_all(study, folder))
    return folder


@pytest.fixture(scope="module")
def exports(study_folder, tmp_path_factory):
    """Return a function that writes the study and the table, and has the tool's reader read it."""
    place = tmp_path_factory.mktemp("exports")

    @cache
    def export(name):
        write([study_folder, TABLE], name, place / name)
        return run_reader(name, place / name)

    export.place = place
    return export


def environment(**changes):
    """Return a clean environment, in which only ``changes`` say where files may go."""
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **changes}


def write(sources, name, path):
    """Give the command in the readers' environment; check that it keeps to its folder."""
    home, work = path.with_name(f"{path.name}-home"), path.with_name(f"{path.name}-work")
    home.mkdir()
    work.mkdir()
    # Where the machine allows it, there is no network at all.
    alone = ["unshare", "--net"] if os.geteuid() == 0 and shutil.which("unshare") else []
    command = [python_of("readers-tracking"), "-c", WRITE, "report", *sources, "--as", name]
    env = environment(HOME=str(home), PYTHONPATH=str(ROOT / "src"), EXPORTED=str(path), **USER)
    done = subprocess.run(
        [*alone, *command, "-o", str(path)],
        env=env, cwd=work, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{path}\n"), done.stderr
    assert done.stderr == ""
    assert [*home.rglob("*"), *work.rglob("*")] == []
    assert [p for p in psutil.process_iter() if owned(p, str(path))] == []


def owned(process, path):
    try:
        return process.environ().get("EXPORTED") == path
    except psutil.Error:
        return False


def run_reader(name, path):
    python = python_of(f"readers-{FORMATS[name]}")
    done = subprocess.run(
        [python, str(ROOT / "tests/readers/read_export.py"), name, str(path)],
        env=environment(HOME=str(path.with_name("home")), MLFLOW_ALLOW_FILE_STORE="true",
                        MLFLOW_DISABLE_TELEMETRY="true"),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def curve(study_folder):
    (curve,) = results.curves([study_folder])
    return curve


@pytest.fixture(scope="module")
def table():
    (curve,) = results.curves([TABLE])
    return curve


def means(pairs):
    """Return the mean over repeats by number of devices, as ``measure`` computes it."""
    by_count = {}
    for devices, value in pairs:
        by_count.setdefault(int(devices), []).append(value)
    return {devices: Estimate.of(values).value for devices, values in by_count.items()}


def expected(curve, name="throughput"):
    return {point.devices: getattr(point, name).value for point in curve.points}


def test_tensorboard_reads_curves_runs_settings_and_doubts(exports, curve, table):
    read = exports("tensorboard")
    scaling = read.pop("a-study-b-HYPERLINK-1/scaling")
    of_table = read.pop(f"{table.study}/scaling")
    assert dict(of_table["scalars"]["scaling/time"]) == expected(table, "time")
    assert "\\[outlier\\] on 32 devices" in of_table["texts"]["doubts"]
    assert dict(scaling["scalars"]["scaling/throughput"]) == pytest.approx(expected(curve), 1e-6)
    highs = {point.devices: point.efficiency.high for point in curve.points}
    assert dict(scaling["scalars"]["scaling/efficiency_high"]) == pytest.approx(highs, 1e-6)
    runs = read.values()
    assert len(runs) == 2 * len(COUNTS)
    for name in ("throughput", "time"):
        pairs = [pair for run in runs for pair in run["scalars"][f"run/{name}"]]
        assert means(pairs) == pytest.approx(expected(curve, name), 1e-6)
    for run in runs:
        assert run["scalars"]["run/devices"][0][0] == run["scalars"]["run/devices"][0][1]
        assert len(run["scalars"]["epoch/seconds"]) == 2
        assert len(run["scalars"]["step/seconds"]) == run["scalars"]["run/steps"][0][1]
        assert run["settings"]["framework"] == "fake"
        assert run["texts"]["unit"] == "samples/s"


def test_what_tensorboard_got_is_imported_again(exports, curve, scalewise):
    exports("tensorboard")
    folder = exports.place / "tensorboard" / "a-study-b-HYPERLINK-1"
    code, _, err = scalewise("import", folder, "-o", "again.csv")
    assert code == 0, err
    (again,) = results.curves([Path("again.csv")])
    for metric in ("throughput", "time", "epoch_time"):
        assert expected(again, metric) == pytest.approx(expected(curve, metric), 1e-6)
    # On 16 and 32 devices, doubts about few steps have widened the study's own intervals.
    highs = [[point.time.high for point in c.points[:4]] for c in (again, curve)]
    assert highs[0] == pytest.approx(highs[1])


def test_mlflow_reads_the_store(exports, curve, table):
    read = exports("mlflow")
    (of_table,) = read[table.study]
    assert dict(of_table["scalars"]["scaling/throughput"]) == expected(table)
    assert of_table["tags"]["scalewise.doubts"] == "outlier"
    runs = read["a-study-b-HYPERLINK-1"]
    (scaling,) = [run for run in runs if run["name"] == "scaling"]
    assert dict(scaling["scalars"]["scaling/throughput"]) == expected(curve)
    trained = [run for run in runs if "scalewise.run" in run["tags"]]
    assert len(trained) == 2 * len(COUNTS)
    assert {run["status"] for run in runs} == {"FINISHED"}
    assert {run["tags"]["scalewise.study"] for run in runs} == {NAME}
    pairs = [pair for run in trained for pair in run["scalars"]["run/time"]]
    assert means(pairs) == pytest.approx(expected(curve, "time"))
    assert {run["settings"]["framework"] for run in trained} == {"fake"}
    assert all(len(run["scalars"]["epoch/seconds"]) == 2 for run in trained)


def test_wandb_has_offline_runs(exports, curve, table):
    runs = exports("wandb")
    (of_table,) = [run for run in runs if run["group"] == table.study]
    assert of_table["tags"] == ["outlier"] and "310 s" in of_table["notes"]
    runs.remove(of_table)
    (scaling,) = [run for run in runs if run["name"] == "scaling"]
    rows = {row["devices"]: row["scaling/throughput"] for row in scaling["rows"]}
    assert rows == expected(curve)
    trained = [run for run in runs if run["name"] != "scaling"]
    values = [row for run in trained for row in run["rows"] if "run/throughput" in row]
    assert len(values) == 2 * len(COUNTS)
    pairs = [(row["devices"], row["run/throughput"]) for row in values]
    assert means(pairs) == pytest.approx(expected(curve))
    assert {run["settings"]["framework"] for run in trained} == {"fake"}
    assert {run["group"] for run in runs} == {NAME}


def test_prometheus_reads_the_samples(exports, curve, table):
    samples = exports("openmetrics")
    of_table = [sample for sample in samples if sample[1]["curve"] == table.study]
    assert [labels["code"] for family, labels, _ in of_table if family == "scalewise_doubt"] == [
        "outlier"
    ]
    samples = [sample for sample in samples if sample not in of_table]
    points = {int(labels["devices"]): value for family, labels, value in samples
              if family == "scalewise_throughput"}  # fmt: skip
    assert points == expected(curve)
    runs = [(labels["devices"], value) for family, labels, value in samples
            if family == "scalewise_run_time_seconds"]  # fmt: skip
    assert means(runs) == pytest.approx(expected(curve, "time"))
    assert {labels["curve"] for _, labels, _ in samples} == {NAME}


def test_mlperf_reads_the_lines(exports, curve, table):
    pairs = {NAME: [], table.study: []}
    for key, value, _ in exports("mllog"):
        if key == "submission_benchmark":
            study = value
        elif key == "scalewise_devices":
            devices = value
        elif key == "tracked_stats":
            pairs[study].append((devices, value["throughput"]))
    assert means(pairs[NAME]) == pytest.approx(expected(curve))
    assert dict(pairs[table.study]) == expected(table)


def test_extrap_reads_the_lines_and_fits_models(exports, curve, table):
    read = exports("extrap")
    assert read["parameters"] == ["devices"]
    times = {devices: value for path, metric, devices, value in read["values"]
             if (path, metric) == (NAME, "time")}  # fmt: skip
    assert times == pytest.approx(expected(curve, "time"), 0.01)  # Not a geometric mean.
    assert f"{NAME}->train->step time" in read["models"]
    rates = {devices: value for path, metric, devices, value in read["values"]
             if (path, metric) == (table.study, "throughput")}  # fmt: skip
    assert rates == expected(table)
