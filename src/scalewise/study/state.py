"""Say where every run of a study is, and end those that are under way."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scalewise.errors import LaunchError, OutOfReach
from scalewise.launch import Launcher
from scalewise.record.close import closed
from scalewise.record.files import failure, finished, read_study
from scalewise.spec import RunSpec
from scalewise.study.jobs import ENDED, close_job, job_of, launcher_of, left_open, share_done


@dataclass(frozen=True, slots=True)
class Status:
    """Where one run is."""

    run: RunSpec
    phase: Literal["finished", "running", "failed", "missing"]
    cause: str = ""


def status(folder: Path) -> list[Status]:
    """Say where every run of a study is; change nothing."""
    study = read_study(folder)
    launcher = launcher_of(study)
    return [_status(launcher, run, folder.absolute() / run.id) for run in study.runs()]


def cancel(folder: Path) -> list[RunSpec]:
    """End every run of a study that is under way; return them."""
    study = read_study(folder)
    launcher = launcher_of(study)
    ended = []
    refused: OutOfReach | None = None
    for run in study.runs():
        job = left_open(folder.absolute() / run.id)
        if not job or launcher.poll(job).phase == "ended":
            continue
        try:
            launcher.cancel(job)
        except OutOfReach as problem:
            refused = problem  # The others are ended first.
            continue
        close_job(job, None, ENDED)
        ended.append(run)
    if refused:
        raise refused
    return ended


def _status(launcher: Launcher, run: RunSpec, home: Path) -> Status:
    job = job_of(home)
    try:
        state = launcher.poll(job) if job and not closed(home, job.attempt) else None
    except LaunchError as silent:
        return Status(run, "running", f"when last heard of: {silent}")
    if job and state and state.phase == "running":
        known = (state.job or job).name.get("job")
        number = f" (job {known})" if known else ""
        return Status(run, "running", f"{state.note or f'{share_done(job):.0%}'}{number}")
    if finished(home):
        return Status(run, "finished")
    if left_open(home):
        return Status(run, "failed", "its end was not seen; `scalewise run` takes it up")
    if cause := failure(home):
        return Status(run, "failed", cause)
    return Status(run, "missing")
