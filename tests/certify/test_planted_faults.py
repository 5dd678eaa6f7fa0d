"""Real trainings with a known truth, certified: a few of those in benchmarks/certificate.py."""

import pytest

from certificate_cases import FAULTS, Base, Clean, program, reference
from certified_cases import CaseRuns, is_found
from scalewise.report.text.certificate import verdict_text

pytestmark = [pytest.mark.torch, pytest.mark.training]

CHOSEN = {
    ("ddp.py", "ignored_layer"),
    ("ddp.py", "accumulate_undivided"),
    ("ddp.py", "no_set_epoch"),
    ("by_hand.py", "clip_before_reduce"),
    ("fsdp2.py", "unreduced_parameter"),
    ("ported.py", "lr_times_world"),
}
CLEAN = (
    Clean(base=Base("ddp.py", ("--clip", "0.3")), ranks=4),
    Clean(base=Base("fsdp2.py", ("--precision", "bf16")), ranks=2),
    Clean(base=Base("tensor.py"), ranks=2),
    Clean(base=Base("pipeline.py"), ranks=2),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return CaseRuns(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if (fault.base.script, fault.name) in CHOSEN], ids=str
)
def test_a_planted_fault_is_found_with_its_cause_or_layer(fault, runs):
    certificate = runs.certificate(fault)
    assert is_found(fault, certificate), verdict_text(certificate)


@pytest.mark.parametrize("case", CLEAN, ids=str)
def test_a_clean_training_is_equal(case, runs):
    certificate = runs.certificate(case)
    assert certificate.verdict == "equal", verdict_text(certificate)


def test_every_fault_differs_from_its_reference_in_its_arguments(tmp_path):
    started = [program(fault.base, fault.name, tmp_path) for fault in FAULTS]
    assert len({*started}) == len(FAULTS)
    assert not {*started} & {reference(fault.base) for fault in FAULTS}
