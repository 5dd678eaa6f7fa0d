"""A run's times do not jump when somebody sets the wall clock."""

import json
import os
import time

import psutil
import pytest

from scalewise.launch import Job, processes
from scalewise.launch.local import LocalLauncher
from scalewise.probe import Probe
from scalewise.record.run_clock import RunClock, run_clock
from scalewise.record.write import RankFile, rank_file, write_json

HOUR = 3600.0


@pytest.fixture(params=[HOUR, -HOUR])
def set_clock(request, monkeypatch):
    """Return a function that sets the wall clock, and psutil's time of the boot with it."""
    wall, boot = time.time, psutil._pslinux.boot_time

    def move():
        monkeypatch.setattr(time, "time", lambda: wall() + request.param)
        monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: boot() + request.param)

    return move


def test_a_clock_goes_on_when_the_wall_clock_is_set(set_clock):
    clock, began = RunClock.start(), time.time()
    set_clock()
    assert began <= clock.now() < began + 60
    assert run_clock({"SCALEWISE_CLOCK": str(clock)}) == clock


def test_the_clock_of_another_boot_is_not_used():
    for text in ("1000.0 another-boot", "nonsense", ""):
        assert RunClock.from_text(text).now() == pytest.approx(time.time(), abs=1.0)


def test_a_process_is_known_after_the_clock_was_set(set_clock):
    known = processes.identity(os.getpid())
    set_clock()
    assert processes.alive(**known)
    assert not processes.alive(known["pid"], known["created"] + 10)


def test_a_process_that_an_earlier_version_recorded_is_known():
    assert processes.alive(os.getpid(), psutil.Process().create_time())


def test_a_run_does_not_hang_because_the_clock_was_set(set_clock, tmp_path):
    write_json(tmp_path / "job.json", {"attempt": 1})
    RankFile(tmp_path, 0, 1).line({"host": "here"})
    job = Job(tmp_path, 1, 1, {"clock": str(RunClock.start())})
    launcher = LocalLauncher()
    assert launcher._seconds_without_progress(job) < 30
    set_clock()
    assert launcher._seconds_without_progress(job) < 30
    assert LocalLauncher()._seconds_without_progress(job) < 30  # A later call takes it over.


def test_a_rank_notes_that_the_clock_was_set(set_clock, tmp_path):
    probe = Probe(RankFile(tmp_path, 0, 1))
    before = probe.wall()
    set_clock()
    for _ in range(2):
        probe.flush()
    (line,) = [json.loads(text) for text in rank_file(tmp_path, 0).read_text().splitlines()]
    assert abs(line["clock_set"][0]) == pytest.approx(HOUR, abs=1)
    assert before <= probe.wall() < before + 60
