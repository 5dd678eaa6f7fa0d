"""Read arguments, call one function, print what it returns.

Nothing heavy is imported before a command needs it: help comes in a blink.
"""

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from scalewise.errors import RunFailed, ScalewiseError, SpecError

app = typer.Typer(
    epilog="Start with `scalewise demo`. Add --debug to see the traceback of an error.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study file.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="The study's folder; runs/NAME if not given.")
]
Again = Annotated[bool, typer.Option("--again", help="Repeat finished runs too.")]
Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="FOLDER…",
        help="Studies' folders, or CSV files: devices,throughput[,time] or devices,time[,samples].",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
Scaling = Annotated[
    str | None, typer.Option(help="How a CSV's batch grew with devices: weak or strong.")
]
PerNode = Annotated[
    int | None, typer.Option("--devices-per-node", min=1, help="Devices per node of a CSV.")
]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(version("scalewise"))
        raise typer.Exit


@app.callback()
def scalewise(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take a training job from one device to many, and learn whether it is worth it."""


@app.command()
def demo() -> None:
    """Run a whole study on this machine in about two minutes, then report on it.

    Example: scalewise demo
    """
    from scalewise import collect, study
    from scalewise.report import page

    question = study.read(_starter())
    folder = _carry_out(question, None, again=False)
    curves = collect.curves([folder])
    _show(curves)
    typer.echo()
    typer.echo(page.write(curves, folder / "report.html"))


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
def plan(study_file: StudyFile, output: Output = None) -> None:
    """Show every run and every command of a study; start nothing.

    Example: scalewise plan study.toml
    """
    from scalewise import study
    from scalewise.record.files import finished

    question = study.read(study_file)
    folder = (output or _home(question.name)).absolute()
    study.check(question.runs())
    plans = study.plan(question, folder)
    for each in plans:
        (one,) = each.runs
        there = "finished" if finished(folder / one.id) else "to run"
        typer.echo(f"{study.title(one)}, batch {one.batch}, global {one.global_batch}: {there}")
        for command in each.commands:
            typer.echo(f"  {command}")
    if any("{port}" in str(command) for each in plans for command in each.commands):
        typer.echo("{port} is a free one, found when the run starts")
    word = "run" if len(plans) == 1 else "runs"
    typer.echo(f"{len(plans)} {word}, {question.scaling} scaling, one after another, in {folder}")


@app.command()
def run(study_file: StudyFile, output: Output = None, again: Again = False) -> None:
    """Start the runs of a study that are missing; safe to repeat.

    Example: scalewise run study.toml
    """
    from scalewise import study

    typer.echo(_carry_out(study.read(study_file), output, again=again))


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
        typer.echo(
            f"{study.title(each.run)}: {each.phase}" + (f", {each.cause}" if each.cause else "")
        )


@app.command()
def measure(
    sources: Sources,
    scaling: Scaling = None,
    devices_per_node: PerNode = None,
    as_json: Json = False,
) -> None:
    """Show throughput, time, speedup, efficiency, marginal gains, memory, quality.

    Several studies are put side by side.

    Example: scalewise measure runs/demo

    Example: scalewise measure published.csv --scaling weak --devices-per-node 4
    """
    from scalewise import collect
    from scalewise.report import formats

    curves = collect.curves(sources, scaling=scaling, devices_per_node=devices_per_node)
    if as_json:
        typer.echo(formats.as_json(curves))
    else:
        _show(curves)


@app.command()
def report(
    sources: Sources,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="The file; its ending says html, md, txt, csv, tex, json, png or svg.",
        ),
    ] = Path("report.html"),
    plot: Annotated[
        str | None, typer.Option(help="For png and svg: one plot alone, by name.")
    ] = None,
    scaling: Scaling = None,
    devices_per_node: PerNode = None,
) -> None:
    """Write a report: one self-contained page, a table, or plots.

    Example: scalewise report runs/demo -o demo.html

    Example: scalewise report runs/a runs/b -o both.png --plot efficiency
    """
    from scalewise import collect
    from scalewise.report.files import write

    _refuse_sources(output, sources)
    curves = collect.curves(sources, scaling=scaling, devices_per_node=devices_per_node)
    typer.echo(write(curves, output, plot=plot))


@app.command()
def doctor(as_json: Json = False) -> None:
    """Show what this machine can do, asked and not guessed.

    Example: scalewise doctor
    """
    from scalewise.doctor import examine

    findings = examine(Path.cwd())
    if as_json:
        told = {
            each.name: {"good": each.good, "says": each.says, "hint": each.hint}
            for each in findings
        }
        typer.echo(json.dumps({"schema": 1, "findings": told}, indent=1))
        return
    for each in findings:
        typer.echo(f"{'ok' if each.good else '--'}  {each.name:<12} {each.says}")
        if each.hint:
            typer.echo(f"{'':16} {each.hint}")


@app.command()
def plugins(as_json: Json = False) -> None:
    """Show every part of scalewise, and where it comes from.

    Example: scalewise plugins
    """
    from scalewise.plugins import KINDS, available

    parts = [
        {
            "kind": kind,
            "name": name,
            "value": point.value,
            "from": point.dist.name if point.dist else None,
        }
        for kind in KINDS
        for name, point in available(kind).items()
    ]
    if as_json:
        typer.echo(json.dumps({"schema": 1, "plugins": parts}, indent=1))
        return
    for part in parts:
        typer.echo(f"{part['kind']:<11} {part['name']:<16} {part['from']}  {part['value']}")


def _carry_out(question: Any, output: Path | None, *, again: bool) -> Path:
    """Run a study with its progress on stderr; Ctrl-C ends it in order."""
    from scalewise import study
    from scalewise.cli.progress import progress

    folder = output or _home(question.name)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _like_ctrl_c)
    try:
        with progress() as watcher:
            study.run(question, folder, watcher, again=again)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # All is ended; leave with our own code.
        typer.echo("interrupted; finished runs are kept, running again starts the rest", err=True)
        raise typer.Exit(130) from None
    return folder


def _refuse_sources(output: Path, sources: list[Path]) -> None:
    """Refuse to write a report over what it is made from."""
    target = output.resolve()
    for source in sources:
        inside = source.resolve() in target.parents
        report_of_ours = target.parent == source.resolve() and target.name != "study.json"
        if target == source.resolve() or (inside and not report_of_ours):
            raise SpecError(f"{output} is where the records are", hint="choose another -o")


def _like_ctrl_c(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _home(name: str) -> Path:
    return Path("runs") / name


def _starter() -> Path:
    return Path(__file__).parent.parent / "starter.toml"


def _show(curves: Any) -> None:
    """Print curves: in colour on a terminal, plain and wide elsewhere."""
    from rich.console import Console

    from scalewise.report import formats

    console = Console()
    if console.is_terminal and not console.no_color:
        console.print(formats.terminal(curves, console.width))
    else:
        typer.echo(formats.text(curves))


def main() -> None:
    """Run a command; tell the user about a problem in one sentence, not a traceback."""
    debug = "--debug" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--debug"]
    try:
        app()
    except (ScalewiseError, BrokenPipeError) as problem:
        if debug:
            raise
        if isinstance(problem, BrokenPipeError):
            sys.exit(1)
        typer.echo(f"error: {problem}", err=True)
        if problem.hint:
            typer.echo(f" hint: {problem.hint}", err=True)
        sys.exit(3 if isinstance(problem, RunFailed) else 1)
