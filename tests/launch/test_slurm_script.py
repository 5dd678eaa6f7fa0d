"""The batch script of a run: readable, checked by shell tools, and safe from what it holds."""

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paths import TESTS
from scalewise.errors import LaunchError, SpecError
from scalewise.launch.local import LocalLauncher
from scalewise.launch.slurm import SlurmLauncher
from scalewise.launch.slurm.batch_script import (
    array_script,
    escape_pattern,
    quote_directive,
    run_script,
    sequential_script,
)
from scalewise.launch.slurm.settings import Settings, parse_time_limit
from scalewise.spec import RunSpec, StudySpec

GOLDEN = TESTS / "golden"
STUDY = Path("/shared/runs/vit")
RUN = {"topology": "2x4", "workload": "vit", "batch": 64, "epochs": 3, "launcher": "slurm"}
GPUS = {"account": "ehpc01", "qos": "acc_debug", "gres": "gpu", "time": "00:30:00"}
SCRIPTS = {
    "torchrun": (RUN, {**GPUS, "cpus_per_task": 80, "exclusive": True, "python": "python3"}),
    "srun": (
        {**RUN, "start": "srun", "env": {"NCCL_ALGO": "Ring"}},
        {**GPUS, "cpus_per_task": 20, "modules": ["cuda/12.4"], "venv": "/shared/venv"},
    ),
    "container": (
        {**RUN, "checkpoint_every": 100},
        {
            **GPUS,
            "cpus_per_task": 80,
            "interface": "ib0",
            "max_restarts": 2,
            "modules": ["singularity"],
            "container": {"image": "/shared/torch.sif", "binds": ["/shared", "/data:/data"]},
        },
    ),
    "mpirun": ({**RUN, "start": "mpirun"}, {**GPUS, "partition": "gpu", "python": "python3"}),
}


def text(run, given):
    return run_script(RunSpec.from_dict(run), STUDY, Settings.of(given), attempt=1)


def sizes(*topologies, **fields):
    return [RunSpec.from_dict({**RUN, "topology": each, **fields}) for each in topologies]


def joint(name):
    """Return the script of several runs together."""
    if name == "array":
        given = {**GPUS, "jobs": "array", "throttle": 2}
        return array_script(sizes("2x4", "2x4", "2x4"), STUDY, Settings.of(given))
    runs = sizes("1x1", "1x4", "2x4", checkpoint_every=100)
    return sequential_script(runs, STUDY, Settings.of({**GPUS, "jobs": "one"}))


TEXTS = {name: partial(text, *given) for name, given in SCRIPTS.items()}
TEXTS |= {name: partial(joint, name) for name in ("array", "in_turn")}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Keep the sites and the folder of whoever runs the tests out of the scripts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(os, "getcwd", lambda: "/shared/project")


@pytest.mark.parametrize("name", TEXTS)
def test_scripts_read_like_an_engineers(name):
    assert TEXTS[name]() == (GOLDEN / f"{name}.sh").read_text()


@pytest.mark.parametrize("name", TEXTS)
def test_the_shell_takes_them(name):
    subprocess.run(["bash", "-n"], input=TEXTS[name](), text=True, check=True)
    if shutil.which("shellcheck"):
        options = ["--shell=bash", "--exclude=SC1090,SC1091", "-"]
        said = subprocess.run(
            ["shellcheck", *options], input=TEXTS[name](), text=True, capture_output=True
        )
        assert said.stdout == ""


PRINTABLE = st.text(st.characters(exclude_categories=["C", "Z"]) | st.sampled_from(" '\"\\$`;&#%-"))


@settings(deadline=None, max_examples=200)
@given(PRINTABLE.filter(lambda word: word.strip()))
def test_no_value_leaves_its_line_or_its_word(word):
    given = {"account": word, "lines": [], "env": {"VALUE": word}, "modules": [word]}
    lines = text({**RUN, "env": {"OTHER": word}}, given).splitlines()
    assert f"#SBATCH --account={quote_directive(word)}" in lines
    exported = next(line for line in lines if line.startswith("export VALUE="))
    said = subprocess.run(
        ["bash", "-c", f'{exported}; printf %s "$VALUE"'], capture_output=True, text=True
    )
    assert said.stdout == word


@pytest.mark.parametrize("bad", ["a\nb", "", "a\x00b", "\x1b[1m"])
def test_what_no_line_can_hold_is_refused(bad):
    with pytest.raises(SpecError, match="cannot be"):
        Settings.of({"account": bad})


STUBS = {
    "srun": 'case "$*" in *train*) echo "$SLURM_JOB_ID" >>"$TRAINED"; sleep 0.5;; esac',
    "squeue": 'sleep 0.1; case "$*" in *--jobs=77*) ;; *) echo running;; esac',
    "scontrol": "echo n1",
    "python3": "true",
}
"""What a job script calls; of all jobs only number 77 is gone."""


@pytest.mark.parametrize("holder", [None, "77"])
def test_of_two_jobs_of_one_script_one_trains(holder, tmp_path):
    for name, body in STUBS.items():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    run = RunSpec.from_dict({**RUN, "framework": "fake", "strategy": "ddp"})
    home = tmp_path / run.id
    home.mkdir()
    if holder:
        (home / "holder").write_text(f"{holder}\n")
    (tmp_path / "job.sh").write_text(
        run_script(run, tmp_path, Settings.of({"python": "python3"}), attempt=1)
    )
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "TRAINED": str(tmp_path / "trained")}
    jobs = [
        subprocess.Popen(
            ["bash", str(tmp_path / "job.sh")], stdout=subprocess.DEVNULL,
            env={**env, "SLURM_JOB_ID": str(number), "SLURM_JOB_NODELIST": "n1"},
        )
        for number in range(101, 109)
    ]  # fmt: skip
    assert sorted(job.wait(timeout=60) for job in jobs) == [0] + [1] * 7
    assert len((tmp_path / "trained").read_text().split()) == 1


@pytest.mark.parametrize("kind", ["run", "settings"])
def test_the_script_refuses_a_name_that_a_shell_would_execute(kind, tmp_path):
    run, asked = RunSpec.from_dict(RUN), Settings()
    # Past the checks of the study file: the writer of the script does not rely on them.
    object.__setattr__(run if kind == "run" else asked, "env", {"A;touch x;B": "1"})
    with pytest.raises(SpecError, match="not the name of an environment variable"):
        run_script(run, STUDY, asked, attempt=1)
    if kind == "run":
        with pytest.raises(SpecError, match="not the name of an environment variable"):
            LocalLauncher().plan([run], tmp_path)


@pytest.mark.parametrize("word", ["{agent}", "{agent} {master", "x{agent}y"])
def test_a_programs_own_braces_reach_it(word, tmp_path):
    path = tmp_path / "train.py"
    path.write_text("")
    made = text({"program": [str(path), word], "topology": "1x2", "launcher": "slurm"}, {})
    line = next(line for line in reversed(made.splitlines()) if "train.py" in line)
    said = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {line.strip().removesuffix('&')}"],
        capture_output=True, text=True, env={"MASTER_ADDR": "m", "MASTER_PORT": "1"},
    )  # fmt: skip
    assert said.stdout.splitlines()[-1] == word
    assert "--nproc-per-node=2" in made


def test_a_folder_that_no_line_can_hold_is_refused():
    run = RunSpec.from_dict(RUN)
    with pytest.raises(SpecError, match="Slurm cannot take"):
        run_script(run, Path("/shared/a\nb"), Settings(), attempt=1)


def test_signs_of_slurms_patterns_are_taken_as_they_are():
    assert escape_pattern("/a/50%j") == "/a/50%%j"
    assert escape_pattern("/a\\b%j") == "/a\\\\b%j"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"partitoin": "gpu"}, "no key 'partitoin'"),
        ({"time": "soon"}, "not a time limit"),
        ({"gres": "gpu:4"}, "gres names a kind of device without a number, got 'gpu:4'"),
        ({"time": "00:00:00"}, "for Slurm 0 means no limit"),
        ({"cpus_per_task": 0}, "cpus_per_task must be a whole number"),
        ({"modules": "cuda"}, "modules must be a list of texts"),
        ({"env": {"A B": "x"}}, "env: 'A B' is not the name of an environment variable"),
        ({"env": {"A;touch x": "1"}}, "not the name of an environment variable"),
        ({"env": {"A": 1}}, "env cannot hold A = 1"),
        ({"container": {"runtime": "podman"}}, "a container needs an image"),
        ({"container": 7}, "container must be a table"),
        ({"container": {"image": "x", "runtime": "docker"}}, "runtime must be one of"),
        ({"site": "mars"}, "no site 'mars'"),
        ({"jobs": "some"}, "jobs must be one of"),
        ({"jobs": "one", "throttle": 2}, "throttle has no effect"),
    ],
)
def test_wrong_settings_are_refused(given, problem):
    with pytest.raises(SpecError, match=problem):
        Settings.of(given)


def test_a_site_says_what_is_the_same_for_every_study(tmp_path):
    path = tmp_path / "config" / "scalewise" / "sites.toml"
    path.parent.mkdir(parents=True)
    path.write_text('[default]\naccount = "a"\n[mars]\naccount = "m"\nqos = "red"\n')
    assert Settings.of({}).account == "a"
    found = Settings.of({"site": "mars", "qos": "blue"})
    assert (found.account, found.qos) == ("m", "blue")


def test_device_hours_are_said_and_bounded():
    runs = [RunSpec.from_dict({**RUN, "topology": each}) for each in ("1x4", "2x4")]
    assert SlurmLauncher({"time": "00:30:00"}).request_summary(runs) == "up to 6.00 device-hours"
    with pytest.raises(SpecError, match="asks for up to 6"):
        SlurmLauncher({"time": "00:30:00", "max_device_hours": 5}).request_summary(runs)
    with pytest.raises(SpecError, match="max_device_hours needs a time limit"):
        SlurmLauncher({"max_device_hours": 5}).request_summary(runs)
    shared = SlurmLauncher({"time": "00:30:00", "jobs": "one"})
    assert shared.request_summary(runs) == "up to 4.00 device-hours"


def test_runs_that_ask_for_the_same_share_an_array():
    runs = sizes("1x4", "2x4", "1x4", "2x4", start="srun") + sizes("1x4")
    groups = SlurmLauncher({"jobs": "array"}).together(runs)
    assert groups == [[runs[0], runs[2]], [runs[1], runs[3]], [runs[4]]]
    assert SlurmLauncher({"jobs": "one"}).together(runs) == [runs]
    assert SlurmLauncher().together(runs) == [[run] for run in runs]


def test_an_allocation_that_is_too_small_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    launcher = SlurmLauncher()
    assert launcher.request_summary(sizes("1x4")) == "in the allocation of job 7"
    assert launcher.plan(sizes("1x4"), tmp_path).commands[0].argv[0] == "bash"
    small, large = sizes("1x4", "2x4")
    assert launcher.together([large, small]) == [[small], [large]]
    with pytest.raises(LaunchError, match="2x4 needs 2 nodes, and the allocation of job 7 has 1"):
        launcher.plan([large], tmp_path)


def test_a_wrong_key_of_a_site_is_said_of_the_site(tmp_path):
    path = tmp_path / "config" / "scalewise" / "sites.toml"
    path.parent.mkdir(parents=True)
    path.write_text('[mars]\nquos = "red"\n')
    with pytest.raises(SpecError, match=r"site mars in .*sites.toml has no key 'quos'"):
        Settings.of({"site": "mars"})


def test_times_are_read_as_slurm_reads_them():
    assert [parse_time_limit(each) for each in ("5", "5:30", "1:00:00", "2-0")] == [
        300,
        330,
        3600,
        172800,
    ]


def test_without_slurm_there_is_no_job_to_start_ranks_in(tmp_path):
    run = RunSpec.from_dict({**RUN, "launcher": "local", "start": "srun"})
    with pytest.raises(LaunchError, match="needs a Slurm job"):
        LocalLauncher().plan([run], tmp_path)


def test_a_variable_can_be_an_axis():
    run = {key: value for key, value in RUN.items() if key != "launcher"}
    axis = {"env.NCCL_ALGO": ["Ring", "Tree"]}
    study = StudySpec.from_dict({"name": "x", "run": run, "vary": axis})
    assert [run.env for run in study.runs()] == [{"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Tree"}]
