"""Jobs that lack GPUs, a time limit or an account are told of before they are submitted."""

import os
import time

import pytest

from builders import run_values
from commands import install_framework, run_command, study_toml
from fake_slurm import fake_slurm, wait_for_jobs
from scalewise.launch.slurm import SlurmLauncher, cluster_facts
from scalewise.spec import RunSpec

SINFO = """names=$(sed -n 's/.*--partition=\\([^ ]*\\).*/\\1/p' <<<"$*" | tr , '|')
grep -E "^(${names:-.*})[*]?[|]" <<END
debug*|(null)|n/a|infinite
gpu|gpu:4(S:0-1)|10:00|1-00:00:00
gpu|(null)|10:00|1-00:00:00
long|gpu:a100:8|n/a|3-00:00:00
mixed|gpu:a100:4,gpu:v100:2|n/a|infinite
short|gpu:2|5:00|30:00
single|gpu:1|n/a|infinite
END"""
COMPLETE = {"partition": "gpu", "gres": "gpu", "time": "02:00:00", "account": "alpha"}
TORCH = {"framework": "torch", "workload": "mlp", "strategy": "ddp", "data": "synthetic:64x8x8"}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Install Slurm's commands, with answers of ``sinfo`` and others; make them the PATH."""

    def install(**commands):
        env = fake_slurm(tmp_path, dict(os.environ), **{"sinfo": SINFO, **commands})
        monkeypatch.setenv("PATH", env["PATH"])

    for variable in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return install


def warnings(table, **run):
    """Return the warnings about one run with this ``[launcher]`` table, each with its hint."""
    spec = RunSpec.from_dict(run_values(**{**TORCH, **run}))
    return [(str(one), one.hint) for one in SlurmLauncher(table).request_warnings([spec])]


def without(name, **changes):
    return {key: value for key, value in {**COMPLETE, **changes}.items() if key != name}


def test_a_complete_study_is_not_warned_of(slurm):
    slurm(sacctmgr="echo 'box|alpha|alpha'; echo 'box|alpha|beta'")
    assert warnings(COMPLETE) == []


def test_gpus_that_are_there_and_not_requested_are_told(slurm):
    slurm()
    ((problem, hint),) = warnings(without("gres"))
    assert problem == (
        "partition gpu has nodes with up to 4 GPUs, and this study requests none: "
        "its jobs would get no GPU"
    )
    assert hint.startswith('add to [launcher]: gres = "gpu" (')
    assert 'device = "cpu" in [run]' in hint
    ((problem, hint),) = warnings(without("gres", partition="mixed"))
    assert "up to 6 GPUs" in problem
    assert 'gres = "gpu:a100"' in hint and "other types there: v100" in hint
    ((problem, _),) = warnings(without("gres", partition="single"))
    assert "up to 1 GPU, and" in problem


def test_one_of_several_partitions_with_gpus_is_enough_to_tell(slurm):
    slurm()
    ((problem, hint),) = warnings(without("gres", partition="gpu,debug"))
    assert problem.startswith("partition gpu has nodes with up to 4 GPUs, and this study requests")
    assert hint.startswith('add to [launcher]: gres = "gpu" (')


def test_other_resources_are_no_gpus(slurm, monkeypatch):
    slurm()
    assert len(warnings(without("gres", gres="nvme"))) == 1
    assert len(warnings(without("gres", sbatch=["--gres=nvme:1"]))) == 1
    monkeypatch.setenv("SBATCH_GRES", "nvme:1")
    assert len(warnings(without("gres"))) == 1
    assert warnings({**COMPLETE, "gres": "gpu:a100"}) == []
    assert warnings({**COMPLETE, "gres": "shard"}) == []


def test_a_study_for_cpus_needs_no_gpu(slurm):
    slurm()
    assert warnings(without("gres"), device="cpu") == []
    assert warnings(without("gres"), framework="fake", data=None) == []
    assert warnings(without("gres", partition="debug")) == []


def test_gpus_of_other_partitions_than_the_default_are_told(slurm):
    slurm()
    ((problem, hint),) = warnings({"account": "alpha"})
    assert problem == "jobs would go to the default partition debug, which has no GPUs"
    assert hint.startswith('add to [launcher]: partition = "gpu" and gres = "gpu" (')
    assert "GPUs are also in partition long, mixed, short, single" in hint
    assert warnings({"account": "alpha"}, device="cpu") == []


def test_the_type_of_gpu_of_another_partition_is_told_where_it_has_several(slurm):
    slurm(sinfo="echo 'debug*|(null)|n/a|infinite'; echo 'mixed|gpu:a100:4,gpu:v100:2|n/a|1:00'")
    ((_, hint),) = warnings({"account": "alpha"})
    assert hint.startswith('add to [launcher]: partition = "mixed" and gres = "gpu:a100" (')
    assert "other types there: v100" in hint


@pytest.mark.parametrize(
    "option", ["--gres=gpu:1", "--gpus-per-task=1", "-G4", "--gpus=4", "--tres-per-task=gres/gpu:1"]
)
def test_gpus_may_be_requested_by_any_option_of_sbatch(option, slurm):
    slurm()
    assert warnings(without("gres", sbatch=[option])) == []
    assert warnings(without("gres", gpus_per_node=True)) == []


@pytest.mark.parametrize(
    ("partition", "problem", "line", "limit"),
    [
        ("gpu", "ends a job after 00:10:00, its default", "02:00:00", "1-00:00:00"),
        ("short", "ends a job after 00:05:00, its default", "00:30:00", "00:30:00"),
        ("long", "ends a job after 3-00:00:00, its limit", "02:00:00", "3-00:00:00"),
        ("gpu,short", "ends a job after 00:05:00, its default", "00:30:00", "00:30:00"),
    ],
)
def test_the_time_limit_that_slurm_sets_is_told(partition, problem, line, limit, slurm):
    slurm()
    ((told, hint),) = warnings(without("time", partition=partition))
    assert problem in told
    assert f'add to [launcher]: time = "{line}"' in hint
    assert f"the limit of the partition is {limit}" in hint


def test_no_limit_is_no_trap(slurm):
    slurm()
    assert warnings(without("time", partition="mixed")) == []


def test_the_account_that_is_charged_is_told_if_there_are_several(slurm, tmp_path):
    slurm(sacctmgr="cat accounts", scontrol="echo 'ClusterName             = box'")

    def told(*rows):
        (tmp_path / "accounts").write_text("\n".join(rows))
        return warnings(without("account"))

    assert told("box|alpha|alpha") == []
    assert told("box|alpha|beta", "box|alpha|alpha") == [
        (
            "no account is set: Slurm charges your default, alpha",
            'add to [launcher]: account = "alpha"; you may also charge beta',
        )
    ]
    assert told("box||beta") == [
        (
            "no account is set, and you have no default account",
            'add to [launcher]: account = "beta"',
        )
    ]
    assert told("box|alpha|alpha", "other|gamma|gamma") == []  # Another cluster's account.
    ((_, hint),) = told(*(f"box|a0|a{number}" for number in range(12)))
    assert "you may also charge a1, a10, a11, a2, a3, a4, a5, a6 and 3 more" in hint


def test_variables_and_options_of_sbatch_count_as_settings(slurm, monkeypatch):
    slurm(sacctmgr="echo 'box|alpha|alpha'; echo 'box|alpha|beta'")
    options = ["--partition=gpu", "--time=10", "-A beta", "--gres=gpu:1"]
    assert warnings({"sbatch": options}) == []
    for name in ("TIMELIMIT", "ACCOUNT"):
        monkeypatch.setenv(f"SBATCH_{name}", "some")
    monkeypatch.setenv("SBATCH_GRES", "gpu:1")
    monkeypatch.setenv("SBATCH_PARTITION", "gpu")
    assert warnings({}) == []


@pytest.mark.parametrize(
    "commands",
    [
        {"sinfo": "exit 1"},
        {"sinfo": "echo nonsense; echo a\\|b"},
        {"sinfo": "true"},
        {"sacctmgr": "echo 'not running a supported accounting_storage plugin' >&2; exit 1"},
        {"sacctmgr": "echo 'box|alpha'"},
    ],
)
def test_what_slurm_does_not_answer_is_no_reason_to_warn(commands, slurm):
    slurm(**commands)
    table = {"partition": "gpu"} if "sinfo" in commands else without("account")
    assert warnings(table) == []


def test_a_slurm_that_hangs_or_is_missing_delays_little(slurm, monkeypatch, tmp_path):
    monkeypatch.setattr(cluster_facts, "QUERY_SECONDS", 0.3)
    slurm(sinfo="sleep 60 & wait")
    began = time.monotonic()
    assert warnings({}) == []
    assert time.monotonic() - began < 5
    monkeypatch.setenv("PATH", str(tmp_path))
    assert warnings({}) == []


def test_inside_an_allocation_nothing_is_submitted_and_nothing_told(slurm, monkeypatch):
    slurm()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert warnings({"partition": "gpu"}) == []


def test_plan_and_run_tell_it_before_they_submit(slurm, tmp_path):
    slurm(sacctmgr="echo 'box|alpha|alpha'; echo 'box|alpha|beta'")
    env = {**install_framework(tmp_path / "site", "pass"), "PATH": os.environ["PATH"]}
    text = study_toml(["1x1"], name="odd", framework="odd")
    (tmp_path / "s.toml").write_text(f'{text}[launcher]\nname = "slurm"\npartition = "gpu"\n')
    plan = run_command("plan", "s.toml", cwd=tmp_path, env=env)
    run = run_command("run", "s.toml", cwd=tmp_path, env=env)
    assert (plan.returncode, run.returncode) == (0, 0), plan.stderr + run.stderr
    for line in ('gres = "gpu"', 'time = "02:00:00"', 'account = "alpha"'):
        assert plan.stdout.count(line) == run.stderr.count(line) == 1
    assert run.stderr.index("account") < run.stderr.index("[1/1]")
    wait_for_jobs(tmp_path / "runs" / "odd")
    again = run_command("plan", "s.toml", cwd=tmp_path, env=env)
    assert "warning" not in again.stdout  # Everything is finished.
