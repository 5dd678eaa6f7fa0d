"""What scalewise exports and imports again is what it was."""

import io
import os
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from builders import a_study
from event_files import event, event_file
from fake_study import play_all
from framework_envs import python_of
from paths import ROOT
from scalewise import results
from scalewise.record.write import write_json
from scalewise.report.interchange.contents import curve_scalars, export_curve, run_scalars

TABLES = sorted((ROOT / "studies/published").glob("*.csv"))
VALUES = ("devices", "nodes", "throughput", "time", "epoch_time", "energy", "global_batch")


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory):
    """A study of two repeats of two epochs, on one and two nodes."""
    folder = tmp_path_factory.mktemp("runs") / "fake"
    study = a_study(batch=256, epochs=2, repeats=2, options={"noise": 0.03},
                    topologies=["1x1", "1x2", "2x2"])  # fmt: skip
    write_json(folder / "study.json", {"schema": 1, **study.to_dict()})
    with redirect_stdout(io.StringIO()):
        list(play_all(study, folder))
    return folder


def numbers(path):
    """Return the values of each point of a study or a table."""
    (curve,) = results.curves([path])
    return [[_number(getattr(point, name)) for name in VALUES] for point in curve.points]


def _number(value):
    return getattr(value, "value", value)


def same(path, other, relative=1e-12, without=()):
    """Say whether two sources have the same points."""
    for point, back in zip(numbers(path), numbers(other), strict=True):
        for name, value, again in zip(VALUES, point, back, strict=True):
            if name in without or value == again:
                continue
            if value is None or again is None or abs(again / value - 1) > relative:
                raise AssertionError(f"{name}: {value} became {again}")
    return True


@pytest.mark.parametrize("ending", ["mllog", "prom", "jsonl"])
def test_a_study_comes_back_from_a_file(scalewise, study_folder, ending):
    assert scalewise("report", study_folder, "-o", f"study.{ending}")[0] == 0
    code, out, err = scalewise("import", f"study.{ending}", "-o", "study.csv")
    assert (code, err) == (0, "") and "6 rows" in out
    assert same(study_folder, Path("study.csv"), without=["nodes"] if ending == "jsonl" else [])
    (curve,) = results.curves([Path("study.csv")])
    assert [point.throughput.count for point in curve.points] == [2, 2, 2]


@pytest.mark.parametrize("ending", ["mllog", "prom", "jsonl"])
@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_a_table_comes_back_from_a_file(scalewise, table, ending):
    assert scalewise("report", table, "-o", f"study.{ending}")[0] == 0
    assert scalewise("import", f"study.{ending}", "-o", "study.csv")[0] == 0
    assert same(table, Path("study.csv"))


@pytest.mark.parametrize("ending", ["mllog", "prom", "jsonl"])
def test_intervals_and_relative_throughputs_come_back(scalewise, tmp_path, ending):
    for text in ('devices,img/s\n1,240 ± 3\n2,"464 [450, 481]"\n', "devices,speedup\n1,1\n2,1.9\n"):
        (tmp_path / "table.csv").write_text(text)
        assert scalewise("report", "table.csv", "-o", f"study.{ending}")[0] == 0
        assert scalewise("import", f"study.{ending}", "-o", "study.csv")[0] == 0
        (given,), (curve,) = (results.curves([Path(f"{name}.csv")]) for name in ("table", "study"))
        assert curve.unit == given.unit
        assert [p.throughput for p in curve.points] == [p.throughput for p in given.points]


def test_several_curves_are_refused(scalewise):
    assert scalewise("report", *TABLES[:2], "-o", "two.mllog")[0] == 0
    code, _, err = scalewise("import", "two.mllog")
    assert code == 1 and "have 2 curves: resnet152v2-cifar10, resnet50v2-cifar10" in err


def test_a_study_comes_back_from_event_files(scalewise, study_folder, tmp_path):
    ((curve, records),) = results.curves_with_records(study_folder)
    exported = export_curve(curve, records)
    folders = {"scaling": curve_scalars(exported)}
    folders |= {run.id: run_scalars(run) for run in exported.runs}
    for name, scalars in folders.items():
        path = tmp_path / "tb" / "curve" / name / "events.out.tfevents.0.scalewise"
        path.parent.mkdir(parents=True)
        events = [event(s.tag, s.step, s.value, s.at) for s in scalars]
        path.write_bytes(event_file(*events, event("unit", 0, exported.unit)))
    code, out, err = scalewise("import", "tb", "-o", "study.csv")
    assert (code, err) == (0, "") and "6 rows (TensorBoard event file)" in out
    assert same(study_folder, Path("study.csv"), relative=1e-6)


@pytest.mark.interchange
def test_files_that_tensorboard_writes_come_back(scalewise, study_folder, tmp_path):
    write = "import sys; sys.argv[0] = 'scalewise'; from scalewise.cli import main; main()"
    command = [python_of("readers-tracking"), "-c", write, "report", study_folder,
               "--as", "tensorboard", "-o", tmp_path / "tb"]  # fmt: skip
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    subprocess.run(command, env=env, check=True, timeout=120, capture_output=True)
    assert scalewise("import", "tb", "-o", "study.csv")[0] == 0
    assert same(study_folder, Path("study.csv"), relative=1e-6)
