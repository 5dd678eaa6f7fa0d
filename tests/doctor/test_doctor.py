"""The doctor: each finding names what was seen and what to do, and none spoils another."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from commands import COMMAND
from scalewise import doctor
from scalewise.doctor import (
    cgroups,
    collective_sweep,
    framework_checks,
    interfaces,
    machine,
    slurm_checks,
    storage,
)
from scalewise.doctor.finding import Finding, run_check
from scalewise.doctor.interfaces import Interface
from scalewise.errors import LaunchError, ScalewiseError, SpecError
from scalewise.launch import processes
from scalewise.launch.command_output import run_command

NAMES = [
    "python", "fake", "torch", "devices", "container", "cores", "threads", "memory", "open-files",
    "shared-memory", "disk", "clock", "interfaces", "host", "slurm", "backend",
]  # fmt: skip
CPU_BUILD = {"version": "2.13.0+cpu", "cuda": None, "devices": ["cpu"]}
CARDS = "GPU 0: NVIDIA H100 (UUID: GPU-1)\nGPU 1: NVIDIA H100 (UUID: GPU-2)"
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("unshare")
needs_root = pytest.mark.skipif(not ROOT, reason="needs root and unshare")
FOUND = [
    Interface("eth0", up=True, addresses=("10.0.0.7", "fe80::1%eth0")),
    Interface("lo", up=True, addresses=("127.0.0.1", "::1")),
    Interface("eth1", up=False, addresses=()),
    Interface("ib0", up=True, addresses=()),
]


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """Put a little program on PATH under any name; it says its arguments to nobody."""
    place = tmp_path / "programs"
    place.mkdir()
    monkeypatch.setenv("PATH", str(place), prepend=os.pathsep)

    def put(name: str, script: str) -> None:
        (place / name).write_text(f"#!/bin/sh\n{script}\n")
        (place / name).chmod(stat.S_IRWXU)

    return put


def group(root: Path, **files: str) -> None:
    """Make a control group's folder; ``cpu_max`` is its file ``cpu.max``."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name.replace("_", ".", 1)).write_text(text + "\n")


def test_the_narrowest_quota_of_the_second_version_counts(tmp_path):
    group(tmp_path, cpu_max="max 100000")
    group(tmp_path / "job", cpu_max="150000 100000", memory_max="max")
    group(tmp_path / "job/step", cpu_max="400000 100000", memory_max="4096", memory_current="96")
    assert cgroups.cpu_quota("0::/job/step", tmp_path) == 1.5
    assert cgroups.memory_limit("0::/job/step", tmp_path) == cgroups.MemoryLimit(4096, 96)
    assert cgroups.cpu_quota("0::/", tmp_path) is None


def test_quota_and_memory_of_the_first_version_are_read(tmp_path):
    group(tmp_path / "cpu/docker/7", cpu_cfs_quota_us="50000", cpu_cfs_period_us="100000")
    memory = {"memory_limit_in_bytes": "1000", "memory_usage_in_bytes": "400"}
    group(tmp_path / "memory/docker/7", **memory)
    own = "4:memory:/docker/7\n3:cpu,cpuacct:/docker/7\n1:name=systemd:/\n0::/\nnonsense"
    assert cgroups.cpu_quota(own, tmp_path) == 0.5
    assert cgroups.memory_limit(own, tmp_path) == cgroups.MemoryLimit(1000, 400)


def test_inside_a_container_the_top_is_the_own_group_and_no_limit_is_none(tmp_path):
    memory = {"memory_limit_in_bytes": "9223372036854771712", "memory_usage_in_bytes": "400"}
    group(tmp_path / "memory", **memory)
    group(tmp_path / "cpu", cpu_cfs_quota_us="-1", cpu_cfs_period_us="100000")
    own = "4:memory:/not/seen/here\n3:cpu:/not/seen/here"
    assert cgroups.cpu_quota(own, tmp_path) is None
    assert cgroups.memory_limit(own, tmp_path) is None
    group(tmp_path / "cpu", cpu_cfs_quota_us="200000", cpu_cfs_period_us="100000")
    assert cgroups.cpu_quota(own, tmp_path) == 2.0


@pytest.mark.parametrize(
    ("env", "level", "said", "hint"),
    [
        ({}, "note", "OMP_NUM_THREADS is not set", "export OMP_NUM_THREADS=2"),
        ({"OMP_NUM_THREADS": "2"}, "ok", "OMP_NUM_THREADS=2; 2 ranks on 4 cores", ""),
        ({"OMP_NUM_THREADS": "2,1"}, "ok", "OMP_NUM_THREADS=2,1", ""),
        ({"OMP_NUM_THREADS": "64"}, "fault", "=64 is more than the 4 cores", "THREADS=2"),
        ({"OMP_NUM_THREADS": "abc"}, "fault", "=abc is not a number", "export OMP_NUM_THREADS=2"),
        ({"OMP_NUM_THREADS": "-1"}, "fault", "=-1 is not a number", "export OMP_NUM_THREADS=2"),
        ({"OMP_NUM_THREADS": "0"}, "fault", "=0 is not a thread count", "OMP_NUM_THREADS=2"),
        ({"OMP_NUM_THREADS": "3"}, "fault", "2 ranks with 3 threads each", "OMP_NUM_THREADS=2"),
        ({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "8"}, "fault", "MKL_NUM_THREADS=8", "unset"),
    ],
)  # fmt: skip
def test_threads_that_do_not_fit_are_named_with_the_remedy(env, level, said, hint):
    found = machine.check_threads(env, usable=4, ranks=2)
    assert (found.level, found.good) == (level, level != "fault")
    assert said in found.says
    assert hint in found.hint


def test_what_takes_cores_away_is_named():
    everything = os.cpu_count()
    idle = machine.check_cores(range(everything), None, 1, 0.0, {})
    assert (idle.level, idle.hint) == ("ok", "")
    assert "busy" in machine.check_cores(range(everything), None, 1, everything + 1.0, {}).says
    held = machine.check_cores([0], 0.5, 8, 0.0, {"SLURM_JOB_ID": "7"})
    assert held.level == "note"
    assert "a control group limits CPU time to that of 0.5 cores; " in held.says
    assert "8 ranks share 1" in held.says
    assert "--cpus-per-task" in held.hint


@pytest.mark.parametrize(
    ("soft", "hard", "level", "hint"),
    [
        (20000, 20000, "ok", ""),
        (1024, 524288, "note", "ulimit -n 65536"),
        (1024, 1024, "note", "administrator"),
        (64, 4096, "fault", "ulimit -n 4096"),
    ],
)
def test_few_open_files_are_named_with_the_remedy(soft, hard, level, hint):
    found = machine.check_open_files(soft, hard)
    assert found.level == level
    assert hint in found.hint


def test_a_memory_limit_counts_and_not_what_the_machine_has():
    limit = cgroups.MemoryLimit(3 * 2**30, int(2.5 * 2**30))
    found = machine.check_memory(limit)
    assert found.says.startswith("512 MiB free of 3.0 GiB")
    assert (found.level, found.evidence["limit"]) == ("fault", 3 * 2**30)


def test_shared_memory_that_is_not_there_is_a_fault(tmp_path):
    found = machine.check_shared_memory(tmp_path / "nowhere")
    assert found.level == "fault"
    assert "No such file" in found.says
    assert "--shm-size" in found.hint
    assert machine.check_shared_memory(tmp_path).good


@pytest.mark.parametrize(
    ("env", "membership", "kind"),
    [
        ({"APPTAINER_NAME": "a.sif"}, "0::/", "apptainer"),
        ({}, "0::/kubepods/burstable/pod7", "kubernetes"),
        ({}, "5:cpu:/docker/71ab", "docker"),
    ],
)
def test_a_container_is_known_by_its_signs(env, membership, kind, tmp_path):
    assert kind in machine.check_container(env, membership, tmp_path).says
    assert machine.check_container({}, "0::/", tmp_path).says == "no sign of one"
    (tmp_path / ".dockerenv").touch()
    assert "/.dockerenv" in machine.check_container({}, "0::/", tmp_path).says


def test_the_disk_is_tried_quickly_and_left_as_it_was(tmp_path):
    began = time.monotonic()
    found = storage.check_disk(tmp_path, "a / ext4 rw 0 0\n")
    assert time.monotonic() - began < 5
    assert found.evidence["file_system"] == "ext4"
    assert found.evidence["small_files_per_second"] > 0
    assert list(tmp_path.iterdir()) == []


def test_slow_small_files_call_for_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "measure_small_files", lambda folder: 40.0)
    found = storage.check_disk(tmp_path, f"server:/x {tmp_path} nfs4 rw 0 0\n")
    assert found.level == "note"
    assert "(nfs4)" in found.says and "shared with other machines" in found.says
    assert "shards" in found.hint


def test_a_mount_with_a_space_is_found_and_the_last_one_covers():
    mounts = "a / ext4 rw 0 0\nb /my\\040data nfs rw 0 0\nc /my\\040data lustre rw 0 0\n"
    assert storage.file_system(Path("/my data/x"), mounts) == "lustre"
    assert storage.file_system(Path("/mystery"), mounts) == "ext4"
    assert storage.file_system(Path("/x"), "") is None


def test_the_clock_of_the_folder_is_compared(tmp_path, on_path, monkeypatch):
    on_path("timedatectl", "echo no")
    found = storage.check_clock(tmp_path)
    tick = pytest.approx(0.0, abs=0.05)  # File systems take a time that is some milliseconds old.
    assert found.evidence == {"file_server_ahead": tick, "ntp": False}
    assert (found.level, "set-ntp" in found.hint) == ("note", True)
    late = time.time
    monkeypatch.setattr(storage.time, "time", lambda: late() - 100)
    found = storage.check_clock(tmp_path)
    assert found.evidence["file_server_ahead"] == pytest.approx(100, abs=5)
    assert found.level == "fault"


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("GLOO_SOCKET_IFNAME", "eth0", None),
        ("GLOO_SOCKET_IFNAME", "eth", "there is no interface 'eth'"),
        ("GLOO_SOCKET_IFNAME", "eth1", "eth1 is down"),
        ("GLOO_SOCKET_IFNAME", "ib0", "ib0 has no address"),
        ("GLOO_SOCKET_IFNAME", "eth0,nope", "there is no interface 'nope'"),
        ("NCCL_SOCKET_IFNAME", "eth", None),
        ("NCCL_SOCKET_IFNAME", "=eth", "there is no interface 'eth'"),
        ("NCCL_SOCKET_IFNAME", "=eth0", None),
        ("NCCL_SOCKET_IFNAME", "ib", "ib0 has no address"),
        ("NCCL_SOCKET_IFNAME", "^lo,docker", None),
        ("NCCL_SOCKET_IFNAME", "^lo,eth", "leaves no interface"),
    ],
)
def test_an_interface_that_cannot_be_used_is_named_with_those_that_can(variable, value, said):
    found = interfaces.check_interfaces({variable: value}, FOUND)
    assert found.good == (said is None)
    if said:
        assert f"{variable}={value}" in found.says and said in found.says
        assert found.hint.endswith("one of: eth0, lo")


def test_a_name_without_address_is_a_fault_and_a_loopback_is_told():
    lost = interfaces.check_host("no-such-host.invalid", FOUND[1:2])
    assert (lost.level, "/etc/hosts" in lost.hint) == ("fault", True)
    own = interfaces.check_host("localhost", FOUND[1:2])
    assert (own.level, own.evidence["ports"]) == ("note", {"localhost": ""})
    elsewhere = interfaces.check_host(
        "localhost", [Interface("x", up=True, addresses=("192.0.2.77",))]
    )
    assert "no port at 192.0.2.77" in elsewhere.says


@needs_root
def test_a_dead_interface_of_a_real_machine_is_named():
    code = (
        "import os; from scalewise.doctor.interfaces import *; "
        "print(check_interfaces(os.environ, list_interfaces()))"
    )
    script = f"ip link add v0 type veth peer name v1; exec {sys.executable} -c '{code}'"
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "v0"}
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script],
        capture_output=True, text=True, env=env, timeout=20, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    assert "GLOO_SOCKET_IFNAME=v0: v0 is down" in done.stdout
    assert "no interface for a rendezvous of ranks" in done.stdout


def test_an_engine_that_is_not_there_is_told_and_is_no_fault(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "scalewise").mkdir()
    (tmp_path / "scalewise" / "engines.toml").write_text('jax = "/nowhere/python"\n')
    found = framework_checks.check_framework("jax", framework_checks.framework_facts("jax"))
    assert found.says == "framework 'jax' has no Python /nowhere/python"
    assert (found.level, "[engines] jax" in found.hint) == ("note", True)
    found = framework_checks.check_framework("horovod", framework_checks.framework_facts("horovod"))
    assert (found.level, "which is not installed" in found.says) == ("note", True)
    assert found.hint.startswith(
        "build Horovod with `make horovod` in a checkout of scalewise, or name"
    )


def test_no_slurm_is_told_and_is_no_fault(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = slurm_checks.check_slurm({})
    assert (found.says, found.good, found.level) == ("not installed", True, "note")


def test_slurm_without_a_controller_is_not_taken_for_a_cluster(on_path, monkeypatch):
    on_path("srun", "exit 0")
    on_path("scontrol", "echo 'Slurmctld(primary) at head is DOWN'; exit 1")
    assert (
        "no controller answers: Slurmctld(primary) at head is DOWN"
        in slurm_checks.check_slurm({}).says
    )
    on_path("scontrol", "sleep 60")
    began = time.monotonic()
    found = slurm_checks.check_slurm({})
    assert time.monotonic() - began < 10
    assert "no controller answers: no answer within 4 s" in found.says
    assert found.evidence["controller"] is False


def test_a_controller_and_an_allocation_are_shown(on_path):
    on_path(
        "scontrol",
        'case "$1" in ping) echo "Slurmctld(primary) at head is UP";; '
        'show) echo "JobId=7 NumNodes=2 NumTasks=8 CPUs/Task=4 TresPerNode=gres/gpu:4";; esac',
    )
    on_path("sinfo", "echo 'gpu*|up|2|gpu:4'")
    found = slurm_checks.check_slurm({"SLURM_JOB_ID": "7"})
    assert found.level == "ok"
    assert "partitions: gpu (2 nodes)" in found.says
    assert "in job 7: NumNodes 2, NumTasks 8, CPUs/Task 4" in found.says


def test_a_program_that_hangs_with_a_child_is_ended(on_path):
    on_path("stubborn", "trap '' TERM; sleep 61 & wait")
    began = time.monotonic()
    assert run_command("stubborn", seconds=0.5).code is None
    assert time.monotonic() - began < 3
    assert not [each for each in psutil.process_iter() if _command(each) == ["sleep", "61"]]
    assert "no-such-program cannot be started" in run_command("no-such-program").last_line


def _command(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize(
    ("facts", "env", "driver", "level", "said"),
    [
        (CPU_BUILD, {}, "exit 9", "note", "no GPU"),
        (CPU_BUILD, {}, f"echo '{CARDS}'", "fault", "2.13.0+cpu is built for the CPU only"),
        ({**CPU_BUILD, "cuda": "13.0"}, {}, f"echo '{CARDS}'", "fault", "for CUDA 13.0 sees none"),
        ({**CPU_BUILD, "cuda": "13.0"}, {"CUDA_VISIBLE_DEVICES": ""}, f"echo '{CARDS}'", "fault",
         "CUDA_VISIBLE_DEVICES= lets torch see none"),
        ({"devices": ["H100", "H100"]}, {}, "exit 9", "ok", "2 x H100"),
        ({"problem": "no torch"}, {}, "exit 9", "note", "torch does not answer"),
    ],
)  # fmt: skip
def test_a_driver_is_not_taken_for_a_device(facts, env, driver, level, said, on_path):
    on_path("nvidia-smi", driver)
    found = framework_checks.check_devices(facts, env)
    assert found.level == level
    assert said in found.says


def test_the_links_between_devices_are_told(on_path):
    matrix = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-15\nGPU1\tNV18\t X \t0-15\n"
    on_path("nvidia-smi", f"[ $1 = topo ] && printf '{matrix}' || echo '{CARDS}'")
    found = framework_checks.check_devices({"devices": ["H100", "H100"]}, {})
    assert found.says == "2 x H100; linked by NV18"
    assert found.evidence["links"] == matrix


def test_a_question_that_breaks_spoils_no_other(monkeypatch, tmp_path):
    def broken(*_, **__):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(machine, "check_memory", broken)
    monkeypatch.setattr(framework_checks, "framework_facts", lambda name: {"problem": "left out"})
    found = {each.name: each for each in doctor.examine(tmp_path)}
    assert set(found) >= set(NAMES)
    assert found["memory"].says == "the check failed: ZeroDivisionError: by zero"
    assert not found["memory"].good and found["memory"].hint
    assert found["backend"].says == "not tried: torch does not answer"
    assert run_check("x", broken).name == "x"


def test_a_finding_is_two_lines_for_people_and_an_object_for_programs():
    found = Finding("disk", "full", "free some space", "fault", {"free": 0})
    assert str(found).splitlines() == ["--    disk           full", " " * 21 + "free some space"]
    told = {"good": False, "level": "fault", "says": "full", "hint": "free some space"}
    assert found.to_dict() == {**told, "evidence": {"free": 0}}
    assert "evidence" not in Finding("python", "3.11").to_dict()


def test_on_several_nodes_the_line_to_start_by_hand_is_told():
    assert collective_sweep.multi_node_command({}, Path("c.json"), None) is None
    slurm_job = {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    line = collective_sweep.multi_node_command(slurm_job, Path("/a b/c.json"), 4)
    assert line.startswith("srun --nodes=2 --ntasks=2 --ntasks-per-node=1 torchrun --nnodes=2 ")
    assert "--nproc-per-node=4 " in line
    assert line.endswith(" -m scalewise.frameworks collectives '/a b/c.json'")
    ranked = {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "head"}
    line = collective_sweep.multi_node_command(ranked, Path("c.json"), None)
    assert line.startswith("torchrun --nnodes=2 --nproc-per-node=4 ")
    assert "--rdzv-endpoint=head:29400 " in line


def test_a_sweep_that_cannot_be_kept_or_has_one_rank_starts_nothing(tmp_path):
    with pytest.raises(SpecError, match="collectives need at least 2 ranks"):
        collective_sweep.run_sweep(tmp_path / "c.json", 1)
    with pytest.raises(SpecError, match="is a folder"):
        collective_sweep.run_sweep(tmp_path, 2)
    (tmp_path / "file").touch()
    with pytest.raises(ScalewiseError, match="cannot write"):
        collective_sweep.run_sweep(tmp_path / "file" / "c.json", 2)


@pytest.mark.torch
def test_a_known_law_is_recovered():
    from scalewise.frameworks.torch.timing.collective_bench import fit

    sizes = [4**power for power in range(1, 14)]
    found = fit([(size, 50e-6 + size / 2e9) for size in sizes])
    assert found["latency"] == pytest.approx(50e-6)
    assert found["bandwidth"] == pytest.approx(2e9)
    assert found["error"] == pytest.approx(0, abs=1e-9)
    assert fit([(4, 1e-4)]) is None
    assert fit([(4, 2e-4), (4000, 1e-4)]) is None
    assert fit([(4, 1e-6), (4000, 3e-3), (8000, 9e-3)])["latency"] >= 0


@pytest.mark.torch
def test_the_collectives_are_swept_kept_and_shown(tmp_path):
    done = subprocess.run(
        [COMMAND, "doctor", "--collectives", "--ranks", "2"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == "checking: the exchange between ranks …\n"
    assert done.stdout.endswith("\n\nruns/collectives.json\n")
    assert "\nall-reduce: time = " in done.stdout
    kept = json.loads((tmp_path / "runs/collectives.json").read_text())
    assert (kept["schema"], kept["ranks"], kept["ranks_per_node"]) == (1, 2, 2)
    assert {row["operation"] for row in kept["rows"]} == {
        "all-reduce", "all-gather", "reduce-scatter", "broadcast",
    }  # fmt: skip
    for row in kept["rows"]:
        seconds = row["seconds"]
        assert 0 < seconds["low"] <= seconds["value"] <= seconds["high"] < 60
        assert 0 < row["processor"] < 60
        assert row["algorithm_bandwidth"] == pytest.approx(row["bytes"] / seconds["value"])
        share = {"all-reduce": 1.0, "broadcast": 1.0}.get(row["operation"], 0.5)
        assert row["bus_bandwidth"] == pytest.approx(share * row["algorithm_bandwidth"])
    assert kept["fit"]["bandwidth"] > 1e6


@pytest.mark.torch
def test_one_rank_by_hand_is_refused_by_name(tmp_path):
    with pytest.raises(LaunchError, match=r"^collectives .* failed: rank 0 failed: one rank"):
        processes.ask_worker("collectives", str(tmp_path / "c.json"))
    assert not (tmp_path / "c.json").exists()


@pytest.mark.torch
def test_ranks_that_do_not_answer_are_all_ended(tmp_path, monkeypatch):
    ended = []
    end = processes.end
    monkeypatch.setattr(processes, "end", lambda mark: (ended.append(mark), end(mark)))
    with pytest.raises(LaunchError, match="2 ranks gave no answer to collectives within 2 s"):
        processes.run_ranks("collectives", tmp_path / "c.json", ranks=2, timeout=2.0)
    (mark,) = ended
    assert mark.processes() == []
    assert not Path(mark.variables[processes.RUN_VARIABLE]).exists()


@pytest.mark.torch
@needs_root
def test_everything_that_is_wrong_here_is_named_at_once(on_path, tmp_path):
    on_path("srun", "sleep 60")
    on_path("scontrol", "echo 'slurm_load_ctl_conf error: Unable to contact' >&2; exit 1")
    wrong = {**os.environ, "OMP_NUM_THREADS": "64", "GLOO_SOCKET_IFNAME": "nope0"}
    script = 'mount -t tmpfs -o size=4m tmpfs /dev/shm && exec "$0" doctor --json'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, COMMAND],
        cwd=tmp_path, capture_output=True, text=True, env=wrong, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "checking: backend …\n" in done.stderr
    found = json.loads(done.stdout)["findings"]
    assert set(found) >= set(NAMES)
    assert found["shared-memory"]["says"].startswith("4 MiB free of 4 MiB")
    assert "--shm-size" in found["shared-memory"]["hint"]
    assert "OMP_NUM_THREADS=64 is more than" in found["threads"]["says"]
    assert "there is no interface 'nope0'" in found["interfaces"]["says"]
    assert "Unable to find address for: nope0" in found["backend"]["says"]
    assert "GLOO_SOCKET_IFNAME=nope0" in found["backend"]["hint"]
    assert "no controller answers: slurm_load_ctl_conf error" in found["slurm"]["says"]
    bad = {name for name in found if not found[name]["good"]}
    assert {"shared-memory", "threads", "interfaces", "backend"} <= bad <= {
        "shared-memory", "threads", "interfaces", "backend", "cores", "memory",
    }  # fmt: skip
