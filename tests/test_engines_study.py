"""All engines in one study, held against each other: the same work, one table, one plot."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import environments
import scalewise
from scalewise.record.read import read_run
from scalewise.study import plan, read

STUDY = Path(__file__).parent.parent / "studies" / "engines.toml"
ENGINES = ("horovod", "tensorflow", "jax", "deepspeed")
WAYS = tuple(read(STUDY).vary["strategy"])


def named(folder: Path) -> dict[str, str]:
    """Return what makes a user's own file name the environments that there are."""
    own = folder / "scalewise" / "engines.toml"
    own.parent.mkdir(parents=True)
    there = [engine for engine in ENGINES if environments.ready(engine)]
    own.write_text("".join(f'{each} = "{environments.python_of(each)}"\n' for each in there))
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
    return engine == "torch" or environments.ready(engine)


def trained(record):
    """Return the steps of each rank, the samples of all, and the seed that they began with."""
    steps = {len(rank.steps.index) for rank in record.ranks}
    samples = sum(int(rank.steps.samples.sum()) for rank in record.ranks)
    return steps, samples, record.spec.seed + record.spec.repeat


def checked(record):
    """Return the last accuracy, and how many images it was found on."""
    found = [line["validation"] for line in record.ranks[0].lines if "validation" in line][-1]
    return found["accuracy"], found["samples"]


def test_each_engine_has_its_curve():
    question = read(STUDY)
    assert Counter(run.framework for run in question.runs()) == {
        "torch": 2, "horovod": 2, "tensorflow": 4, "jax": 2, "deepspeed": 6,
    }  # fmt: skip
    assert {question.where(run)["strategy"] for run in question.runs()} == {*WAYS}
    assert {run.topology.world for run in read(STUDY, "four").runs()} == {1, 2, 4}


@pytest.mark.parametrize("library", ["lightning", "accelerate"])
def test_scripts_of_other_libraries_need_no_engine(library, tmp_path, monkeypatch):
    monkeypatch.chdir(STUDY.parent.parent)
    question = read(STUDY.with_name(f"{library}.toml"))
    one, two = plan(question, tmp_path)
    script = f"studies/{library}_digits.py"
    assert one.commands[0].argv[-1] == two.commands[0].argv[-1] == script
    assert "--nproc-per-node=2" in two.commands[0].argv
    assert all(run.digest for run in question.runs())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study as a user runs it, who has named the environments for all studies."""
    home = tmp_path_factory.mktemp("engines")
    folder, env = home / "runs", named(home / "own")
    scalewise_says("run", STUDY, "-o", folder, **env)
    return folder


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_all_engines_do_the_same_work(whole):
    question = read(STUDY)
    there = {run: whole / run.id for run in question.runs()}
    assert all(folder.exists() == present(question.where(run)["strategy"])
               for run, folder in there.items())  # fmt: skip
    records = [read_run(folder, run) for run, folder in there.items() if folder.exists()]
    for record in records:
        assert trained(record) == ({10 * 22}, 10 * 22 * 64, 0), record.spec.title
        accuracy, images = checked(record)
        assert images == 359 and accuracy > 0.93, record.spec.title


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_one_table_and_one_plot_hold_them_all(whole, tmp_path):
    curves = json.loads(scalewise_says("measure", whole, "--json"))["curves"]
    assert [curve["where"]["strategy"] for curve in curves] == [*filter(present, WAYS)]
    for curve in curves:
        assert [point["devices"] for point in curve["points"]] == [1, 2]
        assert all(point["throughput"]["value"] > 0 for point in curve["points"])
    scalewise_says("report", whole, "-o", tmp_path / "engines.png")
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
    question = read(STUDY, "fashion")
    question = replace(question, vary={**question.vary, "strategy": [WAYS[0], way]})
    scalewise.run(question, fashion)
    found = {WAYS[0]: [], way: []}
    for run in question.runs():
        record = read_run(fashion / run.id, run)
        assert trained(record) == ({200}, 200 * 128, run.repeat)
        accuracy, images = checked(record)
        assert images == 10_000
        found[question.where(run)["strategy"]].append(accuracy)
    theirs, mine = (sum(each) / len(each) for each in found.values())
    print(f"{way}: {mine:.4f} {found[way]}, {WAYS[0]}: {theirs:.4f} {found[WAYS[0]]}")
    assert abs(mine - theirs) < 0.015
    assert theirs > 0.85
