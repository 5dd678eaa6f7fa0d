"""Jobs of a study's runs: load them, read their state, close them (write how they ended)."""

import math
from dataclasses import replace
from pathlib import Path

from scalewise import plugins
from scalewise.errors import PluginError, RecordError, SpecError
from scalewise.launch import Job, Launcher, State, clock_of
from scalewise.launch.interpreters import Interpreters
from scalewise.record.close import close, closed, rivals_folder
from scalewise.record.json_files import read_json
from scalewise.record.rank_tail import newest_attempt, read_tail
from scalewise.record.run_progress import RunProgress, read_progress
from scalewise.spec import StudySpec


def make_launcher(study: StudySpec) -> Launcher:
    """Make the launcher that a study names, with its settings."""
    try:
        launcher_class = plugins.load("launchers", study.launcher_name)
    except PluginError as error:
        raise SpecError(str(error), hint=error.hint) from error
    launcher: Launcher = launcher_class(study.launcher, Interpreters.load(study.engines))
    return launcher


def load_job(home: Path) -> Job | None:
    """Return the last job of the run in ``home``; None if it was never started."""
    if not (home / "job.json").exists():
        return None
    details = read_json(home / "job.json")
    attempt, world = details.pop("attempt", None), details.pop("world", None)
    if not isinstance(attempt, int) or not isinstance(world, int):
        raise RecordError(
            f"{home / 'job.json'} is damaged: it has no attempt, or no world",
            hint="delete that file; the next `scalewise run` ends processes of the old job",
        )
    return with_newest_attempt(Job(home, attempt, world, details))


def with_newest_attempt(job: Job) -> Job:
    """Return the job at its last attempt: a requeued job begins another attempt by itself."""
    return replace(job, attempt=newest_attempt(job.folder, job.attempt))


def unclosed_job(home: Path) -> Job | None:
    """Return the run's job if its end is not recorded: it is active, or nobody saw its end."""
    job = load_job(home)
    return job if job and not closed(home, job.attempt) else None


def trained_alone(home: Path) -> bool:
    """Return whether a run's program turned out not to be distributed."""
    job = load_job(home)
    if not job or rivals_folder(home, job.attempt).exists():  # Several claimed a rank.
        return False
    return bool(read_tail(home, 0, job.attempt).notes.trains_alone)


def launch_time(job: Job) -> float | None:
    """Return the time at which a job's ranks were launched; None while it is queued."""
    job = with_newest_attempt(job)
    return read_tail(job.folder, 0, job.attempt).launched or _start_time(job)


def _start_time(job: Job) -> float | None:
    """Return when the first process of a job began, or when a Slurm job claimed its run."""
    if processes := job.details.get("processes"):
        created = float(min(process["created"] for process in processes))
        if "clock" in job.details:  # Then ``created`` is in seconds since the boot.
            return clock_of(job).booted_at + created
        return created
    # A Slurm job makes a link ``holder*`` when it starts; an older one is of an earlier job.
    claimed = max((path.lstat().st_mtime for path in job.folder.glob("holder*")), default=0.0)
    return claimed if claimed >= job.details.get("submitted", math.inf) else None


def job_progress(job: Job) -> RunProgress:
    """Return how far the last attempt of a job that runs has come."""
    job = with_newest_attempt(job)
    now = clock_of(job).now()
    return read_progress(job.folder, job.attempt, job.world, _start_time(job), now)


ENDED_BY_USER = "ended by the user"
"""The cause that is recorded for a cancelled run."""


def close_job(job: Job, ended: float | None, reason: str, state: State | None = None) -> str:
    """Record an attempt's end with what the caller knows of its reason; return the cause of its
    failure as recorded, empty on success.
    """
    return close(
        job.folder, attempt=job.attempt, world=job.world, ended=ended, reason=reason,
        killed=state.killed if state else {}, exits=state.exits if state else {},
        launched=_start_time(job),
    )  # fmt: skip
