"""Studies on a real Slurm: submitted by an ordinary user, watched, in one job or in containers."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paths import ROOT
from scalewise import results
from scalewise.launch.slurm import SlurmLauncher
from scalewise.record.node_samples import read_nodes
from scalewise.record.read import read_run
from scalewise.spec import RunSpec
from slurm_cluster import USER, Cluster, open_folder
from slurm_user import FAKE, SLEEPS, Desk, losses

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]


def test_one_study_on_one_two_and_three_nodes(user):
    study = user.write(vary='topology = ["1x1", "2x1", "3x1"]')
    done = user.scalewise("run", "study.toml")
    assert done.returncode == 0, done.stderr
    assert "up to 1.00 device-hours" in done.stderr
    (curve,) = results.curves([user.home])
    assert [point.devices for point in curve.points] == [1, 2, 3]
    hosts = [{rank.host for rank in record.ranks} for record in user.runs(study)]
    assert [len(each) for each in hosts] == [1, 2, 3]
    assert set().union(*hosts) == set(user.cluster.names)
    assert "up to 1 device on one node, from 2 on several" in user.measured()
    clocks = [node.within for node in read_nodes(user.home / study.runs()[1].id, 1)]
    assert clocks[0] is None
    assert clocks[1] < 0.05
    assert "leaving the node" in user.scalewise("explain", "runs/cluster").stdout
    told = user.scalewise("status", "runs/cluster").stdout
    assert told.count("finished") == 3


def test_all_starters_give_equal_losses_and_are_told_apart(user):
    study = user.write(
        vary='start = ["torchrun", "srun", "mpirun"]', run='topology = "2x1"\nsteps = 20'
    )
    done = user.scalewise("run", "study.toml")
    assert done.returncode == 0, done.stderr
    records = user.runs(study)
    assert [record.ranks[0].notes.starter for record in records] == [
        "torchrun", "srun", "mpirun (Open MPI)",
    ]  # fmt: skip
    first, *others = map(losses, records)
    assert first and all(each == first for each in others)
    threads = {record.environment["variables"]["OMP_NUM_THREADS"] for record in records}
    assert threads == {"1"}


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
    assert ("were idle" in user.measured()) == (jobs == "one")


def test_inside_an_allocation_all_runs_go_there(user):
    study = user.write(vary='topology = ["1x1", "2x1"]')
    asked = ["salloc", "-N2", "-n2", "-c2", "scalewise", "run", "study.toml"]
    done = user.cluster.run(*asked, cwd=user.folder, timeout=120)
    logs = [log.read_text() for log in user.home.glob("*/log.txt")]
    assert done.returncode == 0, [done.stderr, *logs]
    assert "in the allocation of job" in done.stderr
    hosts = [{rank.host for rank in record.ranks} for record in user.runs(study)]
    assert [len(each) for each in hosts] == [1, 2]
    assert not user.cluster.root("squeue", "--noheader").stdout


def test_jobs_that_the_queue_has_forgotten_are_found_in_the_accounting(cluster):
    with open_folder() as folder, Cluster(folder, nodes=1, accounting=True, age=2) as other:
        other.env["PATH"] = cluster.env["PATH"]
        for account in ("alpha", "beta"):
            named = ("Description=test", "Organization=test", "cluster=box")
            other.root("sacctmgr", "-i", "add", "account", account, *named)
            other.root("sacctmgr", "-i", "add", "user", USER, f"account={account}", "cluster=box")
        user = Desk(other, other.place("desk"))
        user.write(of=FAKE, vary='topology = ["1x1"]')
        done = user.scalewise("run", "study.toml", "--detach")
        assert done.returncode == 0, done.stderr
        assert 'account = "alpha"; you may also charge beta' in done.stderr
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


def test_plan_tells_what_a_study_lacks_on_this_cluster(user):
    user.write(vary='topology = ["1x2"]')
    path = user.folder / "study.toml"
    path.write_text(path.read_text().replace('time = "00:10:00"', ""))
    told = user.scalewise("plan", "study.toml")
    assert told.returncode == 0, told.stderr
    assert "partition debug has nodes with up to 4 GPUs" in told.stdout
    assert 'add to [launcher]: gres = "gpu"' in told.stdout
    assert "partition debug ends a job after 00:10:00, its default" in told.stdout
    assert 'add to [launcher]: time = "01:00:00"' in told.stdout
    path.write_text(path.read_text() + 'gres = "gpu"\ntime = "01:00:00"\n')
    assert "warning" not in user.scalewise("plan", "study.toml").stdout


def test_what_the_cluster_refuses_is_said(user):
    user.write(vary='topology = ["1x9", "9x1"]', launcher='partition = "moon"')
    done = user.scalewise("run", "study.toml")
    assert done.returncode == 3
    assert done.stderr.count("sbatch refused the job: invalid partition specified: moon") == 2
    assert "Traceback" not in done.stderr


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
    system = ("/usr", "/lib", "/lib64", "/bin", "/etc")
    roots = {*filter(os.path.exists, system), sys.prefix, sys.base_prefix, str(ROOT), str(tmp_path)}
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
