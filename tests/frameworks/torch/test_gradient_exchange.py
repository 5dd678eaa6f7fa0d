"""What replicas exchange: less than all of their gradients, and what that tells of them."""

import json
import math
import random
import re
from pathlib import Path

import pytest

from builders import a_run
from paths import RANK_PROGRAMS
from scalewise import results
from scalewise.analysis.simulate import Bucket, make_buckets
from scalewise.api import run as run_study
from scalewise.errors import SpecError
from scalewise.frameworks.gradient_noise import Noise
from scalewise.frameworks.torch import Torch
from scalewise.report.formats import as_json, comma_separated
from scalewise.spec import StudySpec
from start_ranks import start

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]
SCRIPT = RANK_PROGRAMS / "compressed_exchange.py"


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Train all cases on two ranks, in one launch."""
    answer = tmp_path_factory.mktemp("exchanged") / "answer.json"
    code, said = start(2, SCRIPT, answer)
    assert code == 0, said[-4000:]
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
    assert cases[name]["compression"]["sent"] == sum(cases[name]["last"])


def test_when_gradients_come_tells_the_buckets_that_ddp_makes(cases):
    arrivals = cases["bundled"]["arrivals"]
    shares = [share for _, share in arrivals]
    assert shares == sorted(shares) and 0 < shares[0] < shares[-1] <= 1
    buckets = make_buckets([Bucket(*each) for each in arrivals], first_mb=0.05, bucket_mb=0.05)
    assert len(buckets) > 2
    assert [each.size for each in buckets] == [2 * sent for sent in cases["bundled"]["last"]]


@pytest.mark.parametrize("name", ["fp16", "bf16", "powersgd", "powersgd rank 4"])
def test_what_is_compressed_still_learns(cases, name):
    losses = cases[name]["losses"]
    assert sum(losses[-5:]) / 5 < 0.7 * losses[0]


@pytest.mark.parametrize("name", ["plain", "accumulated", "scaled", "compressed"])
def test_the_noise_of_a_quadratic_is_what_it_is_known_to_be(cases, name):
    noise = cases[f"noise {name}"]
    truth = 1000 / 50  # tr Σ / |G|²
    assert noise["estimates"] == 150
    assert noise["scale"] == pytest.approx(truth, rel=0.05)
    assert 0.9 * truth < noise["low"] < noise["scale"] < noise["high"] < 1.1 * truth


@pytest.mark.parametrize("name", ["noise", "noise in fp16"])
def test_looking_for_noise_changes_nothing_that_is_learned(cases, name):
    rounding = 1e-2 if "fp16" in name else 1e-5
    assert cases[name]["losses"] == pytest.approx(cases["none"]["losses"], rel=rounding)
    assert cases[name]["noise"]["estimates"] == 20


def test_gradients_that_go_whole_have_no_compression(cases):
    assert cases["none"]["compression"] is None


def a_noise(signal, spread, roughness, count, seed=0):
    """Return the noise of made-up steps, whose squared lengths scatter by some share."""
    chance, noise = random.Random(seed), Noise(small=10, big=40)
    for _ in range(count):
        small, big = signal + spread / 10, signal + spread / 40
        noise.add(small * chance.gauss(1, roughness), big * chance.gauss(1, roughness))
    return noise.scale()


def test_nine_in_ten_intervals_of_the_noise_hold_the_truth():
    found = [a_noise(4.0, 100.0, 0.1, 60, seed) for seed in range(300)]
    held = [each["low"] < 25 < each["high"] for each in found]
    assert 0.84 < sum(held) / len(held) < 0.96


@pytest.mark.parametrize(
    ("signal", "spread", "roughness", "count"),
    [(4.0, 100.0, 0.01, 9), (0.0, 100.0, 0.1, 50), (4.0, 0.0, 0.1, 50), (0.0, 0.0, 0.1, 50)],
)
def test_noise_that_cannot_be_told_is_nothing(signal, spread, roughness, count):
    found = a_noise(signal, spread, roughness, count)
    assert found == {"scale": None, "low": None, "high": None, "estimates": count}


def test_a_step_that_overflowed_is_no_estimate():
    noise = Noise(small=1, big=2)
    noise.add(math.inf, 3.0)
    noise.add(2.0, math.nan)
    assert noise.scale()["estimates"] == 0


@pytest.mark.parametrize(
    "run",
    [{"strategy": "fsdp"}, {"parallelism": {"tensor": 2}}, {"parallelism": {"pipeline": 2}}],
)
def test_noise_needs_whole_replicas(run):
    spec = a_run(framework="torch", workload="mlp", topology="1x4", noise_every=5, **run)
    with pytest.raises(SpecError, match="noise_every compares gradients of complete replicas"):
        Torch().check(spec)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return the folder and the curve of a study that looks for noise and compresses."""
    question = StudySpec.from_dict({
        "name": "noisy",
        "run": {"workload": "mlp", "batch": 32, "steps": 120, "noise_every": 5, "lr": 0.01,
                "remainder": "short",
                "options": {"hidden": [128, 128], "compression": "powersgd"}},
        "vary": {"topology": ["1x1", "1x2"]},
    })  # fmt: skip
    folder = run_study(question, tmp_path_factory.mktemp("told"))
    (curve,) = results.curves([folder])
    return folder, curve


def test_a_study_says_how_noisy_its_gradients_are(told):
    folder, curve = told
    one, two = curve.points
    assert one.noise is None
    assert 0 < two.noise.low < two.noise.value < two.noise.high < 10_000
    (log,) = [text for text in map(Path.read_text, folder.glob("*/log.txt")) if "1x2" in text]
    # 23 steps are an epoch, and its last one is ragged: the 115th is no estimate.
    assert re.search(r"gradient noise [\d,]+ samples \([\d,]+ to [\d,]+\), 23 estimates", log)


def test_a_study_says_what_compression_did(told):
    folder, curve = told
    one, two = curve.points
    assert one.compression is None
    assert two.compression["ratio"].value < 0.1 and two.compression["error"].value > 0
    (shown,) = json.loads(as_json([curve]))["curves"]
    assert shown["points"][1]["compression"]["ratio"]["value"] == two.compression["ratio"].value
    assert "compression_ratio" in comma_separated([curve])
    logs = [path.read_text() for path in folder.glob("*/log.txt")]
    (line,) = [line for log in logs for line in log.splitlines() if "of the bytes" in line]
    assert line.startswith("compression    powersgd rank 1: 0.0")
