"""The state of runs while others train them: queued, running, ended; once or until all ended."""

import json
import signal
import subprocess
import sys
import time

import pytest

from builders import a_study
from commands import COMMAND, install_framework, run_command, study_toml
from fake_slurm import COMMANDS, fake_slurm
from recording_watcher import RecordingWatcher
from scalewise import study
from scalewise.study import locks

HELD_SBATCH = COMMANDS["sbatch"].replace("bash ", "bash wait.sh ")
HELD_SQUEUE = """
    for job in jobs/*; do
        kill -0 $(cat $job) 2>/dev/null && state=RUNNING || state=COMPLETED
        [ -e go ] || state=PENDING
        echo "${job#jobs/}|$state|Resources|N/A|here"
    done"""
STEPS = """
import os, time
from scalewise import probe
while not os.path.exists("stop"):
    time.sleep(0.05)
    probe.step(samples=8)
"""


@pytest.fixture
def start(tmp_path):
    """Return a function that starts ``scalewise`` in the test's folder; end all at the end."""
    started = []

    def start(*words, env=None):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([COMMAND, *words], cwd=tmp_path, env=env, **pipes))
        return started[-1]

    yield start
    (tmp_path / "stop").touch()
    (tmp_path / "go").touch()
    for process in started:
        process.terminate()
        process.communicate(timeout=60)


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return result


def status_json(cwd, folder, env=None):
    return json.loads(run_command("status", folder, "--json", cwd=cwd, env=env).stdout)


def test_a_program_of_unknown_length_shows_its_steps_and_is_followed(start, tmp_path):
    (tmp_path / "train.py").write_text(STEPS)
    words = ("--on", "1", "-o", "out", "--", sys.executable, "train.py", "{devices}")
    lab = start("run", *words)
    until(lambda: list(tmp_path.glob("out/*/rank-*.jsonl")))
    (first,) = status_json(tmp_path, "out")["runs"]
    assert (first["phase"], first["total"], first["unit"]) == ("running", None, "steps")
    assert first["elapsed_seconds"] > 0 and "%" not in first["cause"]
    (later,) = until(
        lambda: [run for run in status_json(tmp_path, "out")["runs"] if run["done"] > first["done"]]
    )
    assert 0 < later["samples_per_second"] < 2 * 8 / 0.05  # It sleeps in each step.
    follower = start("status", "out", "--follow")
    line = follower.stdout.readline()
    assert "running, " in line and " steps, " in line and " samples/s, 0:00:" in line
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=30)
    assert (follower.returncode, err) == (130, "no longer followed; the runs continue\n")
    assert lab.poll() is None
    follower = start("status", "out", "--follow")
    assert "running, " in follower.stdout.readline()
    (tmp_path / "stop").touch()
    out, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0 and out.splitlines()[-1].endswith(": finished")
    assert "failed" not in out  # Though for a moment the run has ended without an outcome.
    assert lab.wait(timeout=60) == 0
    told = status_json(tmp_path, "out")
    (ended,) = told["runs"]
    assert (told["done"], told["total"]) == (1, 1)
    assert ended["done"] == ended["total"] > later["done"]
    assert ended["samples_per_second"] is None and ended["elapsed_seconds"] > 0


def test_a_run_in_the_queue_is_queued_until_it_starts(start, tmp_path):
    (tmp_path / "s.toml").write_text(study_toml(["1x1"], name="held"))
    env = {**install_framework(tmp_path / "site", "pass"), "XDG_CONFIG_HOME": str(tmp_path)}
    env = fake_slurm(tmp_path, env, sbatch=HELD_SBATCH, squeue=HELD_SQUEUE)
    (tmp_path / "wait.sh").write_text('while [ ! -e go ]; do sleep 0.1; done\nexec bash "$@"\n')
    lab = start("run", "s.toml", "--launcher", "slurm", env=env)
    assert "1 to run" in lab.stderr.readline()
    told = lab.stderr.readline() + lab.stderr.readline()
    assert "  queued for 0:00:0" in told and ", Resources (job 1)\n" in told
    (run,) = status_json(tmp_path, "runs/held", env)["runs"]
    assert (run["phase"], run["cause"]) == ("queued", "Resources (job 1)")
    assert (run["done"], run["total"], run["samples_per_second"]) == (0, 20, None)
    assert 0 < run["elapsed_seconds"] < 60
    follower = start("status", "runs/held", "--follow", "--json", env=env)
    time.sleep(1.0)
    assert follower.poll() is None
    (tmp_path / "go").touch()
    (run,) = json.loads(follower.communicate(timeout=120)[0])["runs"]
    assert (run["phase"], run["done"], run["total"]) == ("finished", 20, 20)


def test_following_waits_for_the_runs_that_are_still_to_start(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["scalewise.study.status"], "FOLLOW_SECONDS", 0.01)
    question = a_study(topologies=["1x1", "1x2"])
    study.run(question, tmp_path, RecordingWatcher())
    with locks.study_lock(tmp_path):
        looks = study.follow(tmp_path)
        for _ in range(3):
            assert [state.phase for state in next(looks)] == ["finished", "finished"]
    assert len(list(looks)) == 1


def test_following_an_ended_study_shows_it_once(tmp_path):
    study.run(a_study(topologies=["1x1"]), tmp_path, RecordingWatcher())
    done = run_command("status", tmp_path, "--follow", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.count(": finished\n") == 1


def test_looking_at_a_lock_keeps_no_run_out(tmp_path):
    assert not locks.study_is_locked(tmp_path)
    with locks.study_lock(tmp_path):
        assert locks.study_is_locked(tmp_path)
    assert not locks.study_is_locked(tmp_path)


def test_a_study_reports_its_progress_to_the_watcher(tmp_path, monkeypatch):
    class Stopping(RecordingWatcher):
        """Ends the program after some reports."""

        def progressed(self, run, status):
            super().progressed(run, status)
            if status.progress.done > 20:
                (tmp_path / "stop").touch()

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(STEPS)
    question = study.from_program([sys.executable, "train.py", "{devices}"], "1")
    watcher, began = Stopping(), time.monotonic()
    study.run(question, tmp_path / "out", watcher)
    assert 2 <= len(watcher.states) <= 2 * (time.monotonic() - began) + 1
    steps = [state.progress.done for state in watcher.states]
    assert steps == sorted(steps) and steps[-1] > steps[0] == 0


def test_a_run_that_another_command_cancels_was_ended_by_the_user(start, tmp_path):
    (tmp_path / "train.py").write_text(STEPS)
    words = ("--on", "1", "-o", "out", "--", sys.executable, "train.py", "{devices}")
    lab = start("run", *words)
    until(lambda: list(tmp_path.glob("out/*/rank-*.jsonl")))
    cancelled = run_command("cancel", "out", cwd=tmp_path)
    assert cancelled.returncode == 0 and cancelled.stdout.endswith(": cancelled\n")
    _, err = lab.communicate(timeout=60)
    assert lab.returncode == 3 and " failed: ended by the user\n" in err
    (run,) = status_json(tmp_path, "out")["runs"]
    assert (run["phase"], run["cause"]) == ("failed", "ended by the user")
