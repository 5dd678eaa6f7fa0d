"""The clocks of two nodes, compared by datagrams."""

import socket
import threading
import time

import pytest

from scalewise.probe.clock_offsets import find_time_server, measure_offset, serve_time


@pytest.fixture
def serve():
    """Return a function that tells the time of a clock, and where."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.bind(("127.0.0.1", 0))

    def start(clock):
        threading.Thread(target=serve_time, args=(listening, clock), daemon=True).start()
        return listening.getsockname()

    yield start
    listening.close()


def test_a_clock_that_is_behind_is_found_by_asking_one_that_is_not(serve):
    address = serve(lambda: time.time() + 5.0)
    found = [each for _ in range(20) if (each := measure_offset(address))]
    ahead, within = min(found, key=lambda each: each[1])
    assert ahead == pytest.approx(-5.0, abs=within + 1e-6)
    assert within < 0.05


def test_an_answer_to_an_earlier_question_is_not_taken(serve):
    late = iter([(0.2, 1.0), (0.0, 100.0)])

    def slow():
        seconds, now = next(late)
        time.sleep(seconds)
        return now

    address = serve(slow)
    assert measure_offset(address, clock=lambda: 100.0) is None
    time.sleep(0.3)
    assert measure_offset(address, clock=lambda: 100.0) == (0.0, 0.0)


def test_nobody_there_is_unknown():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        assert measure_offset(taken.getsockname()) is None


def test_only_the_other_nodes_of_a_job_ask():
    there = {"MASTER_ADDR": "localhost", "MASTER_PORT": "0", "SLURM_NNODES": "2"}
    assert find_time_server({}) is None
    assert find_time_server({**there, "SLURM_NODEID": "0"}) is None
    assert find_time_server({**there, "SLURM_NODEID": "1"}) is not None
    assert find_time_server({**there, "SLURM_NODEID": "1", "SLURM_NNODES": "1"}) is None
