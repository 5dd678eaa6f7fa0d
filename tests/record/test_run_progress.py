"""How far a run has come, read from its first rank's file."""

import time

import pytest

from scalewise.record.rank_tail import TAIL_BYTES
from scalewise.record.run_progress import RunProgress, read_ended_progress, read_progress
from scalewise.record.schema import Failure, Outcome
from scalewise.record.write import RankFile, rank_file


@pytest.fixture
def write(tmp_path):
    """Return a function that writes lines of rank 0 in an attempt."""

    def write(*lines, attempt=1):
        file = RankFile(tmp_path, 0, attempt)
        for line in lines:
            file.line(line)

    return write


def steps(first, end, *, of=None, seconds=1.0, samples=64):
    return {"steps": [first, end], "of": of, "seconds": seconds, "samples": samples}


def test_a_run_that_has_not_begun_has_done_no_step(tmp_path):
    assert read_progress(tmp_path, 1, ranks=2) == RunProgress()
    assert read_progress(tmp_path, 1, 2, launched=time.time() - 5).elapsed == pytest.approx(5, 0.2)


def test_a_program_of_unknown_length_has_steps_and_a_rate_but_no_total(tmp_path, write):
    write({"launched": time.time() - 90}, steps(0, 10), steps(10, 30, seconds=3.0))
    progress = read_progress(tmp_path, 1, ranks=4)
    assert (progress.done, progress.total, progress.share) == (30, None, None)
    assert progress.samples_per_second == 4 * 128 / 4.0
    assert progress.elapsed == pytest.approx(90, abs=5)


def test_the_rate_is_that_of_the_last_seconds(tmp_path, write):
    write(steps(0, 1, seconds=60.0), steps(1, 50, seconds=6.0), steps(50, 99, seconds=6.0))
    assert read_progress(tmp_path, 1, ranks=1).samples_per_second == 128 / 12.0


def test_a_rate_is_not_invented(tmp_path, write):
    write(steps(0, 10, samples=0))  # The samples of the program could not be observed.
    assert read_progress(tmp_path, 1, ranks=2).samples_per_second is None
    write({"facts": {"split": True}}, steps(0, 10), attempt=2)  # Ranks may share samples.
    assert read_progress(tmp_path, 2, ranks=2).samples_per_second is None


def test_uneven_ranks_count_by_their_shares(tmp_path, write):
    write({"outline": {"steps": 50, "epochs": 2, "seen": 100, "together": 250}})
    assert read_progress(tmp_path, 1, ranks=2).total == 100
    write(steps(0, 10, of=100))
    assert read_progress(tmp_path, 1, ranks=2).samples_per_second == 64 * 2.5


@pytest.mark.parametrize("long", [False, True])
def test_steps_before_a_resume_count_however_long_the_file_is(long, tmp_path, write):
    write({"launched": 1.0}, steps(0, 80, of=100), attempt=1)
    write({"launched": 2.0}, {"resumed": 60}, {"damaged": ["one"]}, attempt=2)
    count = 2000 if long else 1
    write(*(steps(i, i + 1, of=40) for i in range(count)), steps(count, 20, of=40), attempt=2)
    assert (rank_file(tmp_path, 0).stat().st_size > TAIL_BYTES) == long
    progress = read_progress(tmp_path, 2, ranks=1)
    assert (progress.done, progress.total, progress.share) == (80, 100, 0.8)


def test_an_ended_run_has_its_whole_time_and_no_rate(tmp_path, write):
    write(steps(0, 30, of=40))
    failure = Failure(1, "killed", 0, "here", closed=9.0, started=2.0, ended=7.0)
    assert read_ended_progress(tmp_path, failure) == RunProgress(30, 40, None, 5.0)
    unknown = Failure(1, "killed", 0, "here", closed=9.0, started=None, ended=7.0)
    assert read_ended_progress(tmp_path, unknown).elapsed is None
    outcome = Outcome(1, started=2.0, ended=7.0, ranks=1)
    assert read_ended_progress(tmp_path, outcome) == RunProgress(30, 30, None, 5.0)
    without_file = Outcome(2, started=2.0, ended=7.0, ranks=1)
    assert read_ended_progress(tmp_path, without_file) == RunProgress(None, None, None, 5.0)


def test_a_thousand_ranks_cost_no_more_than_one(tmp_path, write):
    each = {"seconds": [0.0123456] * 100, "samples": [64] * 100}
    write({"launched": 1.0}, *({**steps(i, i + 1), "each": each} for i in range(4_000)))
    assert rank_file(tmp_path, 0).stat().st_size > 4e6
    began = time.process_time()
    for _ in range(10):
        assert read_progress(tmp_path, 1, ranks=1000).done == 4_000
    assert (time.process_time() - began) / 10 < 0.02
