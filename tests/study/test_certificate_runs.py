"""The short runs of a certificate: which are planned, and that they are kept and compared."""

import pytest

from builders import a_study
from paths import TESTS
from scalewise import api
from scalewise.errors import SpecError
from scalewise.spec import StudySpec
from scalewise.study import from_program, plan_certificate

MLP = {"workload": "mlp", "data": "synthetic:1024", "epochs": 2}


def planned(run, **vary):
    plan = plan_certificate(StudySpec.from_dict({"name": "a", "run": run, "vary": vary}))
    return plan, {run.id: run for run in plan.study.runs()}


def test_every_number_of_devices_is_compared_with_one_at_the_same_global_batch():
    plan, runs = planned({**MLP, "batch": 30}, topology=["1x1", "1x2", "1x4"])
    assert {run.global_batch for run in runs.values()} == {32}
    assert all(run.certify and run.steps == 24 and run.epochs is None for run in runs.values())
    worlds = [runs[item.candidate].topology.world for item in plan.comparisons]
    assert worlds == [2, 4]
    for item in plan.comparisons:
        assert runs[item.reference].topology.world == 1
        assert runs[item.reversed_reference].certify_order == "reversed"


def test_strategies_share_a_reference_and_precisions_have_their_own():
    plan, runs = planned(
        {**MLP, "global_batch": 32},
        topology=["1x2"], strategy=["ddp", "fsdp"], precision=["fp32", "bf16"],
    )  # fmt: skip
    pairs = [
        (runs[item.candidate].strategy, runs[item.candidate].precision,
         runs[item.reference].strategy, runs[item.reference].precision)
        for item in plan.comparisons
        if runs[item.candidate].topology.world == 2
    ]  # fmt: skip
    assert sorted(pairs) == [
        ("ddp", "bf16", "ddp", "bf16"), ("ddp", "fp32", "ddp", "fp32"),
        ("fsdp", "bf16", "ddp", "bf16"), ("fsdp", "fp32", "ddp", "fp32"),
    ]  # fmt: skip
    alone = [runs[item.candidate] for item in plan.comparisons
             if runs[item.candidate].topology.world == 1]  # fmt: skip
    assert [run.precision for run in alone] == ["bf16"]  # Compared with fp32.


def test_accumulated_micro_steps_are_compared_with_one_step():
    plan, runs = planned({**MLP, "global_batch": 32, "accumulate": 4}, topology=["1x1"])
    (item,) = plan.comparisons
    assert (runs[item.candidate].accumulate, runs[item.candidate].batch) == (4, 8)
    assert (runs[item.reference].accumulate, runs[item.reference].batch) == (1, 32)


def test_a_program_gets_its_share_of_the_global_batch():
    script = str(TESTS / "scripts" / "ddp.py")
    study = from_program([script, "--batch", "{batch}"], "1,2")
    plan = plan_certificate(study, steps=8, global_batch=64)
    programs = {run.topology.world: run.program for run in plan.study.runs()}
    assert programs == {1: (script, "--batch", "64"), 2: (script, "--batch", "32")}
    assert {run.stop_after for run in plan.study.runs()} == {8}
    for given, says in (
        ({"global_batch": None}, "needs global_batch"),
        ({"global_batch": 63}, "63 does not divide over 2 devices"),
    ):
        with pytest.raises(SpecError, match=says):
            plan_certificate(study, **given)
    with pytest.raises(SpecError, match="in the arguments"):
        plan_certificate(from_program([script], "1,2"), global_batch=64)


def test_only_pytorch_can_be_certified_and_one_device_alone_cannot():
    with pytest.raises(SpecError, match="needs a run with framework 'torch'"):
        plan_certificate(a_study())
    with pytest.raises(SpecError, match="nothing to compare"):
        planned({**MLP, "global_batch": 32}, topology=["1x1"])


def test_cases_change_settings_together():
    study = StudySpec.from_dict({
        "name": "a", "run": {**MLP}, "vary": {"precision": ["fp32", "bf16"]},
        "cases": [{"topology": "1x1", "global_batch": 32}, {"topology": "1x2", "global_batch": 64}],
    })  # fmt: skip
    rows = [(run.topology.world, run.batch, run.precision) for run in study.runs()]
    assert rows == [(1, 32, "fp32"), (1, 32, "bf16"), (2, 32, "fp32"), (2, 32, "bf16")]
    assert study.where(study.runs()[2]) == {"precision": "fp32", "global_batch": 64}
    assert StudySpec.from_dict(study.to_dict()) == study
    with pytest.raises(SpecError, match="cases must be a list of tables"):
        StudySpec.from_dict({"name": "a", "run": {**MLP, "batch": 8}, "cases": {"lr": 1}})
    with pytest.raises(SpecError, match=r"\[\[cases\]\] has no key 'rate'"):
        StudySpec.from_dict({"name": "a", "run": {**MLP, "batch": 8}, "cases": [{"rate": 1}]})


@pytest.mark.torch
def test_a_built_in_workload_learns_on_two_devices_what_it_learns_on_one(tmp_path):
    study = StudySpec.from_dict(
        {
            "name": "a", "run": {**MLP, "data": "synthetic:256", "global_batch": 16},
            "vary": {"topology": ["1x1", "1x2"]},
        }
    )  # fmt: skip
    (certificate,) = api.certify(study, tmp_path, steps=4)
    assert certificate.verdict == "equal", certificate
    assert certificate.checked.steps == (0, 1, 2)
    assert certificate.checked.samples and certificate.checked.is_learned
    started = [path.stat().st_mtime_ns for path in tmp_path.glob("certificate/*/job.json")]
    assert len(started) == 3
    assert api.certify(study, tmp_path, steps=4) == [certificate]  # Nothing is run again.
    again = [path.stat().st_mtime_ns for path in tmp_path.glob("certificate/*/job.json")]
    assert again == started
