"""Studies on a real Slurm: submitted by an ordinary user, watched, preempted, broken."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest

from cluster import Cluster, open_folder
from scalewise import collect
from scalewise.launch.slurm import SlurmLauncher
from scalewise.record.close import last_word
from scalewise.record.node import read_nodes
from scalewise.record.read import read_run
from scalewise.spec import RunSpec, StudySpec

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

REPO = Path(__file__).parent.parent
STUDY = """\
name = "cluster"
[run]
batch = 16
{of}
{run}
[vary]
{vary}
[launcher]
name = "slurm"
time = "00:10:00"
{launcher}
"""
TRAINED = """workload = "mlp"
options = {hidden = [32]}
data = "synthetic:512x8x8"
"""
FAKE = 'framework = "fake"'


class Desk:
    """A folder of the cluster's user, with a study in it."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        self.home = folder / "runs" / "cluster"

    def write(self, run="steps = 20", vary='topology = ["2x2"]', launcher="", of=TRAINED):
        text = STUDY.format(of=of, run=run, vary=vary, launcher=launcher)
        (self.folder / "study.toml").write_text(text)
        return StudySpec.from_dict(json.loads(self.ask("-c", TO_JSON)))

    def ask(self, *words):
        done = self.cluster.run("python", *words, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def scalewise(self, *words, timeout=240.0):
        return self.cluster.run("scalewise", *words, cwd=self.folder, timeout=timeout)

    def started(self, *words, **how):
        """Start a command and go on."""
        pipes = {"stdout": PIPE, "stderr": PIPE, "text": True}
        return self.cluster.start("scalewise", *words, cwd=self.folder, **pipes, **how)

    def queue(self):
        """Return the jobs that are waiting or running."""
        asked = ("squeue", "--noheader", "--states=PENDING,RUNNING", "--format=%i")
        return self.cluster.root(*asked).stdout.split()

    def until(self, ready, seconds=30.0):
        """Wait until it is so."""
        until = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < until
            time.sleep(0.2)

    def measured(self):
        done = self.scalewise("measure", "runs/cluster")
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def runs(self, study):
        return [read_run(self.home / run.id, run) for run in study.runs()]

    def wait_for(self, study, steps, *, attempt=1, seconds=90.0):
        """Wait until the first run has taken so many steps in an attempt; return its job."""
        (run, *_) = study.runs()
        home = self.home / run.id
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            taken = last_word(home, 0, attempt).find("steps")
            if taken and taken[1] >= steps:
                return str(json.loads((home / "job.json").read_text())["job"])
            time.sleep(0.2)
        raise AssertionError(f"no {steps} steps after {seconds} s")


TO_JSON = """
import json, pathlib, tomllib
print(json.dumps(tomllib.loads(pathlib.Path("study.toml").read_text())))
"""


@pytest.fixture
def user(cluster, desk):
    return Desk(cluster, desk)


def losses(record):
    return [line["losses"] for line in record.ranks[0].lines if "losses" in line]


def test_one_study_on_one_two_and_three_nodes(user):
    study = user.write(vary='topology = ["1x2", "2x2", "3x2"]')
    done = user.scalewise("run", "study.toml")
    assert done.returncode == 0, done.stderr
    assert "up to 2.00 device-hours" in done.stderr
    (curve,) = collect.curves([user.home])
    assert [point.devices for point in curve.points] == [2, 4, 6]
    hosts = [{rank.host for rank in record.ranks} for record in user.runs(study)]
    assert [len(each) for each in hosts] == [1, 2, 3]
    assert set().union(*hosts) == set(user.cluster.names)
    assert "up to 2 devices on one node, from 4 on several" in user.measured()
    clocks = [node.within for node in read_nodes(user.home / study.runs()[1].id, 1)]
    assert clocks[0] is None
    assert clocks[1] < 0.05
    assert "leaving the node" in user.scalewise("explain", "runs/cluster").stdout
    told = user.scalewise("status", "runs/cluster").stdout
    assert told.count("finished") == 3


def test_all_starters_give_equal_losses_and_are_told_apart(user):
    study = user.write(
        vary='start = ["torchrun", "srun", "mpirun"]', run='topology = "2x2"\nsteps = 20'
    )
    done = user.scalewise("run", "study.toml")
    assert done.returncode == 0, done.stderr
    records = user.runs(study)
    assert [record.ranks[0].find("started") for record in records] == [
        "torchrun", "srun", "mpirun (Open MPI)",
    ]  # fmt: skip
    first, *others = map(losses, records)
    assert first and all(each == first for each in others)
    threads = {record.environment["variables"]["OMP_NUM_THREADS"] for record in records}
    assert threads == {"1"}


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
    resumed = rank.find("resumed")
    assert 0 < resumed == steps - rank.find("steps")[1]


def test_a_preempted_run_goes_on_where_it_was(user):
    preempted(user, [("warned", 100), ("requeued", 250)], every=50)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_runs_preempted_at_random_moments_go_on(user, seed):
    chance = random.Random(seed)
    steps = sorted(chance.sample(range(50, 1500), 2))
    preempted(user, [(chance.choice(["warned", "requeued"]), each) for each in steps], every=40)


SIZES = 'topology = ["1x1", "1x2", "3x2"]'


@pytest.mark.parametrize(("jobs", "count"), [("each", 6), ("array", 3), ("one", 1)])
def test_runs_share_a_job_as_the_study_says(user, jobs, count):
    launcher = f'jobs = "{jobs}"' + ("\nthrottle = 2" if jobs == "each" else "")
    study = user.write(of=FAKE, vary=f"{SIZES}\nbatch = [16, 32]", launcher=launcher)
    done = user.scalewise("run", "study.toml")
    assert done.returncode == 0, done.stderr
    assert len(user.runs(study)) == 6
    named = [json.loads((user.home / run.id / "job.json").read_text()) for run in study.runs()]
    numbers = {str(each["job"]).partition("_")[0] for each in named}
    assert len(numbers) == count
    assert ("sat idle" in user.measured()) == (jobs == "one")


def test_inside_an_allocation_all_runs_go_there(user):
    study = user.write(vary='topology = ["1x1", "2x2"]')
    asked = ["salloc", "-N2", "-n2", "-c2", "scalewise", "run", "study.toml"]
    done = user.cluster.run(*asked, cwd=user.folder, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "in the allocation of job" in done.stderr
    hosts = [{rank.host for rank in record.ranks} for record in user.runs(study)]
    assert [len(each) for each in hosts] == [1, 2]
    assert not user.cluster.root("squeue", "--noheader").stdout


def test_jobs_that_the_queue_has_forgotten_are_found_in_the_accounting(cluster):
    with open_folder() as folder, Cluster(folder, nodes=1, accounting=True, age=2) as other:
        other.env["PATH"] = cluster.env["PATH"]
        user = Desk(other, other.place("desk"))
        user.write(of=FAKE, vary='topology = ["1x1"]')
        done = user.scalewise("run", "study.toml", "--detach")
        assert done.returncode == 0, done.stderr
        until = time.monotonic() + 60
        while other.root("squeue", "--noheader", "--states=all").stdout:
            assert time.monotonic() < until
            time.sleep(0.5)
        assert "finished" in user.scalewise("status", "runs/cluster").stdout
        user.write(
            of=FAKE, vary='topology = ["1x1", "1x2"]', launcher='lines = ["sleep 3; exit 1"]'
        )
        done = user.scalewise("run", "study.toml")
        assert done.returncode == 3 and "no rank started" in done.stderr, done.stderr


def test_what_the_cluster_refuses_is_said(user):
    user.write(vary='topology = ["1x9", "9x1"]', launcher='partition = "moon"')
    done = user.scalewise("run", "study.toml")
    assert done.returncode == 3
    assert done.stderr.count("sbatch refused the job: invalid partition specified: moon") == 2
    assert "Traceback" not in done.stderr


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


def test_a_lost_node_is_named_and_the_others_go_on(user):
    study = user.write(run="steps = 100000", vary='topology = ["2x1"]')
    watching = user.started("run", "study.toml")
    user.wait_for(study, 20)
    lost = user.cluster.names[1]
    user.cluster.kill_node(lost)
    try:
        _, said = watching.communicate(timeout=120)
        assert watching.returncode == 3 and lost in said, said
    finally:
        user.cluster.start_node(lost)


def test_detached_jobs_finish_by_themselves_and_can_be_cancelled(user):
    study = user.write(of=FAKE, vary='topology = ["1x1", "1x2"]')
    done = user.scalewise("run", "study.toml", "--detach")
    assert done.returncode == 0, done.stderr
    until = time.monotonic() + 120
    while user.scalewise("status", "runs/cluster").stdout.count("finished") < 2:
        assert time.monotonic() < until
        time.sleep(2)
    assert len(user.runs(study)) == 2

    study = user.write(run="steps = 100000", vary='topology = ["1x2"]')
    user.scalewise("run", "study.toml", "--detach")
    user.wait_for(study, 10)
    assert "cancelled" in user.scalewise("cancel", "runs/cluster").stdout
    assert "ended by the user" in user.scalewise("status", "runs/cluster").stdout


SLEEPS = 'lines = ["sleep 60"]'


def test_a_job_submitted_by_hand_is_taken_up_and_cancelled_like_others(user):
    study = user.write(of=FAKE, vary='topology = ["1x1"]', launcher=SLEEPS)
    assert user.scalewise("plan", "study.toml", "--write", "jobs").returncode == 0
    (run,) = study.runs()
    user.cluster.run("sbatch", f"jobs/{run.id}.sh", cwd=user.folder)
    user.until(lambda: (user.home / run.id / "job.json").exists())
    assert "running" in user.scalewise("status", "runs/cluster").stdout
    again = user.scalewise("run", "study.toml", "--detach")
    assert again.returncode == 0, again.stderr
    assert "0 submitted, 1 under way already" in again.stderr
    assert len(user.queue()) == 1
    assert "cancelled" in user.scalewise("cancel", "runs/cluster").stdout
    user.until(lambda: not user.queue())
    assert "ended by the user" in user.scalewise("status", "runs/cluster").stdout


SLOW_SBATCH = """#!/bin/bash
"{sbatch}" "$@"
exec sleep 20
"""


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


def test_scripts_written_for_the_hand_are_taken_by_sbatch(user):
    study = user.write(of=FAKE, vary='topology = ["1x1"]')
    done = user.scalewise("plan", "study.toml", "--write", "jobs")
    (run,) = study.runs()
    script = user.folder / "jobs" / f"{run.id}.sh"
    assert done.stdout.splitlines()[-1] == f"jobs/{run.id}.sh"
    tested = user.cluster.run("sbatch", "--test-only", str(script), cwd=user.folder)
    assert tested.returncode == 0, tested.stderr
    assert user.cluster.run("sbatch", "--wait", str(script), cwd=user.folder).returncode == 0
    assert len(user.runs(study)) == 1


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
    study = user.write(run="steps = 100000", vary='topology = ["2x1"]', launcher="patience = 15")
    watching = user.started("run", "study.toml")
    user.wait_for(study, 20)
    lost = user.cluster.names[1]
    user.cluster.cut(lost)
    try:
        _, said = watching.communicate(timeout=120)
        assert watching.returncode == 3 and lost in said, said
    finally:
        user.cluster.mend(lost)
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
    (found,) = collect.explanations(user.home)
    assert found.points[1].cause == "transfer" and found.boundary.cause == "transfer"


@pytest.mark.soak
def test_a_rank_that_stands_still_is_named(user):
    study = user.write(run="steps = 100000", vary='topology = ["2x1"]', launcher="patience = 10")
    watching = user.started("run", "study.toml")
    user.wait_for(study, 20)
    (run,) = study.runs()
    victim = last_word(user.home / run.id, 1, 1)
    user.cluster.root("kill", f"-{signal.SIGSTOP}", str(victim.find("pid")))
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
    victim = last_word(user.home / run.id, 1, 1).find("pid")
    user.cluster.root("kill", f"-{signal.SIGKILL}", str(victim))
    _, said = watching.communicate(timeout=120)
    assert watching.returncode == 0, said
    (record,) = user.runs(study)
    assert record.attempt == 2 and record.ranks[0].find("resumed") >= 100


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


HOSTILE = """a 'b' "c" $HOME `id` $(id) ; & | # % ! * \\ -d"""


def test_hostile_words_reach_the_program_as_they_are(user):
    folder = user.folder / HOSTILE
    folder.mkdir()
    script = "$(id) 'it'.py"
    (folder / script).write_text(SHOWS)
    os.chown(folder, user.cluster.uid, -1)
    words = [HOSTILE, "-x", "--", "line\nbreak", "é"]
    command = ["scalewise", "run", "--on", "1", "--launcher", "slurm", "--", f"./{script}", *words]
    done = user.cluster.run(*command, cwd=folder, timeout=120)
    assert (folder / "said.json").exists(), done.stderr
    assert json.loads((folder / "said.json").read_text()) == words
    assert sorted(path.name for path in folder.iterdir()) == [script, "runs", "said.json"]


SHOWS = """
import json, sys
import torch
json.dump(sys.argv[1:], open("said.json", "w"))
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
"""

STAND_IN = """#!/bin/bash
printf '%s\\n' "$@" >> "$RECORD"
while [ "$1" != image.sif ]; do shift; done
shift
exec "$@"
"""


@pytest.mark.parametrize("runtime", ["singularity", pytest.param("podman", marks=pytest.mark.soak)])
def test_ranks_start_inside_the_container(user, runtime):
    stand_in = user.folder / "bin" / runtime
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    record = user.folder / "record.txt"
    launcher = (
        f'lines = ["export PATH={stand_in.parent}:$PATH RECORD={record}"]\n'
        f'python = "python"\n'
        f'container = {{runtime = "{runtime}", image = "image.sif", binds = ["/data"]}}'
    )
    study = user.write(vary='topology = ["1x1"]', launcher=launcher)
    done = user.scalewise("run", "study.toml")
    assert done.returncode == 0, done.stderr
    assert len(user.runs(study)) == 1
    words = record.read_text().split()
    assert words[0] == ("exec" if runtime == "singularity" else "run")
    assert "/data" in words and words.count("image.sif") == 3


SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""
"""Stands for the one node that a container is tried on."""


def test_a_real_podman_takes_the_words_it_is_given(tmp_path, monkeypatch):
    def podman(*words):
        return subprocess.run(["podman", *words], capture_output=True, text=True, timeout=60)

    (tmp_path / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = []\n[engine]\nruntime = "runc"\n'
    )
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    (tmp_path / "Containerfile").write_text("FROM scratch\nCOPY Containerfile /\n")
    made = podman("build", "--quiet", "--tag", "scalewise-bare", str(tmp_path))
    assert made.returncode == 0, made.stderr
    for name, text in {"srun": SRUN, "scontrol": "#!/bin/sh\necho localhost\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    here = {"JOB_ID": "1", "JOB_NODELIST": "localhost", "NNODES": "1", "NODEID": "0"}
    for key, value in here.items():
        monkeypatch.setenv(f"SLURM_{key}", value)
    python = Path(sys.executable)
    roots = {"/usr", "/lib", "/bin", "/etc", sys.prefix, sys.base_prefix, str(REPO), str(tmp_path)}
    run = RunSpec.from_dict({
        "workload": "mlp", "topology": "1x2", "batch": 16, "steps": 20, "launcher": "slurm",
        "data": "synthetic:512x8x8", "options": {"hidden": [32]}, "start": "torchrun",
    })  # fmt: skip
    container = {"runtime": "podman", "image": "localhost/scalewise-bare", "binds": [
        f"{root}:{root}" for root in sorted(roots)
    ]}  # fmt: skip
    launcher = SlurmLauncher({"container": container, "python": str(python)})
    plan = launcher.plan([run], tmp_path / "runs")
    launcher.prepare(plan)
    script = tmp_path / "runs" / run.id / "plan" / "job.sh"
    done = subprocess.run(["bash", script], capture_output=True, text=True, timeout=120)
    podman("image", "rm", "scalewise-bare")
    assert done.returncode == 0, done.stdout + done.stderr
    record = read_run(tmp_path / "runs" / run.id, run)
    assert len(record.ranks) == 2 and len(losses(record)[0])


def test_doctor_in_a_job_says_what_the_allocation_gives(user):
    words = ["srun", "-N1", "-n1", "-c3", "--gres=gpu:2", "scalewise", "doctor", "--json"]
    done = user.cluster.run(*words, cwd=user.folder, timeout=120)
    evidence = json.loads(done.stdout)["findings"]["slurm"]["evidence"]
    assert evidence["controller"] is True
    assert evidence["job"]["CPUs/Task"] == "3" and "gpu:2" in evidence["job"]["TresPerNode"]


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
            (found,) = collect.explanations(user.folder / f"at-{rate}")
            seen[rate] = found.points[0]
    finally:
        user.cluster.shape(None)
    for slow, fast in ((1.0, 5.0), (0.2, 1.0)):
        step = seen[slow].step - seen[fast].step
        transfer = seen[slow].seconds["transfer"] - seen[fast].seconds["transfer"]
        assert transfer == pytest.approx(step, rel=0.15)
