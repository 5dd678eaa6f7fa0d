"""The jobs of a study's runs, as launchers and run folders know them."""

import math
from dataclasses import replace
from pathlib import Path

from scalewise import plugins
from scalewise.errors import PluginError, RecordError, SpecError
from scalewise.launch import Job, Launcher, State
from scalewise.launch.interpreters import Interpreters
from scalewise.record.close import close, closed, rivals
from scalewise.record.rank_tail import newest_attempt, read_tail
from scalewise.record.study_files import read_json
from scalewise.spec import StudySpec


def make_launcher(study: StudySpec) -> Launcher:
    """Return the launcher that a study names, with its settings."""
    try:
        kind = plugins.load("launchers", study.launcher_name)
    except PluginError as unknown:
        raise SpecError(str(unknown), hint=unknown.hint) from unknown
    launcher: Launcher = kind(study.launcher, Interpreters.of(study.engines))
    return launcher


def load_job(home: Path) -> Job | None:
    """Return the last job of the run in ``home``, if it was ever started."""
    if not (home / "job.json").exists():
        return None
    name = read_json(home / "job.json")
    attempt, world = name.pop("attempt", None), name.pop("world", None)
    if not isinstance(attempt, int) or not isinstance(world, int):
        raise RecordError(
            f"{home / 'job.json'} is damaged: it names no attempt",
            hint="delete that file; the next run ends what is left of the old one",
        )
    return with_newest_attempt(Job(home, attempt, world, name))


def with_newest_attempt(job: Job) -> Job:
    """Return the job with its last attempt: one may start its ranks again by itself."""
    return replace(job, attempt=newest_attempt(job.folder, job.attempt))


def unclosed_job(home: Path) -> Job | None:
    """Return the job whose end an earlier, interrupted call has not seen, if any."""
    job = load_job(home)
    return job if job and not closed(home, job.attempt) else None


def trained_alone(home: Path) -> bool:
    """Say whether a run's program turned out not to be distributed."""
    job = load_job(home)
    if not job or rivals(home, job.attempt).exists():
        return False
    return bool(read_tail(home, 0, job.attempt).notes.trains_alone)


def launch_time(job: Job) -> float | None:
    """Return when a job was launched: its ranks, or what started them; nothing if it waits."""
    job = with_newest_attempt(job)
    return read_tail(job.folder, 0, job.attempt).launched or _start_time(job)


def _start_time(job: Job) -> float | None:
    """Return when the first process of a job began, or when a cluster's job took its run."""
    if processes := job.name.get("processes"):
        return float(min(each["created"] for each in processes))
    taken = max((path.lstat().st_mtime for path in job.folder.glob("holder*")), default=0.0)
    return taken if taken >= job.name.get("submitted", math.inf) else None


def share_done(job: Job) -> float:
    """Return the share of its steps that a run has done, 0 where that is not known yet."""
    job = with_newest_attempt(job)
    word = read_tail(job.folder, 0, job.attempt)
    steps, whole, before = word.notes.steps, word.notes.planned_steps, word.notes.resumed or 0
    return float((before + steps[1]) / (before + whole)) if steps and whole else 0.0


ENDED_BY_USER = "ended by the user"
"""Why a run has ended that somebody cancelled."""


def close_job(job: Job, ended: float | None, why: str, state: State | None = None) -> str:
    """Close the job's attempt with all that its launcher knows; return why it failed, if so."""
    return close(
        job.folder,
        attempt=job.attempt,
        world=job.world,
        ended=ended,
        reason=why,
        killed=state.killed if state else {},
        exits=state.exits if state else {},
        launched=_start_time(job),
    )
