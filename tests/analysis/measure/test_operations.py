"""Operations per second and MFU: from the record, the catalog, and nothing made up."""

import json
import re

import pytest

from builders import a_study
from fake_study import retold
from scalewise import results
from scalewise.analysis.measure import scaling_curves
from scalewise.analysis.measure.mfu import peak_flops
from scalewise.catalog.hardware import device_by_reported_name, devices
from scalewise.cli import app
from scalewise.errors import SpecError
from scalewise.record.write import write_json
from scalewise.report import explanation_sections, formats
from scalewise.report.text.doubts import warning_text
from scalewise.report.text.explanation import mfu_sentence

VIT_H14 = 999_358_279_680
"""Operations of one picture, as a hand counts them."""
LAW = {"compute": 1 / 435, "host": 0.0}
"""A machine that does 435 pictures per second, and each device of two a little fewer."""


def told(folder, device="NVIDIA H200", flops=VIT_H14, precision="bf16", **changes):
    """Leave a study's folder whose runs say that they were on this device."""
    study = a_study(
        precision=precision, options={**LAW, **changes}, topologies=["1x1", "1x2"], steps=40
    )
    write_json(folder / "study.json", study.to_dict())
    for run in study.runs():
        retold(run, folder, device=device, flops=flops)
    return folder


def point(folder, place=0):
    (curve,) = results.curves([folder])
    return curve.points[place]


def test_mfu_is_what_a_hand_computes(tmp_path):
    found = point(told(tmp_path))
    assert found.throughput_per_device.value == pytest.approx(435, rel=1e-4)
    assert found.flops_per_second.value == pytest.approx(435 * VIT_H14, rel=1e-4)
    assert found.mfu.value == pytest.approx(435 * VIT_H14 / 989.5e12, rel=1e-4)
    assert found.mfu.low <= found.mfu.value <= found.mfu.high
    assert found.peak_source.startswith("h200 in bf16: NVIDIA H200")
    second = point(tmp_path, 1)
    assert second.mfu.value == pytest.approx(found.mfu.value * second.efficiency.value)


def test_measure_and_explain_print_it(tmp_path, capsys):
    folder = told(tmp_path)
    app(["measure", str(folder)], standalone_mode=False)
    printed = capsys.readouterr().out
    row = re.search(r"Operations of the model\n.*\n.*\n +1 .*", printed)[0]
    assert "999.4" in row and "434.7" in row and "43.9 %" in row
    assert "MFU is a share of 989.5 TFLOP/s, h200 in bf16: NVIDIA H200" in printed
    app(["explain", str(folder)], standalone_mode=False)
    line = re.search("each of 2 devices does .*", capsys.readouterr().out)[0]
    assert "does 390 TFLOP/s of the model's own operations, 39.4 %" in line
    assert "of its 990 TFLOP/s (MFU; h200 in bf16" in line


def test_every_format_has_it(tmp_path):
    curves = results.curves([told(tmp_path)])
    (seen,) = json.loads(formats.as_json(curves))["curves"]
    assert seen["points"][0]["mfu"]["value"] == pytest.approx(0.43934, abs=1e-4)
    assert seen["points"][0]["flops"] == VIT_H14
    header = formats.comma_separated(curves).splitlines()[0]
    assert {"mfu", "mfu_low", "flops_per_second"} <= set(header.split(","))
    assert "43.9 %" in formats.markdown(curves)
    (why,) = json.loads(explanation_sections.as_json(results.explanations(tmp_path)))["curves"]
    assert why["points"][0]["mfu"]["value"] == pytest.approx(0.43934, abs=1e-4)
    assert why["points"][0]["operations"].startswith("a device does 435 TFLOP/s")


@pytest.mark.parametrize(
    ("device", "precision", "why"),
    [
        ("cpu", "fp32", "the catalog has no peak for a CPU"),
        ("NVIDIA H200 NVL", "bf16", "the catalog has no device named 'NVIDIA H200 NVL'"),
        ("Tesla T4", "bf16", "the catalog has no peak of t4 in bf16"),
        ("NVIDIA A10G", "fp16", "the catalog has no peak of a10g in fp16"),
    ],
)
def test_what_is_not_listed_has_no_mfu_and_says_so(tmp_path, device, precision, why):
    folder = told(tmp_path, device=device, precision=precision)
    found = point(folder)
    assert found.mfu is None and found.peak is None and warning_text(found.mfu_unknown) == why
    assert found.flops_per_second.value == pytest.approx(435 * VIT_H14, rel=1e-4)
    assert f"MFU is not known: {why}" in formats.text(results.curves([folder]))
    (explained,) = results.explanations(folder)
    sentence = mfu_sentence(explained.points[0].facts.point)
    assert sentence.endswith(f"operations; MFU is not known: {why}")


def test_records_without_a_count_are_silent_about_it(tmp_path):
    folder = told(tmp_path, flops=None)
    found = point(folder)
    assert (found.flops, found.flops_per_second, found.mfu, found.mfu_unknown) == (None,) * 4
    printed = formats.text(results.curves([folder]))
    assert "MFU" not in printed and "Operations" not in printed


def test_a_model_that_could_not_be_counted_gives_its_reason(tmp_path):
    study = a_study(topologies=["1x1"])
    records = [
        retold(run, tmp_path, uncounted="NotImplementedError: .item()") for run in study.runs()
    ]
    (curve,) = scaling_curves(study, records)
    why = "MFU is not known: operations were not counted: NotImplementedError: .item()"
    assert why in formats.text([curve])


def test_ranks_on_several_kinds_of_device_have_no_peak(tmp_path):
    (run,) = a_study(precision="bf16", topologies=["1x2"]).runs()
    record = retold(run, tmp_path, device=["NVIDIA H200", "NVIDIA L4"], flops=10**9)
    (curve,) = scaling_curves(a_study(precision="bf16", topologies=["1x2"]), [record])
    assert curve.points[0].device_name == "NVIDIA H200 and NVIDIA L4"
    assert curve.points[0].mfu is None and "NVIDIA L4" in warning_text(curve.points[0].mfu_unknown)


def test_a_name_belongs_to_one_row_and_a_die_has_its_share():
    names = [name.lower() for row in devices().values() for name in (row.name, *row.reported)]
    assert len(names) == len(set(names))
    assert device_by_reported_name(" nvidia h100 pcie ").name == "h100-pcie"
    assert device_by_reported_name("NVIDIA H100") is None
    assert peak_flops("AMD Instinct MI250X", "bf16")[0] == pytest.approx(191.5e12)


def test_a_users_row_tells_the_peak_of_a_device_that_is_not_listed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "scalewise").mkdir()
    (tmp_path / "scalewise/catalog.toml").write_text(
        '[[device]]\nname = "h100-64"\nreported = ["NVIDIA H100 64GB"]\npeak = {bf16 = 800e12}\n'
    )
    assert peak_flops("NVIDIA H100 64GB", "bf16") == (800e12, "h100-64 in bf16: your catalog.toml")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ('reported = "NVIDIA Mine"', "reported must be a list of names"),
        ("reported = [7]", "each of reported must be text"),
        ("dies = 0", "dies must be"),
    ],
)
def test_a_users_row_is_refused_where_its_names_are_none(tmp_path, monkeypatch, given, problem):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "scalewise").mkdir()
    (tmp_path / "scalewise/catalog.toml").write_text(f'[[device]]\nname = "mine"\n{given}\n')
    with pytest.raises(SpecError, match=problem):
        devices()
