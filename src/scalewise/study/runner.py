"""Execute runs: start them, adopt those already running, and follow each to its end.

Adopting a run means to follow a job that an earlier call started. Closing a job writes its
``outcome.json`` or ``failure-<n>.json``.
"""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from scalewise.errors import LaunchError, OutOfReach, RecordError, StartLocked
from scalewise.launch import Job, Launcher, State, clock_of, write_job
from scalewise.record.close import closed
from scalewise.record.study_files import failure, finished
from scalewise.spec import RunSpec
from scalewise.study.jobs import (
    ENDED_BY_USER,
    close_job,
    unclosed_job,
    with_newest_attempt,
)
from scalewise.study.locks import START_SECONDS, start_lock, start_locks
from scalewise.study.notices import Watcher
from scalewise.study.status import active_status

if TYPE_CHECKING:
    from scalewise.study.budget import StudyBudget

POLL_SECONDS = 0.05
"""Seconds between two polls of the running jobs."""
PROGRESS_SECONDS = 0.5
"""Seconds between two reports of a run's progress, which is read from its files."""


class TerminalClosed(KeyboardInterrupt):
    """The terminal was closed (SIGHUP): local runs end, a cluster's jobs continue."""


@dataclass(frozen=True, slots=True)
class _ActiveRun:
    """A run that was started and has not ended."""

    run: RunSpec
    job: Job
    adopted: bool
    """Whether an earlier command had started the run."""
    began: float  # By time.monotonic().


def execute_runs(
    launcher: Launcher,
    todo: Mapping[RunSpec, int],
    folder: Path,
    watcher: Watcher,
    *,
    retrain: Collection[RunSpec] = (),
    detach: bool,
    budget: "StudyBudget | None" = None,
) -> dict[RunSpec, str]:
    """Start runs, or adopt those that an earlier command started; return why some failed.

    ``todo`` maps each run to its position shown to the user. Finished runs are skipped, except
    those in ``retrain``. After a failure a launcher that starts one run at a time starts no more;
    a cluster's jobs continue. ``detach``: return as soon as all runs are submitted.
    """
    execution = _Execution(launcher, todo, folder, watcher, retrain, budget)
    try:
        while execution.active or execution.may_start():
            execution.start_waiting()
            if detach:
                if adopted := sum(active.adopted for active in execution.active):
                    new = len(execution.active) - adopted
                    watcher.note(f"{new} submitted, {adopted} under way already")
                break
            if budget and (reason := budget.end_reason(execution.jobs())):
                execution.end_all(reason)
                break
            execution.poll_active()
            time.sleep(POLL_SECONDS if execution.active else 0.0)
    except BaseException as error:
        execution.give_up(error)
        raise
    return execution.failed


@dataclass
class _Execution:
    """The runs of one call of ``execute_runs``: waiting, active and failed."""

    launcher: Launcher
    todo: Mapping[RunSpec, int]
    folder: Path
    watcher: Watcher
    retrain: Collection[RunSpec]
    budget: "StudyBudget | None"
    active: list[_ActiveRun] = field(default_factory=list)
    failed: dict[RunSpec, str] = field(default_factory=dict)
    reported_at: dict[RunSpec, float] = field(default_factory=dict)
    """When the watcher was last told of a run's progress."""

    def __post_init__(self) -> None:
        self.sequential = self.launcher.at_once == 1
        """Whether runs start one after the other, as on this machine."""
        self.waiting_groups = self.launcher.together(list(self.todo))
        """Groups of runs that start together."""

    def may_start(self) -> bool:
        """Return whether runs wait and may start; if sequential, none may after a failure."""
        return bool(self.waiting_groups) and not (self.failed and self.sequential)

    def jobs(self) -> list[tuple[RunSpec, Job]]:
        """Return the active runs with their jobs."""
        return [(active.run, active.job) for active in self.active]

    def start_waiting(self) -> None:
        """Start as many waiting runs as the launcher and the budget allow."""
        while self.may_start() and len(self.active) < self.launcher.at_once:
            runs = self.waiting_groups[0]
            if (
                self.budget
                # Runs that an earlier command started are not started again, so cost nothing new.
                and not any(unclosed_job(self.folder / run.id) for run in runs)
                and (reason := self.budget.refusal(runs, self.jobs()))
            ):
                if self.active:  # Active runs may cost less than expected: retry later.
                    break
                self.budget.refused |= dict.fromkeys(self.waiting_groups.pop(0), reason)
                continue
            self.waiting_groups.pop(0)
            for run in runs:
                self.watcher.started(self.todo[run], run)
            for run, problem in self._adopt_or_start(runs).items():
                if self.sequential:
                    raise problem
                self.failed[run] = f"{problem} ({problem.hint})"
                self.watcher.ended(run, self.failed[run], 0.0)

    def _adopt_or_start(self, runs: Sequence[RunSpec]) -> dict[RunSpec, LaunchError]:
        """Add runs to the active ones; return why some could not be started."""
        homes = {self.folder / run.id: run for run in runs}
        # A cluster's runs can wait: after another process has submitted one, it is adopted.
        wait = 0.0 if self.sequential else START_SECONDS
        with start_locks(list(homes), wait=wait) as locked:
            problems: dict[RunSpec, LaunchError] = {homes[home]: locked[home] for home in locked}
            unlocked = [run for run in runs if run not in problems]
            missing = [run for run in unlocked if not self._try_adopt(run)]
            try:
                began = time.monotonic()
                plan = self.launcher.plan(missing, self.folder) if missing else None
                jobs = self.launcher.submit(plan) if plan else []
                self.active += [
                    _ActiveRun(run, job, adopted=False, began=began)
                    for run, job in zip(missing, jobs)
                ]
            except LaunchError as refused:
                problems |= dict.fromkeys(missing, refused)
        return problems

    def _try_adopt(self, run: RunSpec) -> bool:
        """Adopt a run whose job is running; return whether the run is adopted or already done."""
        job = unclosed_job(self.folder / run.id)
        if job is None:
            done = run not in self.retrain and finished(self.folder / run.id)
        else:
            state = self.launcher.poll(job)
            if state.phase == "running":
                active = _ActiveRun(run, job, adopted=True, began=time.monotonic())
                self.active.append(_updated(active, state))
                if state.note:
                    phase = "queued" if state.queued else "under way"
                    self.watcher.note(f"{run.title} is {phase}: {state.note}")
                return True
            done = self._close_unseen_end(job, state)
        if done:
            self.watcher.ended(run, "", 0.0)
        return done

    def _close_unseen_end(self, job: Job, state: State) -> bool:
        """Close a job that ended unobserved, or cancel it if stuck; return whether it succeeded."""
        newest = with_newest_attempt(job)
        if state.phase == "stuck":
            has_ended = all(tail.ended for tail in newest.tails())
            self.launcher.cancel(job, stuck=has_ended)
            if not has_ended:
                return False
        job = newest
        if closed(job.folder, job.attempt):  # The job closed itself meanwhile.
            return not (job.folder / f"failure-{job.attempt}.json").exists()
        return not close_job(job, None, "")

    def poll_active(self) -> None:
        """Poll every active run once, and close those that have ended or are stuck."""
        for active in list(self.active):
            state = self.launcher.poll(active.job)
            if state.phase == "running":
                self.active[self.active.index(active)] = _updated(active, state)
                self._report_progress(active, state)
                continue
            cause = self._close(active, state)
            self.active.remove(active)
            self.watcher.ended(active.run, cause, time.monotonic() - active.began)
            if self.budget:
                self.budget.clear_bill()
            if cause:
                self.failed[active.run] = cause

    def _report_progress(self, active: _ActiveRun, state: State) -> None:
        """Tell the watcher how far a run has come, unless it was told a moment ago."""
        if time.monotonic() - self.reported_at.get(active.run, -math.inf) > PROGRESS_SECONDS:
            self.watcher.progressed(active.run, active_status(active.run, active.job, state))
            self.reported_at[active.run] = time.monotonic()

    def _close(self, active: _ActiveRun, state: State) -> str:
        """Close a run that has ended or is stuck; return why it failed, empty on success."""
        if not active.job.folder.exists():  # Nothing must be written where it was.
            self.launcher.cancel(active.job)
            return f"its folder {active.job.folder} is gone: it was moved or deleted"
        with ExitStack() as lock:
            # A ``cancel`` that is ending the run holds this lock until it has recorded why.
            with suppress(StartLocked, RecordError):
                lock.enter_context(start_lock(active.job.folder, wait=START_SECONDS))
            return self._close_locked(active, state)

    def _close_locked(self, active: _ActiveRun, state: State) -> str:
        # An adopted run may have ended before we polled it first: the time of its end is unknown.
        ended = None if active.adopted else clock_of(active.job).now()
        job = with_newest_attempt(active.job)
        has_failure = (job.folder / f"failure-{job.attempt}.json").exists()
        if has_failure and failure(job.folder) == ENDED_BY_USER:
            return ENDED_BY_USER
        if state.phase == "stuck":
            self.launcher.cancel(active.job, stuck=True)
        if not has_failure and closed(job.folder, job.attempt) and finished(job.folder):
            return ""  # The job closed itself.
        try:
            cause = close_job(job, ended, state.cause, state)
        except RecordError as error:
            cause = str(error)  # Perhaps the disk is full: let the other runs continue.
        if cause or active.run.program:
            self.launcher.cancel(active.job)  # Ends processes that outlived the run.
        return cause

    def end_all(self, reason: str) -> None:
        """End all active runs because of ``reason``."""
        for active in self.active:
            self.launcher.cancel(active.job)
        while self.active:
            active = self.active.pop()
            cause = close_job(with_newest_attempt(active.job), clock_of(active.job).now(), reason)
            self.watcher.ended(active.run, cause, time.monotonic() - active.began)
            if cause:
                self.failed[active.run] = cause

    def give_up(self, error: BaseException) -> None:
        """End all active runs and record the cause; a cluster's jobs outlive a closed terminal."""
        if isinstance(error, TerminalClosed) and self.launcher.at_once > 1:
            return
        cause = ENDED_BY_USER if isinstance(error, KeyboardInterrupt) else f"given up: {error}"
        to_close = list(self.active)
        try:
            for active in self.active:
                try:
                    self.launcher.cancel(active.job)
                except OutOfReach:
                    to_close.remove(active)  # The job continues, so it is not closed.
        finally:
            for active in to_close:
                close_job(active.job, clock_of(active.job).now(), cause)


def _updated(active: _ActiveRun, state: State) -> _ActiveRun:
    """Return a run with the job details that polling found, and write them to ``job.json``."""
    return replace(active, job=write_job(state.job)) if state.job else active
