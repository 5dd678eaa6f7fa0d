"""On a real Slurm no run is submitted twice, and no job that was submitted is lost."""

import json
import pwd
import random
import re
import shutil
import time
from functools import partial

import pytest

from slurm_user import FAKE, SLEEPS

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

CHECKED_LATE = """
import pathlib, sys, time
from scalewise.cli import main
from scalewise.study import run_study
check = run_study.check
def check_late(runs, engines):
    deadline = time.monotonic() + 60
    while len(list(pathlib.Path("runs/cluster").glob("*/outcome.json"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return check(runs, engines)
run_study.check = check_late
sys.argv = ["scalewise", "run", "study.toml"]
main()
"""
"""A run whose check lasts until the jobs that an earlier call submitted have ended."""
SLOW_SBATCH = """#!/bin/bash
touch asked
until [ -e go ]; do sleep 0.1; done
exec "{sbatch}" "$@"
"""
TWO = 'topology = ["1x1", "1x2"]'


def jobs(user):
    """Return all jobs that were ever submitted from the user's folder."""
    asked = ("squeue", "--noheader", "--states=all", "--format=%i|%Z")
    lines = user.cluster.root(*asked).stdout.split()
    return [line.partition("|")[0] for line in lines if line.endswith(f"|{user.folder}")]


def attempts(user, run):
    """Return the attempts at a run whose rank 0 began, in order, doubles included."""
    lines = (user.home / run.id / "rank-00000.jsonl").read_text().splitlines()
    return [line["attempt"] for line in map(json.loads, lines) if "schema" in line]


def test_jobs_that_end_during_the_check_are_not_submitted_again(user):
    study = user.write(of=FAKE, vary=TWO, launcher='lines = ["sleep 2"]')
    assert user.scalewise("run", "study.toml", "--detach").returncode == 0
    user.ask("-c", CHECKED_LATE)
    assert len(jobs(user)) == 2
    assert [attempts(user, run) for run in study.runs()] == [[1], [1]]


def slow_sbatch(user):
    """Put an sbatch first on the PATH that takes seconds to submit; return the PATH."""
    slow = user.folder / "bin" / "sbatch"
    slow.parent.mkdir()
    slow.write_text(SLOW_SBATCH.format(sbatch=shutil.which("sbatch")))
    slow.chmod(0o755)
    return f"{slow.parent}:{user.cluster.env['PATH']}"


def test_a_lab_killed_while_sbatch_submits_leaves_one_job(user):
    study = user.write(of=FAKE, vary='topology = ["1x1"]', launcher='lines = ["sleep 2"]')
    lab = user.started("run", "study.toml", env={"PATH": slow_sbatch(user)})
    user.until((user.folder / "asked").exists)
    lab.kill()
    lab.communicate(timeout=30)
    assert not jobs(user)
    assert "submission is not confirmed" in user.scalewise("status", "runs/cluster").stdout
    following = user.started("run", "study.toml")
    time.sleep(3)
    (user.folder / "go").touch()
    _, said = following.communicate(timeout=60)
    assert following.returncode == 0, said
    assert len(jobs(user)) == 1
    assert attempts(user, study.runs()[0]) == [1]


def test_a_job_of_another_user_is_followed_and_not_ours_to_end(user):
    user.write(of=FAKE, vary='topology = ["1x1"]', launcher=SLEEPS)
    assert user.scalewise("run", "study.toml", "--detach").returncode == 0
    user.cluster.root("chmod", "-R", "a+rwX", user.folder)
    user.until(lambda: "running" in user.scalewise("status", "runs/cluster").stdout)
    status = as_nobody(user, "status", "runs/cluster")
    assert re.search(r": running, .*\(job \d+\)", status.stdout), status.stdout + status.stderr
    again = as_nobody(user, "run", "study.toml", "--detach")
    assert again.returncode == 0, again.stderr
    assert "0 submitted, 1 under way already" in again.stderr
    refused = as_nobody(user, "cancel", "runs/cluster")
    assert refused.returncode == 1 and "was not cancelled" in refused.stderr, refused.stderr
    assert len(jobs(user)) == 1 and len(user.queue()) == 1


def as_nobody(user, *words):
    """Call scalewise as another ordinary user, on the login node."""
    nobody = pwd.getpwnam("nobody")
    env = {"HOME": "/tmp", "USER": nobody.pw_name, "LOGNAME": nobody.pw_name}
    return user.cluster.run("scalewise", *words, cwd=user.folder, env=env, uid=nobody.pw_uid)


def test_a_script_submitted_twice_by_hand_trains_once(user):
    study = user.write(of=FAKE, vary='topology = ["1x1"]')
    user.scalewise("plan", "study.toml", "--write", "jobs")
    (run,) = study.runs()
    for _ in range(2):
        done = user.cluster.run("sbatch", "--wait", f"jobs/{run.id}.sh", cwd=user.folder)
        assert done.returncode == 0, done.stderr
    assert attempts(user, run) == [1]
    assert "this run is finished already" in (user.home / run.id / "log.txt").read_text()


def at_least(user, count):
    """Say whether so many jobs were submitted."""
    return len(jobs(user)) >= count


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(20))
def test_runs_aimed_at_the_end_of_jobs_submit_nothing_twice(user, part):
    """Ten tries: a second call about when the jobs of a detached one end, or a killed one's."""
    random.seed(part)
    for number in range(10):
        killed = number % 3 == 2
        vary = f'topology = ["1x1", "1x2"]\n"env.TRY" = ["{number}"]'
        study = user.write(of=FAKE, vary=vary, launcher='lines = ["sleep 1"]')
        shutil.rmtree(user.home, ignore_errors=True)
        before = len(jobs(user))
        if killed:
            lab = user.started("run", "study.toml")
            submitted = before + random.choice([1, 2])
            user.until(partial(at_least, user, submitted))
            lab.kill()
            lab.communicate(timeout=30)
        else:
            assert user.scalewise("run", "study.toml", "--detach").returncode == 0
        time.sleep(random.uniform(0.0, 3.0))
        done = user.scalewise("run", "study.toml")
        assert done.returncode == 0, done.stderr
        assert len(jobs(user)) == before + 2, (number, killed)
        assert [attempts(user, run) for run in study.runs()] == [[1], [1]]
