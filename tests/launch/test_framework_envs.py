"""Which Python runs which engine, and what happens where one is not there."""

import sys

import pytest
from typer.testing import CliRunner

from builders import a_run
from recording_watcher import RecordingWatcher
from scalewise import results, study
from scalewise.cli import app
from scalewise.errors import SpecError
from scalewise.frameworks import refuse_start
from scalewise.launch.interpreters import Interpreters
from scalewise.launch.local import LocalLauncher
from scalewise.spec import StudySpec
from scalewise.study.budget import load_bill


def mixed(python):
    """Return a study of two engines, PyTorch's Python given."""
    return StudySpec.from_dict(
        {
            "name": "mixed",
            "run": {"batch": 8, "steps": 5, "workload": "mnist-cnn"},
            "vary": {"framework": ["fake", "torch"], "topology": ["1x1"]},
            "engines": {"torch": python},
        }
    )


def finished(question, folder):
    """Return the frameworks of the runs that came to their end."""
    return [run.framework for run in question.runs() if (folder / run.id / "outcome.json").exists()]


def test_an_engine_that_is_not_there_is_left_out_and_the_rest_goes_on(tmp_path):
    told = RecordingWatcher()
    question = mixed("/nowhere/python")
    study.run(question, tmp_path, told)
    assert any("1 run is left out" in line and "/nowhere/python" in line for line in told.notes)
    assert finished(question, tmp_path) == ["fake"]


def test_a_bill_leaves_out_what_a_plan_leaves_out(tmp_path):
    question = mixed("/nowhere/python")
    absent = study.check(question.runs(), question.engines)
    (item,) = load_bill(question, tmp_path, absent).items
    assert item.run.framework == "fake"


OLD = """#!/bin/sh
PYTHONPATH={there}:$PYTHONPATH exec {python} "$@"
"""
SILENT = "#!/bin/sh\nexit 3\n"
ANOTHER = "#!/bin/sh\necho hello\n"
NOTHING = "#!/bin/sh\n"
UNREADABLE = "\0\0"
NO_PYTHON = "/python is not a working Python: give another one: [engines] torch"
BROKEN = """#!/bin/sh
echo "libpython3.9.so: cannot open shared object file" >&2
exit 127
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (OLD, "training needs PyTorch 2.4, and 2.3.1 is installed: pip install --upgrade torch"),
        (BROKEN, "libpython3.9.so: cannot open shared object file: give another one: [engines]"),
        (SILENT, "python printed no error (code 3): give another one: [engines]"),
        *[(text, NO_PYTHON) for text in (ANOTHER, NOTHING, UNREADABLE)],
    ],
)
def test_an_engine_that_is_too_old_or_broken_is_left_out_too(script, said, tmp_path):
    about = tmp_path / "old" / "torch-2.3.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: torch\nVersion: 2.3.1\n")
    python = tmp_path / "python"
    python.write_text(script.format(there=about.parent, python=sys.executable))
    python.chmod(0o755)
    told = RecordingWatcher()
    question = mixed(str(python))
    study.run(question, tmp_path / "runs", told)
    (line,) = [line for line in told.notes if "left out" in line]
    assert line.startswith("1 run is left out: ") and said in line
    assert finished(question, tmp_path / "runs") == ["fake"]


def test_a_plan_leaves_out_what_a_run_would_and_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixed.toml").write_text(
        'name = "mixed"\nrun = {batch = 8, steps = 5, workload = "mnist-cnn"}\n'
        'vary = {framework = ["fake", "torch"], topology = ["1x1", "1x2"]}\n'
        'engines = {torch = "/nowhere/python"}\n'
    )
    told = CliRunner().invoke(app, ["plan", "mixed.toml"]).output
    assert "2 runs are left out: framework 'torch' has no Python /nowhere/python: pip" in told
    assert "2 runs, weak scaling" in told
    assert told.count("to run") == 2 and "torch.distributed" not in told


def test_engines_and_strategies_share_an_axis_and_those_not_there_are_told_apart(tmp_path):
    told = RecordingWatcher()
    ways = ["fake.ddp", "jax.sharded", "tensorflow.mirrored", "tensorflow.multiworker"]
    question = StudySpec.from_dict(
        {
            "name": "engines",
            "run": {"batch": 8, "steps": 5, "workload": "mnist-cnn"},
            "vary": {"topology": ["1x1", "1x2"], "strategy": ways},
            "engines": {"jax": "/nowhere/jax", "tensorflow": "/nowhere/tensorflow"},
        }
    )
    assert [question.where(run)["strategy"] for run in question.runs()] == [*ways, *ways]
    study.run(question, tmp_path, told)
    for engine, count in (("jax", 2), ("tensorflow", 4)):
        (line,) = [line for line in told.notes if f"/nowhere/{engine}" in line]
        assert line.startswith(f"{count} runs are left out: framework '{engine}' has no Python")
        assert f"pip install 'scalewise[{engine}]'" in line
    (curve,) = results.curves([tmp_path])
    assert curve.where == {"strategy": "fake.ddp"}
    assert [point.devices for point in curve.points] == [1, 2]


def test_a_study_whose_only_engine_is_not_there_is_refused(tmp_path):
    question = StudySpec.from_dict(
        {
            "name": "alone",
            "run": {"batch": 8, "steps": 5, "workload": "mlp"},
            "vary": {"topology": ["1x1", "1x2"]},
            "engines": {"torch": "/nowhere/python"},
        }
    )
    with pytest.raises(SpecError, match="framework 'torch' has no Python /nowhere/python"):
        study.run(question, tmp_path, RecordingWatcher())


@pytest.mark.parametrize(
    ("framework", "start", "fits"),
    [
        ("deepspeed", "plain", "'torchrun', 'srun' or 'mpirun'"),
        ("tensorflow", "torchrun", "'node'"),
    ],
)
def test_a_start_that_does_not_fit_is_told_those_that_do(framework, start, fits):
    run = a_run(framework=framework, workload="mnist-cnn", start=start)
    with pytest.raises(SpecError, match=f"it takes start = {fits}, and this run says '{start}'"):
        refuse_start("it", run)
    refuse_start("it", a_run(framework=framework, workload="mnist-cnn"))


def test_another_python_gets_the_worker_as_a_parcel(tmp_path):
    run = a_run(framework="torch", workload="mlp", topology="1x2")
    here = LocalLauncher().plan([run], tmp_path).commands[0]
    assert here.argv[0] == sys.executable and "PYTHONPATH" not in here.env
    engines = Interpreters({"torch": "/envs/torch/bin/python"})
    there = LocalLauncher({}, engines).plan([run], tmp_path).commands[0]
    assert there.argv[0] == "/envs/torch/bin/python"
    assert there.env["PYTHONPATH"].startswith(str(tmp_path / "worker.zip"))
    assert there.env["SCALEWISE_UNWATCHED"] == "1"


def test_a_users_own_file_names_pythons_for_all_studies(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scalewise").mkdir()
    (tmp_path / "scalewise" / "engines.toml").write_text('jax = "envs/jax/bin/python"\n')
    found = Interpreters.load({"tensorflow": "python3.11"})
    assert found.python("jax") == str(tmp_path / "envs/jax/bin/python")
    assert found.python("tensorflow") == "python3.11"
    assert found.python("torch") == sys.executable


@pytest.mark.parametrize(
    ("framework", "strategy", "topology", "ranks"),
    [("jax", None, "1x4", 1), ("jax", None, "2x2", 2), ("tensorflow", "multiworker", "1x3", 3)],
)
def test_one_process_may_have_all_devices_of_a_node(framework, strategy, topology, ranks, tmp_path):
    said = {"strategy": strategy} if strategy else {}
    run = a_run(framework=framework, workload="mnist-cnn", topology=topology, **said)
    assert run.ranks == ranks
    commands = LocalLauncher().plan([run], tmp_path).commands
    assert [command.env["RANK"] for command in commands] == [str(n) for n in range(ranks)]
    assert {command.env["WORLD_SIZE"] for command in commands} == {str(ranks)}
