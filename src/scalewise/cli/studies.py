"""Verbs that carry a study out: demo, init, plan, run, status, cancel."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from scalewise.cli.app import app
from scalewise.cli.options import (
    Again,
    Json,
    Launcher,
    MaxCost,
    MaxDeviceHours,
    Output,
    Price,
    StudyFile,
    Variant,
    WhilePaying,
)
from scalewise.cli.output import say, show
from scalewise.errors import SpecError

PATIENCE = 20.0
"""Seconds that ending everything in order may take before another Ctrl-C cuts it short."""


@app.command()
def demo() -> None:
    """Run a whole study on this machine in about two minutes, then report on it.

    Example: scalewise demo
    """
    from scalewise import results, study
    from scalewise.report import page

    question = study.read(_starter())
    folder = _carry_out(question, _home(question.name))
    curves = results.curves([folder])
    show(curves)
    typer.echo()
    typer.echo(page.write(curves, folder / "report.html", results.explanations(folder)))


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("study.toml"),
    force: Annotated[bool, typer.Option("--force", help="Write over what is there.")] = False,
) -> None:
    """Write a starter study file.

    Example: scalewise init my-study.toml
    """
    import tomllib

    from scalewise.record.write import write_text
    from scalewise.spec import StudySpec

    if path.exists() and not force:
        raise SpecError(f"{path} is there already", hint="choose another name, or --force")
    text = _starter().read_text(encoding="utf-8")
    named = text.replace('name = "demo"', f"name = {json.dumps(path.stem)}")
    StudySpec.from_dict(tomllib.loads(named))  # A file's name may not do as a study's.
    write_text(path, named)
    typer.echo(path)


@app.command()
def plan(
    study_file: StudyFile,
    variant: Variant = None,
    output: Output = None,
    launcher: Launcher = None,
    write: Annotated[
        Path | None, typer.Option(help="Write the scripts here, to be edited and started by hand.")
    ] = None,
    price: Price = None,
) -> None:
    """Show every run and every command of a study, and what they cost; start nothing.

    Example: scalewise plan study.toml

    Example: scalewise plan study.toml --price 2.50

    Example: scalewise plan study.toml --launcher slurm --write jobs/
    """
    from scalewise import study
    from scalewise.cli.cost_lines import quote, rate_of
    from scalewise.record.study_files import finished

    question = study.launched_by(study.read(study_file, variant), launcher)
    folder = (output or _home(question.name)).absolute()
    missing = [one for one in question.runs() if not finished(folder / one.id)]
    absent = study.check(missing, question.engines)
    plans = study.plan(question, folder, absent)
    for each in plans:
        for one in each.runs:
            there = "finished" if finished(folder / one.id) else "to run"
            size = f", batch {one.batch}, global {one.global_batch}" if one.batch else ""
            say(f"{one.title}{size}: {there}")
        for command in each.commands:
            say(f"  {command}")
    if any(command.needs_port for each in plans for command in each.commands):
        typer.echo("{port} is a free one, found when the run starts")
    for sentence in study.left_out(absent):
        say(sentence)
    runs = [one for each in plans for one in each.runs]
    word = "run" if len(runs) == 1 else "runs"
    rule = f"{question.scaling} scaling" if question.scaling else "scaling observed"
    asked = study.asks(question, runs)
    say(f"{len(runs)} {word}, {rule}, {asked or 'one after another'}, in {folder}")
    quote(question, folder, absent, rate_of(price))
    if write:
        for path in study.write_plan(plans, question, write):
            typer.echo(path)


@app.command()
def run(  # noqa: PLR0913 - each is an option
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY.toml or -- PROGRAM…",
            help="A study file; or, with --on, a script, -m MODULE or command, and its arguments.",
        ),
    ],
    on: Annotated[
        str | None, typer.Option(help="Devices to run a program on: 1,2,4 or 1x4,2x4.")
    ] = None,
    stop_after: Annotated[
        int | None, typer.Option(min=1, help="Let a program leave after this many steps.")
    ] = None,
    samples_per_step: Annotated[
        int | None, typer.Option(min=1, help="One rank's samples per step, if they are not seen.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of a program on each count.")] = 1,
    trace: Annotated[
        int, typer.Option(min=0, help="Steps of a program to look at with the engine's profiler.")
    ] = 0,
    loaders_alone: Annotated[
        bool, typer.Option("--loaders-alone", help="Time a program's loader alone, at the end.")
    ] = False,
    variant: Variant = None,
    output: Output = None,
    launcher: Launcher = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Submit the jobs and leave them to the cluster.")
    ] = False,
    again: Again = False,
    purposes: WhilePaying = None,
    max_cost: MaxCost = None,
    max_device_hours: MaxDeviceHours = None,
    price: Price = None,
) -> None:
    """Start the runs of a study that are missing; safe to repeat.

    With --on, of your own script, unmodified, on each number of devices.

    Example: scalewise run study.toml

    Example: scalewise run studies/vit-micro-224.toml --variant cpu

    Example: scalewise run --on 1,2,4 --stop-after 300 -- train.py --epochs 3

    Example: scalewise run study.toml --launcher slurm --detach

    Example: scalewise run study.toml --for efficiency=0.8 --max-cost 20 --price 2.50
    """
    from scalewise import study
    from scalewise.cli.cost_lines import means, rate_of

    if on is not None:
        fields = {
            "stop_after": stop_after,
            "samples_per_step": samples_per_step,
            "trace": trace,
            "loaders_alone": loaders_alone,
        }
        question = study.of_program(words, on, repeats, **fields)
    elif (
        len(words) > 1
        or words[0].endswith(".py")
        or stop_after
        or samples_per_step
        or repeats > 1
        or trace
        or loaders_alone
    ):
        raise SpecError(
            "a program needs --on, the devices to run it on",
            hint="scalewise run --on 1,2 -- train.py; a study file says all this itself",
        )
    else:
        question = study.read(Path(words[0]), variant)
    asked = study.launched_by(question, launcher)
    folder = output or _home(asked.name)
    rate = rate_of(price)
    bounds = means(asked, folder, purposes, max_cost, max_device_hours, rate, again=again)
    typer.echo(_carry_out(asked, folder, rate, again=again, detach=detach, **bounds))


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(help="A study's folder.")], as_json: Json = False
) -> None:
    """Show where every run of a study is.

    Example: scalewise status runs/demo
    """
    from scalewise import study

    found = study.status(folder)
    if as_json:
        told = [{"id": s.run.id, "topology": str(s.run.topology), "repeat": s.run.repeat,
                 "phase": s.phase, "cause": s.cause} for s in found]  # fmt: skip
        typer.echo(json.dumps({"schema": 1, "runs": told}, indent=1))
        return
    for each in found:
        say(f"{each.run.title}: {each.phase}" + (f", {each.cause}" if each.cause else ""))


@app.command()
def cancel(folder: Annotated[Path, typer.Argument(help="A study's folder.")]) -> None:
    """End every run of a study that is under way; what was measured stays.

    Example: scalewise cancel runs/cluster
    """
    from scalewise import study

    ended = study.cancel(folder)
    for run in ended:
        say(f"{run.title}: cancelled")
    if not ended:
        typer.echo("no run is under way")


def _carry_out(question: Any, folder: Path, rate: Any = None, **how: Any) -> Path:
    """Run a study with its progress on stderr; Ctrl-C ends it in order."""
    from scalewise import study
    from scalewise.cli.cost_lines import receipt_at_end
    from scalewise.cli.progress import progress

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt_once)
    with receipt_at_end(folder, rate):
        try:
            with progress() as watcher:
                study.run(question, folder, watcher, **how)
        except KeyboardInterrupt:
            told = "interrupted; finished runs are kept, running again starts the rest"
            typer.echo(told, err=True)
            raise typer.Exit(130) from None
    return folder


def _interrupt_once(number: int, frame: Any) -> None:
    """Begin to end everything; whoever is impatient meanwhile changes nothing for a while."""
    began = time.monotonic()

    def insist(number: int, frame: Any) -> None:
        if time.monotonic() - began > PATIENCE:
            os._exit(130)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, insist)
    if number == signal.SIGHUP:
        from scalewise.study import HungUp

        raise HungUp
    raise KeyboardInterrupt


def _home(name: str) -> Path:
    return Path("runs") / name


def _starter() -> Path:
    return Path(__file__).parent.parent / "starter.toml"
