"""How busy the machine was: the sampler beside a run, its file, and what follows from it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import scalewise
from scalewise.analysis.explain.utilisation import (
    device_utilisations,
    energy_between,
    host_utilisations,
    idle_periods,
)
from scalewise.errors import NewerSchema
from scalewise.launch.processes import start_sampler
from scalewise.probe.node_sampler import (
    Processor,
    counter_increase,
    cpu_packages,
    node_file,
    visible_indices,
)
from scalewise.record.node_samples import DeviceRecord, NodeRecord, read_nodes

HOST = os.uname().nodename
BUSY = "import time\nend = time.time() + 30\nwhile time.time() < end: pass"
IDLE = "import time; time.sleep(30)"

DRIVER = r"""
#include <stdlib.h>
#include <string.h>
#include <time.h>
/* Two devices; the second refuses power and energy. Device 0 takes 100 W from 5 kJ on. */
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, part; } Process;
static double seconds(void) {
    static struct timespec first; struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!first.tv_sec) first = now;
    return (now.tv_sec - first.tv_sec) + (now.tv_nsec - first.tv_nsec) / 1e9;
}
#define INDEX(device) ((int)((char *)(device) - (char *)1000))
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (char *)1000 + i; return 0; }
int nvmlDeviceGetUUID(void *d, char *t, unsigned n) {
    strcpy(t, INDEX(d) ? "GPU-bbbb" : "GPU-aaaa"); return 0; }
int nvmlDeviceGetName(void *d, char *t, unsigned n) { strcpy(t, "Pretend 100"); return 0; }
int nvmlSystemGetDriverVersion(char *t, unsigned n) { strcpy(t, "1.2.3"); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) {
    m[0] = 80000000000ull; m[1] = 79000000000ull; m[2] = 1000000000ull; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *w) { *w = 700000; return 0; }
int nvmlDeviceGetUtilizationRates(void *d, unsigned *r) { r[0] = 97; r[1] = 40; return 0; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *w) { *w = 100000; return INDEX(d) ? 3 : 0; }
int nvmlDeviceGetClockInfo(void *d, int kind, unsigned *c) {
    *c = kind == 1 ? 1980 : 1; return 0; }
int nvmlDeviceGetTemperature(void *d, int kind, unsigned *t) { *t = 45; return kind ? 2 : 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *e) {
    *e = 5000000 + (unsigned long long)(seconds() * 100000); return INDEX(d) ? 3 : 0; }
int nvmlDeviceGetComputeRunningProcesses_v2(void *d, unsigned *n, Process *p) {
    p[0].pid = atoi(getenv("PRETEND_OWN")); p[1].pid = atoi(getenv("PRETEND_FOREIGN"));
    *n = 2; return 0; }
"""


@contextmanager
def a_run(folder, code):
    """Start a process of a run, and end it."""
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, env={**os.environ, "SCALEWISE_RUN": str(folder)}) as run:
        try:
            yield run
        finally:
            run.kill()


@contextmanager
def sampled(folder, code, **env):
    """Start a run and its sampler, and end both."""
    with a_run(folder, code) as run:
        sampler = start_sampler(folder, run.pid, {"SCALEWISE_ATTEMPT": "1", **env})
        try:
            yield run, sampler
        finally:
            sampler.kill()
            sampler.wait()


def wait_for(folder, samples):
    """Wait until the node's file holds a first line and this many samples."""
    path, end = node_file(folder, HOST), time.monotonic() + 15
    while time.monotonic() < end:
        if path.exists() and path.read_bytes().count(b"\n") > samples:
            return
        time.sleep(0.05)
    pytest.fail(f"no {samples} samples in {path}")


def test_a_busy_process_is_seen_and_the_sampler_ends_with_it(tmp_path):
    with sampled(tmp_path, BUSY, CUDA_VISIBLE_DEVICES="") as (run, sampler):
        wait_for(tmp_path, 4)
        run.kill()
        killed = time.time()
        run.wait()
        assert sampler.wait(timeout=2.0) == 0
    (node,) = read_nodes(tmp_path, 1)
    assert node.host == HOST and node.devices == ()
    assert np.isnan(node.cpu[0]), "nothing to compare the first sample with"
    # Others share these cores, so the run's own part may be far below one whole core.
    assert 0.1 / node.cores < np.nanmax(node.own) < 1.3 / node.cores
    assert 1.0 >= np.nanmax(node.cpu) >= 0.8 * np.nanmax(node.own)
    assert np.all(node.memory < node.memory_total) and np.all(node.memory > 0)
    assert np.median(np.diff(node.at)[:-1]) == pytest.approx(1.0, abs=0.3)
    assert node.at[-1] >= killed - 0.1, "the last sample is taken when the run is over"


def test_what_was_written_before_kill_9_is_readable_and_the_next_attempt_goes_on(tmp_path):
    with sampled(tmp_path, IDLE) as (_, sampler):
        wait_for(tmp_path, 2)
        sampler.kill()
    with node_file(tmp_path, HOST).open("ab") as file:
        file.write(b'{"attempt":1,"at":17')
    with sampled(tmp_path, IDLE, SCALEWISE_ATTEMPT="2") as (_, sampler):
        sampler_has_begun = time.monotonic() + 15
        while not read_nodes(tmp_path, 2) and time.monotonic() < sampler_has_begun:
            time.sleep(0.05)
        sampler.send_signal(signal.SIGTERM)
        assert sampler.wait(timeout=2.0) == 0
    (first,), (second,) = read_nodes(tmp_path, 1), read_nodes(tmp_path, 2)
    assert len(first.at) >= 2 and len(second.at) >= 1
    assert second.at[0] > first.at[-1]


def test_it_stays_silent_about_a_process_or_a_folder_that_is_not_there(tmp_path):
    for folder, pid in ((tmp_path, "999999999"), (tmp_path / "none", str(os.getpid()))):
        argv = [sys.executable, "-m", "scalewise.probe.node_sampler", str(folder), pid]
        done = subprocess.run(argv, capture_output=True, timeout=20, check=True)
        assert done.stdout == done.stderr == b""
    assert list(tmp_path.iterdir()) == []


def test_it_runs_from_a_zip_on_the_standard_library_alone(tmp_path):
    package = Path(scalewise.__file__).parent
    with zipfile.ZipFile(tmp_path / "scalewise.zip", "w") as archive:
        for path in package.rglob("*.py"):
            archive.write(path, Path("scalewise") / path.relative_to(package))
    with a_run(tmp_path, IDLE) as run:
        argv = [
            sys.executable,
            "-S",
            "-m",
            "scalewise.probe.node_sampler",
            str(tmp_path),
            str(run.pid),
        ]
        env = {"PYTHONPATH": str(tmp_path / "scalewise.zip")}
        with subprocess.Popen(argv, env=env, cwd=tmp_path) as sampler:
            wait_for(tmp_path, 1)
            run.kill()
            assert sampler.wait(timeout=2.0) == 0
    assert len(read_nodes(tmp_path, 1)[0].at) >= 1


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc to build a stand-in driver")
def test_devices_are_asked_through_the_driver(tmp_path):
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "libnvidia-ml.so.1"
    argv = ["gcc", "-shared", "-fPIC", "-w", "-o", library, tmp_path / "driver.c"]
    subprocess.run(argv, check=True)
    with a_run(tmp_path, IDLE) as run:
        env = {
            "LD_LIBRARY_PATH": str(tmp_path),
            "CUDA_VISIBLE_DEVICES": "GPU-b,0",
            "PRETEND_OWN": str(run.pid),
            "PRETEND_FOREIGN": str(os.getpid()),
        }
        sampler = start_sampler(tmp_path, run.pid, env)
        wait_for(tmp_path, 2)
        run.kill()
        run.wait()
        sampler.wait(timeout=2.0)
    (node,) = read_nodes(tmp_path, 1)
    refusing, willing = node.devices
    assert (refusing.index, refusing.uuid) == (1, "GPU-bbbb")
    assert np.isnan(refusing.power).all() and np.isnan(refusing.energy).all()
    assert (refusing.utilisation == 0.97).all()
    assert (willing.name, willing.driver, willing.power_limit) == ("Pretend 100", "1.2.3", 700.0)
    assert (willing.memory_total, willing.memory[0]) == (80e9, 1e9)
    assert (willing.clock[0], willing.temperature[0], willing.power[0]) == (1980, 45, 100)
    assert (willing.own[0], willing.foreign[0]) == (1, 1)
    seconds = node.at[-1] - node.at[0]
    assert willing.energy[-1] - willing.energy[0] == pytest.approx(100 * seconds, abs=5.0)
    told = device_utilisations([node], node.at[0], node.at[-1])
    assert [each.energy for each in told] == [None, pytest.approx(100 * seconds, abs=5.0)]


def test_visible_devices_are_those_of_cuda():
    uuids = ["GPU-ab", "GPU-ac", "GPU-d"]
    assert visible_indices("2,0", uuids) == [2, 0]
    assert visible_indices("0,0", uuids) == [0], "never twice"
    assert visible_indices("GPU-d, GPU-ac", uuids) == [2, 1]
    for invalid in ("", "-1", "NoDevFiles"):
        assert visible_indices(invalid, uuids) == []
    assert visible_indices("1,7,0", uuids) == [1], "the list ends at what means nothing"
    assert visible_indices("GPU-a", uuids) == [], "more than one device begins so"


def test_energy_counters_of_processors_wrap_around(tmp_path, monkeypatch):
    assert counter_increase(10, 30, 100) == 20 and counter_increase(90, 10, 100) == 20
    for zone, name in (("0", "package-0"), ("0:0", "core"), ("1", "psys"), ("2", "package-1")):
        folder = tmp_path / f"intel-rapl:{zone}"
        folder.mkdir()
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text("900000000\n")
        (folder / "max_energy_range_uj").write_text("1000000000\n")
    assert [each.name for each in cpu_packages(tmp_path)] == ["intel-rapl:0", "intel-rapl:2"]
    monkeypatch.setattr("scalewise.probe.node_sampler.POWERCAP", tmp_path)
    processor = Processor()
    assert processor.energy() == 0.0
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("50000000\n")
    assert processor.energy() == 150.0
    (tmp_path / "intel-rapl:2" / "energy_uj").write_text("901000000\n")
    assert processor.energy() == 151.0
    (tmp_path / "intel-rapl:2" / "energy_uj").unlink()
    assert processor.energy() is None


def test_a_newer_file_is_refused(tmp_path):
    node_file(tmp_path, "far").write_text(json.dumps({"attempt": 1, "schema": 2}) + "\n")
    assert read_nodes(tmp_path, 2) == ()
    with pytest.raises(NewerSchema):
        read_nodes(tmp_path, 1)


def test_cut_and_strange_lines_are_passed_over(tmp_path):
    first = {"attempt": 1, "schema": 1, "host": "far", "interval": 1.0, "new": [1]}
    lines = [json.dumps(first), "[]", '{"attempt":1,"at":5.0,"cpu":0.5}', '{"attempt":1,"at":6']
    node_file(tmp_path, "far").write_text("\n".join(lines))
    node_file(tmp_path, "cut").write_text('{"attempt":1,"sch')
    (node,) = read_nodes(tmp_path, 1)
    assert (node.host, node.at.tolist(), node.cpu.tolist()) == ("far", [5.0], [0.5])
    assert np.isnan(node.memory).all() and node.cores is None


def a_node(seconds=20, **device):
    """Return a node of one device, sampled each second from 101 on: 90 % busy, 500 W, 1,980 MHz."""
    at = 101.0 + np.arange(seconds)
    usual = {
        "utilisation": 0.9, "memory": 4e9, "power": 500.0, "clock": 1980.0, "temperature": 50.0,
        "energy": 500.0 * at, "own": 1.0, "foreign": 0.0,
    }  # fmt: skip
    columns = {name: np.full(seconds, value) for name, value in (usual | device).items()}
    facts = {"name": "Pretend 100", "uuid": None, "driver": None}
    return NodeRecord(
        host="far", interval=1.0, cores=4, memory_total=64e9, at=at, cpu=np.full(seconds, 0.5),
        own=np.full(seconds, 0.25), memory=1e9 * np.arange(seconds), energy=80.0 * at,
        spent=0.001 * at,
        devices=(DeviceRecord(index=0, memory_total=80e9, power_limit=700.0, **facts, **columns),),
    )  # fmt: skip


def test_a_device_that_works_evenly():
    (use,) = device_utilisations([a_node()], 104.5, 114.25)
    assert use.busy == pytest.approx(0.9) and use.power == pytest.approx(500.0)
    assert use.energy == pytest.approx(500.0 * 9.75)
    assert (use.memory, use.clock, use.own, use.foreign) == (4e9, 1980.0, 1, 0)
    assert use.idle == () and use.throttled is False
    (host,) = host_utilisations([a_node()], 104.5, 114.25)
    assert (host.busy, host.own) == (0.5, 0.25) and host.energy == pytest.approx(80 * 9.75)
    assert host.memory == 14e9, "the sample that ends after the stretch speaks of it too"


def test_a_sample_counts_by_its_seconds_inside():
    (use,) = device_utilisations([a_node(power=np.arange(20.0))], 104.5, 106.0)
    assert use.power == pytest.approx((4 * 0.5 + 5 * 1.0) / 1.5)


def test_a_stretch_without_samples_is_unknown():
    for node, start, end in ((a_node(), 500.0, 600.0), (a_node(seconds=0), 100.0, 110.0)):
        (use,), (host,) = (
            each([node], start, end) for each in (device_utilisations, host_utilisations)
        )
        assert {use.busy, use.memory, use.power, use.energy, use.clock, use.throttled} == {None}
        assert use.idle == () and use.foreign is None
        assert {host.busy, host.memory, host.energy} == {None}


def test_energy_is_unknown_where_part_of_it_would_be_missing():
    at, counter = np.arange(5.0), np.array([0.0, 10.0, np.nan, 30.0, 40.0])
    assert energy_between(at, counter, 0.5, 3.5) == pytest.approx(30.0)
    assert energy_between(at, counter, -0.5, 3.5) is None
    assert energy_between(at, counter, 0.5, 4.5) is None
    back = np.array([0.0, 10.0, 20.0, 5.0, 15.0])
    assert energy_between(at, back, 0.0, 4.0) is None
    assert energy_between(at, back, 0.0, 2.0) == 20.0
    assert energy_between(at, back, 3.0, 4.0) == 10.0
    assert energy_between(at, np.full(5, np.nan), 1.0, 2.0) is None


def test_idle_periods_last_two_seconds():
    def periods(*shares, start=0.0, end=99.0):
        return idle_periods(np.arange(len(shares) + 1.0), np.array(shares), start, end)

    assert periods(0.9, 0.0, 0.9) == ()
    assert periods(0.0, 0.0, 0.9, 0.04, 0.01, 0.0) == ((0.0, 2.0), (3.0, 6.0))
    assert periods(0.05, 0.05, 0.05) == (), "5 % is in use"
    assert periods(0.0, np.nan, 0.0) == (), "what is unknown is not idle"
    assert periods(0.0, 0.0, 0.0, 0.0, start=0.5, end=3.0) == ((0.5, 3.0),)
    assert periods(0.0, 0.0, 0.0, 0.0, start=2.5) == ()


def test_a_clock_that_falls_was_throttled_and_one_that_rests_was_not():
    hot = np.where(np.arange(20) < 14, 1980.0, 1500.0)
    (use,) = device_utilisations([a_node(clock=hot)], 100.0, 120.0)
    assert use.throttled is True and use.clock == pytest.approx((14 * 1980 + 6 * 1500) / 20)
    warm = np.where(np.arange(20) < 14, 1980.0, 1800.0)
    assert device_utilisations([a_node(clock=warm)], 100.0, 120.0)[0].throttled is False
    rest = np.where(np.arange(20) % 3 == 0, 300.0, 1980.0)
    share = np.where(rest == 300.0, 0.0, 0.9)
    (use,) = device_utilisations([a_node(clock=rest, utilisation=share)], 100.0, 120.0)
    assert use.throttled is False and use.clock == 1980.0
    unknown = np.full(20, np.nan)
    assert device_utilisations([a_node(clock=unknown)], 100.0, 120.0)[0].throttled is None


def test_others_on_the_device_are_seen():
    guest = np.where(np.arange(20) == 9, 2.0, 0.0)
    assert device_utilisations([a_node(foreign=guest)], 100.0, 120.0)[0].foreign == 2
    assert device_utilisations([a_node(foreign=guest)], 115.0, 120.0)[0].foreign == 0


@pytest.mark.soak
def test_it_costs_less_than_a_third_of_a_percent_of_a_core(tmp_path):
    with sampled(tmp_path, IDLE) as (_, sampler):
        time.sleep(25)
        sampler.terminate()
        sampler.wait()
    (node,) = read_nodes(tmp_path, 1)
    cost = (node.spent[-1] - node.spent[0]) / (node.at[-1] - node.at[0])
    print(f"{cost:.3%} of a core, after {node.spent[0]:.3f} s to start")
    assert cost < 0.003
