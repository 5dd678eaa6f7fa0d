"""Plan a study, and execute its missing runs."""

import shutil
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from scalewise.errors import NewerSchema, RecordError, SpecError, parameter, shown
from scalewise.launch import Plan
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
from scalewise.study.runner import execute_runs

if TYPE_CHECKING:
    from scalewise.study.budget import StudyBudget
    from scalewise.study.stop_rule import PurposeRule


def plan(study: StudySpec, folder: Path, without: Collection[RunSpec] = ()) -> list[Plan]:
    """Return what would be executed for the runs of a study that are not in ``without``."""
    launcher = make_launcher(study)
    runs = [run for run in study.runs() if run not in without]
    return [launcher.plan(group, folder) for group in launcher.together(runs)]


def write_plan(plans: Sequence[Plan], study: StudySpec, scripts: Path) -> list[Path]:
    """Write the files that a user needs to start the runs; return the paths of the scripts."""
    launcher = make_launcher(study)
    written = []
    for plan in plans:
        write_json(plan.folder / "study.json", study.to_dict())
        launcher.prepare(plan)
        name, text = next(iter(plan.files.items()))
        # The script RUN/plan/job.sh of a single run is written as RUN.sh.
        path = scripts / Path(Path(name).parts[0]).with_suffix(Path(name).suffix)
        write_text(path, text)
        written.append(path)
    return written


def request_summary(study: StudySpec, runs: Sequence[RunSpec]) -> str:
    """Describe the device-hours that runs would request; refuse more than is allowed."""
    return make_launcher(study).request_summary(runs)


def request_warnings(study: StudySpec, folder: Path, runs: Sequence[RunSpec]) -> list[SpecError]:
    """Return what the runs that are still to be started should request and do not."""
    to_start = [run for run in runs if not unclosed_job(folder / run.id)]
    return make_launcher(study).request_warnings(to_start)


def run(
    study: StudySpec,
    folder: Path,
    watcher: Watcher,
    *,
    again: bool = False,
    detach: bool = False,
    budget: "StudyBudget | None" = None,
    stop_rule: "PurposeRule | None" = None,
) -> None:
    """Execute missing runs; ``again``: all runs; ``detach``: return when all are submitted."""
    launcher = make_launcher(study)
    if detach and launcher.at_once == 1:
        problem = f"the {study.launcher_name} launcher runs one run after another and cannot detach"
        hint = f"leave {parameter('detach')} out, or give {parameter('launcher', 'slurm')}"
        raise SpecError(problem, hint=hint)
    if stop_rule:
        _check_stop_rule(again=again, detach=detach)
    folder = folder.resolve()  # A run's processes are found by this exact path.
    runs = study.runs()
    unfinished = _unfinished(runs, folder, again=again)
    absent = check(unfinished, study.engines)  # Runs whose framework is missing.
    # Called only to refuse a request that is too large.
    launcher.request_summary([run for run in unfinished if run not in absent])
    if budget and not stop_rule:
        budget.check(detach=detach)
    with study_lock(folder):
        # Runs of an earlier command may have ended during the check, which takes seconds.
        todo = _unfinished([run for run in runs if run not in absent], folder, again=again)
        request = launcher.request_summary(todo)
        _refuse_other_study(study, folder)
        write_json(folder / "study.json", study.to_dict())
        watcher.begin(len(todo), len(runs) - len(todo) - len(absent), request)
        for sentence in left_out_notices(absent):
            watcher.note(sentence)
        for warning in request_warnings(study, folder, todo):
            watcher.warn(warning)
        warn_other_runs(folder, runs, watcher)
        retrain = _delete_checkpoints(todo, folder) if again else set()
        failed: dict[RunSpec, str] = {}
        for group in _groups_until_stop(todo, stop_rule, watcher):
            numbered = {run: todo.index(run) + 1 for run in group}
            failed |= execute_runs(
                launcher, numbered, folder, watcher, retrain=retrain, detach=detach, budget=budget
            )
            if failed or (budget and budget.refused):
                break
        succeeded = [run for run in todo if run not in failed]
        for warn in (warn_separate_models, warn_skipped_files, warn_damaged_checkpoints):
            warn(succeeded, folder, watcher)
        report_failures(failed, folder, watcher)
        if budget:
            budget.raise_refused()


def _check_stop_rule(*, again: bool, detach: bool) -> None:
    """Refuse options under which a rule cannot decide after each device count."""
    if again or detach:
        option = parameter("again" if again else "detach")
        problem = f"decides after each device count, which {option} does not allow"
        raise SpecError(f"{parameter('purpose')} {problem}", hint="leave one of them out")


def _delete_checkpoints(runs: Sequence[RunSpec], folder: Path) -> set[RunSpec]:
    """Delete the checkpoints of runs that begin anew, and return these runs."""
    retrain = {run for run in runs if not unclosed_job(folder / run.id)}
    for run in retrain:
        shutil.rmtree(folder / run.id / FOLDER, ignore_errors=True)
    return retrain


def _groups_until_stop(
    runs: list[RunSpec], stop_rule: "PurposeRule | None", watcher: Watcher
) -> Iterator[list[RunSpec]]:
    """Yield the runs of each device count until the rule stops; without a rule, all runs."""
    if not stop_rule:
        yield runs
        return
    for devices, group in groupby(runs, lambda run: run.topology.world):
        if reason := stop_rule.stop_reason(devices):
            watcher.note(reason)
            return
        yield list(group)


def _unfinished(runs: Sequence[RunSpec], folder: Path, *, again: bool) -> list[RunSpec]:
    """Return runs without an outcome, or with a job whose end is not recorded; ``again``: all."""
    homes = {run: folder / run.id for run in runs}
    return [run for run in runs if again or not finished(homes[run]) or unclosed_job(homes[run])]


def _refuse_other_study(study: StudySpec, folder: Path) -> None:
    """Refuse a folder with another study, or with one that a newer scalewise wrote."""
    try:
        stored = read_study(folder)
    except NewerSchema:
        raise
    except RecordError:
        return  # There is no study file, or it cannot be read.
    if stored.name != study.name:
        hint = "choose another output folder"
        raise SpecError(
            f"{folder} holds the study {shown(stored.name)}, not {shown(study.name)}", hint=hint
        )
