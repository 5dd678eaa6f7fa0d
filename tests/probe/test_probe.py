"""Measuring from inside: laps, spans, sampling."""

import json
import os
import subprocess
import sys

import pytest

from scalewise.frameworks.fake import SimulatedClock
from scalewise.probe import Probe
from scalewise.record.close import close, rivals_folder
from scalewise.record.json_files import read_json
from scalewise.record.read import read_rank
from scalewise.record.write import RankFile, rank_file, write_json


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
def probe(tmp_path, clock):
    return Probe(RankFile(tmp_path, 0, 1), clock, wall=1000.0)


def lines(folder):
    return [json.loads(line) for line in rank_file(folder, 0).read_text().splitlines()]


def test_a_lap_gets_the_time_since_the_one_before(tmp_path, probe, clock):
    probe.start()
    for phase, seconds in (("input", 1.0), ("forward", 2.0), ("input", 3.0), ("forward", 4.0)):
        clock.time += seconds
        probe.lap(phase)
    probe.step(8)
    probe.flush()
    (line,) = lines(tmp_path)
    assert line["phases"] == {"input": 4.0, "forward": 6.0}
    assert line["each"]["seconds"] == [10.0]
    assert line["samples"] == 8


def test_a_fused_step_has_no_phases(tmp_path, probe, clock):
    probe.start()
    clock.time += 2.0
    probe.step(8)
    probe.flush()
    (line,) = lines(tmp_path)
    assert line["phases"] == {} and line["seconds"] == 2.0


def test_a_step_begins_where_the_one_before_ended(tmp_path, probe, clock):
    probe.start()
    for _ in range(3):
        clock.time += 0.5  # Between the last lap and the next one: nothing is lost.
        clock.time += 1.0
        probe.lap("forward")
        probe.step(1)
    probe.flush()
    assert lines(tmp_path)[0]["each"]["seconds"] == [1.5, 1.5, 1.5]


def test_steps_of_another_shape_get_a_line_of_their_own(tmp_path, probe, clock):
    probe.start()
    for phases in (["forward"], ["forward"], ["forward", "optimizer"]):
        for phase in phases:
            clock.time += 1.0
            probe.lap(phase)
        probe.step(1)
    probe.flush()
    assert [line["steps"] for line in lines(tmp_path)] == [[0, 2], [2, 3]]


def test_a_hundred_steps_are_written_without_being_asked(tmp_path, probe):
    probe.start()
    for _ in range(250):
        probe.lap("forward")
        probe.step(1)
    assert [line["steps"] for line in lines(tmp_path)] == [[0, 100], [100, 200]]


def test_steps_that_have_not_passed_on_the_device_wait(tmp_path, probe, clock):
    class Slow(SimulatedClock):
        reached = 0.0

        def passed(self, mark):
            return mark <= self.reached

    slow = Slow()
    probe.use(slow)
    probe.start()
    for _ in range(4):
        slow.time += 1.0
        probe.lap("forward")
        probe.step(1)
    slow.reached = 2.0
    probe.flush()
    assert [line["steps"] for line in lines(tmp_path)] == [[0, 2]]
    slow.reached = 9.0
    probe.flush()
    assert [line["steps"] for line in lines(tmp_path)] == [[0, 2], [2, 4]]


def test_a_span_carries_wall_clock_times_and_facts(tmp_path, probe, clock):
    with probe.span("data", epoch=1) as facts:
        clock.time += 3.0
        facts["samples"] = 5
    (line,) = lines(tmp_path)
    assert line == {
        "attempt": 1, "run": tmp_path.name, "epoch": 1, "span": "data", "start": 1000.0,
        "samples": 5, "end": 1003.0, "sum": line["sum"],
    }  # fmt: skip


TELLS = """
import time
from scalewise import probe
for _ in range(30):
    time.sleep(0.01)
    probe.step(samples=1)
"""


@pytest.mark.parametrize("apart", [True, False])
def test_one_process_is_the_rank_and_another_of_the_same_is_not_recorded(apart, tmp_path):
    write_json(tmp_path / "spec.json", {"topology": "1x1", "program": ["train.py"]})
    environment = {**os.environ, "SCALEWISE_RUN": str(tmp_path), "SCALEWISE_ATTEMPT": "1"}
    begun = []
    for _ in range(2):
        begun.append(subprocess.Popen([sys.executable, "-c", TELLS], env=environment))
        if apart:
            begun[-1].wait()
    assert [each.wait() for each in begun] == [0, 0]
    assert len(list(rivals_folder(tmp_path, 1).iterdir())) == 1
    assert len(read_rank(tmp_path, 0, 1).steps.seconds) == 30
    fault = close(tmp_path, attempt=1, world=1, ended=None)
    if apart:  # A later training of the same program.
        assert fault == "" and read_json(tmp_path / "outcome.json")["later"] == 1
    else:
        assert "2 processes trained as rank 0" in fault
