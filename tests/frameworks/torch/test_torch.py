"""Real training in real processes: DDP over Gloo, through the product's own launcher."""

import json
import re
import subprocess
import time
from types import SimpleNamespace

import psutil
import pytest
import torch

from builders import a_run
from commands import COMMAND, run_command
from scalewise import results
from scalewise.analysis.measure import Doubt
from scalewise.api import run as run_study
from scalewise.errors import ScalewiseError, SpecError
from scalewise.frameworks import Outline
from scalewise.frameworks.torch import Torch
from scalewise.frameworks.torch.models.mnist_cnn import mnist_cnn
from scalewise.frameworks.train_log import Log
from scalewise.record.read import read_run
from scalewise.spec import RunSpec, StudySpec

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


def a_torch_study(**changes):
    """Return a study of the small network on the embedded digits."""
    whole = {key: changes.pop(key) for key in ("vary", "repeats", "launcher") if key in changes}
    run = {"workload": "mnist-cnn", "framework": "torch", **changes}
    return StudySpec.from_dict({"name": "torch", "run": run, **whole})


@pytest.fixture(scope="module")
def equal_batches(tmp_path_factory):
    """Run one and two ranks on the same global batch, dropping the remainder and keeping it."""
    question = a_torch_study(
        global_batch=60, epochs=3, lr=0.005, save=True, options={"dropout": 0.0},
        vary={"topology": ["1x1", "1x2"], "remainder": ["drop", "short"]},
    )  # fmt: skip
    folder = run_study(question, tmp_path_factory.mktemp("runs"))
    return {
        (run.topology.world, run.remainder): read_run(folder.absolute() / run.id, run)
        for run in question.runs()
    }


def losses(record):
    return [loss for line in record.ranks[0].lines for loss in line.get("losses", [])]


@pytest.mark.parametrize("remainder", ["drop", "short"])
def test_one_and_two_ranks_learn_the_same(equal_batches, remainder):
    one, two = equal_batches[1, remainder], equal_batches[2, remainder]
    steps = 3 * {"drop": 23, "short": 24}[remainder]
    assert len(losses(one)) == len(losses(two)) == steps
    assert losses(two) == pytest.approx(losses(one), rel=1e-4, abs=1e-5)
    mine, theirs = (torch.load(each.folder / "weights.pt") for each in (one, two))
    assert mine.keys() == theirs.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-4, atol=1e-5)


def test_saved_weights_load_into_the_serial_model(equal_batches):
    weights = torch.load(equal_batches[2, "drop"].folder / "weights.pt")
    mnist_cnn((1, 8, 8), 10).load_state_dict(weights)


def test_every_validation_sample_counts_exactly_once(equal_batches):
    for record in equal_batches.values():
        checks = [line["validation"] for line in record.ranks[0].lines if "validation" in line]
        assert [check["samples"] for check in checks] == [359] * 3
    one, two = (equal_batches[n, "drop"].ranks[0].notes.validation for n in (1, 2))
    assert one.accuracy == pytest.approx(two.accuracy, abs=1.5 / 359)


def test_what_was_trained_on_is_counted(equal_batches):
    for (world, remainder), record in equal_batches.items():
        seen = [
            sum(span.samples for rank in record.ranks for span in rank.spans
                if span.name == "train" and span.epoch == epoch)
            for epoch in range(3)
        ]  # fmt: skip
        assert seen == [{"drop": 23 * 60, "short": 1438}[remainder]] * 3
        assert len(record.ranks) == world


def test_the_jobs_whole_life_is_in_spans(equal_batches):
    names = [span.name for span in equal_batches[2, "drop"].ranks[1].spans]
    assert names == [
        "launch", "rendezvous", "data", "build",
        *["train", "validate"] * 3, "checkpoint", "shutdown",
    ]  # fmt: skip


def test_phases_and_environment_are_recorded(equal_batches):
    record = equal_batches[2, "drop"]
    assert set(record.ranks[1].steps.phases) == {
        "input",
        "forward",
        "backward",
        "sync",
        "optimizer",
    }
    assert record.environment["engine"]["version"] == torch.__version__
    assert record.environment["variables"]["OMP_NUM_THREADS"] == "1"
    assert record.ranks[1].notes.threads == 1 and record.ranks[1].notes.backend == "gloo"
    assert record.ranks[0].notes.peak_memory > 50e6


def test_the_log_tells_what_happened_once_in_plain_lines(equal_batches):
    log = (equal_batches[2, "short"].folder / "log.txt").read_text()
    assert log.count("configuration ") == 1 and "\x1b" not in log
    for wanted in (
        r"parameters +53,002", r"per rank +719 samples and 24 batches per epoch",
        r"epoch 3  [\d,.]+ samples/s .* loss .* validation accuracy .* [\d,.]+ samples/s",
        r"average +[\d,.]+ samples/s, without the first epoch", r"complete time", r"peak memory",
    ):  # fmt: skip
        assert re.search(wanted, log), wanted


def test_the_log_counts_the_samples_of_all_ranks(capsys):
    ragged = Outline(epochs=1, steps=2, samples=13, seen=7, together=13)
    log = Log(None, 0.0)
    log.print_outline(a_run(topology="1x2"), SimpleNamespace(outline=ragged), 0)
    log.print_epoch(0, [], None, (7, 0.1), 0.0)
    assert "epoch 1  130.0 samples/s" in capsys.readouterr().out


def test_a_training_that_goes_astray_is_told(tmp_path):
    question = a_torch_study(
        batch=16, steps=4, lr=1e38, data="synthetic:64x4x4", workload="mlp",
        options={"hidden": [8]}, vary={"topology": ["1x1"]},
    )  # fmt: skip
    (curve,) = results.curves([run_study(question, tmp_path / "runs")])
    assert Doubt("loss not finite") in curve.points[0].warnings


def test_techniques_and_two_nodes_go_together(tmp_path):
    question = a_torch_study(
        batch=16, accumulate=2, steps=60, workers=1, precision="bf16", optimizer="adamw", lr=1e-3,
        data="synthetic:1500", remainder="pad", vary={"topology": ["2x1"]},
        workload="mlp", options={"hidden": [64]},  # Some processors convolve in bf16 very slowly.
    )  # fmt: skip
    folder = run_study(question, tmp_path / "runs")
    (curve,) = results.curves([folder])
    (point,) = curve.points
    assert (point.nodes, point.hosts, point.steps, point.global_batch) == (2, 1, 60, 64)
    assert point.samples_per_rank == 60 * 32 and point.batches_per_rank == 120
    assert point.accuracy.value > 0.5  # It has learned: chance is 0.1.
    assert Doubt("rehearsed", {"nodes": 2, "hosts": 1}) in point.warnings


def test_a_model_that_cannot_be_built_is_refused_in_its_own_words(tmp_path):
    question = a_torch_study(batch=8, steps=5, options={"dropout": 7}, vary={"topology": ["1x2"]})
    with pytest.raises(SpecError, match="dropout probability has to be between 0 and 1"):
        run_study(question, tmp_path)
    assert not list(tmp_path.glob("*/log.txt"))


WAITING = """
import math, os, time, torch
class Waiting(torch.nn.Linear):
    calls = 0
    def forward(self, batch):
        self.calls += 1
        place = os.environ["RANK"] + " of " + os.environ["WORLD_SIZE"]
        while self.calls == 6 and place == "{place}" and not os.path.exists("{go}"):
            time.sleep(0.05)
        return super().forward(batch.flatten(1))
def waiting(shape, classes):
    return Waiting(math.prod(shape), classes)
"""
"""A model that waits in a step until the file ``go`` exists: its rank can be caught at work."""
STUDY = """
name = "killed"
[run]
workload = "model:waiting"
data = "synthetic:64x8x8"
batch = 8
steps = 12
[vary]
topology = {topologies}
"""


def start(folder, topologies, place, more=""):
    """Start a study in which one rank, ``0 of 1`` say, waits after some steps."""
    (folder / "model.py").write_text(WAITING.format(place=place, go=folder / "go"))
    (folder / "study.toml").write_text(STUDY.format(topologies=topologies) + more)
    return subprocess.Popen(
        [str(COMMAND), "run", "study.toml"], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def rank_at_work(folder, rank):
    """Return the process id of a rank, once it has done a step."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for path in folder.glob(f"runs/*/*/rank-{rank:05d}.jsonl"):
            text = path.read_text()
            if '"steps":[' in text:
                return int(json.loads(text.splitlines()[0])["pid"])
        time.sleep(0.05)
    raise AssertionError("no rank came to work")


def test_killing_the_only_rank_is_told_as_of_any_other(tmp_path):
    lab = start(tmp_path, ["1x1"], "0 of 1")
    pid = rank_at_work(tmp_path, 0)
    psutil.Process(pid).kill()
    _, said = lab.communicate(timeout=60)
    assert lab.returncode == 3
    words = rf"rank 0 on {_host()} \(process {pid}\) was killed by SIGKILL after step"
    assert re.search(words, said), said


def test_killing_one_rank_ends_the_run_with_its_cause(tmp_path):
    lab = start(tmp_path, ["1x1", "1x2"], "1 of 2")
    pid = rank_at_work(tmp_path, 1)
    family = psutil.Process(lab.pid).children(recursive=True)
    psutil.Process(pid).kill()
    began = time.monotonic()
    _, said = lab.communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert lab.returncode == 3
    # Its signal is not known where torchrun saw rank 0 fail of it first.
    how = "(was killed by SIGKILL|ended without an error message)"
    assert re.search(rf"rank 1 on {_host()} \(process {pid}\) {how} after step", said), said
    assert not [each for each in family if each.is_running()]
    folder = tmp_path / "runs" / "killed"
    (curve,) = results.curves([folder])
    assert [point.devices for point in curve.points] == [1]
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("*/outcome.json")}
    (tmp_path / "go").touch()
    again = run_command("run", "study.toml", cwd=tmp_path)
    assert again.returncode == 0 and again.stderr.startswith("1 to run, 1 finished already")
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    (curve,) = results.curves([folder])
    assert [point.devices for point in curve.points] == [1, 2]


@pytest.mark.soak
def test_a_sharded_run_counts_each_sample_once_and_holds_a_part_of_the_model(tmp_path):
    question = StudySpec.from_dict({
        "name": "split",
        "run": {"workload": "gpt", "data": "tokens:256x16", "global_batch": 32, "steps": 12,
                "topology": "1x2", "optimizer": "adamw", "lr": 0.001},
        "vary": {"strategy": ["fsdp", "pipeline"]},
    })  # fmt: skip
    curves = results.curves([run_study(question, tmp_path)])
    points = {curve.where["strategy"]: curve.points[0] for curve in curves}
    assert {point.samples for point in points.values()} == {12 * 32}
    assert {point.global_batch for point in points.values()} == {32}
    sizes = {name: point.held.value for name, point in points.items()}
    assert max(sizes.values()) < 1.5 * min(sizes.values()), "each holds about a half"
    accuracies = [point.accuracy.value for point in points.values()]
    assert max(accuracies) - min(accuracies) < 1e-3


def test_a_rank_that_was_stopped_is_named_and_ended(tmp_path):
    lab = start(tmp_path, ["1x2"], "1 of 2", "[launcher]\npatience = 14\n")
    psutil.Process(rank_at_work(tmp_path, 1)).suspend()
    _, said = lab.communicate(timeout=90)
    assert lab.returncode == 3
    assert re.search(
        r"rank 1 \(process \d+\) was stopped by SIGSTOP or a debugger after step \d+", said
    )
    (log,) = tmp_path.glob("runs/*/*/log.txt")
    assert "most recent call first" in log.read_text()


def _host():
    import os

    return os.uname().nodename


@pytest.mark.parametrize(
    ("changes", "installed", "said"),
    [
        ({}, "2.3.1", "training needs PyTorch 2.4, and 2.3.1 is installed"),
        ({"recompute": "selective"}, "2.4.1", "needs PyTorch 2.5"),
        ({"clip": 1.0}, "2.5.1+cpu", "clip needs PyTorch 2.6"),
        ({"strategy": "fsdp", "topology": "1x2"}, "2.6.0", "'fsdp' needs PyTorch 2.7"),
    ],
)
def test_what_an_older_pytorch_has_not_is_refused_before_any_rank_starts(
    changes, installed, said, monkeypatch
):
    monkeypatch.setattr("scalewise.frameworks.version", lambda name: installed)
    usual = {"workload": "gpt", "data": "tokens:100x16", "batch": 8, "steps": 5, "topology": "1x1"}
    run = RunSpec.from_dict({**usual, **changes})
    with pytest.raises(ScalewiseError, match=said):
        Torch().check(run)
