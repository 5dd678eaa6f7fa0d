"""A command that runs a study, or shows one, exits with 3 if a run failed."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import install_framework, run_command, study_toml
from fake_slurm import fake_slurm, wait_for_jobs
from scalewise.cli import study_commands

FAILS_ON_TWO = """
if spec.topology.world == 2 and not os.path.exists(os.environ["REPAIRED"]):
    raise ValueError("the weights are missing")
"""


@pytest.fixture
def env(tmp_path):
    """Write a study whose run on two devices fails until the file ``repaired`` exists."""
    (tmp_path / "s.toml").write_text(study_toml(["1x1", "1x2"], name="odd", framework="odd"))
    framework = install_framework(tmp_path / "site", FAILS_ON_TWO)
    return {**framework, "REPAIRED": str(tmp_path / "repaired")}


def test_run_and_status_exit_with_3_until_the_run_has_succeeded(env, tmp_path):
    def exit_codes():
        commands = [("run", "s.toml"), ("status", "runs/odd"), ("status", "runs/odd", "--json")]
        return [run_command(*words, cwd=tmp_path, env=env).returncode for words in commands]

    assert exit_codes() == [3, 3, 3]
    assert exit_codes() == [3, 3, 3]  # The failed run is repeated, and fails again.
    (tmp_path / "repaired").touch()
    assert exit_codes() == [0, 0, 0]


def test_demo_exits_with_3(env, tmp_path):
    def replace_starter():
        study_commands._starter_file = lambda: Path("s.toml")

    ended = run_command("demo", cwd=tmp_path, env=env, before=replace_starter)
    assert ended.returncode == 3
    assert "the weights are missing" in ended.stderr and "RunFailed" not in ended.stderr


def test_python_raises_run_failed(env, tmp_path):
    argv = [sys.executable, "-c", "import scalewise; scalewise.run('s.toml')"]
    ended = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "the weights are missing" in ended.stderr
    assert "scalewise.errors.RunFailed: " in ended.stderr


def test_status_exits_with_3_after_a_detached_run_has_failed(env, tmp_path):
    cluster = fake_slurm(tmp_path, {**env, "XDG_CONFIG_HOME": str(tmp_path)})
    words = ("run", "s.toml", "--launcher", "slurm", "--detach")
    detached = run_command(*words, cwd=tmp_path, env=cluster)
    assert detached.returncode == 0, detached.stderr
    deadline, shown = time.monotonic() + 60, ""
    while not ("finished" in shown and "failed" in shown):
        assert time.monotonic() < deadline, shown
        status = run_command("status", "runs/odd", cwd=tmp_path, env=cluster)
        shown = status.stdout
    assert status.returncode == 3 and "the weights are missing" in shown
    wait_for_jobs(tmp_path / "runs" / "odd")
