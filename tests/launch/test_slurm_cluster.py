"""The cluster that other tests run on is one: nodes, users, devices, links."""

import json
import os
import time
from pathlib import Path

import pytest

from slurm_cluster import Cluster, inside, open_folder

pytestmark = pytest.mark.slurm

SUM = """
import json, os, socket
import torch, torch.distributed as dist
dist.init_process_group("gloo")
mine = torch.tensor([2.0 ** dist.get_rank()])
dist.all_reduce(mine)
name = socket.gethostname()
said = {"sum": mine.item(), "world": dist.get_world_size(), "uid": os.getuid()}
said |= {"name": name, "address": socket.gethostbyname(name)}
with open(f"said-{dist.get_rank()}.json", "w") as file:
    json.dump(said, file)
dist.destroy_process_group()
"""
TORCHRUN = "-m torch.distributed.run --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d"
SEND = """
import hashlib, os, socket, sys, time
other, size = sys.argv[1], 8 << 20
if os.environ["SLURM_PROCID"] == "0":
    with socket.create_server(("", 5001)) as door, door.accept()[0] as line:
        began, got = time.monotonic(), bytearray()
        while more := line.recv(1 << 20):
            got += more
        print(time.monotonic() - began, hashlib.sha256(got).hexdigest())
else:
    for _ in range(100):
        try:
            line = socket.create_connection((other, 5001))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    with line:
        line.sendall(bytes(range(256)) * (size // 256))
"""


def test_a_job_reaches_two_nodes(cluster, desk):
    (desk / "job.sh").write_text("#!/bin/sh\nsrun hostname\n")
    done = cluster.run("sbatch", "--wait", "-N2", "-n2", "--output=said", "job.sh", cwd=desk)
    assert done.returncode == 0, done.stderr
    assert sorted((desk / "said").read_text().split()) == cluster.names[:2]


def test_ranks_of_two_nodes_meet_over_the_nodes_own_network(cluster, desk):
    (desk / "sum.py").write_text(SUM)
    words = [*TORCHRUN.split(), "--rdzv-endpoint", f"{cluster.names[0]}:29500", "sum.py"]
    done = cluster.run("srun", "-N2", "python", *words, cwd=desk, timeout=120)
    assert done.returncode == 0, done.stderr
    said = [json.loads((desk / f"said-{rank}.json").read_text()) for rank in range(4)]
    assert {(each["sum"], each["world"], each["uid"]) for each in said} == {(15.0, 4, cluster.uid)}
    found = sorted((each["name"], each["address"]) for each in said)
    assert found == sorted(list(cluster.addresses.items())[:2] * 2)


def test_devices_and_hours_that_there_are_not_are_refused(cluster, desk):
    fits = cluster.run("srun", "--gres=gpu:4", "printenv", "CUDA_VISIBLE_DEVICES", cwd=desk)
    assert fits.stdout == "0,1,2,3\n", fits.stderr
    for words, why in {
        "--gres=gpu:5": "Requested node configuration is not available",
        "--time=61": "Requested time limit is invalid",
    }.items():
        refused = cluster.run("sbatch", words, "--wrap=true", cwd=desk)
        assert refused.returncode == 1 and why in refused.stderr


def sent(cluster: Cluster, desk: Path, rate: str) -> tuple[float, str]:
    """Send 8 MiB from node to node at a rate; return the seconds and what arrived."""
    cluster.shape(rate)
    try:
        words = ("-N2", "python", "send.py", cluster.names[0])
        done = cluster.run("srun", *words, cwd=desk)
    finally:
        cluster.shape(None)
    assert done.returncode == 0, done.stderr
    seconds, digest = done.stdout.split()
    return float(seconds), digest


def test_a_slower_link_changes_the_speed_alone(cluster, desk):
    (desk / "send.py").write_text(SEND)
    fast, one = sent(cluster, desk, "800mbit")
    slow, other = sent(cluster, desk, "100mbit")
    assert one == other
    assert slow > 0.9 * (8 << 23) / 1e8
    assert slow > 3 * fast


def test_a_finished_job_can_be_asked_for(cluster, desk):
    number = cluster.run("sbatch", "--parsable", "--wait", "--wrap=exit 3", cwd=desk).stdout.strip()
    told = cluster.run("sacct", "-c", "-n", "-P", "-j", number, "-o", "state,exitcode")
    assert told.stdout == "FAILED|3:0\n", told.stderr


def test_a_node_goes_and_comes_back(cluster, desk):
    name = cluster.names[2]
    cluster.cut(name)
    assert not cluster.listens(name)
    cluster.mend(name)
    assert cluster.listens(name)
    cluster.kill_node(name)
    assert not cluster.listens(name)
    cluster.start_node(name)
    assert cluster.run("srun", "-w", name, "hostname").stdout == f"{name}\n"


def links() -> set[str]:
    """Return the names of the network devices and namespaces that this process made."""
    names = {*os.listdir("/sys/class/net"), *os.listdir("/run/netns")}
    return {name for name in names if name.startswith(f"c{os.getpid()}x")}


def test_a_second_cluster_lives_beside_and_leaves_nothing(cluster):
    before = links()
    with open_folder() as folder, Cluster(folder, nodes=1, rate="1gbit", accounting=True) as other:
        assert not {*other.names} & {*cluster.names}
        left = "#!/bin/sh\nsetsid sleep 1000 &\nsleep 1000\n"
        (other.home / "job.sh").write_text(left)
        number = other.run("sbatch", "--parsable", "job.sh").stdout.strip()
        other.start("sh", "-c", "setsid sleep 1000 & sleep 1000")
        state(other, number, "RUNNING")
        assert len(inside(other.spaces)) > 10
        assert links() > before
    assert not inside(other.spaces)
    assert links() == before


def state(cluster: Cluster, number: str, wanted: str) -> None:
    """Wait until the accounting, which comes a little later, shows a job in this state."""
    for _ in range(100):
        shown = cluster.run("sacct", "-n", "-X", "-P", "-j", number, "-o", "state")
        if shown.stdout.split() == [wanted]:
            return
        time.sleep(0.2)
    pytest.fail(shown.stdout + shown.stderr)


def test_a_process_that_outlives_its_job_is_told(cluster, desk):
    cluster.run("sbatch", "--wait", "--wrap=setsid sleep 1000 &", cwd=desk)
    assert len(cluster.clear()) == 1
    assert not cluster.clear()


def test_a_start_that_fails_says_why_and_leaves_nothing(monkeypatch, tmp_path):
    before = links()
    (tmp_path / "slurmctld").write_text("#!/bin/sh\necho out of order; exit 1\n")
    (tmp_path / "slurmctld").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with open_folder() as folder:
        broken = Cluster(folder, nodes=1)
        with pytest.raises(RuntimeError, match="out of order"), broken:
            pass
    assert broken.spaces and not inside(broken.spaces)
    assert links() == before


def test_a_folder_that_the_user_cannot_enter_is_refused(tmp_path: Path):
    tmp_path.chmod(0o700)
    with pytest.raises(ValueError, match="cannot enter"), Cluster(tmp_path, nodes=1):
        pass
