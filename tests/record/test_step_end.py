"""A job's log says which rank srun lost first, and how; the run's cause names it."""

import pytest

from builders import a_run
from scalewise.record.close import close
from scalewise.record.log import job_cancel_reason, read_step_end
from scalewise.record.write import RankFile, write_json

ENDS_REST = """\
srun: launch/slurm: _step_signal: Terminating StepId=1.1
slurmstepd-n1: error: *** STEP 1.1 ON n1 CANCELLED AT 2026-11-19T18:07:19 ***
srun: error: n1: task 0: Terminated
"""
GONE = {"failed": "ConnectionError: another rank closed its connection", "kind": "error", "at": 5.0}
TOLD = {"failed": "ended by SIGTERM", "kind": "terminated", "at": 4.9}
STALLED = {"failed": "no progress for 12 s (stacks are in the log)", "kind": "stalled", "at": 5.0}
STALL = {"stalled": {"seconds": 12.0, "span": "train", "steps": 7, "laps": 3}}
CASES = {
    "killed": (
        f"srun: error: n2: task 1: Killed\n{ENDS_REST}", [GONE], [],
        "rank 1 on n2 (process 101) was killed by SIGKILL after step 7 (often out of memory)",
    ),
    "dumped": (
        f"srun: error: n2: task 1: Segmentation fault (core dumped)\n{ENDS_REST}", [GONE], [],
        "rank 1 on n2 (process 101) was killed by SIGSEGV after step 7 (a crash",
    ),
    "told to end": (
        f"srun: error: n2: task 1: Exited with exit code 143\n{ENDS_REST}", [GONE], [TOLD],
        "rank 1 on n2 (process 101) failed after step 7: ended by SIGTERM",
    ),
    "stopped": (
        "srun: error: n1: task 0: Exited with exit code 1\n"
        "srun: launch/slurm: _step_signal: Terminating StepId=1.1\n"
        "srun: error: n2: task 1: Killed\n", [STALL, STALLED], [],
        "rank 1 on n2 (process 101) made no progress after step 7: the others waited 12 s",
    ),
    "srun killed": (
        "/spool/slurm_script: line 66: 10914 Killed                  srun --kill-on-bad-exit=1 x\n",
        [], [], "srun (process 10914) was killed by SIGKILL",
    ),
    "srun told to end": (
        "srun: forcing job termination\nsrun: Job step aborted: Waiting up to 7 seconds\n"
        "srun: error: n1: task 0: Killed\nsrun: error: n2: task 1: Killed\n",
        [], [], "srun was told by a signal to end its ranks",
    ),
}  # fmt: skip


def a_slurm_run(folder, log, start="srun"):
    run = a_run(start=start, topology="2x1")
    write_json(folder / "spec.json", run.to_dict())
    write_json(folder / "job.json", {"launcher": "slurm"})
    (folder / "log.txt").write_text(f"scalewise: attempt 1 on n[1-2]\n{log}")


@pytest.mark.parametrize(("log", "first", "second", "cause"), CASES.values(), ids=CASES)
def test_the_rank_that_srun_lost_first_is_named(tmp_path, log, first, second, cause):
    a_slurm_run(tmp_path, log)
    for rank, lines in ((0, first), (1, second)):
        begun = {"host": f"n{rank + 1}", "pid": 100 + rank, "steps": [0, 7]}
        for line in (begun, *lines):
            RankFile(tmp_path, rank, 1).line(line)
    assert close(tmp_path, attempt=1, world=2, ended=9.0).startswith(cause)


def test_a_task_killed_before_its_first_line_is_named(tmp_path):
    a_slurm_run(tmp_path, f"srun: error: n2: task 1: User defined signal 2\n{ENDS_REST}")
    cause = close(tmp_path, attempt=1, world=2, ended=9.0)
    assert cause == "rank 1 on n2 was killed by SIGUSR2 before it recorded anything"


def test_a_task_of_an_agent_is_no_rank(tmp_path):
    a_slurm_run(tmp_path, f"srun: error: n2: task 1: Killed\n{ENDS_REST}", start="torchrun")
    cause = close(tmp_path, attempt=1, world=2, ended=9.0)
    assert "rank 1" not in cause


def test_an_earlier_attempt_tells_nothing_about_a_later_one(tmp_path):
    log = f"srun: error: n2: task 1: Killed\n{ENDS_REST}"
    a_slurm_run(tmp_path, f"{log}scalewise: attempt 2 on n[1-2]\nno python\n")
    assert close(tmp_path, attempt=2, world=2, ended=9.0).startswith("no rank started; the log")


def test_tasks_of_one_line_are_all_read(tmp_path):
    (tmp_path / "log.txt").write_text("srun: error: n2: tasks 4-5,7: Exited with exit code 3\n")
    tasks = read_step_end(tmp_path / "log.txt").tasks
    assert [(rank, end.host, end.code) for rank, end in tasks.items()] == [
        (4, "n2", 3), (5, "n2", 3), (7, "n2", 3),
    ]  # fmt: skip


def test_why_a_job_of_several_runs_ended_is_in_its_own_log(tmp_path):
    ends = "slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-19T18:07:19{} ***\n"
    begins = "scalewise: job 7 begins\n"
    log = tmp_path / "in-turn.txt"
    log.write_text(begins + ends.format(" DUE TO JOB REQUEUE"))
    assert job_cancel_reason(tmp_path / "run", "7").endswith("cancelled due to job requeue")
    log.write_text(log.read_text() + begins)
    assert job_cancel_reason(tmp_path / "run", "7") == ""
    log.write_text(log.read_text() + ends.format(""))
    assert job_cancel_reason(tmp_path / "run", "7") == "the job on n1 was cancelled"
    assert job_cancel_reason(tmp_path / "run", "8") == ""
