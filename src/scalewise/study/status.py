"""Report the state of every run of a study, and cancel runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scalewise.errors import LaunchError, OutOfReach, StartLocked
from scalewise.launch import Launcher
from scalewise.record.close import closed
from scalewise.record.study_files import failure, finished, read_study
from scalewise.spec import RunSpec
from scalewise.study.jobs import (
    ENDED_BY_USER,
    close_job,
    load_job,
    make_launcher,
    share_done,
    unclosed_job,
)
from scalewise.study.locks import start_locks

START_SECONDS = 10.0
"""Seconds that ``cancel`` waits for a run that is being started."""


@dataclass(frozen=True, slots=True)
class Status:
    """The state of one run."""

    run: RunSpec
    phase: Literal["finished", "running", "failed", "missing"]
    cause: str = ""
    """Why a run failed; of a running run, its progress or why it waits."""


def status(folder: Path) -> list[Status]:
    """Return the state of every run of a study, without changing any."""
    study = read_study(folder)
    launcher = make_launcher(study)
    return [_status(launcher, run, folder.resolve() / run.id) for run in study.runs()]


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
            with start_locks([home], wait=START_SECONDS):
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


def _status(launcher: Launcher, run: RunSpec, home: Path) -> Status:
    job = load_job(home)
    try:
        state = launcher.poll(job) if job and not closed(home, job.attempt) else None
    except LaunchError as error:
        return Status(run, "running", f"not confirmed: {error}")
    if job and state and state.phase == "running":
        job_id = (state.job or job).details.get("job")
        job_note = f" (job {job_id})" if job_id else ""
        return Status(run, "running", f"{state.note or f'{share_done(job):.0%}'}{job_note}")
    if finished(home):
        return Status(run, "finished")
    if unclosed_job(home):
        return Status(run, "failed", "its end was not seen; `scalewise run` continues it")
    if cause := failure(home):
        return Status(run, "failed", cause)
    return Status(run, "missing")
