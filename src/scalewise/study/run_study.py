"""Plan a study, and run what is missing of it."""

import shutil
from collections.abc import Collection, Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol

from scalewise.errors import NewerSchema, RecordError, SpecError
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
from scalewise.study.runner import Budget, execute_runs


class StopRule(Protocol):
    """Someone who knows what the devices are for."""

    def enough(self, devices: int) -> str:
        """Say why this many devices and more would not pay, if so."""
        ...


def plan(study: StudySpec, folder: Path, without: Collection[RunSpec] = ()) -> list[Plan]:
    """Return what would be executed for each run ``without`` those left out; start nothing."""
    launcher = make_launcher(study)
    runs = [run for run in study.runs() if run not in without]
    return [launcher.plan(together, folder) for together in launcher.together(runs)]


def write_plan(plans: Sequence[Plan], study: StudySpec, scripts: Path) -> list[Path]:
    """Write everything that starting by hand needs; return where the scripts are."""
    launcher = make_launcher(study)
    written = []
    for each in plans:
        write_json(each.folder / "study.json", study.to_dict())
        launcher.prepare(each)
        name, text = next(iter(each.files.items()))
        path = scripts / Path(Path(name).parts[0]).with_suffix(Path(name).suffix)
        write_text(path, text)
        written.append(path)
    return written


def request_summary(study: StudySpec, runs: Sequence[RunSpec]) -> str:
    """Say what runs would take of a shared machine; refuse more than is allowed."""
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
    """Start what is missing; ``again``: everything; ``detach``: and leave it to its launcher.

    A ``budget`` bounds what may be bought. ``stop_rule`` says after each number of devices
    whether the next one still pays: all runs of one number go before those of the next.
    """
    launcher = make_launcher(study)
    if detach and launcher.at_once == 1:
        raise SpecError(
            f"the {study.launcher_name} launcher starts one run after another, and must stay",
            hint="leave --detach out, or --launcher slurm",
        )
    if stop_rule and (again or detach):
        raise SpecError(
            f"--for decides after each number of devices, and {'--again' if again else '--detach'} "
            "leaves nothing to decide",
            hint="leave one of them out",
        )
    folder = folder.resolve()  # Another spelling of it finds the same processes.
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
        asked = launcher.request_summary(todo)
        _refuse_other_study(study, folder)
        write_json(folder / "study.json", study.to_dict())
        watcher.begin(len(todo), len(runs) - len(todo) - len(absent), asked)
        for sentence in left_out_notices(absent):
            watcher.note(sentence)
        warn_other_runs(folder, runs, watcher)
        repeat = {run for run in todo if again and not unclosed_job(folder / run.id)}
        for run in repeat:
            shutil.rmtree(folder / run.id / FOLDER, ignore_errors=True)
        failed: dict[RunSpec, str] = {}
        for rung in _group_by_devices(todo) if stop_rule else [todo]:
            if stop_rule and (enough := stop_rule.enough(rung[0].topology.world)):
                watcher.note(enough)
                break
            numbered = {each: todo.index(each) + 1 for each in rung}
            failed |= execute_runs(
                launcher, numbered, folder, watcher, repeat=repeat, detach=detach, budget=budget
            )
            if failed or (budget and budget.refused):
                break
        well = [each for each in todo if each not in failed]
        warn_separate_models(well, folder, watcher)
        warn_skipped_files(well, folder, watcher)
        warn_damaged_checkpoints(well, folder, watcher)
        report_failures(failed, folder, watcher)
        if budget:
            budget.complain()


def _unfinished(runs: Sequence[RunSpec], folder: Path, *, again: bool) -> list[RunSpec]:
    """Return the runs without an outcome, or with a later attempt; ``again``: all of them."""
    homes = {run: folder / run.id for run in runs}
    return [run for run in runs if again or not finished(homes[run]) or unclosed_job(homes[run])]


def _group_by_devices(runs: Sequence[RunSpec]) -> list[list[RunSpec]]:
    """Return runs by their number of devices, few to many."""
    return [list(each) for _, each in groupby(runs, key=lambda run: run.topology.world)]


def _refuse_other_study(study: StudySpec, folder: Path) -> None:
    """Keep a study out of the folder of another one, and of a later scalewise."""
    try:
        there = read_study(folder)
    except NewerSchema:
        raise
    except RecordError:
        return  # None is there, or none that could be read.
    if there.name != study.name:
        raise SpecError(
            f"{folder} holds the study {there.name!r}, not {study.name!r}",
            hint="give another folder with -o",
        )
