"""Carry runs out: start them, take up those that were left, and see each to its end."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from scalewise.errors import LaunchError, OutOfReach, RecordError, StartLocked
from scalewise.launch import Job, Launcher, State, write_job
from scalewise.record.close import closed
from scalewise.record.study_files import failure, finished
from scalewise.spec import RunSpec
from scalewise.study.jobs import (
    ENDED_BY_USER,
    close_job,
    share_done,
    unclosed_job,
    with_newest_attempt,
)
from scalewise.study.locks import start_locks
from scalewise.study.notices import Watcher

POLL_SECONDS = 0.05
"""Seconds between two looks at a running job."""


class TerminalClosed(KeyboardInterrupt):
    """The terminal is gone, and with it whoever watched."""


@dataclass(frozen=True, slots=True)
class _ActiveRun:
    """A run whose end is awaited."""

    run: RunSpec
    job: Job
    taken_up: bool
    """Whether an earlier call had started it."""
    began: float


class Budget(Protocol):
    """Someone who knows what may be bought."""

    refused: dict[RunSpec, str]
    """Runs that were not started, and why."""

    def check(self, *, detach: bool) -> None:
        """Refuse, before anything starts, what is known to be too dear."""
        ...

    def refuses(self, runs: Sequence[RunSpec], under_way: Sequence[tuple[RunSpec, Job]]) -> str:
        """Say why runs are not to be started beside those under way, if so."""
        ...

    def empty(self, under_way: Sequence[tuple[RunSpec, Job]]) -> str:
        """Say why all that is under way must end now, if so."""
        ...

    def changed(self) -> None:
        """A run has ended."""
        ...

    def complain(self) -> None:
        """Tell of runs that were not started, as a problem."""
        ...


def execute_runs(
    launcher: Launcher,
    todo: Mapping[RunSpec, int],
    folder: Path,
    watcher: Watcher,
    *,
    repeat: Collection[RunSpec] = (),
    detach: bool,
    budget: Budget | None = None,
) -> dict[RunSpec, str]:
    """Start runs, or take up those that an earlier call left; return why some failed.

    ``todo`` holds each with its number; finished ones are left alone, but for those in
    ``repeat``, which are started anew. Where runs go one after another, nothing more
    is started after a failure; those that a cluster has go on to their ends. A
    ``budget`` may leave runs out, and end all that is under way.
    """
    alone_here = launcher.at_once == 1
    waiting = launcher.together(list(todo))
    under_way: list[_ActiveRun] = []
    failed: dict[RunSpec, str] = {}
    try:
        while under_way or (waiting and not (failed and alone_here)):
            while waiting and len(under_way) < launcher.at_once and not (failed and alone_here):
                if budget and (why := _refused(budget, waiting[0], under_way, folder)):
                    if under_way:  # It may cost less than was thought.
                        break
                    budget.refused |= dict.fromkeys(waiting.pop(0), why)
                    continue
                runs = waiting.pop(0)
                for run in runs:
                    watcher.started(todo[run], run)
                refused = _adopt_or_start(launcher, runs, folder, watcher, repeat, under_way)
                for run, problem in refused.items():
                    if alone_here:
                        raise problem
                    failed[run] = f"{problem} ({problem.hint})"
                    watcher.ended(run, failed[run], 0.0)
            if detach:
                there = sum(each.taken_up for each in under_way)
                if there:
                    new = len(under_way) - there
                    watcher.note(f"{new} submitted, {there} under way already")
                return failed
            if budget and (why := budget.empty(_jobs(under_way))):
                failed |= _end_all(launcher, under_way, why, watcher)
                break
            for each in list(under_way):
                state = launcher.poll(each.job)
                if state.phase == "running":
                    under_way[under_way.index(each)] = _completed(each, state)
                    watcher.progressed(each.run, share_done(each.job))
                    continue
                cause = _end(launcher, each, state)
                under_way.remove(each)
                watcher.ended(each.run, cause, time.monotonic() - each.began)
                if budget:
                    budget.changed()
                if cause:
                    failed[each.run] = cause
            time.sleep(POLL_SECONDS if under_way else 0.0)
    except BaseException as reason:
        _give_up(launcher, under_way, reason)
        raise
    return failed


def _adopt_or_start(
    launcher: Launcher,
    runs: Sequence[RunSpec],
    folder: Path,
    watcher: Watcher,
    repeat: Collection[RunSpec],
    under_way: list[_ActiveRun],
) -> dict[RunSpec, LaunchError]:
    """Add runs to those ``under_way``; return why some could not be started.

    The lock keeps others from starting a run between the look at its folder and its start.
    """
    try:
        with start_locks([folder / run.id for run in runs]):
            missing = []
            for run in runs:
                job = unclosed_job(folder / run.id)
                state = launcher.poll(job) if job else State("ended")
                if job and state.phase == "running":
                    began = time.monotonic()
                    known = _ActiveRun(run, job, taken_up=True, began=began)
                    under_way.append(_completed(known, state))
                    if state.note:
                        watcher.note(f"{run.title} is under way: {state.note}")
                elif _ended_well(launcher, job, state) if job else _is_done(run, folder, repeat):
                    watcher.ended(run, "", 0.0)
                else:
                    missing.append(run)
            try:
                under_way += _begin(launcher, missing, folder)
            except LaunchError as refused:
                return dict.fromkeys(missing, refused)
    except StartLocked as busy:
        return dict.fromkeys(runs, busy)
    return {}


def _is_done(run: RunSpec, folder: Path, repeat: Collection[RunSpec]) -> bool:
    """Say whether a run ended well since this call began, or before it and is not repeated."""
    return run not in repeat and finished(folder / run.id)


def _completed(one: _ActiveRun, state: State) -> _ActiveRun:
    """Return a run with what asking about it has found out, and write that down."""
    return replace(one, job=write_job(state.job)) if state.job else one


def _ended_well(launcher: Launcher, job: Job, state: State) -> bool:
    """Close a job whose end an earlier call has not seen; say whether it ended well."""
    if state.phase == "stuck":
        launcher.cancel(job)
        return False
    job = with_newest_attempt(job)
    if closed(job.folder, job.attempt):  # It closed itself meanwhile.
        return not (job.folder / f"failure-{job.attempt}.json").exists()
    return not close_job(job, None, "")


def _begin(launcher: Launcher, runs: Sequence[RunSpec], folder: Path) -> list[_ActiveRun]:
    """Start runs that belong together."""
    if not runs:
        return []
    began = time.monotonic()
    jobs = launcher.submit(launcher.plan(runs, folder))
    return [_ActiveRun(run, job, taken_up=False, began=began) for run, job in zip(runs, jobs)]


def _end(launcher: Launcher, one: _ActiveRun, state: State) -> str:
    """Close a run that has ended, or must; return why it failed, if so."""
    ended = None if one.taken_up else time.time()
    if state.phase == "stuck":
        launcher.cancel(one.job, stuck=True)
    job = with_newest_attempt(one.job)
    if closed(job.folder, job.attempt):
        if finished(job.folder):
            return ""  # It said so itself.
        if failure(job.folder) == ENDED_BY_USER:
            return ENDED_BY_USER
    try:
        cause = close_job(job, ended, state.cause, state)
    except RecordError as full:
        cause = str(full)  # The other runs may have room.
    if cause or one.run.program:
        launcher.cancel(one.job)  # Whatever outlived its end.
    return cause


def _refused(
    budget: Budget, runs: Sequence[RunSpec], under_way: Sequence[_ActiveRun], folder: Path
) -> str:
    """Say why runs are not started, if so; those that an earlier call left are paid for anyway."""
    if any(unclosed_job(folder / run.id) for run in runs):
        return ""
    return budget.refuses(runs, _jobs(under_way))


def _jobs(under_way: Sequence[_ActiveRun]) -> list[tuple[RunSpec, Job]]:
    return [(each.run, each.job) for each in under_way]


def _end_all(
    launcher: Launcher, under_way: list[_ActiveRun], why: str, watcher: Watcher
) -> dict[RunSpec, str]:
    """End all that is under way, in order; return why those failed that had not ended well."""
    for each in under_way:
        launcher.cancel(each.job)
    failed = {}
    while under_way:
        each = under_way.pop()
        cause = close_job(with_newest_attempt(each.job), time.time(), why)
        watcher.ended(each.run, cause, time.monotonic() - each.began)
        if cause:
            failed[each.run] = cause
    return failed


def _give_up(launcher: Launcher, under_way: Sequence[_ActiveRun], reason: BaseException) -> None:
    """End what is under way, and say why in its folder; a cluster's jobs outlive a terminal."""
    if isinstance(reason, TerminalClosed) and launcher.at_once > 1:
        return
    why = ENDED_BY_USER if isinstance(reason, KeyboardInterrupt) else f"given up: {reason}"
    ended = list(under_way)
    try:
        for each in under_way:
            try:
                launcher.cancel(each.job)
            except OutOfReach:
                ended.remove(each)  # It goes on, and is not ours to close.
    finally:
        for each in ended:
            close_job(each.job, time.time(), why)
