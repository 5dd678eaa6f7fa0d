"""Kinds of devices: acceleration, and never a word of efficiency."""

import json
from dataclasses import replace

import pytest

from builders import a_run, a_study
from fake_study import retold
from scalewise import results
from scalewise.analysis.advise import Purpose, advise
from scalewise.analysis.measure import Estimate, Point, ScalingCurve, scaling_curves
from scalewise.analysis.measure.acceleration import compare_device_kinds
from scalewise.analysis.measure.curve import compare
from scalewise.analysis.predict import predict
from scalewise.cli import app
from scalewise.errors import NotEnoughData, SpecError
from scalewise.frameworks.fake import Fake
from scalewise.frameworks.torch import Torch
from scalewise.record.write import write_json
from scalewise.report import curve_table, formats
from scalewise.report.curve_report import curve_reports
from scalewise.report.figures.all_figures import all_figures
from scalewise.report.text.doubts import warning_text
from scalewise.spec import RunSpec

KINDS = {"cpu": ("cpu", 4e-3), "cuda": ("NVIDIA H200", 1e-3)}
"""What an engine calls the device, and seconds per sample of a machine with such ones."""


def kinds_study(topologies=("1x1",), **changes):
    return a_study(
        batch=64, epochs=3, topologies=topologies, vary={"device": ["cpu", "cuda"]}, **changes
    )


def played(study, folder):
    """Leave a study's folder in which one kind of device is four times as fast as the other."""
    write_json(folder / "study.json", study.to_dict())
    for run in study.runs():
        device, compute = KINDS[run.device]
        retold(run, folder, device=device, compute=compute, host=0.0)
    return folder


def test_a_gpu_against_a_cpu_is_accelerated_and_not_efficient(tmp_path, capsys):
    folder = played(kinds_study(repeats=2), tmp_path)
    cpu, cuda = results.curves([folder])
    assert cpu.where == {"device": "cpu"} and cuda.where == {"device": "cuda"}
    (slow,), (fast,) = cpu.points, cuda.points
    assert fast.acceleration.value == pytest.approx(4) and fast.acceleration.count == 2
    assert fast.acceleration_epoch.value == pytest.approx(4)
    assert fast.acceleration_first.value == pytest.approx(4)
    assert fast.accelerated_from == "1 x cpu" and slow.acceleration is None
    for point in (slow, fast):
        assert point.efficiency is point.speedup is point.ideal is point.speedup_epoch is None
    app(["measure", str(folder)], standalone_mode=False)
    printed = capsys.readouterr().out
    assert "acceleration 4 x: 1 x NVIDIA H200 against 1 x cpu, by throughput" in printed
    assert "the CPU used 1 thread\n" in printed
    for word in ("efficiency", "speedup", "ideal", "scaling", "Scaling"):
        assert word not in printed
    seen = json.loads(formats.as_json([cpu, cuda]))["curves"][1]["points"][0]
    assert seen["acceleration"]["value"] == pytest.approx(4) and seen["efficiency"] is None


def published(device, first, later):
    """Return a curve of one device with the epochs of the published example."""
    name = {"cpu": "cpu", "cuda": "NVIDIA V100"}[device]
    point = Point(
        devices=1, nodes=1, device_name=name, samples=100_000, throughput=Estimate(50_000 / later),
        first_epoch_time=Estimate(first), epoch_time=Estimate(later),
    )  # fmt: skip
    return compare(ScalingCurve(study="resnet50v2", points=(point,), where={"device": device}))


def test_the_published_example_has_its_published_numbers():
    cpu, cuda = compare_device_kinds(
        kinds_study(), [published("cpu", 220.0, 215.0), published("cuda", 24.0, 14.0)]
    )
    assert cuda.points[0].acceleration.value == pytest.approx(215 / 14)
    told = curve_table.sections([cpu, cuda])[-1]
    assert told.title == "Acceleration"
    assert told.lines == ("acceleration 15.4 x: 1 x NVIDIA V100 against 1 x cpu, by throughput",)
    (shown,) = told.tables
    assert [dict(zip(shown.header, row))["first epoch s"] for row in shown.rows] == [
        "220.0",
        "24.00",
    ]
    last = dict(zip(shown.header, shown.rows[1]))
    assert (last["epoch time s"], last["by epoch"], last["by first epoch"]) == (
        "14.00",
        "15.36",
        "9.167",
    )


def test_the_first_kind_that_was_measured_is_the_one_compared_with(tmp_path):
    study = kinds_study()
    only = [run for run in study.runs() if run.device == "cuda"]
    records = [retold(run, tmp_path, device="NVIDIA H200") for run in only]
    (curve,) = scaling_curves(study, records)
    assert curve.points[0].acceleration is None
    assert [section.title for section in curve_table.sections([curve])] == ["a study (device cuda)"]


def test_each_kind_scales_by_itself_and_is_held_against_its_own_scale(tmp_path):
    folder = played(kinds_study(topologies=["1x1", "1x2"]), tmp_path)
    cpu, cuda = results.curves([folder])
    assert all(point.efficiency for point in (*cpu.points, *cuda.points))
    assert cuda.points[1].accelerated_from == "2 x cpu"
    assert 3.5 < cuda.points[1].acceleration.value < 4
    assert predict(cuda, at=[4]).at(4).throughput


def test_other_axes_are_not_mixed_up(tmp_path):
    study = a_study(
        steps=30, topologies=["1x1"], vary={"device": ["cpu", "cuda"], "batch": [32, 64]}
    )
    records = [
        retold(run, tmp_path, device=KINDS[run.device][0], compute=KINDS[run.device][1])
        for run in study.runs()
    ]
    for curve in scaling_curves(study, records):
        (point,) = curve.points
        assert (point.acceleration is not None) == (curve.where["device"] == "cuda")


@pytest.fixture
def mixed(tmp_path):
    """Return a study whose larger run met another kind of device."""
    study = a_study(batch=64, epochs=2, topologies=["1x1", "1x2", "1x4"])
    write_json(tmp_path / "study.json", study.to_dict())
    for run in study.runs():
        fast = run.topology.world > 1
        name, compute = ("NVIDIA H200", 5e-4) if fast else ("Tesla T4", 4e-3)
        retold(run, tmp_path, device=name, compute=compute)
    return tmp_path


def test_devices_that_meet_by_accident_are_named_and_not_called_efficient(mixed):
    (curve,) = results.curves([mixed])
    first, second, third = curve.points
    assert first.efficiency.value == 1
    assert second.efficiency is second.speedup is second.ideal is second.gain is None
    assert second.acceleration.value > 8 and second.accelerated_from == "1 x Tesla T4"
    assert third.gain.value < 1 and third.efficiency is None
    warned = "2 x NVIDIA H200 is compared with 1 x Tesla T4: this is acceleration, not efficiency"
    assert warned in map(warning_text, second.warnings)
    told = map(warning_text, curve.warnings)
    assert "runs of this curve differ in device: Tesla T4, NVIDIA H200" in told


def test_causes_and_receipts_do_not_hold_one_device_against_another(mixed):
    (found,) = results.explanations(mixed)
    assert found.scales is None
    last = found.points[-1]
    assert set(last.factors.values()) == {None}
    assert last.seconds["computation"] == pytest.approx(0, abs=1e-9)
    assert 0 < last.receipt.useful < last.receipt.bought
    assert results.receipt(mixed).lost.get("computation", 0) == pytest.approx(0, abs=1e-9)


def test_nothing_is_predicted_or_advised_from_several_kinds(mixed):
    (curve,) = results.curves([mixed])
    with pytest.raises(NotEnoughData, match="several kinds of device: Tesla T4, NVIDIA H200"):
        predict(curve, at=[8])
    with pytest.raises(NotEnoughData, match="several kinds"):
        advise(curve, Purpose.parse("efficiency=0.8"))


def test_plots_and_pages_of_kinds_have_no_efficiency(tmp_path, capsys):
    folder = played(kinds_study(), tmp_path)
    shown = all_figures(curve_reports(results.all_explained([folder])))
    assert not {"efficiency", "speedup", "both"} & set(shown)
    page = tmp_path / "page.html"
    app(["report", str(folder), "-o", str(page)], standalone_mode=False)
    assert "acceleration 4 x" in page.read_text()
    for ending in ("md", "csv", "tex"):
        app(["report", str(folder), "-o", str(tmp_path / f"r.{ending}")], standalone_mode=False)
        assert "acceleration" in (tmp_path / f"r.{ending}").read_text()


def test_a_device_is_one_of_three_kinds_and_names_its_run():
    with pytest.raises(SpecError, match="device must be"):
        a_run(device="gpu")
    assert a_run().id == replace(a_run(), device=None).id != a_run(device="cpu").id
    assert ", cpu," in a_run(device="cpu").title


def test_a_device_is_refused_where_it_means_nothing():
    with pytest.raises(SpecError, match="one kind of device"):
        Fake().check(a_run(device="cuda"))
    with pytest.raises(SpecError, match="nccl is for accelerators"):
        Torch().check(a_run(framework="torch", workload="mlp", device="cpu", backend="nccl"))
    with pytest.raises(SpecError, match="device cannot be set for a program"):
        RunSpec.from_dict({"topology": "1x1", "program": ["train.py"], "device": "cpu"})


def test_a_kind_that_is_not_here_is_refused_and_the_cpu_never_is(monkeypatch):
    import torch

    from scalewise.probe.torch import device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device.bind(a_run(device="cpu")) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SpecError, match="asks for cuda, and this PyTorch finds no such device"):
        device.bind(a_run(device="cuda"))
