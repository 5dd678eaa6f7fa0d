"""Horovod trains the models of torch: the same samples, losses and weights as DDP."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import which
from types import ModuleType

import pytest

import framework_envs
from builders import a_run
from scalewise.api import run as run_study
from scalewise.errors import FrameworkMissing, LaunchError, RecordError, SpecError
from scalewise.frameworks import horovod
from scalewise.frameworks.horovod import Horovod
from scalewise.frameworks.horovod.strategy import Settings
from scalewise.launch.interpreters import Interpreters
from scalewise.launch.local import LocalLauncher
from scalewise.launch.slurm import SlurmLauncher
from scalewise.record.close import close
from scalewise.record.rank_tail import read_tail
from scalewise.record.read import read_run
from scalewise.spec import StudySpec
from training_results import losses

NEAR = 1e-5
"""Sums in another order."""


def of_horovod(**changes):
    """Return a run of Horovod's."""
    return a_run(**{"framework": "horovod", "workload": "mnist-cnn", **changes})


@pytest.fixture(scope="module")
def python():
    """Return Horovod's Python, where its wheel was built and installed."""
    if not framework_envs.ready("horovod"):
        pytest.skip("Horovod has no environment: make horovod builds its wheel")
    return framework_envs.python_of("horovod")


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
    rows = framework_envs.compare([*starter, python], asked, tmp_path)
    assert len(rows) == 4
    for row in rows:
        assert row["apart"] == 0.0 and row["samples"] == 0, row
        near = 100 * NEAR if "options" in row else NEAR
        assert (row["weights"] > 0.1 * NEAR) == ("options" in row), row
        assert row["loss"] < near and row["weights"] < 10 * near, row


def test_settings_become_variables():
    told = Settings(fusion_threshold=0.5, autotune=True).variables()
    assert told == {"HOROVOD_FUSION_THRESHOLD": "524288", "HOROVOD_AUTOTUNE": "1"}
    assert Settings().variables() == {}


def test_horovodrun_lies_beside_its_python(tmp_path):
    engines = Interpreters({"horovod": "/envs/horovod/bin/python"})
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


def small(python, **changes):
    """Return a small study with one run of two ranks."""
    run = {
        "framework": "horovod", "workload": "mlp", "data": "synthetic:512x8x8",
        "topology": "1x2", "batch": 16, "steps": 60,
    }  # fmt: skip
    given = {"name": "small", "run": {**run, **changes}, "engines": {"horovod": python}}
    return StudySpec.from_dict(given)


def trained(question, folder):
    """Train what a study with one run asks for; return its record."""
    (run,) = question.runs()
    return read_run(run_study(question, folder).absolute() / run.id, run)


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_ranks_find_each_other_without_horovodrun_and_settings_take_effect(python, tmp_path):
    start = "mpirun" if which("mpirun") else "plain"
    tuned, fused = tmp_path / "tuned.csv", tmp_path / "fused.json"
    apart = tmp_path / "apart.json"
    one = trained(
        small(
            python,
            start=start,
            env={"HOROVOD_AUTOTUNE_LOG": str(tuned), "HOROVOD_TIMELINE": str(fused)},
            options={"hidden": [32, 32], "autotune": True},
        ),
        tmp_path / "one",
    )
    other = trained(
        small(
            python,
            start="plain",
            env={"HOROVOD_TIMELINE": str(apart)},
            options={"hidden": [32, 32], "fusion_threshold": 1e-6},
        ),
        tmp_path / "other",
    )
    starters = [each.ranks[1].notes.starter for each in (one, other)]
    assert starters == ["mpirun (Open MPI)" if start == "mpirun" else "environment", "environment"]
    assert len(losses(one)) == 60 and losses(one) == pytest.approx(losses(other), abs=NEAR)
    assert "threshold" in tuned.read_text()
    assert "FUSION_BUFFER" in fused.read_text() and "FUSION_BUFFER" not in apart.read_text()


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_an_elastic_run_goes_on_when_a_rank_is_killed_and_is_not_measured(python, tmp_path):
    options = {"hidden": [32], "min_np": 1}
    (run,) = small(python, steps=2500, options=options, save=True).runs()
    launcher, home = LocalLauncher({}, Interpreters({"horovod": python})), tmp_path / run.id
    (job,) = launcher.submit(launcher.plan([run], tmp_path))
    until = time.monotonic() + 300
    while not (first := read_tail(home, 1, 1)).notes.steps:
        assert time.monotonic() < until and launcher.poll(job).phase == "running", first
        time.sleep(0.1)
    os.kill(first.notes.pid, signal.SIGKILL)
    while (state := launcher.poll(job)).phase == "running":
        assert time.monotonic() < until
        time.sleep(0.1)
    log = (home / "log.txt").read_text()
    assert state.phase == "ended" and not state.exits, log
    assert close(home, attempt=1, world=2, ended=time.time()) == "", log
    assert json.loads((home / "outcome.json").read_text())["lost"] == [1]
    lines = [json.loads(line) for line in (home / "rank-00000.jsonl").read_text().splitlines()]
    (change,) = [line for line in lines if "left_with" in line]
    assert change["lost"] == [1] and change["left_with"] == 1
    assert 0 < change["after"] < 2500 == read_tail(home, 0, 1).notes.steps[1]
    assert sum(line["samples"] for line in lines if line.get("span") == "train") == 2500 * 16
    assert (home / "weights.pt").exists()
    assert "samples/s" not in log.partition("epoch 1")[2].partition("validation")[0]
    with pytest.raises(RecordError, match="lost rank 1 and went on with the others"):
        read_run(home, run)


def test_an_elastic_run_has_a_machine_for_each_rank(tmp_path):
    run = of_horovod(topology="1x3", steps=10, epochs=None, options={"min_np": 2})
    (command,) = LocalLauncher().plan([run], tmp_path).commands
    words = list(command.argv)
    assert words[words.index("--min-np") + 1] == "2" and words[words.index("--max-np") + 1] == "3"
    assert r"localhost:1\nLocalhost:1\nlOcalhost:1\n" in words[-7]


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_adasum_learns_and_is_not_a_mean(python, tmp_path):
    if "[X] MPI" not in subprocess.run(
        [str(Path(python).parent / "horovodrun"), "--check-build"],
        capture_output=True, text=True, check=True,
    ).stdout:  # fmt: skip
        pytest.skip("this Horovod was built without MPI")
    like = {"workload": "mnist-cnn", "data": None, "lr": 0.05, "start": "mpirun"}
    ways = ({"dropout": 0.0, "adasum": True}, {"dropout": 0.0})
    record, mean = (
        trained(small(python, **like, options=way), tmp_path / str(len(way))) for way in ways
    )
    mine, others = losses(record), losses(mean)
    assert mine[0] == pytest.approx(others[0], abs=NEAR)
    assert mine[-1] < 0.5 * mine[0] and abs(mine[5] - others[5]) > 100 * NEAR
    assert "sync" not in record.ranks[0].steps.phases


@pytest.fixture
def there(monkeypatch):
    """Have Horovod there, with its extension and its starter."""
    monkeypatch.setattr(horovod, "installed_version", lambda package, extra: "0.28.1")
    monkeypatch.setattr(horovod, "_refuse_no_torch_extension", lambda: None)
    monkeypatch.setattr(horovod, "which", lambda path: str(path))
    built = ModuleType("horovod.torch")
    built.mpi_built = lambda: False
    monkeypatch.setitem(sys.modules, "horovod", ModuleType("horovod"))
    monkeypatch.setitem(sys.modules, "horovod.torch", built)


MPI = {"topology": "1x2", "start": "mpirun", "options": {"adasum": True}}
ELASTIC = {"topology": "1x2", "steps": 10, "epochs": None, "options": {"min_np": 1}}


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
        ({"start": "node"}, "a horovod run takes start = .horovodrun"),
        ({"options": {"adasum": 1}}, "adasum must be true or false"),
        ({**MPI, "topology": "1x3"}, "a power of two: 1x3 has 3"),
        ({**MPI, "clip": 1.0}, "too early for this: clip"),
        ({**MPI, "schedule": "cosine"}, "too early for this: schedule = 'cosine'"),
        ({**MPI, "start": "plain"}, "plain does not start MPI ranks"),
        (MPI, "adasum needs a Horovod with MPI"),
        ({**ELASTIC, "options": {"min_np": 0}}, "min_np must be"),
        ({**ELASTIC, "options": {"min_np": 3}}, "min_np is 3, and 1x2 has 2 ranks"),
        ({**ELASTIC, "start": "plain"}, "ranks that horovodrun starts"),
        ({**ELASTIC, "steps": None, "epochs": 1}, "an elastic run needs steps"),
        ({**ELASTIC, "ema": 0.9}, "ema does not go together with min_np"),
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
    with pytest.raises(FrameworkMissing, match=f"no horovodrun beside {sys.executable}") as told:
        Horovod().check(of_horovod(topology="1x2"))
    assert "[engines] horovod" in told.value.hint


def test_an_engine_that_is_not_there_or_not_whole_is_told(monkeypatch, tmp_path):
    with pytest.raises(FrameworkMissing, match="framework 'horovod' needs horovod"):
        Horovod().check(of_horovod())
    monkeypatch.setattr(horovod, "installed_version", lambda package, extra: "0.28.1")
    (tmp_path / "horovod" / "torch").mkdir(parents=True)
    (tmp_path / "horovod" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FrameworkMissing, match="built without its PyTorch extension") as told:
        Horovod().check(of_horovod())
    assert "HOROVOD_WITH_PYTORCH=1" in told.value.hint
    (tmp_path / "horovod" / "torch" / "mpi_lib_v2.cpython-311.so").touch()
    Horovod().check(of_horovod())
    monkeypatch.setattr(horovod, "installed_version", lambda package, extra: "0.19.5")
    with pytest.raises(FrameworkMissing, match=r"needs Horovod 0.28, and 0.19.5 is installed"):
        Horovod().check(of_horovod())
