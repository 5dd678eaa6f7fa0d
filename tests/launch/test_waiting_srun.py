"""An srun that waits for ever, after all ranks have ended, is ended: the run is finished."""

import time

import pytest

from builders import a_run
from scalewise.launch import Job, slurm
from scalewise.launch.slurm import SlurmLauncher, queue
from scalewise.record.write import RankFile

ENDED = {"ended": 5.0, "launched": 1.0, "simulated": False, "memory": 0}


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """A job that Slurm shows as running, of a run on two devices whose first rank has ended."""
    monkeypatch.setattr(slurm, "RANK_SECONDS", 0.0)
    monkeypatch.setattr(queue, "load_entries", lambda ids: {"7": queue.QueueEntry("RUNNING")})
    (tmp_path / "log.txt").touch()
    for rank in (0, 1):
        RankFile(tmp_path, rank, 1).line({"host": "here", "pid": 100 + rank, "steps": [0, 7]})
    RankFile(tmp_path, 0, 1).line(ENDED)
    run = a_run(topology="1x2")
    return Job(tmp_path, 1, run.ranks, {"job": "7", "log": 0, "launcher": "slurm"})


def phase_after(launcher, job, seconds):
    launcher.poll(job)
    time.sleep(seconds)
    return launcher.poll(job).phase


def test_a_job_is_stuck_once_all_ranks_have_ended_for_longer_than_patience(waiting):
    launcher = SlurmLauncher({"patience": 0.2})
    assert phase_after(launcher, waiting, 0.3) == "running"  # Rank 1 still trains.
    RankFile(waiting.folder, 1, 1).line(ENDED)
    assert phase_after(launcher, waiting, 0.0) == "running"
    assert phase_after(launcher, waiting, 0.3) == "stuck"


def test_only_the_steps_of_a_stuck_job_are_ended(waiting, monkeypatch):
    asked = []

    def answer(*argv):
        asked.append(argv)
        shown = "7.0\n7.1\n7.batch\n" if argv[0] == "squeue" else ""
        return queue.subprocess.CompletedProcess(argv, 0, shown, "")

    monkeypatch.setattr(queue, "_run_command", answer)
    SlurmLauncher({}).cancel(waiting, stuck=True)
    assert asked[-1] == ("scancel", "7.0", "7.1")
