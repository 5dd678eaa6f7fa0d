"""Horovod trains the models of torch: the same samples, losses and weights as DDP."""

import sys
from pathlib import Path
from shutil import which

import pytest
import torch

import environments
from builders import a_run
from scalewise.errors import LaunchError, NoEngine, SpecError
from scalewise.face import run as run_study
from scalewise.frameworks import horovod
from scalewise.frameworks.horovod import Horovod
from scalewise.frameworks.horovod.settings import Settings
from scalewise.launch.engines import Engines
from scalewise.launch.local import LocalLauncher
from scalewise.launch.slurm import SlurmLauncher
from scalewise.record.read import read_run
from scalewise.spec import StudySpec

NEAR = 1e-5
"""Sums in another order."""


def of_horovod(**changes):
    """Return a run of Horovod's."""
    return a_run(**{"framework": "horovod", "workload": "mnist-cnn", **changes})


@pytest.fixture(scope="module")
def python():
    """Return Horovod's Python, where its wheel was built and installed."""
    if not environments.ready("horovod"):
        pytest.skip("Horovod has no environment: make horovod builds its wheel")
    return environments.python_of("horovod")


@pytest.fixture(scope="module")
def digits(python, tmp_path_factory):
    """Train on the embedded digits with torch and Horovod, on one device and on two."""
    question = StudySpec.from_dict(
        {
            "name": "digits",
            "run": {
                "workload": "mnist-cnn", "global_batch": 64, "epochs": 2, "lr": 0.05,
                "save": True, "options": {"dropout": 0.0},
            },
            "vary": {"framework": ["torch", "horovod"], "topology": ["1x1", "1x2"]},
            "engines": {"horovod": python},
        }
    )  # fmt: skip
    folder = run_study(question, tmp_path_factory.mktemp("runs"))
    return {
        (run.framework, str(run.topology)): read_run(folder.absolute() / run.id, run)
        for run in question.runs()
    }


def told(record, key):
    """Return what rank 0 told of every epoch."""
    return [line[key] for line in record.ranks[0].lines if key in line]


@pytest.mark.engines
@pytest.mark.timeout(900)
@pytest.mark.parametrize("topology", ["1x1", "1x2"])
def test_digits_are_learnt_as_ddp_learns_them(digits, topology):
    ours, ddp = digits["horovod", topology], digits["torch", topology]
    assert ours.spec.strategy == "allreduce" and len(ours.ranks) == ours.spec.topology.world
    for mine, other in zip(ours.ranks, ddp.ranks, strict=True):
        assert list(mine.steps.samples) == list(other.steps.samples)
        assert len(mine.steps.samples) == 2 * 22
    for mine, other in zip(told(ours, "losses"), told(ddp, "losses"), strict=True):
        assert mine == pytest.approx(other, abs=NEAR)
    accuracies = [[each["accuracy"] for each in told(one, "validation")] for one in (ours, ddp)]
    assert accuracies[0] == accuracies[1]
    weights, others = (torch.load(one.folder / "weights.pt") for one in (ours, ddp))
    for name in weights:
        torch.testing.assert_close(weights[name], others[name], rtol=0, atol=NEAR)


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_what_horovod_exchanges_past_pytorch_is_unknown_and_its_wait_is_told(digits):
    record = digits["horovod", "1x2"]
    assert record.ranks[0].find("traffic") is None
    assert record.ranks[0].find("started") == "horovodrun"
    phases = {"input", "forward", "backward", "sync", "optimizer"}
    assert set(record.ranks[1].steps.phases) == phases


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_all_settings_end_with_the_weights_of_ddp(python, tmp_path):
    asked = {
        "base": {
            "workload": "mnist-cnn", "data": "synthetic:400", "batch": 8, "steps": 6, "lr": 0.05,
            "options": {"dropout": 0.0},
        },
        "cells": {
            "synthetic": {},
            "digits": {"data": None, "accumulate": 2, "clip": 0.5, "optimizer": "adamw",
                       "lr": 1e-3},
        },
        "ways": [
            {"framework": "horovod", "strategy": "allreduce"},
            {
                "framework": "horovod", "strategy": "allreduce",
                "options": {"compression": "fp16"},
            },
        ],
    }  # fmt: skip
    starter = [str(Path(python).parent / "horovodrun"), "-np", "2", "-H", "localhost:2", "--gloo"]
    rows = environments.compare([*starter, python], asked, tmp_path)
    assert len(rows) == 4
    for row in rows:
        assert row["apart"] == 0.0 and row["samples"] == 0, row
        near = 100 * NEAR if "options" in row else NEAR
        assert row["loss"] < near and row["weights"] < 10 * near, row


def test_settings_become_variables():
    told = Settings(fusion_threshold=0.5, autotune=True).variables()
    assert told == {"HOROVOD_FUSION_THRESHOLD": "524288", "HOROVOD_AUTOTUNE": "1"}
    assert Settings().variables() == {}


def test_horovodrun_lies_beside_its_python(tmp_path):
    engines = Engines({"horovod": "/envs/horovod/bin/python"})
    (command,) = LocalLauncher({}, engines).plan([of_horovod(topology="1x2")], tmp_path).commands
    assert command.argv[:3] == ("/envs/horovod/bin/horovodrun", "-np", "2")
    assert command.env["MASTER_ADDR"] == "localhost"
    alone = LocalLauncher({}, engines).plan([of_horovod()], tmp_path).commands[0]
    assert alone.argv[0] == "/envs/horovod/bin/python"


def test_mpirun_starts_all_ranks_of_this_machine(tmp_path):
    run = of_horovod(topology="2x2", start="mpirun")
    (command,) = LocalLauncher().plan([run], tmp_path).commands
    assert command.argv[0] == "mpirun"
    assert command.argv[command.argv.index("-np") + 1] == "4"
    assert command.env["MASTER_ADDR"] == "localhost"


def test_in_a_job_horovodrun_is_refused_as_it_would_need_ssh(tmp_path):
    with pytest.raises(LaunchError, match="by ssh") as told:
        SlurmLauncher({}).plan([of_horovod(topology="2x1")], tmp_path)
    assert 'start = "srun"' in told.value.hint
    assert SlurmLauncher({}).plan([of_horovod(topology="2x1", start="srun")], tmp_path).files


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_ranks_find_each_other_without_horovodrun(python, tmp_path):
    starts = ["plain", "mpirun"] if which("mpirun") else ["plain"]
    question = StudySpec.from_dict(
        {
            "name": "starts",
            "run": {
                "framework": "horovod", "workload": "mlp", "data": "synthetic:512x8x8",
                "topology": "1x2", "batch": 16, "steps": 20, "options": {"hidden": [32]},
            },
            "vary": {"start": starts},
            "engines": {"horovod": python},
        }
    )  # fmt: skip
    folder = run_study(question, tmp_path)
    records = [read_run(folder.absolute() / run.id, run) for run in question.runs()]
    starters = [record.ranks[1].find("started") for record in records]
    assert starters == ["environment", "mpirun (Open MPI)"][: len(starts)]
    assert all(told(each, "losses") == told(records[0], "losses") for each in records)


@pytest.fixture
def there(monkeypatch):
    """Have Horovod there, with its extension and its starter."""
    monkeypatch.setattr(horovod, "installed", lambda package, extra: "0.28.1")
    monkeypatch.setattr(horovod, "_refuse_unbuilt", lambda: None)
    monkeypatch.setattr(horovod, "which", lambda path: str(path))


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"compile": True}, "compile does not go together with horovod"),
        ({"checkpoint_every": 5}, "checkpoint_every does not go together"),
        ({"noise_every": 5}, "noise_every does not go together"),
        ({"parallelism": {"tensor": 2}, "topology": "1x2"}, "parallelism does not go together"),
        ({"options": {"compression": "bf16"}}, "compression must be one of none, fp16"),
        ({"options": {"fusion_threshold": 0}}, "fusion_threshold must be"),
        ({"options": {"autotune": "yes"}}, "autotune must be true or false"),
        ({"options": {"fusion": 1}}, "has no option 'fusion'"),
        ({"start": "node"}, "a horovod run needs"),
    ],
)
def test_what_cannot_work_is_refused_before_any_rank_starts(changes, said):
    with pytest.raises(SpecError, match=said):
        Horovod().check(of_horovod(**changes))


@pytest.mark.usefixtures("there")
def test_without_horovodrun_several_ranks_are_refused(monkeypatch):
    monkeypatch.setattr(horovod, "which", lambda path: None)
    Horovod().check(of_horovod())
    Horovod().check(of_horovod(topology="1x2", start="plain"))
    with pytest.raises(SpecError, match=f"no horovodrun beside {sys.executable}") as told:
        Horovod().check(of_horovod(topology="1x2"))
    assert "[engines] horovod" in told.value.hint


def test_an_engine_that_is_not_there_or_not_whole_is_told(monkeypatch, tmp_path):
    with pytest.raises(NoEngine, match="framework 'horovod' needs horovod"):
        Horovod().check(of_horovod())
    monkeypatch.setattr(horovod, "installed", lambda package, extra: "0.28.1")
    (tmp_path / "horovod" / "torch").mkdir(parents=True)
    (tmp_path / "horovod" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NoEngine, match="built without its PyTorch extension") as told:
        Horovod().check(of_horovod())
    assert "HOROVOD_WITH_PYTORCH=1" in told.value.hint
    (tmp_path / "horovod" / "torch" / "mpi_lib_v2.cpython-311.so").touch()
    Horovod().check(of_horovod())
    monkeypatch.setattr(horovod, "installed", lambda package, extra: "0.19.5")
    with pytest.raises(SpecError, match=r"needs Horovod 0.28, and 0.19.5 is installed"):
        Horovod().check(of_horovod())
