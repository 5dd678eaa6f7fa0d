"""Report the state of every run of a study, once or until all have ended, and cancel runs."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from scalewise.errors import LaunchError, OutOfReach, StartLocked
from scalewise.launch import Job, Launcher, State, seconds_since_submission
from scalewise.record.close import closed
from scalewise.record.run_progress import RunProgress, read_ended_progress
from scalewise.record.study_files import (
    finished,
    last_failure,
    outcome,
    outcome_problem,
    read_study,
)
from scalewise.record.write import rank_file
from scalewise.spec import RunSpec
from scalewise.study.jobs import (
    ENDED_BY_USER,
    close_job,
    job_progress,
    load_job,
    make_launcher,
    unclosed_job,
)
from scalewise.study.locks import START_SECONDS, start_lock, study_is_locked

FOLLOW_SECONDS = 1.0
"""Seconds between two looks at a study that is followed."""


@dataclass(frozen=True, slots=True)
class Status:
    """The state of one run."""

    run: RunSpec
    phase: Literal["finished", "running", "queued", "failed", "missing"]
    cause: str = ""
    """Why a run failed, is queued or cannot be read; of a running run, a remark of its launcher."""
    progress: RunProgress = field(default_factory=RunProgress)
    job: str | None = None
    """The id of an active run's job in a scheduler's queue."""

    @property
    def is_active(self) -> bool:
        """Whether the run is in a queue or runs."""
        return self.phase in ("queued", "running")


def status(folder: Path) -> list[Status]:
    """Return the state of every run of a study, without changing any."""
    return next(follow(folder))


def follow(folder: Path) -> Iterator[list[Status]]:
    """Yield the state of every run about once a second, until no run is active; change none.

    While a ``scalewise run`` works on the study, it may start further runs.
    """
    study, folder = read_study(folder), folder.resolve()
    launcher = make_launcher(study)  # Only the same one notices that Slurm forgot a job.
    while True:
        locked = study_is_locked(folder)  # Read first: its last runs may end in between.
        states = [_status(launcher, run, folder / run.id, locked) for run in study.runs()]
        yield states
        if not locked and not any(state.is_active for state in states):
            return
        time.sleep(FOLLOW_SECONDS)


def active_status(run: RunSpec, job: Job, state: State) -> Status:
    """Return the status of a run whose launcher says that it is running or queued."""
    job = state.job or job
    job_id = job.details.get("job")
    progress = _with_plan(job_progress(job), run)
    if not state.queued:
        return Status(run, "running", state.note, progress, job_id)
    waited = None if progress.elapsed else seconds_since_submission(job)  # Else it is requeued.
    progress = replace(progress, samples_per_second=None, elapsed=waited)
    return Status(run, "queued", state.note, progress, job_id)


def cancel(folder: Path) -> list[RunSpec]:
    """End every active run of a study; return those runs."""
    study = read_study(folder)
    launcher = make_launcher(study)
    ended = []
    refused: LaunchError | None = None
    for run in study.runs():
        home = folder.resolve() / run.id
        if not unclosed_job(home):
            continue
        try:
            # A run that is being started may have no processes yet: wait until it has.
            with start_lock(home, wait=START_SECONDS):
                job = unclosed_job(home)
                if job and launcher.poll(job).phase != "ended":
                    launcher.cancel(job)
                    close_job(job, None, ENDED_BY_USER)
                    ended.append(run)
        except (OutOfReach, StartLocked) as problem:
            refused = problem  # Raised after the other runs are ended.
    if refused:
        raise refused
    return ended


def _status(launcher: Launcher, run: RunSpec, home: Path, locked: bool) -> Status:
    """Return the status of a run; ``locked``: a ``scalewise run`` is there to record its end."""
    job = load_job(home)
    try:
        state = launcher.poll(job) if job and not closed(home, job.attempt) else None
    except LaunchError as error:
        state = State("running", note=f"not confirmed: {error}")
    if job and state and state.phase == "running":
        return active_status(run, job, state)
    if finished(home):
        progress = read_ended_progress(home, outcome(home))
        unread = "" if progress.done else f"{rank_file(home, 0)} is missing or damaged"
        return Status(run, "finished", unread, progress)
    if job and unclosed_job(home):
        if locked:
            return active_status(run, job, State("running", note="its end is being recorded"))
        progress = replace(job_progress(job), samples_per_second=None, elapsed=None)
        cause = "its end was not seen; `scalewise run` continues it"
        if problem := outcome_problem(home):
            cause = f"{problem}; {problem.hint}"
        return Status(run, "failed", cause, progress)
    if problem := outcome_problem(home):
        return Status(run, "failed", f"{problem}; {problem.hint}")
    if end := last_failure(home):
        return Status(run, "failed", end.cause, _with_plan(read_ended_progress(home, end), run))
    return Status(run, "missing", progress=_with_plan(RunProgress(), run))


def _with_plan(progress: RunProgress, run: RunSpec) -> RunProgress:
    """Fill in the steps that the study asks for, if the run has not recorded its length."""
    planned = run.stop_after or run.total_steps
    return progress if progress.total else replace(progress, total=planned)
