"""Plan a study, and execute its missing runs."""

import shutil
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol

from scalewise.errors import NewerSchema, RecordError, SpecError
from scalewise.launch import Launcher, Plan
from scalewise.record.checkpoints import FOLDER
from scalewise.record.study_files import finished, read_study
from scalewise.record.write import write_json, write_text
from scalewise.spec import RunSpec, StudySpec
from scalewise.study.jobs import make_launcher, unclosed_job
from scalewise.study.load_study import check
from scalewise.study.locks import study_lock
from scalewise.study.notices import (
    Watcher,
    left_out_notices,
    report_failures,
    warn_damaged_checkpoints,
    warn_other_runs,
    warn_separate_models,
    warn_skipped_files,
)
from scalewise.study.runner import Budget, execute_runs


class StopRule(Protocol):
    """Decides whether larger device counts still serve the purpose."""

    def enough(self, devices: int) -> str:
        """Return why this many devices and more are not worth it; empty to continue."""
        ...


def plan(study: StudySpec, folder: Path, without: Collection[RunSpec] = ()) -> list[Plan]:
    """Return what would be executed for the runs of a study that are not in ``without``."""
    launcher = make_launcher(study)
    runs = [run for run in study.runs() if run not in without]
    return [launcher.plan(together, folder) for together in launcher.together(runs)]


def write_plan(plans: Sequence[Plan], study: StudySpec, scripts: Path) -> list[Path]:
    """Write everything that a start by hand needs; return the paths of the scripts."""
    launcher = make_launcher(study)
    written = []
    for plan in plans:
        write_json(plan.folder / "study.json", study.to_dict())
        launcher.prepare(plan)
        name, text = next(iter(plan.files.items()))
        path = scripts / Path(Path(name).parts[0]).with_suffix(Path(name).suffix)
        write_text(path, text)
        written.append(path)
    return written


def request_summary(study: StudySpec, runs: Sequence[RunSpec]) -> str:
    """Describe the device-hours that runs would request; refuse more than is allowed."""
    return make_launcher(study).request_summary(runs)


def run(
    study: StudySpec,
    folder: Path,
    watcher: Watcher,
    *,
    again: bool = False,
    detach: bool = False,
    budget: Budget | None = None,
    stop_rule: StopRule | None = None,
) -> None:
    """Execute missing runs; ``again``: all runs; ``detach``: return when all are submitted.

    A ``budget`` bounds the device-hours. With a ``stop_rule``, all runs of one device count end
    before those of the next, and the rule decides whether the next count is worth it.
    """
    launcher = make_launcher(study)
    _refuse_conflicting_options(
        study, launcher, again=again, detach=detach, has_rule=stop_rule is not None
    )
    folder = folder.resolve()  # Processes are found by this path, so spell it in one way.
    runs = study.runs()
    unfinished = _unfinished(runs, folder, again=again)
    absent = check(unfinished, study.engines)
    launcher.request_summary(
        [run for run in unfinished if run not in absent]
    )  # Refuses what is too much.
    if budget and not stop_rule:
        budget.check(detach=detach)
    with study_lock(folder):
        # Runs of an earlier call may have ended during the check, which takes seconds.
        todo = [run for run in _unfinished(runs, folder, again=again) if run not in absent]
        request = launcher.request_summary(todo)
        _refuse_other_study(study, folder)
        write_json(folder / "study.json", study.to_dict())
        watcher.begin(len(todo), len(runs) - len(todo) - len(absent), request)
        for sentence in left_out_notices(absent):
            watcher.note(sentence)
        warn_other_runs(folder, runs, watcher)
        repeat = {run for run in todo if again and not unclosed_job(folder / run.id)}
        for run in repeat:
            shutil.rmtree(folder / run.id / FOLDER, ignore_errors=True)
        groups = _group_by_devices(todo) if stop_rule else [todo]
        failed: dict[RunSpec, str] = {}
        for group in groups:
            if stop_rule and (enough := stop_rule.enough(group[0].topology.world)):
                watcher.note(enough)
                break
            numbered = {run: todo.index(run) + 1 for run in group}
            failed |= execute_runs(
                launcher, numbered, folder, watcher, repeat=repeat, detach=detach, budget=budget
            )
            if failed or (budget and budget.refused):
                break
        _warn_and_raise([run for run in todo if run not in failed], failed, folder, watcher)
        if budget:
            budget.complain()


def _warn_and_raise(
    succeeded: Sequence[RunSpec], failed: Mapping[RunSpec, str], folder: Path, watcher: Watcher
) -> None:
    """Warn of problems in successful runs, then raise an error if any run failed."""
    warn_separate_models(succeeded, folder, watcher)
    warn_skipped_files(succeeded, folder, watcher)
    warn_damaged_checkpoints(succeeded, folder, watcher)
    report_failures(failed, folder, watcher)


def _refuse_conflicting_options(
    study: StudySpec, launcher: Launcher, *, again: bool, detach: bool, has_rule: bool
) -> None:
    """Refuse --detach without a cluster, and --for with --again or --detach."""
    if detach and launcher.at_once == 1:
        raise SpecError(
            f"the {study.launcher_name} launcher runs one run after another and cannot detach",
            hint="leave --detach out, or --launcher slurm",
        )
    if has_rule and (again or detach):
        raise SpecError(
            f"--for decides after each device count, which {'--again' if again else '--detach'} "
            "does not allow",
            hint="leave one of them out",
        )


def _unfinished(runs: Sequence[RunSpec], folder: Path, *, again: bool) -> list[RunSpec]:
    """Return the runs without an outcome, or with an unclosed attempt; ``again``: all runs."""
    homes = {run: folder / run.id for run in runs}
    return [run for run in runs if again or not finished(homes[run]) or unclosed_job(homes[run])]


def _group_by_devices(runs: Sequence[RunSpec]) -> list[list[RunSpec]]:
    """Return runs grouped by device count, in their order."""
    return [list(group) for _, group in groupby(runs, key=lambda run: run.topology.world)]


def _refuse_other_study(study: StudySpec, folder: Path) -> None:
    """Refuse a folder that holds another study, or one of a later scalewise."""
    try:
        stored = read_study(folder)
    except NewerSchema:
        raise
    except RecordError:
        return  # There is no study file, or none that can be read.
    if stored.name != study.name:
        raise SpecError(
            f"{folder} holds the study {stored.name!r}, not {study.name!r}",
            hint="give another folder with -o",
        )
