"""Where a process stands among the ranks, in whichever words it was told."""

import os

import pytest

from scalewise.errors import SpecError
from scalewise.probe.rank_identity import (
    RankIdentity,
    find_rank,
    first_host,
    rank_and_world,
    set_torchrun_variables,
)

SRUN = {
    "SLURM_JOB_ID": "41",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_NODELIST": "gpu[07-09]",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def test_nobody_told_it():
    assert find_rank({}) is None
    assert set_torchrun_variables({}) is None


def test_torchrun_is_believed_before_srun_that_started_its_agent():
    told = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "x"}
    assert find_rank({**SRUN, **told}) == RankIdentity(2, 4, 0, "torchrun")


def test_a_careful_hand_needs_no_agent():
    told = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "7"}
    env = dict(told)
    assert set_torchrun_variables(env) == RankIdentity(1, 2, 1, "environment")
    assert env == {**told, "LOCAL_RANK": "1"}


def test_srun_tells_everything_that_engines_read():
    env = dict(SRUN)
    assert set_torchrun_variables(env) == RankIdentity(5, 8, 1, "srun")
    filled = {key: env[key] for key in env.keys() - SRUN.keys()}
    assert filled == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "gpu07",
        "MASTER_PORT": "20041",
    }


def test_a_batch_script_itself_is_no_rank():
    batch = {key: value for key, value in SRUN.items() if "STEP" not in key}
    assert find_rank(batch) is None


def test_mpirun_in_a_slurm_job_is_believed_before_srun():
    env = {**SRUN, **OPEN_MPI}
    assert set_torchrun_variables(env) == RankIdentity(3, 4, 1, "mpirun (Open MPI)")
    assert env["MASTER_ADDR"] == "gpu07"


def test_mpirun_over_several_machines_must_be_told_where_rank_0_is():
    with pytest.raises(SpecError, match="not on which host rank 0 is"):
        set_torchrun_variables(dict(OPEN_MPI))
    env = {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
    set_torchrun_variables(env)
    assert env["MASTER_ADDR"] == "localhost"


def test_hydra_has_names_of_its_own():
    told = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    assert set_torchrun_variables(dict(told)) == RankIdentity(1, 2, 1, "mpirun (Hydra)")


def test_a_rank_that_is_no_number_is_refused():
    with pytest.raises(SpecError, match="RANK must be a number"):
        find_rank({"RANK": "first", "WORLD_SIZE": "2"})


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("n1", "n1"), ("n[3,7]", "n3"), ("a-b[01-16]-ib,c", "a-b01-ib"), ("x1,x[2-3]", "x1")],
)
def test_the_first_of_a_list_of_nodes(nodes, first):
    assert first_host(nodes) == first


STARTED = {
    "torchrun": ({"RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x"}, (1, 4)),
    "by hand": ({"RANK": "1", "WORLD_SIZE": "4"}, (1, 4)),
    "Open MPI": (OPEN_MPI, (3, 4)),
    "PMI": ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2)),
    "Horovod": ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}, (1, 2)),
    "srun": (SRUN, (5, 8)),
    "a batch script": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 1)),
    "none": ({}, (0, 1)),
    "not a number": ({"RANK": "first", "WORLD_SIZE": "2"}, (0, 1)),
}


@pytest.mark.parametrize("launcher", STARTED)
def test_everybody_who_asks_gets_the_same_rank(launcher, monkeypatch):
    env, expected = STARTED[launcher]
    for name in [name for name in os.environ if "RANK" in name or name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert rank_and_world(os.environ) == rank_and_world() == expected
    if launcher != "not a number":
        identity = find_rank(os.environ)
        assert (identity.rank, identity.world) == expected if identity else expected == (0, 1)
