"""JAX beside PyTorch: the same study, the same samples, the same table."""

import json
import os
import subprocess

import numpy as np
import pytest
import torch

import framework_envs
from builders import a_run
from paths import RANK_PROGRAMS
from scalewise import api
from scalewise.errors import FrameworkMissing, LaunchError, SpecError
from scalewise.frameworks.jax import DEVICE_COUNT_FLAG, Jax, environment_variables
from scalewise.frameworks.lr_schedule import Rates
from scalewise.frameworks.torch.models.mnist_cnn import mnist_cnn
from scalewise.frameworks.torch.models.vit import vit
from scalewise.launch import worker_zip
from scalewise.launch.processes import ask_worker
from scalewise.record.read import read_run
from scalewise.spec import StudySpec
from start_ranks import free_port
from training_results import checked, losses, taken

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def python():
    return framework_envs.python_of("jax")


def a_study(python, **changes):
    """Return a study of the small network on the digits; ``vary`` is its own."""
    vary = changes.pop("vary", {})
    run = {"framework": "jax", "workload": "mnist-cnn", **changes}
    said = {"name": "jax", "run": run, "vary": vary, "engines": {"jax": python}}
    return StudySpec.from_dict(said)


@pytest.fixture(scope="module")
def steps(python, tmp_path_factory):
    """Steps with all that torch offers of one: by one process, and by one per device.

    Ragged ends, micro-steps, clipping, warm-up and a schedule.
    """
    same = {
        "global_batch": 64, "epochs": 2, "lr": 0.1, "remainder": "short", "clip": 1.0,
        "warmup_steps": 5, "schedule": "cosine", "topology": "1x2", "save": True,
        "options": {"dropout": 0.0},
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    for name, way in {
        "whole": {}, "micro": {"accumulate": 2}, "plain": {"start": "plain"},
    }.items():  # fmt: skip
        question = a_study(python, **same, **way)
        (run,) = question.runs()
        found[name] = read_run(api.run(question, folder / name).absolute() / run.id, run)
    return found


def test_what_torch_offers_of_a_step_is_here_too(steps):
    assert {name: (len(record.ranks), *taken(record)) for name, record in steps.items()} == {
        "whole": (1, {46}, 2876), "micro": (1, {46}, 2876), "plain": (2, {46}, 2876),
    }  # fmt: skip
    whole = losses(steps["whole"])
    assert whole[-1] < whole[0] - 0.3
    assert losses(steps["micro"]) == pytest.approx(whole, rel=2e-3, abs=2e-4)
    rates = steps["micro"].ranks[0].outline.rates
    assert rates == str(Rates.of(steps["micro"].spec, 23, 46)) and "warm-up" in rates


def test_a_process_per_device_learns_what_one_for_all_learns(steps):
    plain, whole = steps["plain"], steps["whole"]
    assert losses(plain) == pytest.approx(losses(whole), rel=2e-3, abs=2e-4)
    assert checked(plain) == pytest.approx(checked(whole), abs=0.01)
    assert checked(plain)[1] == 359  # Each of the digits held out, once.
    for rank in plain.ranks:
        assert set(rank.steps.phases) == {"input", "step"}
        assert {"rendezvous", "data", "build", "compile", "train"} <= {
            span.name for span in rank.spans
        }
        assert rank.notes.peak_memory > 2**20 and rank.notes.device == "cpu"
    found = np.load(plain.folder / "weights.npz")
    model = mnist_cnn((1, 8, 8), 10)
    model.load_state_dict({name: torch.from_numpy(found[name]) for name in found})


def alone(python, folder, *words, **env):
    """Start a script of this folder in the engine's environment; return the process."""
    paths = [str(worker_zip.pack(folder)), str(RANK_PROGRAMS)]
    told = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SCALEWISE_UNWATCHED": "1", **env}
    return subprocess.Popen(
        [python, *words], env=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.parametrize(("start", "ranks"), [("node", 1), ("plain", 2)])
def test_every_replica_ends_with_the_same_weights(python, tmp_path, start, ranks):
    run = a_run(
        framework="jax", workload="mnist-cnn", topology="1x2", start=start, batch=8, steps=6,
        data="synthetic:500x8x8", optimizer="adam",
    )  # fmt: skip
    (tmp_path / "spec.json").write_text(json.dumps(run.to_dict()))
    script = str(RANK_PROGRAMS / "jax_device_weights.py")
    place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": free_port()}
    started = [
        alone(python, tmp_path, script, str(tmp_path), RANK=str(n), LOCAL_RANK=str(n), **place)
        for n in range(ranks)
    ]
    for each in started:
        said, _ = each.communicate(timeout=200)
        assert each.returncode == 0, said
    names = {path.name.partition("-")[0] for path in tmp_path.glob("*.npy")}
    assert len(names) == 8
    for name in names:
        one, two = (np.load(path) for path in sorted(tmp_path.glob(f"{name}-*.npy")))
        assert np.array_equal(one, two) and np.isfinite(one).all()


LOOK_ALIKE = """
import json, sys
import numpy as np
from scalewise.frameworks.jax.models.mnist_cnn import mnist_cnn
from scalewise.frameworks.jax.models.vit import vit

chance = np.random.default_rng(0)
for name, make, shape in [("cnn", mnist_cnn, (1, 12, 12)), ("vit", vit, (3, 12, 8))]:
    model = make(shape, 7)
    weights = model.init(chance)
    images = chance.random((5, *shape[1:], shape[0]), dtype=np.float32)
    logits = np.asarray(model.output(weights, images, None))
    np.savez(f"{sys.argv[1]}/{name}.npz", images=images, logits=logits)
    np.savez(f"{sys.argv[1]}/{name}-weights.npz", **weights)
"""


def test_models_are_those_of_torch(python, tmp_path):
    done = alone(python, tmp_path, "-c", LOOK_ALIKE, str(tmp_path), JAX_PLATFORMS="cpu")
    said, _ = done.communicate(timeout=200)
    assert done.returncode == 0, said
    for name, model in [("cnn", mnist_cnn((1, 12, 12), 7)), ("vit", vit((3, 12, 8), 7))]:
        weights, found = (np.load(tmp_path / f"{name}{end}.npz") for end in ("-weights", ""))
        model.load_state_dict({each: torch.from_numpy(weights[each]) for each in weights})
        images = torch.from_numpy(found["images"]).permute(0, 3, 1, 2)
        with torch.no_grad():
            logits = model.eval()(images).numpy()
        assert np.allclose(found["logits"], logits, atol=1e-5)


REFUSED = [
    ({"compile": "blocks"}, "JAX always compiles the whole step: compile = 'blocks'"),
    ({"precision": "fp16"}, "precision = 'fp16'"),
    ({"checkpoint_every": 5}, "checkpoint_every = 5"),
    ({"workers": 2}, "needs no workers"),
    (
        {"parallelism": {"tensor": 2}, "topology": "1x2"},
        "the whole model: parallelism = {tensor = 2}",
    ),
    ({"start": "torchrun"}, "takes start = 'node', 'plain', 'srun' or 'mpirun', and this run says"),
    ({"strategy": "ddp"}, "no strategy named 'ddp' for framework 'jax'; there are: sharded"),
    ({"workload": "resnet50"}, "no workload named 'resnet50' for framework 'jax'"),
    ({"workload": "vit", "options": {"patch": 3}}, "patches of 3 do not fit an image of 8x8"),
    ({"options": {"dropuot": 0.1}}, "has no option 'dropuot'"),
    ({"options": {"dropout": 2.0}}, "dropout is a share from 0 to 1"),
    ({"data": "synthetic:3", "topology": "1x4"}, "3 samples are too few for 4 replicas"),
    ({"data": "tokens:100"}, "the jax framework does not read 'tokens:100'"),
    ({"data": "synthetic-on-device:100"}, "does not read 'synthetic-on-device:100'"),
    ({"data": "synthetic:100x4x4"}, "need 6 pixels a side"),
    ({}, None),
]


def test_what_cannot_work_is_refused_in_a_sentence(python, tmp_path):
    runs = [
        a_run(**{"framework": "jax", "workload": "mnist-cnn", **said}).to_dict()
        for said, _ in REFUSED
    ]
    file = tmp_path / "runs.json"
    file.write_text(json.dumps(runs))
    answers = ask_worker("check", str(file), python=python, paths=[str(worker_zip.pack(tmp_path))])
    for (said, problem), answer in zip(REFUSED, answers, strict=True):
        assert (answer is None) == (problem is None), (said, answer)
        if problem:
            assert problem in answer["problem"] and "Traceback" not in answer["problem"], said
            told = ("there are: ", "cannot be built")  # What there is, or what does not fit.
            assert answer["hint"] or any(each in answer["problem"] for each in told), said


def test_a_batch_that_does_not_divide_is_refused_before():
    with pytest.raises(SpecError, match="global_batch 9 does not divide over 2 replicas"):
        a_run(framework="jax", workload="mnist-cnn", topology="1x2", global_batch=9)


def test_without_jax_its_runs_are_left_out_with_the_line_that_installs_it(tmp_path):
    run = a_run(framework="jax", workload="mnist-cnn").to_dict()
    (tmp_path / "runs.json").write_text(json.dumps([run]))
    (answer,) = ask_worker("check", str(tmp_path / "runs.json"))
    assert answer["absent"] and "needs jax, which is not installed" in answer["problem"]
    assert "pip install 'scalewise[jax]'" in answer["hint"]


def test_a_kind_of_device_that_is_not_here_ends_the_run_with_a_sentence(python, tmp_path):
    question = a_study(python, batch=8, steps=3, device="cuda", vary={"topology": ["1x1"]})
    with pytest.raises(LaunchError, match="the study asks for cuda, and this JAX finds no such"):
        api.run(question, tmp_path)


FEWER = """
import os
from scalewise.frameworks.jax import environment_variables
from scalewise.frameworks.jax.device import find_devices
from scalewise.spec import RunSpec

said = {"framework": "jax", "workload": "mnist-cnn", "batch": 8, "steps": 3}
two_devices = RunSpec.from_dict({**said, "topology": "1x2"})
os.environ.update(environment_variables(two_devices, {"XLA_FLAGS": ""}))
assert len(find_devices(two_devices)) == 2
assert len(find_devices(RunSpec.from_dict({**said, "topology": "1x1"}))) == 1
try:
    find_devices(RunSpec.from_dict({**said, "topology": "1x4"}))
except ValueError as problem:
    print(problem, "|", problem.hint)
"""


def test_more_replicas_than_devices_are_refused(python, tmp_path):
    said, _ = alone(python, tmp_path, "-c", FEWER, JAX_PLATFORMS="cpu").communicate(timeout=200)
    problem, _, hint = said.strip().splitlines()[-1].partition(" | ")
    assert problem == "1x4 needs 4 devices in each process, and JAX finds 2 cpu in one of them"
    assert hint.startswith("use fewer devices per node")


def test_flags_from_outside_stay_and_the_number_of_devices_is_ours():
    run = a_run(framework="jax", workload="mnist-cnn", topology="1x2", device="cpu")
    env = {"XLA_FLAGS": f"--xla_a=1 {DEVICE_COUNT_FLAG}=8 --xla_b=2"}
    assert environment_variables(run, env) == {
        "XLA_FLAGS": f"--xla_a=1 --xla_b=2 {DEVICE_COUNT_FLAG}=2 "
        "--xla_cpu_multi_thread_eigen=false",
        "NPROC": "2",
        "JAX_PLATFORMS": "cpu",
    }


def test_an_older_jax_is_refused(monkeypatch):
    monkeypatch.setattr(
        "scalewise.frameworks.jax.installed_version", lambda package, *, extra: "0.4.30"
    )
    with pytest.raises(
        FrameworkMissing, match=r"training needs JAX 0\.6, and 0\.4\.30 is installed"
    ):
        Jax().check(a_run(framework="jax", workload="mnist-cnn"))


def test_bf16_computes_with_fewer_bits_and_learns(python, tmp_path):
    same = {"batch": 16, "steps": 60, "lr": 0.05, "workload": "vit", "optimizer": "adamw"}
    size = {"options": {"depth": 1, "width": 32}, "lr": 0.003}
    vary = {"topology": ["1x1"], "precision": ["bf16", "fp32"]}
    question = a_study(python, **{**same, **size}, vary=vary)
    api.run(question, tmp_path)
    half, whole = (losses(read_run(tmp_path / run.id, run)) for run in question.runs())
    assert half != whole and half == pytest.approx(whole, abs=0.15)
    assert half[-1] < half[0] - 0.3
