"""Report the progress and the problems of a study to a watcher."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from scalewise.errors import RecordError, RunFailed, ScalewiseError
from scalewise.launch.program import parallel_library
from scalewise.record import replicas
from scalewise.record.failure_cause import NO_STEP
from scalewise.record.log import first_traceback, own_lines
from scalewise.record.rank_tail import read_tail
from scalewise.record.schema import skipped_sentence
from scalewise.spec import RunSpec
from scalewise.study.jobs import load_job, trained_alone
from scalewise.study.status import Status


class Watcher(Protocol):
    """Receives the progress of a study; each docstring is the event that calls its method."""

    def begin(self, todo: int, finished: int, request: str) -> None:
        """The study begins with ``todo`` missing runs; ``request`` describes their device-hours."""

    def started(self, number: int, run: RunSpec) -> None:
        """A run was started; ``number`` is its position among the study's missing runs."""

    def progressed(self, run: RunSpec, status: Status) -> None:
        """The run is queued or running; called about twice a second."""

    def ended(self, run: RunSpec, cause: str, seconds: float) -> None:
        """The run ended; ``cause`` is empty on success."""

    def note(self, sentence: str) -> None:
        """There is a remark about how the study proceeds."""

    def warn(self, problem: ScalewiseError) -> None:
        """There is a problem that does not end the study."""


def left_out_notices(absent: Mapping[RunSpec, str]) -> list[str]:
    """Return a sentence for each reason why runs are left out."""
    return [
        f"{count} {'run is' if count == 1 else 'runs are'} left out: {reason}"
        for reason, count in Counter(absent.values()).items()
    ]


def warn_separate_models(runs: Sequence[RunSpec], folder: Path, watcher: Watcher) -> None:
    """Warn of programs whose ranks joined one process group but trained separate models."""
    for run in runs:
        job = load_job(folder / run.id) if run.program else None
        if job and replicas.unsynchronised([tail.notes.facts for tail in job.tails()]):
            hint = "wrap the model in DistributedDataParallel, or as your training library says"
            watcher.warn(RecordError(f"{run.title}: {replicas.NO_EXCHANGE}", hint=hint))


def warn_skipped_files(runs: Sequence[RunSpec], folder: Path, watcher: Watcher) -> None:
    """Warn of data files that runs could not read and skipped."""
    for run in runs:
        job = load_job(folder / run.id) if run.data else None
        tails = job.tails() if job else []
        if sentence := skipped_sentence(tail.notes.skipped_files for tail in tails):
            hint = f'`scalewise data check {run.data}` lists all; broken = "refuse" ends such a run'
            watcher.warn(RecordError(f"{run.title}: {sentence}", hint=hint))


def warn_damaged_checkpoints(runs: Sequence[RunSpec], folder: Path, watcher: Watcher) -> None:
    """Warn of damaged checkpoints that runs skipped when they resumed."""
    for run in runs:
        job = load_job(folder / run.id) if run.checkpoint_every or run.resume else None
        damaged = read_tail(job.folder, 0, job.attempt).notes.damaged if job else ()
        for sentence in damaged or ():
            hint = "check the disk; a run renames its damaged checkpoints to checkpoints/damaged-*"
            watcher.warn(RecordError(f"{run.title}: {sentence}", hint=hint))


def warn_other_runs(folder: Path, runs: Sequence[RunSpec], watcher: Watcher) -> None:
    """Warn of finished runs in the folder that the study no longer includes."""
    current = {run.id for run in runs}
    stale = [path for path in folder.glob("*/outcome.json") if path.parent.name not in current]
    if stale:
        count = f"{len(stale)} finished runs" if len(stale) > 1 else "1 finished run"
        problem = (
            f"{count} in {folder} belong to an earlier version of this study (other arguments, "
            "or a changed script); measure leaves them out"
        )
        hint = "an output folder for each version keeps them apart"
        watcher.warn(RecordError(problem, hint=hint))


def report_failures(failed: Mapping[RunSpec, str], folder: Path, watcher: Watcher) -> None:
    """Warn of every run that failed, and raise an error for the last."""
    problems = [_run_failed(run, cause, folder) for run, cause in failed.items()]
    for problem in problems[:-1]:
        watcher.warn(problem)
    if problems:
        raise problems[-1]


def _run_failed(run: RunSpec, cause: str, folder: Path) -> RunFailed:
    """Return the error for a failed run, with a hint chosen by phrases in ``cause``."""
    log = folder / run.id / "log.txt"
    traceback = first_traceback(own_lines(folder / run.id), cause) if run.program else ""
    hint = "running again starts only what is missing"
    if trained_alone(folder / run.id):
        hint = f"{scaling_hint(run)}--on 1 measures it as it is"
    elif "no training step" in cause:
        hint = "report its steps with three lines of scalewise.probe, see docs/guides/attach.md"
    elif run.program and NO_STEP in cause and "SIG" not in cause and not traceback:
        hint = (
            "does it train with PyTorch, or by Keras's fit, in a Python that has it? "
            "python -I, -E and -S, or a cleared environment, disable the watcher"
        )
    elif "processes trained as" in cause:
        hint = (
            "processes that train together call torch.distributed.init_process_group, each with "
            "its own rank; to measure one of them, start only one"
        )
    elif "were requested" in cause:
        hint = "pass the number on as {devices}, for example -- train.py --world-size {devices}"
    return RunFailed(
        f"{run.title} failed: {cause}",
        hint=f"its log is {log}; {hint}" if log.exists() else hint,
        details=traceback,
    )


def scaling_hint(run: RunSpec) -> str:
    """Return how a single-process program can use many ranks, ending in "; "; or empty."""
    arguments = run.program
    if run.framework == "tensorflow":
        return "make and compile its model in the scope of a tf.distribute.MirroredStrategy(); "
    if not arguments or not arguments[0].endswith(".py"):
        return ""
    library = parallel_library(Path(arguments[0]))
    if library in ("lightning", "pytorch_lightning"):
        return (
            "give its Trainer devices= and num_nodes=, for example "
            "-- train.py --devices {devices} --nodes {nodes}; "
        )
    if library:
        return f"start it by {library}'s command, with {{devices}} or {{world}} as the number; "
    return f"`scalewise port {shlex.quote(arguments[0])}` shows what is missing; "
