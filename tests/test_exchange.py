"""What replicas exchange: less than all of their gradients, and how far that is off."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scalewise import collect
from scalewise.face import run as run_study
from scalewise.report.formats import as_json, comma_separated
from scalewise.spec import StudySpec

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
SCRIPT = Path(__file__).parent / "exchanged.py"


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Train all cases on two ranks, in one launch."""
    answer = tmp_path_factory.mktemp("exchanged") / "answer.json"
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*argv, str(SCRIPT), str(answer)], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(answer.read_text())


@pytest.mark.parametrize("name", ["fp16", "bf16", "accumulated", "zero1", "fp16 in fp16"])
def test_half_the_bytes_cost_little_of_the_gradient(cases, name):
    seen = cases[name]["compression"]
    assert seen["whole"] == cases[name]["size"] and seen["sent"] == seen["whole"] / 2
    assert 0 < seen["error"] < 1e-2
    assert cases[name]["losses"] == pytest.approx(cases["none"]["losses"], rel=0.02)


def test_powersgd_sends_thin_matrices_and_errs_less_with_more_of_them(cases):
    one, four = (cases[name]["compression"] for name in ("powersgd", "powersgd rank 4"))
    assert one["kind"] == "powersgd rank 1" and four["kind"] == "powersgd rank 4"
    assert one["sent"] / one["whole"] < 0.02
    assert 0 < four["error"] < one["error"] < 1


@pytest.mark.parametrize("name", ["fp16", "bf16", "powersgd", "powersgd rank 4"])
def test_the_bytes_are_those_that_are_given_away(cases, name):
    assert cases[name]["compression"]["sent"] == cases[name]["last"]


@pytest.mark.parametrize("name", ["fp16", "bf16", "powersgd", "powersgd rank 4"])
def test_what_is_compressed_still_learns(cases, name):
    losses = cases[name]["losses"]
    assert sum(losses[-5:]) / 5 < 0.7 * losses[0]


def test_gradients_that_go_whole_have_no_compression(cases):
    assert cases["none"]["compression"] is None


def test_a_study_says_what_compression_did(tmp_path):
    question = StudySpec.from_dict({
        "name": "packed",
        "run": {"workload": "mlp", "batch": 32, "steps": 20,
                "options": {"hidden": [128, 128], "compression": "powersgd"}},
        "vary": {"topology": ["1x1", "1x2"]},
    })  # fmt: skip
    folder = run_study(question, tmp_path)
    (curve,) = collect.curves([folder])
    one, two = curve.points
    assert one.compression is None
    assert two.compression["ratio"].value < 0.1 and two.compression["error"].value > 0
    (shown,) = json.loads(as_json([curve]))["curves"]
    assert shown["points"][1]["compression"]["ratio"]["value"] == two.compression["ratio"].value
    assert "compression_ratio" in comma_separated([curve])
    logs = [path.read_text() for path in folder.glob("*/log.txt")]
    (line,) = [line for log in logs for line in log.splitlines() if "of the bytes" in line]
    assert line.startswith("compression    powersgd rank 1: 0.0")
