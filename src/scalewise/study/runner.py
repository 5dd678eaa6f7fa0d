"""Execute runs: start them, adopt those already running, and follow each to its end."""

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
"""Seconds between two polls of the running jobs."""


class TerminalClosed(KeyboardInterrupt):
    """The terminal was closed (SIGHUP): local runs end, a cluster's jobs continue."""


@dataclass(frozen=True, slots=True)
class _ActiveRun:
    """A run that was started and has not ended."""

    run: RunSpec
    job: Job
    adopted: bool
    """Whether an earlier call had started it."""
    began: float


class Budget(Protocol):
    """Decides which runs the spending limit still allows."""

    refused: dict[RunSpec, str]
    """Runs that were not started, and why."""

    def check(self, *, detach: bool) -> None:
        """Refuse, before any run starts, a study that is known to exceed the limit."""
        ...

    def refuses(self, runs: Sequence[RunSpec], under_way: Sequence[tuple[RunSpec, Job]]) -> str:
        """Return why runs may not start beside the active ones; empty if they may."""
        ...

    def empty(self, under_way: Sequence[tuple[RunSpec, Job]]) -> str:
        """Return why all active runs must end now; empty if they may continue."""
        ...

    def changed(self) -> None:
        """Note that a run has ended."""
        ...

    def complain(self) -> None:
        """Raise an error that names the runs that were not started, if any."""
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
    """Start runs, or adopt those that an earlier call started; return why some failed.

    ``todo`` maps each run to its number. Finished runs are skipped, except those in ``repeat``,
    which are started again. A launcher that starts one run at a time starts no other after a
    failure; a cluster's jobs continue to their ends. A ``budget`` may skip runs, and end all
    active ones.
    """
    execution = _Execution(launcher, todo, folder, watcher, repeat, budget)
    try:
        while execution.active or execution.may_start():
            execution.start_waiting()
            if detach:
                execution.note_adopted()
                break
            if budget and (reason := budget.empty(_jobs(execution.active))):
                execution.failed |= _end_all(launcher, execution.active, reason, watcher)
                break
            execution.poll_active()
            time.sleep(POLL_SECONDS if execution.active else 0.0)
    except BaseException as error:
        _give_up(launcher, execution.active, error)
        raise
    return execution.failed


class _Execution:
    """The runs of one call of ``execute_runs``: waiting, active and failed."""

    def __init__(
        self,
        launcher: Launcher,
        todo: Mapping[RunSpec, int],
        folder: Path,
        watcher: Watcher,
        repeat: Collection[RunSpec],
        budget: Budget | None,
    ) -> None:
        self.launcher, self.todo, self.folder, self.watcher = launcher, todo, folder, watcher
        self.repeat, self.budget = repeat, budget
        self.sequential = launcher.at_once == 1
        self.waiting = launcher.together(list(todo))
        self.active: list[_ActiveRun] = []
        self.failed: dict[RunSpec, str] = {}

    def may_start(self) -> bool:
        """Return whether a waiting run may still start: not after a failure on this machine."""
        return bool(self.waiting) and not (self.failed and self.sequential)

    def start_waiting(self) -> None:
        """Start as many waiting runs as the launcher and the budget allow."""
        while self.may_start() and len(self.active) < self.launcher.at_once:
            if self.budget and (
                reason := _refused(self.budget, self.waiting[0], self.active, self.folder)
            ):
                if self.active:  # They may cost less than expected: ask again when one has ended.
                    break
                self.budget.refused |= dict.fromkeys(self.waiting.pop(0), reason)
                continue
            runs = self.waiting.pop(0)
            for run in runs:
                self.watcher.started(self.todo[run], run)
            refused = _adopt_or_start(
                self.launcher, runs, self.folder, self.watcher, self.repeat, self.active
            )
            for run, problem in refused.items():
                if self.sequential:
                    raise problem
                self.failed[run] = f"{problem} ({problem.hint})"
                self.watcher.ended(run, self.failed[run], 0.0)

    def note_adopted(self) -> None:
        """Note how many jobs were submitted, if others were running already."""
        if adopted := sum(active.adopted for active in self.active):
            new = len(self.active) - adopted
            self.watcher.note(f"{new} submitted, {adopted} under way already")

    def poll_active(self) -> None:
        """Poll every active run once, and close those that have ended or are stuck."""
        for active in list(self.active):
            state = self.launcher.poll(active.job)
            if state.phase == "running":
                self.active[self.active.index(active)] = _updated(active, state)
                self.watcher.progressed(active.run, share_done(active.job))
                continue
            cause = _end(self.launcher, active, state)
            self.active.remove(active)
            self.watcher.ended(active.run, cause, time.monotonic() - active.began)
            if self.budget:
                self.budget.changed()
            if cause:
                self.failed[active.run] = cause


def _adopt_or_start(
    launcher: Launcher,
    runs: Sequence[RunSpec],
    folder: Path,
    watcher: Watcher,
    repeat: Collection[RunSpec],
    active: list[_ActiveRun],
) -> dict[RunSpec, LaunchError]:
    """Add runs to the ``under_way`` ones; return why some could not be started.

    The lock keeps other processes from starting a run between the check of its folder and its
    start.
    """
    try:
        with start_locks([folder / run.id for run in runs]):
            missing = []
            for run in runs:
                job = unclosed_job(folder / run.id)
                state = launcher.poll(job) if job else State("ended")
                if job and state.phase == "running":
                    began = time.monotonic()
                    active.append(_updated(_ActiveRun(run, job, adopted=True, began=began), state))
                    if state.note:
                        watcher.note(f"{run.title} is under way: {state.note}")
                elif _ended_well(launcher, job, state) if job else _is_done(run, folder, repeat):
                    watcher.ended(run, "", 0.0)
                else:
                    missing.append(run)
            try:
                active += _begin(launcher, missing, folder)
            except LaunchError as refused:
                return dict.fromkeys(missing, refused)
    except StartLocked as busy:
        return dict.fromkeys(runs, busy)
    return {}


def _is_done(run: RunSpec, folder: Path, repeat: Collection[RunSpec]) -> bool:
    """Return whether a run has finished and is not to be repeated."""
    return run not in repeat and finished(folder / run.id)


def _updated(active: _ActiveRun, state: State) -> _ActiveRun:
    """Return a run with the job details that polling found, and write them to ``job.json``."""
    return replace(active, job=write_job(state.job)) if state.job else active


def _ended_well(launcher: Launcher, job: Job, state: State) -> bool:
    """Close a job whose end an earlier call did not see; return whether it succeeded."""
    if state.phase == "stuck":
        launcher.cancel(job)
        return False
    job = with_newest_attempt(job)
    if closed(job.folder, job.attempt):  # It closed itself meanwhile.
        return not (job.folder / f"failure-{job.attempt}.json").exists()
    return not close_job(job, None, "")


def _begin(launcher: Launcher, runs: Sequence[RunSpec], folder: Path) -> list[_ActiveRun]:
    """Start one group of runs."""
    if not runs:
        return []
    began = time.monotonic()
    jobs = launcher.submit(launcher.plan(runs, folder))
    return [_ActiveRun(run, job, adopted=False, began=began) for run, job in zip(runs, jobs)]


def _end(launcher: Launcher, active: _ActiveRun, state: State) -> str:
    """Close a run that has ended or is stuck; return why it failed, empty on success."""
    ended = None if active.adopted else time.time()
    if state.phase == "stuck":
        launcher.cancel(active.job, stuck=True)
    job = with_newest_attempt(active.job)
    if closed(job.folder, job.attempt):
        if finished(job.folder):
            return ""  # The job closed its own record.
        if failure(job.folder) == ENDED_BY_USER:
            return ENDED_BY_USER
    try:
        cause = close_job(job, ended, state.cause, state)
    except RecordError as error:
        cause = str(error)  # The disk is full; the other runs may still have space.
    if cause or active.run.program:
        launcher.cancel(active.job)  # Ends processes that outlived the run.
    return cause


def _refused(
    budget: Budget, runs: Sequence[RunSpec], active: Sequence[_ActiveRun], folder: Path
) -> str:
    """Return why runs may not start; runs that an earlier call started are paid for anyway."""
    if any(unclosed_job(folder / run.id) for run in runs):
        return ""
    return budget.refuses(runs, _jobs(active))


def _jobs(under_way: Sequence[_ActiveRun]) -> list[tuple[RunSpec, Job]]:
    return [(active.run, active.job) for active in under_way]


def _end_all(
    launcher: Launcher, under_way: list[_ActiveRun], reason: str, watcher: Watcher
) -> dict[RunSpec, str]:
    """End all active runs; return the causes of those that had not finished."""
    for active in under_way:
        launcher.cancel(active.job)
    failed = {}
    while under_way:
        active = under_way.pop()
        cause = close_job(with_newest_attempt(active.job), time.time(), reason)
        watcher.ended(active.run, cause, time.monotonic() - active.began)
        if cause:
            failed[active.run] = cause
    return failed


def _give_up(launcher: Launcher, under_way: Sequence[_ActiveRun], reason: BaseException) -> None:
    """End all active runs and record the cause; a cluster's jobs outlive a closed terminal."""
    if isinstance(reason, TerminalClosed) and launcher.at_once > 1:
        return
    cause = ENDED_BY_USER if isinstance(reason, KeyboardInterrupt) else f"given up: {reason}"
    ended = list(under_way)
    try:
        for active in under_way:
            try:
                launcher.cancel(active.job)
            except OutOfReach:
                ended.remove(active)  # It continues, so its record stays open.
    finally:
        for active in ended:
            close_job(active.job, time.time(), cause)
