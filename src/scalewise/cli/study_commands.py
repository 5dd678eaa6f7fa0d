"""Verbs that run a study: demo, init, plan, run, status, cancel."""

import json
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalewise.cli.app import verb
from scalewise.cli.options import (
    PRICE_HELP,
    SPENDING_PANEL,
    Again,
    FullRunLength,
    Json,
    Launcher,
    MaxCost,
    MaxDeviceHours,
    Output,
    Price,
    StopPurposes,
    StudyFile,
    StudyFolder,
    Variant,
    flag,
    option,
)
from scalewise.cli.output import print_sections, say, say_path, say_problem
from scalewise.errors import RunFailed, ScalewiseError, SpecError

if TYPE_CHECKING:
    from scalewise.launch import Plan
    from scalewise.spec import RunSpec, StudySpec
    from scalewise.study import Status, Watcher

PANEL = "Run a study"
PROGRAM_PANEL = "Options for your own program (with --on)"
program_option = partial(option, panel=PROGRAM_PANEL)
FORCED_EXIT_SECONDS = 20.0
"""For this long after a Ctrl-C, a second one is ignored; later, it ends scalewise at once."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@verb(PANEL)
def demo() -> None:
    """Run a small study on this machine in two minutes and report it.

    Examples:
      scalewise demo
    """
    from scalewise import results, study
    from scalewise.report.write_report import write_report

    spec = study.load(_starter_file())
    folder = _run_study(spec, _default_folder(spec.name))
    report = write_report(results.all_explained([folder]), folder / "report.html")
    _print_summary(folder)
    say(f"The report: {report}", wraps=False)
    say_path(folder)


@verb(PANEL)
def init(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write [default: study.toml].")
    ] = Path("study.toml"),
    force: Annotated[bool, flag("--force", "Overwrite an existing file.")] = False,
) -> None:
    """Write a starter study file.

    Examples:
      scalewise init my-study.toml
    """
    import tomllib

    from scalewise.record.write import write_text
    from scalewise.spec import StudySpec

    if path.exists() and not force:
        raise SpecError(f"{path} exists already", hint="choose another name, or --force")
    starter = _starter_file().read_text(encoding="utf-8")
    text = starter.replace('name = "demo"', f"name = {json.dumps(path.stem)}")
    StudySpec.from_dict(tomllib.loads(text))  # Fails if the file name is no valid study name.
    write_text(path, text)
    say_path(path)


@verb(PANEL)
def plan(
    study_file: StudyFile,
    variant: Variant = None,
    output: Output = None,
    launcher: Launcher = None,
    write: Annotated[
        Path | None, option("FOLDER", "Write the job scripts here, to start them by hand.")
    ] = None,
    price: Price = None,
    full_run: FullRunLength = None,
) -> None:
    """Show every run, command and cost of a study; start no run.

    Examples:
      scalewise plan study.toml
      scalewise plan study.toml --price 2.50 --full-run "90 epochs"
      scalewise plan study.toml --launcher slurm --write jobs/
    """
    from scalewise import study
    from scalewise.analysis.number_format import format_count
    from scalewise.cli.cost_lines import full_run_cost, parse_price
    from scalewise.record.study_files import finished
    from scalewise.report.text.spending import estimate_lines
    from scalewise.study.budget import load_bill

    spec = study.with_launcher(study.load(study_file, variant), launcher)
    folder = (output or _default_folder(spec.name)).absolute()
    spec = study.with_full_run(spec, full_run, folder)
    missing = [run for run in spec.runs() if not finished(folder / run.id)]
    left_out = study.check(missing, spec.engines)  # Runs whose framework cannot be used.
    plans = study.plan(spec, folder, left_out)
    _print_commands(plans, missing)
    for sentence in study.left_out_notices(left_out):
        say(sentence)
    to_start = [run for run in missing if run not in left_out]
    for warning in study.request_warnings(spec, folder, to_start):
        say(f"warning: {warning}\n   hint: {warning.hint}")
    runs = [run for job_plan in plans for run in job_plan.runs]
    # A user's program sets its own batch: only its runs show whether the scaling is weak.
    scaling = f"{spec.scaling} scaling" if spec.scaling else "scaling as observed"
    request = study.request_summary(spec, runs) or "one after another"  # Local runs.
    say(f"{format_count(len(runs), 'run')}, {scaling}, {request}, in {folder}")
    rate = parse_price(price)
    for line in estimate_lines(load_bill(spec, folder, left_out), rate):
        say(line)
    for line in full_run_cost(spec, folder, rate):
        say(line)
    if write:
        for path in study.write_plan(plans, spec, write):
            say_path(path)


def _print_commands(plans: Sequence["Plan"], missing: Collection["RunSpec"]) -> None:
    for job_plan in plans:
        for run in job_plan.runs:
            state = "to run" if run in missing else "finished"
            batch = f", batch {run.batch}, global {run.global_batch}" if run.batch else ""
            say(f"{run.title}{batch}: {state}")
        for command in job_plan.commands:
            say(f"  {command}", wraps=False)
    if any(command.needs_port for job_plan in plans for command in job_plan.commands):
        typer.echo("{port}: a free port, chosen when the run starts")


@verb(PANEL)
def run(  # noqa: PLR0913 - one parameter per option
    args: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY.toml or -- PROGRAM...",
            help="A study file; with --on, a script or -m MODULE.",
        ),
    ],
    on: Annotated[
        str | None,
        program_option("DEVICES", "Run a program on so many devices: 1,2,4 or 1x4,2x4."),
    ] = None,
    stop_after: Annotated[
        int | None, program_option("STEPS", "Stop the program after this many steps.", minimum=1)
    ] = None,
    samples_per_step: Annotated[
        int | None,
        program_option("N", "Samples per step of a rank, if they are not observed.", minimum=1),
    ] = None,
    full_run: FullRunLength = None,
    repeats: Annotated[
        int | None, option("N", "Runs on each number of devices, also of a study file.", minimum=1)
    ] = None,
    trace: Annotated[
        int, program_option("STEPS", "Steps to record with the profiler.", minimum=0)
    ] = 0,
    loaders_alone: Annotated[
        bool,
        flag(
            "--loaders-alone",
            "Afterwards, time the data loader without training.",
            PROGRAM_PANEL,
        ),
    ] = False,
    variant: Variant = None,
    output: Output = None,
    launcher: Launcher = None,
    detach: Annotated[bool, flag("--detach", "Submit the jobs to the cluster and return.")] = False,
    again: Again = False,
    purposes: StopPurposes = None,
    max_cost: MaxCost = None,
    max_device_hours: MaxDeviceHours = None,
    price: Annotated[str | None, option("PRICE", PRICE_HELP, panel=SPENDING_PANEL)] = None,
) -> None:
    """Start the missing runs of a study; safe to repeat.

    With --on, run your own unmodified script on each number of devices.

    Examples:
      scalewise run study.toml
      scalewise run studies/vit-micro-224.toml --variant cpu
      scalewise run --on 1,2,4 --stop-after 300 -- train.py --epochs 3
      scalewise run study.toml --launcher slurm --detach
      scalewise run study.toml --for efficiency=0.8 --max-cost 20 --price 2.50
    """
    from scalewise import study
    from scalewise.cli.cost_lines import parse_price, stopping_rules

    program_options = {
        "stop_after": stop_after, "samples_per_step": samples_per_step,
        "trace": trace, "loaders_alone": loaders_alone,
    }  # fmt: skip
    if on is not None:
        spec = study.from_program(args, on, repeats or 1, **program_options)
    elif len(args) > 1 or args[0].endswith(".py") or any(program_options.values()):
        hint = "scalewise run --on 1,2 -- train.py; for a study, set these options in its file"
        raise SpecError("a program needs --on, the devices to run it on", hint=hint)
    else:
        spec = study.load(Path(args[0]), variant)
        spec = replace(spec, repeats=repeats or spec.repeats)
    spec = study.with_launcher(spec, launcher)
    folder = output or _default_folder(spec.name)
    spec = study.with_full_run(spec, full_run, folder)
    rate = parse_price(price)
    rules = stopping_rules(spec, folder, purposes, max_cost, max_device_hours, rate, again=again)
    _run_study(spec, folder, rate, again=again, detach=detach, **rules)
    if not detach:
        if spec.certify:
            _run_certificate(spec, folder, again=again)
        _print_summary(folder)
    say_path(folder)


@verb(PANEL)
def status(
    folder: StudyFolder,
    follow: Annotated[bool, flag("--follow", "Show it again until every run has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Show the state of every run of a study; exit with 3 if one failed.

    Examples:
      scalewise status runs/demo
      scalewise status runs/cluster --follow
    """
    from scalewise import study
    from scalewise.cli import status_lines

    try:
        if follow and not as_json:
            from scalewise.cli.progress import show_until_ended

            states = show_until_ended(study.follow(folder))
        else:
            *_, states = study.follow(folder) if follow else [study.status(folder)]
    except KeyboardInterrupt:
        typer.echo("no longer followed; the runs continue", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(status_lines.status_json(states), indent=1))
    elif not follow:
        for state in states:
            say(status_lines.status_line(state))
    _exit_if_failed(states)


def _exit_if_failed(states: Sequence["Status"]) -> None:
    """Exit as ``run`` does after a failure if one of these runs has failed."""
    if any(state.phase == "failed" for state in states):
        raise typer.Exit(RunFailed.exit_code)


@verb(PANEL)
def cancel(folder: StudyFolder) -> None:
    """End all running and queued runs of a study; results stay.

    Examples:
      scalewise cancel runs/cluster
    """
    from scalewise import study

    cancelled = study.cancel(folder)
    for run in cancelled:
        say(f"{run.title}: cancelled")
    if not cancelled:
        typer.echo("no run is queued or running")


def _run_study(spec: "StudySpec", folder: Path, rate: Any = None, **options: Any) -> Path:
    """Run a study, with progress and receipt on stderr; Ctrl-C stops all its processes."""
    from scalewise import study
    from scalewise.cli.cost_lines import receipt_at_end

    with receipt_at_end(folder, rate), _cached_at_end(folder):
        run_with_progress(lambda watcher: study.run(spec, folder, watcher, **options))
    return folder


def _run_certificate(spec: "StudySpec", folder: Path, *, again: bool) -> None:
    """Start the short runs of a certificate; if one fails, say so: the study itself is finished."""
    from scalewise import study

    certificate = study.plan_certificate(spec)
    say("certificate: short runs show whether all numbers of devices learn the same", err=True)
    try:
        run_with_progress(
            lambda watcher: study.run_certificate(certificate, folder, watcher, again=again)
        )
    except RunFailed as problem:
        say_problem(problem)


def run_with_progress(start: Callable[["Watcher"], object]) -> None:
    """Call ``start`` with a watcher that shows progress; Ctrl-C stops all processes it started."""
    from scalewise.cli.progress import progress

    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt_once)
    try:
        with progress() as watcher:
            start(watcher)
    except KeyboardInterrupt:
        message = "interrupted; finished runs are kept, the same command starts the others"
        typer.echo(message, err=True)
        raise typer.Exit(130) from None


@contextmanager
def _cached_at_end(folder: Path) -> Iterator[None]:
    """Keep what reports need of finished runs beside them, unless the study is interrupted."""
    try:
        yield
    except RunFailed:  # Other runs may have finished.
        _cache_runs(folder)
        raise
    _cache_runs(folder)


def _cache_runs(folder: Path) -> None:
    from scalewise.load_run import cache_runs  # NumPy is slow to import.

    cache_runs(folder)


def _print_summary(folder: Path) -> None:
    """Print the answer about a finished study; nothing if its results cannot be read yet."""
    from scalewise import results
    from scalewise.analysis.summary import summarize
    from scalewise.report import summary_sections

    try:
        loaded = results.all_explained([folder])
    except ScalewiseError as error:
        say(f"no summary: {error}", err=True)
        return
    summaries = [summarize(curve, why, source=str(path)) for path, curve, why in loaded]
    print_sections(summary_sections.sections(summaries))
    typer.echo()


def _interrupt_once(number: int, frame: Any) -> None:
    """Stop the study by an exception; then ignore signals for ``FORCED_EXIT_SECONDS``."""
    interrupted_at = time.monotonic()

    def exit_if_late(number: int, frame: Any) -> None:
        if time.monotonic() - interrupted_at > FORCED_EXIT_SECONDS:
            os._exit(130)

    for stop_signal in STOP_SIGNALS:
        signal.signal(stop_signal, exit_if_late)
    if number == signal.SIGHUP:
        from scalewise.study import TerminalClosed

        raise TerminalClosed
    raise KeyboardInterrupt


def _default_folder(name: str) -> Path:
    return Path("runs") / name


def _starter_file() -> Path:
    return Path(__file__).parent.parent / "starter.toml"
