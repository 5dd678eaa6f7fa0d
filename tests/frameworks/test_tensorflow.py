"""TensorFlow in an environment of its own, through the product's own launcher."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest

from framework_envs import python_of
from paths import RANK_PROGRAMS, STUDIES, TESTS
from scalewise import frameworks
from scalewise.api import measure
from scalewise.api import run as run_study
from scalewise.errors import FrameworkMissing, LaunchError, RunFailed, ScalewiseError, SpecError
from scalewise.frameworks.tensorflow import TensorFlow
from scalewise.frameworks.tensorflow.rendezvous import exchange_addresses
from scalewise.launch.interpreters import Interpreters
from scalewise.record.read import read_run
from scalewise.spec import RunSpec, StudySpec
from scalewise.study import from_program, load

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


KERAS = str(TESTS / "scripts" / "engines" / "with_keras.py")
RAGGED = [16] * 6 + [8]
"""Samples of the steps of one pass over its 104 images."""


def test_a_script_that_fits_is_watched_unmodified_and_learns_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    python = python_of("tensorflow")
    question = from_program([python, KERAS, "watched.json"], "2")
    folder = run_study(question, tmp_path / "study").absolute()
    (run,) = question.runs()
    record = read_run(folder / run.id, run)
    (rank,) = record.ranks
    steps = rank.steps
    assert steps.samples.tolist() == RAGGED * 6
    assert steps.seconds[15] == pytest.approx(steps.seconds[16], abs=1e-6)  # Executed together.
    assert {*steps.phases} == {"step", "other"}
    spans = [span.name for span in rank.spans]
    once = ["train", "validate", "checkpoint"]
    assert spans == ["launch", "build", *once, *once, "train", "validate", "shutdown"]
    assert rank.notes.peak_memory > 2**20 and rank.notes.threads == 1
    assert record.environment["engine"]["name"] == "tensorflow"
    (point,) = measure(folder).points
    assert point.devices == 2 and point.steps == 42 and point.samples == 624

    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [python, KERAS, "plain.json", "--cpus", "2"]
    subprocess.run(words, env=env, check=True, timeout=500)
    plain, watched = (json.loads(Path(f"{each}.json").read_text()) for each in ("plain", "watched"))
    assert plain == watched and plain["replicas"] == 2


def test_a_script_that_fits_on_one_of_two_devices_is_told_how_to_use_both(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    question = from_program([python_of("tensorflow"), KERAS, "serial.json", "--serial"], "2")
    with pytest.raises(RunFailed, match="not distributed: every process trains alone") as failed:
        run_study(question, tmp_path / "study")
    assert "in the scope of a tf.distribute.MirroredStrategy()" in failed.value.hint
    assert not Path("serial.json").exists()  # It left after its first step.


@pytest.mark.parametrize("strategy", ["mirrored", "multiworker"])
def test_weights_are_equal_on_all_replicas(tmp_path, strategy):
    spec = RunSpec.from_dict(
        {
            "framework": "tensorflow", "strategy": strategy, "workload": "mnist-cnn",
            "topology": "1x2", "batch": 20, "steps": 3, "data": "synthetic:100",
        }
    )  # fmt: skip
    (tmp_path / "spec.json").write_text(json.dumps(spec.to_dict()))
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    env = {
        **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "WORLD_SIZE": str(spec.ranks),
        "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
    }  # fmt: skip
    command = [
        python_of("tensorflow"),
        str(RANK_PROGRAMS / "tensorflow_replicas.py"),
        str(tmp_path / "spec.json"),
    ]
    out = [tmp_path / f"{rank}.npz" for rank in range(spec.ranks)]
    playing = [
        subprocess.Popen([*command, str(each)], env={**env, "RANK": str(n), "LOCAL_RANK": str(n)})
        for n, each in enumerate(out)
    ]
    assert [each.wait(500) for each in playing] == [0] * spec.ranks
    found = {name: value for each in out for name, value in np.load(each).items()}
    names = {name.partition(".")[2] for name in found}
    assert len(names) >= 8 and len(found) == 2 * len(names)
    for name in names:
        np.testing.assert_array_equal(found[f"0.{name}"], found[f"1.{name}"])


def test_other_ways_to_do_the_same_steps_learn_the_same(tmp_path):
    base = {
        "framework": "tensorflow", "workload": "mnist-cnn", "topology": "1x2", "epochs": 1,
        "global_batch": 400, "lr": 0.05, "options": {"dropout": 0.0},
    }  # fmt: skip
    ways = [
        {}, {"accumulate": 2}, {"compile": True}, {"precision": "bf16"},
        {"options": {"dropout": 0.0, "prefetch": 0}, "remainder": "short"},
        {"schedule": "cosine"},
    ]  # fmt: skip
    (tmp_path / "specs.json").write_text(json.dumps([{**base, **way} for way in ways]))
    words = [
        str(RANK_PROGRAMS / "tensorflow_in_turn.py"),
        str(tmp_path / "specs.json"),
        str(tmp_path / "out.json"),
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KERAS_BACKEND": "tensorflow"}
    subprocess.run([python_of("tensorflow"), *words], env=env, check=True, timeout=500)
    plain, micro, compiled, rough, short, slower = json.loads((tmp_path / "out.json").read_text())
    assert plain["samples"] == [400] * 3
    for same in (micro, compiled):
        assert same["samples"] == plain["samples"]
        assert same["losses"] == pytest.approx(plain["losses"], rel=1e-4)
    assert rough["losses"] == pytest.approx(plain["losses"], rel=1e-2)
    assert rough["losses"] != pytest.approx(plain["losses"], rel=1e-7)
    assert short["samples"] == [400, 400, 400, 238]
    assert short["losses"][:3] == pytest.approx(plain["losses"], rel=1e-4)
    assert slower["losses"][:2] == pytest.approx(plain["losses"][:2], rel=1e-4)
    assert slower["losses"][2] != pytest.approx(plain["losses"][2], rel=1e-7)


def test_the_log_has_the_lines_that_keras_prints(tmp_path):
    """The same job, by our loop on two devices and by ``fit`` on one."""
    spec = {
        "framework": "tensorflow", "workload": "mnist-cnn", "topology": "1x2", "epochs": 2,
        "global_batch": 200, "lr": 0.05, "options": {"dropout": 0.0}, "remainder": "short",
    }  # fmt: skip
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KERAS_BACKEND": "tensorflow"}
    words = [
        python_of("tensorflow"),
        str(RANK_PROGRAMS / "keras_fit.py"),
        str(tmp_path / "spec.json"),
    ]
    done = subprocess.run(words, env=env, check=True, timeout=500, stdout=subprocess.PIPE)
    ours, theirs = done.stdout.decode().split("-----\n")
    line = re.compile(r"8/8 - \d+s - \d+(?:s|ms)/step((?: - \w+: \d\.\d{4})+)")
    for each in (ours, theirs):
        assert [*each.splitlines()[::2]] == ["Epoch 1/2", "Epoch 2/2"]
    for mine, keras in zip(ours.splitlines()[1::2], theirs.splitlines()[1::2], strict=True):
        found = [line.fullmatch(each)[1].split(" - ")[1:] for each in (mine, keras)]
        names, figures = zip(*(zip(*(each.split(": ") for each in line)) for line in found))
        assert names[0] == names[1] == ("accuracy", "loss", "val_accuracy", "val_loss")
        assert [*map(float, figures[0])] == pytest.approx([*map(float, figures[1])], abs=1e-3)


def test_a_kind_of_device_that_is_not_here_is_told(tmp_path):
    run = {
        "framework": "tensorflow", "workload": "mnist-cnn", "topology": "1x2", "batch": 8,
        "steps": 1, "device": "cuda",
    }  # fmt: skip
    engines = {"tensorflow": python_of("tensorflow")}
    question = StudySpec.from_dict({"name": "tf", "run": run, "engines": engines})
    with pytest.raises(ScalewiseError):
        run_study(question, tmp_path)
    (log,) = tmp_path.glob("*/log.txt")
    assert "the study asks for cuda, and this TensorFlow finds no such device" in log.read_text()


REFUSED = {
    "backend": "gloo", "workers": 2, "clip": 1.0, "ema": 0.9, "recompute": "full",
    "checkpoint_every": 5, "augment": "flip", "optimizer_step": "fused", "noise_every": 5,
    "sync_batchnorm": True, "resume": "runs/other",
}  # fmt: skip


@pytest.fixture
def engine(monkeypatch):
    """The engine, as if it were installed here."""
    there = {"tensorflow": "2.21.0", "keras": "3.12.0"}
    monkeypatch.setattr(frameworks, "version", there.__getitem__)
    monkeypatch.setattr(frameworks.tensorflow, "version", there.__getitem__)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    return there


def a_tf_run(**changes):
    values = {"framework": "tensorflow", "workload": "mnist-cnn", "topology": "1x2", "epochs": 1}
    rest = {} if "global_batch" in changes else {"batch": 8}
    return RunSpec.from_dict({**values, "data": "synthetic:64", **rest, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(({name: value}, f"{name} does not go together") for name, value in REFUSED.items()),
        ({"topology": "2x1"}, "mirrored uses only one node"),
        ({"start": "plain"}, "mirrored takes start = 'node', and this run says 'plain'"),
        ({"strategy": "multiworker", "start": "node"}, "takes start = 'plain', 'srun' or 'mpirun'"),
        ({"parallelism": {"tensor": 2}}, "splits no model"),
        ({"compile": "blocks"}, "compiles complete models only"),
        ({"compile": "graphs"}, "compiles complete models only"),
        ({"device": "xpu"}, "computes on cpu or cuda"),
        ({"data": "synthetic-on-device:64"}, "does not read"),
        ({"data": "tokens:64"}, "does not read"),
        ({"data": "synthetic:1"}, "1 samples are too few for 2 replicas"),
        ({"data": "synthetic:64x5x5"}, "mnist-cnn needs images of 6 pixels a side"),
        ({"workload": "resnet50v2"}, "needs images of 32 pixels a side, and these have 28"),
        ({"options": {"prefetch": -1}}, "prefetch must be a whole number from 0"),
        ({"options": {"drop": 1}}, "has no option 'drop'"),
        ({"env": {"TF_CONFIG": "{}"}}, "TF_CONFIG is already set"),
    ],
)
def test_what_it_cannot_do_is_refused_before_anything_starts(engine, changes, words):
    TensorFlow().check(a_tf_run())
    with pytest.raises(ScalewiseError, match=words) as refused:
        TensorFlow().check(a_tf_run(**changes))
    assert refused.value.hint


def test_options_that_no_model_can_have_are_refused_before_anything_starts(tmp_path):
    file = tmp_path / "runs.json"
    shares = [0.5, 2.0]
    file.write_text(json.dumps([a_tf_run(options={"dropout": p}).to_dict() for p in shares]))
    fits, wrong = Interpreters({"tensorflow": python_of("tensorflow")}).ask(
        "tensorflow", "check", str(file)
    )
    assert fits is None and wrong["hint"]
    assert "mnist-cnn cannot be built for images of (1, 28, 28)" in wrong["problem"]


OWN_STEP = """
import keras
from scalewise.probe.tensorflow.callback import uses_keras_train_step

class Mine(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)

patched = keras.Sequential()
patched.train_step = lambda data: {}
assert uses_keras_train_step(keras.Sequential())
assert not uses_keras_train_step(Mine()) and not uses_keras_train_step(patched)
"""


def test_a_step_of_a_programs_own_is_told_from_that_of_keras():
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([python_of("tensorflow"), "-c", OWN_STEP], env=env, check=True, timeout=500)


def test_a_cluster_described_outside_is_refused(engine, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["elsewhere:1"]}}')
    with pytest.raises(SpecError, match="TF_CONFIG is already set") as refused:
        TensorFlow().check(a_tf_run(strategy="multiworker"))
    assert "unset TF_CONFIG" in refused.value.hint


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tensorflow": "2.15.1"}, "needs TensorFlow 2.16, and 2.15.1 is installed"),
        ({"keras": "2.15.0"}, "needs Keras 3, and 2.15.0 is installed"),
    ],
)
def test_older_versions_are_refused(engine, changes, words):
    engine.update(changes)
    with pytest.raises(FrameworkMissing, match=words) as refused:
        TensorFlow().check(a_tf_run())
    assert "pip install --upgrade" in refused.value.hint


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(SpecError, match="global_batch 65 does not divide over 2 replicas"):
        a_tf_run(global_batch=65)


def test_an_engine_that_is_not_installed_is_told_with_what_to_install(monkeypatch):
    def nowhere(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(frameworks, "version", nowhere)
    monkeypatch.setattr(frameworks.tensorflow, "version", nowhere)
    with pytest.raises(
        FrameworkMissing, match="needs tensorflow, which is not installed"
    ) as refused:
        TensorFlow().check(a_tf_run())
    assert "scalewise[tensorflow]" in refused.value.hint


def test_processes_learn_each_others_addresses():
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    found = {}

    def come(rank):
        found[rank] = exchange_addresses(rank, 3, "localhost", port, timeout=20)

    ranks = [threading.Thread(target=come, args=(rank,)) for rank in (2, 1, 0)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    assert found[0] == found[1] == found[2]
    assert len({*found[0]}) == 3 and all(place.startswith("127.0.0.1:") for place in found[0])


def test_a_rank_that_does_not_come_is_named():
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    with pytest.raises(LaunchError, match=r"ranks \[1\] did not connect"):
        exchange_addresses(0, 2, "localhost", port, timeout=0.3)
    with pytest.raises(LaunchError, match="rank 1 could not reach rank 0"):
        exchange_addresses(1, 2, "localhost", port, timeout=0.3)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_resnet50v2_mirrored_on_one_two_and_four_devices_gives_a_table(tmp_path, monkeypatch):
    own = tmp_path / "scalewise" / "engines.toml"
    own.parent.mkdir()
    own.write_text(f'tensorflow = "{python_of("tensorflow")}"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    study = STUDIES / "cifar-resnet50v2.toml"
    folder = run_study(study, tmp_path / "resnet", variant="mirrored-cpu")
    points = measure(folder).points
    assert [point.devices for point in points] == [1, 2, 4]
    assert points[0].efficiency.value == 1
    assert all(point.epoch_time.value > 0 and point.speedup.value > 0 for point in points)
    for run, steps in zip(load(study, "mirrored-cpu").runs(), (8, 4, 2), strict=True):
        log = (folder / run.id / "log.txt").read_text()
        assert re.search(rf"^Epoch 2/2\n{steps}/{steps} - \d+s - \S+/step - accuracy: ", log, re.M)
