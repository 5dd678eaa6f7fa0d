"""Studies on a real Slurm that are interrupted: preempted, killed, cut off, too long."""

import json
import random
import shutil
import signal
import time

import psutil
import pytest

from scalewise import results
from scalewise.record.rank_tail import read_tail
from scalewise.record.read import read_run
from slurm_user import FAKE, SLEEPS, losses

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

SLOW_SBATCH = """#!/bin/bash
"{sbatch}" "$@"
exec sleep 20
"""


def interrupt(user, how, job):
    """Take a job its devices away: with a warning, or at once."""
    words = {"warned": ["scancel", "--signal=USR1", "--batch"], "requeued": ["scontrol", "requeue"]}
    user.cluster.root(*words[how], job)


def preempted(user, moments, every):
    """Interrupt one of two equal runs after so many steps of each attempt; both learn the same."""
    steps = sum(taken for _, taken in moments) + 300
    vary = f"checkpoint_every = [{every}, {2 * steps}]"
    study = user.write(run=f'topology = "1x2"\nsteps = {steps}', vary=vary)
    watching = user.started("run", "study.toml")
    for attempt, (how, taken) in enumerate(moments, start=1):
        interrupt(user, how, user.wait_for(study, taken, attempt=attempt))
        assert "failed" not in user.scalewise("status", "runs/cluster").stdout
    _, said = watching.communicate(timeout=200)
    assert watching.returncode == 0, said
    record, undisturbed = user.runs(study)
    (rank, _), last = record.ranks, len(moments) + 1
    assert record.attempt == last and undisturbed.attempt == 1
    assert losses(record) == losses(undisturbed)
    # Complete time counts everything, the rate only what was trained last.
    (earlier,) = [span for span in rank.spans if span.name == "earlier"]
    assert earlier.start == record.started
    resumed = rank.notes.resumed
    assert 0 < resumed == steps - rank.notes.steps[1]


def test_a_preempted_run_goes_on_where_it_was(user):
    preempted(user, [("warned", 100), ("requeued", 250)], every=50)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_runs_preempted_at_random_moments_go_on(user, seed):
    chance = random.Random(seed)
    steps = sorted(chance.sample(range(50, 1500), 2))
    preempted(user, [(chance.choice(["warned", "requeued"]), each) for each in steps], every=40)


def test_a_killed_rank_is_named(user):
    study = user.write(run="steps = 100000", vary='topology = ["2x1"]')
    watching = user.started("run", "study.toml")
    user.wait_for(study, 20)
    (run,) = study.runs()
    first = (user.home / run.id / "rank-00001.jsonl").read_text().splitlines()[0]
    victim = json.loads(first)
    user.cluster.root("kill", f"-{signal.SIGKILL}", str(victim["pid"]))
    _, said = watching.communicate(timeout=120)
    assert watching.returncode == 3
    assert f"rank 1 on {victim['host']}" in said and "SIGKILL" in said


def without_a_node(user, leave, come_back, launcher=""):
    """Take a node away in the middle of a run on two: the run ends, and names it."""
    study = user.write(run="steps = 100000", vary='topology = ["2x1"]', launcher=launcher)
    watching = user.started("run", "study.toml")
    user.wait_for(study, 20)
    lost = user.cluster.names[1]
    leave(lost)
    try:
        _, said = watching.communicate(timeout=120)
        assert watching.returncode == 3 and lost in said, said
    finally:
        come_back(lost)


def test_a_lost_node_is_named_and_the_others_go_on(user):
    without_a_node(user, user.cluster.kill_node, user.cluster.start_node)


@pytest.mark.soak
def test_a_killed_agent_is_said(user):
    study = user.write(run="steps = 100000", vary='topology = ["1x2"]')
    watching = user.started("run", "study.toml")
    user.wait_for(study, 20)
    (run,) = study.runs()
    for each in psutil.process_iter(["cmdline"]):
        words = each.info["cmdline"] or []
        if "torch.distributed.run" in words and str(user.home / run.id) in words:
            each.kill()
    _, said = watching.communicate(timeout=120)
    assert watching.returncode == 3 and run.id in said, said


@pytest.mark.soak
def test_a_cut_link_ends_the_run(user):
    without_a_node(user, user.cluster.cut, user.cluster.mend, launcher="patience = 15")
    until = time.monotonic() + 90
    while user.cluster.clear() and time.monotonic() < until:
        time.sleep(1)


@pytest.mark.soak
def test_a_node_that_answers_slowly_is_waited_for_and_seen(user):
    study = user.write(run="steps = 30", vary='topology = ["1x1", "2x1"]')
    slow = user.cluster.names[1]
    user.cluster.shape("1mbit", [slow])
    try:
        done = user.scalewise("run", "study.toml")
    finally:
        user.cluster.shape(None)
    assert done.returncode == 0, done.stderr
    assert [len(record.ranks) for record in user.runs(study)] == [1, 2]
    (found,) = results.explanations(user.home)
    assert found.points[1].cause == "transfer" and found.boundary.cause == "transfer"


@pytest.mark.soak
def test_a_rank_that_stands_still_is_named(user):
    study = user.write(run="steps = 100000", vary='topology = ["2x1"]', launcher="patience = 10")
    watching = user.started("run", "study.toml")
    user.wait_for(study, 20)
    (run,) = study.runs()
    victim = read_tail(user.home / run.id, 1, 1)
    user.cluster.root("kill", f"-{signal.SIGSTOP}", str(victim.notes.pid))
    _, said = watching.communicate(timeout=120)
    assert watching.returncode == 3
    assert f"rank 1 on {victim.find('host')}" in said, said


@pytest.mark.soak
def test_a_full_disk_is_said_and_a_second_run_completes_what_is_missing(user):
    study = user.write(vary='topology = ["1x2"]', run="steps = 400")
    place = user.cluster.small / "cluster"
    assert user.scalewise("plan", "study.toml", "-o", place, "--write", "jobs").returncode == 0
    filling = user.cluster.small / "filling"
    room = shutil.disk_usage(filling.parent).free
    filling.write_bytes(bytes(room - 40_000))
    done = user.scalewise("run", "study.toml", "-o", place)
    assert done.returncode == 3
    assert "No space left on device" in done.stderr and "Traceback" not in done.stderr
    filling.unlink()
    done = user.scalewise("run", "study.toml", "-o", place)
    assert done.returncode == 0, done.stderr
    (run,) = study.runs()
    assert read_run(place / run.id, run).attempt == 2
    shutil.rmtree(place)


@pytest.mark.soak
def test_torchruns_agent_starts_its_ranks_anew(user):
    run = "steps = 1500\ncheckpoint_every = 100"
    study = user.write(run=run, vary='topology = ["1x2"]', launcher="max_restarts = 1")
    watching = user.started("run", "study.toml")
    user.wait_for(study, 200)
    (run,) = study.runs()
    victim = read_tail(user.home / run.id, 1, 1).notes.pid
    user.cluster.root("kill", f"-{signal.SIGKILL}", str(victim))
    _, said = watching.communicate(timeout=120)
    assert watching.returncode == 0, said
    (record,) = user.runs(study)
    assert record.attempt == 2 and record.ranks[0].notes.resumed >= 100


def test_ctrl_c_while_sbatch_is_under_way_leaves_no_job(user):
    slow = user.folder / "bin" / "sbatch"
    slow.parent.mkdir()
    slow.write_text(SLOW_SBATCH.format(sbatch=shutil.which("sbatch")))
    slow.chmod(0o755)
    user.write(of=FAKE, vary='topology = ["1x1"]', launcher=SLEEPS)
    path = f"{slow.parent}:{user.cluster.env['PATH']}"
    watching = user.started("run", "study.toml", env={"PATH": path})
    user.until(user.queue)
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=60)
    assert watching.returncode == 130, said
    user.until(lambda: not user.queue())


@pytest.mark.soak
def test_ctrl_c_cancels_the_jobs_and_a_second_run_takes_up_the_rest(user):
    study = user.write(run="steps = 3000", vary='topology = ["1x1", "1x2"]')
    watching = user.started("run", "study.toml")
    user.wait_for(study, 20)
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=60)
    assert watching.returncode == 130, said
    assert not user.cluster.root("squeue", "--noheader", "--states=RUNNING,PENDING").stdout
    assert user.scalewise("run", "study.toml").returncode == 0
    assert len(user.runs(study)) == 2


@pytest.mark.soak
def test_a_time_limit_is_named(user):
    study = user.write(run="steps = 100000", vary='topology = ["1x2"]')
    watching = user.started("run", "study.toml")
    job = user.wait_for(study, 10)
    user.cluster.root("scontrol", "update", f"JobId={job}", "TimeLimit=0:01")
    _, said = watching.communicate(timeout=150)
    assert watching.returncode == 3
    assert "time limit" in said, said


@pytest.mark.soak
def test_a_job_that_somebody_cancels_is_told_so(user):
    study = user.write(run="steps = 100000", vary='topology = ["1x2"]')
    watching = user.started("run", "study.toml")
    user.cluster.root("scancel", user.wait_for(study, 10))
    _, said = watching.communicate(timeout=120)
    assert watching.returncode == 3 and "cancelled" in said, said


@pytest.mark.soak
def test_a_slower_link_is_found_again_in_the_transfer(user):
    seen = {}
    try:
        for rate in (5.0, 1.0, 0.2):
            user.cluster.shape(f"{rate}gbit")
            vary = 'topology = ["2x1"]\n"options.hidden" = [[1024, 1024]]'
            user.write(run="steps = 80", vary=vary)
            done = user.scalewise("run", "study.toml", "-o", f"at-{rate}")
            assert done.returncode == 0, done.stderr
            (found,) = results.explanations(user.folder / f"at-{rate}")
            seen[rate] = found.points[0]
    finally:
        user.cluster.shape(None)
    for slow, fast in ((1.0, 5.0), (0.2, 1.0)):
        step = seen[slow].step - seen[fast].step
        transfer = seen[slow].seconds["transfer"] - seen[fast].seconds["transfer"]
        assert transfer == pytest.approx(step, rel=0.15)
