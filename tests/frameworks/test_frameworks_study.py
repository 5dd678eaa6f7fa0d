"""All engines in one study, held against each other: the same work, one table, one plot."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import framework_envs
import scalewise
from paths import STUDIES
from scalewise.analysis.measure.ledger import build_ledger
from scalewise.frameworks.deepspeed import make_config
from scalewise.frameworks.torch.models.mnist_cnn import mnist_cnn
from scalewise.record.read import read_run
from scalewise.study import load, plan
from training_results import checked, losses, taken, told

STUDY = STUDIES / "engines.toml"
ENGINES = ("horovod", "tensorflow", "jax", "deepspeed")
WAYS = tuple(load(STUDY).vary["strategy"])
EPOCHS = 4
NEAR = 1e-5
"""Sums in another order."""


def named(folder: Path) -> dict[str, str]:
    """Return what makes a user's own file name the environments that there are."""
    own = folder / "scalewise" / "engines.toml"
    own.parent.mkdir(parents=True)
    there = [engine for engine in ENGINES if framework_envs.ready(engine)]
    own.write_text("".join(f'{each} = "{framework_envs.python_of(each)}"\n' for each in there))
    return {"XDG_CONFIG_HOME": str(folder)}


def scalewise_says(*words: object, **env: str) -> str:
    """Give a command as a shell would; return what it printed."""
    script = Path(sys.executable).parent / "scalewise"
    done = subprocess.run(
        [script, *map(str, words)],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def present(way: str) -> bool:
    engine = way.partition(".")[0]
    return engine == "torch" or framework_envs.ready(engine)


def test_each_engine_has_its_curve():
    question = load(STUDY)
    assert Counter(run.framework for run in question.runs()) == {
        "torch": 2, "horovod": 2, "tensorflow": 4, "jax": 2, "deepspeed": 6,
    }  # fmt: skip
    assert {question.where(run)["strategy"] for run in question.runs()} == {*WAYS}
    assert {run.topology.world for run in load(STUDY, "four").runs()} == {1, 2, 4}


@pytest.mark.parametrize("library", ["lightning", "accelerate"])
def test_scripts_of_other_libraries_need_no_engine(library, tmp_path, monkeypatch):
    monkeypatch.chdir(STUDY.parent.parent)
    question = load(STUDY.with_name(f"{library}.toml"))
    one, two = plan(question, tmp_path)
    script = f"studies/{library}_digits.py"
    assert one.commands[0].argv[-1] == two.commands[0].argv[-1] == script
    assert "--nproc-per-node=2" in two.commands[0].argv
    assert all(run.digest for run in question.runs())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study as a user runs it, who has named the environments for all studies.

    A shorter one, and without dropout: on the same samples all then learn the same.
    """
    home = tmp_path_factory.mktemp("engines")
    long, short = "epochs = 10\n", f"epochs = {EPOCHS}\nsave = true\noptions.dropout = 0.0\n"
    assert STUDY.read_text().count(long) == 1
    study = home / "engines.toml"
    study.write_text(STUDY.read_text().replace(long, short))
    scalewise_says("run", study, "-o", home / "runs", **named(home / "own"))
    return study


@pytest.fixture(scope="module")
def records(whole):
    """The records of the study, by strategy and devices."""
    question, folder = load(whole), whole.with_name("runs")
    return {
        (question.where(run)["strategy"], run.topology.world): read_run(folder / run.id, run)
        for run in question.runs()
        if (folder / run.id).exists()
    }


@pytest.fixture
def pair(records, request):
    """The records of one strategy on one device and on two."""
    if not present(request.param):
        pytest.skip("its environment is not there: make engines")
    return [records[request.param, devices] for devices in (1, 2)]


def of(*engines):
    """Have a test look at the strategies of some engines, one by one."""
    ways = [way for way in WAYS if way.partition(".")[0] in engines]
    return pytest.mark.parametrize("pair", ways, indirect=True)


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_all_engines_do_the_same_work(records):
    assert {*records} == {(way, devices) for way in filter(present, WAYS) for devices in (1, 2)}
    for record in records.values():
        assert taken(record) == ({EPOCHS * 22}, EPOCHS * 22 * 64), record.spec.title
    outlines = [record.ranks[0].outline for record in records.values()]
    assert {(outline.parameters, outline.steps) for outline in outlines} == {(53_002, 22)}


@pytest.mark.engines
@pytest.mark.timeout(900)
@of("torch", *ENGINES)
def test_each_learns_as_well_as_torch_and_on_two_devices_what_it_learns_on_one(pair, records):
    for mine, torchs in zip(pair, (records["torch.ddp", 1], records["torch.ddp", 2])):
        accuracy, images = checked(mine)
        assert images == 359 and accuracy > 0.9
        assert accuracy == pytest.approx(checked(torchs)[0], abs=0.05)  # Begun with other weights.
    one, two = map(losses, pair)
    assert len(one) == EPOCHS * 22 and one[-1] < one[0] / 3
    assert two == pytest.approx(one, rel=2e-3, abs=2e-4)


@pytest.mark.engines
@pytest.mark.timeout(900)
@of("horovod", "deepspeed")
def test_engines_that_train_torchs_models_take_the_steps_of_ddp(pair, records):
    for ours in pair:
        ddp = records["torch.ddp", ours.spec.topology.world]
        for mine, other in zip(ours.ranks, ddp.ranks, strict=True):
            assert list(mine.steps.samples) == list(other.steps.samples)
        assert losses(ours) == pytest.approx(losses(ddp), abs=NEAR)
        accuracies = [[each["accuracy"] for each in told(one, "validation")] for one in (ours, ddp)]
        assert accuracies[0] == accuracies[1]
        weights, others = (torch.load(one.folder / "weights.pt") for one in (ours, ddp))
        assert weights.keys() == others.keys()
        for name in weights:
            torch.testing.assert_close(weights[name], others[name], rtol=0, atol=NEAR)
    phases = {"input", "forward", "backward", "sync", "optimizer"}
    assert set(pair[1].ranks[1].steps.phases) == phases


@pytest.mark.engines
@pytest.mark.timeout(900)
@of("tensorflow", "jax")
def test_a_fused_step_is_one_phase_and_its_exchange_is_not_known(pair):
    one, two = pair
    assert (len(one.ranks), len(two.ranks)) == (1, 2 if two.spec.strategy == "multiworker" else 1)
    for rank in two.ranks:
        assert [*rank.steps.phases] == ["input", "step"]
        parts = rank.steps.phases["input"] + rank.steps.phases["step"]
        assert np.allclose(parts, rank.steps.seconds, atol=1e-6)
        begun = {"rendezvous", "data", "build", "compile", "train"}
        assert begun <= {span.name for span in rank.spans}
        assert rank.notes.peak_memory > 2**20 and rank.notes.device == "cpu"
    assert build_ledger(one, 1).exposed == 0 and build_ledger(two, 1).sync is None
    way = f"{two.spec.framework}.{two.spec.strategy}"
    alone, both = scalewise.explain(one.folder.parent, where={"strategy": way}).points
    assert alone.factors["transfer"] is not None and both.factors["transfer"] is None
    known = [factor for factor in both.factors.values() if factor is not None]
    assert math.prod(known) == pytest.approx(both.efficiency, rel=1e-3)


@pytest.mark.engines
@pytest.mark.timeout(900)
@of("jax")
def test_weights_that_jax_saves_are_those_of_the_serial_model_in_torch(pair):
    for record in pair:
        found = np.load(record.folder / "weights.npz")
        model = mnist_cnn((1, 8, 8), 10)
        model.load_state_dict({name: torch.from_numpy(found[name]) for name in found})


@pytest.mark.engines
@pytest.mark.timeout(900)
@of("deepspeed")
def test_deepspeed_tells_its_engine_its_settings_and_what_it_exchanged(pair):
    record = pair[1]
    settings = json.loads((record.folder / "deepspeed.json").read_text())
    assert settings == make_config(record.spec)
    engine = record.environment["engine"]
    assert engine["name"] == "deepspeed" and engine["torch"].startswith("2.")
    traffic = record.ranks[0].notes.traffic.exchanged
    assert sum(each["bytes"] for each in traffic.values()) > 4 * 53_002


@pytest.mark.engines
@pytest.mark.timeout(900)
@of("horovod")
def test_what_horovod_exchanges_past_pytorch_is_unknown(pair):
    assert pair[1].ranks[0].notes.traffic is None
    assert pair[1].ranks[0].notes.starter == "horovodrun"


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_one_table_and_one_plot_hold_them_all(whole, tmp_path):
    folder = whole.with_name("runs")
    curves = json.loads(scalewise_says("measure", folder, "--json"))["curves"]
    assert [curve["where"]["strategy"] for curve in curves] == [*filter(present, WAYS)]
    for curve in curves:
        assert [point["devices"] for point in curve["points"]] == [1, 2]
        assert all(point["throughput"]["value"] > 0 for point in curve["points"])
    scalewise_says("report", folder, "-o", tmp_path / "engines.png")
    assert (tmp_path / "engines.png").stat().st_size > 10_000


@pytest.fixture(scope="module")
def fashion(tmp_path_factory):
    """A folder for all trainings on Fashion-MNIST, those of PyTorch once.

    ``SCALEWISE_FASHION`` names one that stays: trainings that it holds are not done again.
    """
    return Path(os.environ.get("SCALEWISE_FASHION") or tmp_path_factory.mktemp("fashion"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", WAYS[1:])
def test_fashion_mnist_is_learnt_as_well_as_by_torch(way, fashion, tmp_path, monkeypatch):
    """`make soak` installs the data: Debian's package dataset-fashion-mnist."""
    if not present(way):
        pytest.skip("its environment is not there: make engines")
    monkeypatch.setenv("XDG_CONFIG_HOME", named(tmp_path)["XDG_CONFIG_HOME"])
    question = load(STUDY, "fashion")
    question = replace(question, vary={**question.vary, "strategy": [WAYS[0], way]})
    scalewise.run(question, fashion)
    found = {WAYS[0]: [], way: []}
    for run in question.runs():
        record = read_run(fashion / run.id, run)
        assert taken(record) == ({200}, 200 * 128)
        accuracy, images = checked(record)
        assert images == 10_000
        found[question.where(run)["strategy"]].append(accuracy)
    theirs, mine = (sum(each) / len(each) for each in found.values())
    print(f"{way}: {mine:.4f} {found[way]}, {WAYS[0]}: {theirs:.4f} {found[WAYS[0]]}")
    assert abs(mine - theirs) < 0.015
    assert theirs > 0.8  # After less than half a pass.
