"""Horovod on a real Slurm: two nodes whose ranks find each other without ssh."""

import subprocess
import sys

import pytest

import framework_envs
from slurm_user import losses

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not framework_envs.wheel("horovod"), reason="no wheel of Horovod: make horovod"
    ),
]

BESIDE = ("cloudpickle", "packaging", "psutil", "pyyaml")
"""What Horovod needs but for PyTorch, which is the user's own."""


@pytest.fixture(scope="session")
def packages(cluster):
    """Install Horovod where the cluster's user can read it."""
    folder = cluster.folder / "horovod"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    words = ["--no-deps", "--target", str(folder), str(framework_envs.wheel("horovod")), *BESIDE]
    subprocess.run([*pip, *words], umask=0o022, check=True)
    return folder


def test_ranks_of_srun_and_mpirun_learn_the_same_on_two_nodes(user, packages):
    study = user.write(
        run='framework = "horovod"\ntopology = "2x2"\nsteps = 20',
        vary='start = ["srun", "mpirun"]',
    )
    run = user.started("run", "study.toml", env={"PYTHONPATH": str(packages)})
    _, said = run.communicate(timeout=240)
    assert run.returncode == 0, said
    records = user.runs(study)
    assert [each.ranks[0].notes.starter for each in records] == ["srun", "mpirun (Open MPI)"]
    for record in records:
        assert len({rank.host for rank in record.ranks}) == 2
        assert len(record.ranks[3].steps.samples) == 20
    first, second = map(losses, records)
    assert first and first == second
