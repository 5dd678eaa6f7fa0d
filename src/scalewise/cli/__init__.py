"""Read arguments, call one function, print what it returns.

Nothing heavy is imported before a command needs it: help comes in a blink.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
Launcher = Annotated[
    str | None, typer.Option(help="local or slurm, instead of what the study file says.")
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
Source = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER or CSV",
        help="A study's folder, or a CSV file: devices,throughput[,time] or devices,time.",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Which curve of a study that has several."),
]
PerNodeAhead = Annotated[
    int | None,
    typer.Option(
        "--devices-per-node",
        min=1,
        help="Devices of a node; of a folder, if it used one node only.",
    ),
]

PATIENCE = 20.0
"""Seconds that ending everything in order may take before another Ctrl-C cuts it short."""


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
    folder = _carry_out(question, None)
    curves = collect.curves([folder])
    _show(curves)
    typer.echo()
    typer.echo(page.write(curves, folder / "report.html", collect.explanations(folder)))


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
    output: Output = None,
    launcher: Launcher = None,
    write: Annotated[
        Path | None, typer.Option(help="Write the scripts here, to be edited and started by hand.")
    ] = None,
) -> None:
    """Show every run and every command of a study; start nothing.

    Example: scalewise plan study.toml

    Example: scalewise plan study.toml --launcher slurm --write jobs/
    """
    from scalewise import study
    from scalewise.record.files import finished

    question = study.launched_by(study.read(study_file), launcher)
    folder = (output or _home(question.name)).absolute()
    study.check(question.runs())
    plans = study.plan(question, folder)
    for each in plans:
        for one in each.runs:
            there = "finished" if finished(folder / one.id) else "to run"
            size = f", batch {one.batch}, global {one.global_batch}" if one.batch else ""
            typer.echo(f"{one.title}{size}: {there}")
        for command in each.commands:
            typer.echo(f"  {command}")
    if any("{port}" in str(command) for each in plans for command in each.commands):
        typer.echo("{port} is a free one, found when the run starts")
    runs = question.runs()
    word = "run" if len(runs) == 1 else "runs"
    rule = f"{question.scaling} scaling" if question.scaling else "scaling observed"
    asked = study.asks(question, runs)
    typer.echo(f"{len(runs)} {word}, {rule}, {asked or 'one after another'}, in {folder}")
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
    output: Output = None,
    launcher: Launcher = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Submit the jobs and leave them to the cluster.")
    ] = False,
    again: Again = False,
) -> None:
    """Start the runs of a study that are missing; safe to repeat.

    With --on, of your own script, unmodified, on each number of devices.

    Example: scalewise run study.toml

    Example: scalewise run --on 1,2,4 --stop-after 300 -- train.py --epochs 3

    Example: scalewise run study.toml --launcher slurm --detach
    """
    from scalewise import study

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
        question = study.read(Path(words[0]))
    asked = study.launched_by(question, launcher)
    typer.echo(_carry_out(asked, output, again=again, detach=detach))


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
        typer.echo(f"{each.run.title}: {each.phase}" + (f", {each.cause}" if each.cause else ""))


@app.command()
def cancel(folder: Annotated[Path, typer.Argument(help="A study's folder.")]) -> None:
    """End every run of a study that is under way; what was measured stays.

    Example: scalewise cancel runs/cluster
    """
    from scalewise import study

    ended = study.cancel(folder)
    for run in ended:
        typer.echo(f"{run.title}: cancelled")
    if not ended:
        typer.echo("no run is under way")


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
def explain(
    folder: Annotated[Path, typer.Argument(help="A study's folder.")],
    price: Annotated[
        float | None, typer.Option(min=0, help="What one device costs for one hour.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show where the time and the efficiency went, and what to try.

    Example: scalewise explain runs/demo

    Example: scalewise explain runs/demo --price 2.50
    """
    from scalewise import collect
    from scalewise.report import explanation

    found = collect.explanations(folder, price=price)
    if as_json:
        typer.echo(explanation.as_json(found))
    else:
        _print(explanation.sections(found))


@app.command()
def predict(
    source: Source,
    at: Annotated[str, typer.Option(help="Numbers of devices to predict: 16,32,64.")],
    where: Where = None,
    scaling: Scaling = None,
    devices_per_node: PerNodeAhead = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also draw the band: a png or svg file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict what more devices would give, with intervals, and what to measure next.

    Example: scalewise predict runs/demo --at 4,8

    Example: scalewise predict published.csv --scaling weak --devices-per-node 4 --at 16,32
    """
    from scalewise import collect
    from scalewise.analysis.predict import beyond
    from scalewise.analysis.predict import predict as ahead
    from scalewise.report import prediction

    curve = collect.curve(
        source, where=_pairs(where or []), scaling=scaling, devices_per_node=devices_per_node
    )
    found = ahead(curve, beyond(curve, at))
    if output:
        from scalewise.report import band

        _refuse_sources(output, [source])
        band.write(found, output)
    if as_json:
        typer.echo(prediction.as_json(found))
    else:
        _print(prediction.sections(found))
    if output:
        typer.echo(output, err=as_json)


@app.command()
def advise(  # noqa: PLR0913 - each is an option
    source: Source,
    purposes: Annotated[
        list[str],
        typer.Option(
            "--for",
            metavar="PURPOSE",
            help="deadline=2h, efficiency=0.8, budget=200 (device-hours), cost=500, "
            "throughput=5000, time or balanced; several are one purpose.",
        ),
    ],
    at: Annotated[
        str | None, typer.Option(help="Weigh doublings up to these devices; two, if not given.")
    ] = None,
    price: Annotated[float | None, typer.Option(help="What one device costs for one hour.")] = None,
    whole_nodes: Annotated[
        bool, typer.Option("--whole-nodes", help="Charge nodes that are used in part whole.")
    ] = False,
    where: Where = None,
    scaling: Scaling = None,
    devices_per_node: PerNodeAhead = None,
    as_json: Json = False,
) -> None:
    """Advise how many devices to use for a purpose, and say why.

    Example: scalewise advise runs/demo --for deadline=2h

    Example: scalewise advise published.csv --devices-per-node 4 --for efficiency=0.9
    """
    from scalewise import collect
    from scalewise.analysis.advise import Purpose
    from scalewise.analysis.advise import advise as choose
    from scalewise.analysis.predict import beyond
    from scalewise.report import advice

    purpose = Purpose.parse(purposes)
    curve = collect.curve(
        source, where=_pairs(where or []), scaling=scaling, devices_per_node=devices_per_node
    )
    more = beyond(curve, at) if at is not None else ()
    found = choose(curve, purpose, more, price=price, whole_nodes=whole_nodes)
    if as_json:
        typer.echo(advice.as_json(found))
    else:
        _print(advice.sections(found))


def _pairs(words: list[str]) -> dict[str, str]:
    """Read ``strategy=fsdp`` and its like."""
    for word in words:
        if "=" not in word:
            raise SpecError(f"--where takes KEY=VALUE, got {word!r}", hint="--where strategy=fsdp")
    return dict(word.split("=", 1) for word in words)


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
    """Write a report: one self-contained page that also explains, a table, or plots.

    Example: scalewise report runs/demo -o demo.html

    Example: scalewise report runs/a runs/b -o both.png --plot efficiency
    """
    from scalewise import collect
    from scalewise.report.files import write

    _refuse_sources(output, sources)
    curves = collect.curves(sources, scaling=scaling, devices_per_node=devices_per_node)
    folders = [source for source in sources if source.is_dir() and output.suffix == ".html"]
    why = [each for folder in folders for each in collect.explanations(folder)]
    typer.echo(write(curves, output, plot=plot, why=why))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, runs/STUDY/RUN.")],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="The file; its ending says safetensors or pt."),
    ] = Path("weights.safetensors"),
    step: Annotated[
        int | None, typer.Option(min=1, help="The checkpoint after this step, not the newest.")
    ] = None,
) -> None:
    """Write the trained weights as the serial model has them: no prefixes, one file.

    Example: scalewise export runs/demo/3f2a9c1b7d40 -o weights.safetensors
    """
    from scalewise.export import export as write

    typer.echo(write(run, output, step))


@app.command()
def port(
    script: Annotated[Path, typer.Argument(metavar="TRAIN.py", help="A serial PyTorch script.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the patch here, not to stdout.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Change the script itself.")] = False,
) -> None:
    """Show what a serial PyTorch script needs for data parallelism, as a patch.

    Example: scalewise port train.py | patch -p1

    Example: scalewise port train.py -o train.patch
    """
    import scalewise.port
    from scalewise.record.write import write_bytes

    if output and output.resolve() == script.resolve():
        raise SpecError(f"{output} is the script itself", hint="choose another -o, or --write")
    ported = scalewise.port.port(script)
    typer.echo(ported, err=True)
    if output and ported.patch:
        write_bytes(output, ported.diff)
        typer.echo(output)
    if write:
        ported.write(script)
        typer.echo(script)
    if not (output or write):
        typer.echo(ported.diff, nl=False)


@app.command()
def doctor(
    collectives: Annotated[
        bool, typer.Option("--collectives", help="Time the exchange between ranks, by size.")
    ] = False,
    ranks: Annotated[
        int | None,
        typer.Option(min=1, help="Ranks on this machine; one per device, or 2, if not given."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="With --collectives: the file; runs/collectives.json."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what this machine and this allocation can do, asked and not guessed.

    Example: scalewise doctor

    Example: scalewise doctor --collectives --ranks 4
    """
    from scalewise.doctor import examine

    if collectives:
        _collectives(output or Path("runs/collectives.json"), ranks, as_json=as_json)
        return
    if output:
        raise SpecError("-o is for --collectives", hint="scalewise doctor --json > doctor.json")
    findings = {}
    with _telling() as tell:
        for each in examine(Path.cwd(), ranks=ranks, tell=tell):
            findings[each.name] = each.to_dict()
            if not as_json:
                typer.echo(each)
    if as_json:
        typer.echo(json.dumps({"schema": 1, "findings": findings}, indent=1))


def _collectives(output: Path, ranks: int | None, *, as_json: bool) -> None:
    """Sweep the collectives, or say how to start them on several nodes."""
    from scalewise.doctor import engines, own_ranks
    from scalewise.doctor.collectives import by_hand, sweep, table

    if line := by_hand(os.environ, output, ranks):
        where = "once" if line.startswith("srun") else "on each of them"
        typer.echo(f"several nodes: nothing was started; start this {where}:", err=True)
        typer.echo(line)
        return
    with _telling() as tell:
        tell("the exchange between ranks")
        found = sweep(output, ranks or max(2, own_ranks(engines.about("torch"))))
    typer.echo(json.dumps(found, indent=1) if as_json else f"{table(found)}\n\n{output}")


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """Yield a function that is told each question; one that takes long is told on stderr."""
    timers: list[threading.Timer] = []

    def tell(name: str) -> None:
        if timers:
            timers[-1].cancel()
        timers.append(threading.Timer(2.0, typer.echo, [f"asking: {name} …"], {"err": True}))
        timers[-1].daemon = True
        timers[-1].start()

    try:
        yield tell
    finally:
        if timers:
            timers[-1].cancel()


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


def _carry_out(
    question: Any, output: Path | None, *, again: bool = False, detach: bool = False
) -> Path:
    """Run a study with its progress on stderr; Ctrl-C ends it in order."""
    from scalewise import study
    from scalewise.cli.progress import progress

    folder = output or _home(question.name)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt_once)
    try:
        with progress() as watcher:
            study.run(question, folder, watcher, again=again, detach=detach)
    except KeyboardInterrupt:
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


def _show(curves: Any) -> None:
    """Print curves."""
    from scalewise.report.table import sections

    _print(sections(curves))


def _print(sections: Any) -> None:
    """Print sections: in colour on a terminal, plain and wide elsewhere."""
    from rich.console import Console

    from scalewise.report import formats

    console = Console()
    if console.is_terminal and not console.no_color:
        console.print(formats.on_screen(sections, console.width))
    else:
        typer.echo(formats.in_words(sections))


def main() -> None:
    """Run a command; tell the user about a problem in one sentence, not a traceback."""
    ours = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    debug = "--debug" in ours
    sys.argv = [word for word in ours if word != "--debug"] + sys.argv[len(ours) :]
    try:
        app()
    except SystemExit as ended:
        asked = sys.argv[1:2] == ["run"] and any(word.startswith("--on") for word in ours)
        if ended.code == 2 and asked and "--" not in sys.argv:
            typer.echo(" hint: put -- before your program: run --on 1,2 -- train.py …", err=True)
        raise
    except (ScalewiseError, BrokenPipeError) as problem:
        if debug:
            raise
        if isinstance(problem, BrokenPipeError):
            sys.exit(1)
        if isinstance(problem, RunFailed) and problem.words:
            typer.echo(problem.words, err=True)
        typer.echo(f"error: {problem}", err=True)
        if problem.hint:
            typer.echo(f" hint: {problem.hint}", err=True)
        sys.exit(3 if isinstance(problem, RunFailed) else 1)
