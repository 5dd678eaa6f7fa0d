"""Workers import scalewise from where it is installed, never from the current folder."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from commands import COMMAND
from scalewise.launch import processes, worker_zip

NAMES = ("scalewise/__init__.py", "scalewise/frameworks/__init__.py", "scalewise/__main__.py",
         "scalewise/frameworks/__main__.py", "scalewise/probe/__init__.py", "torch/__init__.py",
         "numpy/__init__.py", "random.py", "sitecustomize.py", "typing_extensions.py")  # fmt: skip
STUDY = """name = "trap"
[run]
workload = "mymodel:small"
data = "synthetic:64x8x8"
batch = 8
steps = 4
checkpoint_every = 2
[vary]
topology = ["1x1"]
"""
MODEL = """
import math, torch
def small(shape, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(shape), classes))
"""


@pytest.fixture
def trap(tmp_path):
    """Fill a folder with modules that leave a mark when somebody imports them."""
    mark = tmp_path / "mark"
    folder = tmp_path / "folder"
    for name in NAMES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"open({str(mark)!r}, 'a').write(__file__ + chr(10))\n")
    yield folder
    assert not mark.exists(), mark.read_text()


def call(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        [COMMAND, *argv], cwd=folder, env=env, capture_output=True, text=True, timeout=150
    )


@pytest.mark.torch
def test_no_verb_imports_from_the_current_folder_but_what_a_study_names(trap):
    (trap / "study.toml").write_text(STUDY)
    (trap / "mymodel.py").write_text(MODEL)
    for argv in (["plan", "study.toml"], ["run", "study.toml"]):
        done = call(trap, *argv)
        assert done.returncode == 0, done.stderr
    (home,) = (path.parent for path in trap.glob("runs/trap/*/outcome.json"))
    for argv in (
        ["export", str(home), "-o", "weights.pt"],
        ["data", "make", "digits", "--images", "64", "--classes", "2", "--edge", "8"],
    ):
        done = call(trap, *argv)
        assert done.returncode == 0, done.stderr


@pytest.mark.torch
def test_the_doctor_imports_nothing_from_there_and_two_ranks_really_exchange_data(trap):
    done = call(trap, "doctor", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["findings"]
    assert {"python", "cores", "memory", "disk", "fake", "torch"} <= set(found)
    told = {key: found["fake"][key] for key in ("good", "level", "says", "hint")}
    assert told == {"good": True, "level": "ok", "says": "device simulated", "hint": ""}
    exchange = found["backend"]
    assert exchange["level"] == "ok" and " works between two ranks on " in exchange["says"]
    small, large = exchange["evidence"]["rows"]
    assert (small["bytes"], large["bytes"]) == (4, 16 * 2**20)
    assert small["seconds"]["value"] < large["seconds"]["value"] < 20


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_a_worker_in_another_python_does_not_either(version, trap, tmp_path, monkeypatch):
    python = _python(version)
    monkeypatch.chdir(trap)
    path = worker_zip.pack(tmp_path)
    for name in ("torch", "numpy"):  # That Python has none of its own.
        (trap / name / "__init__.py").unlink()
    answer = processes.ask_worker("about", "fake", python=python, paths=[str(path)])
    assert "problem" not in answer


def _python(version: str) -> str:
    """Return the path of a Python on this machine; where pyenv keeps several, it chooses."""
    asked = [f"python{version}", "-c", "import sys; print(sys.executable)"]
    env = {**os.environ, "PYENV_VERSION": version}
    try:
        done = subprocess.run(asked, env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"there is no Python {version} on this machine")
