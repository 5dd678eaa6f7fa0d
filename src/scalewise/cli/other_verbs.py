"""Verbs beside a study: export, port, doctor, catalog, plugins."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from scalewise.cli.app import app
from scalewise.cli.options import Json
from scalewise.cli.output import echo, say, telling
from scalewise.errors import SpecError


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
    say(ported, err=True)
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
    with telling() as tell:
        for each in examine(Path.cwd(), ranks=ranks, tell=tell):
            findings[each.name] = each.to_dict()
            if not as_json:
                say(each)
    if as_json:
        typer.echo(json.dumps({"schema": 1, "findings": findings}, indent=1))


def _collectives(output: Path, ranks: int | None, *, as_json: bool) -> None:
    """Sweep the collectives, or say how to start them on several nodes."""
    from scalewise.doctor import framework_checks, own_ranks
    from scalewise.doctor.collective_sweep import by_hand, sweep, table

    if line := by_hand(os.environ, output, ranks):
        where = "once" if line.startswith("srun") else "on each of them"
        typer.echo(f"several nodes: nothing was started; start this {where}:", err=True)
        typer.echo(line)
        return
    with telling() as tell:
        tell("the exchange between ranks")
        found = sweep(output, ranks or max(2, own_ranks(framework_checks.about("torch"))))
    say(json.dumps(found, indent=1) if as_json else f"{table(found)}\n\n{output}")


@app.command()
def catalog(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND] [WORDS…]",
            help="devices, links or prices, all if none is named; then words to look for.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what is known of devices, links and prices, each with its source and date.

    Example: scalewise catalog prices h100

    Example: scalewise catalog devices
    """
    from scalewise.catalog.hardware import KINDS, search
    from scalewise.report import catalog as shown

    asked = words or []
    kinds = [asked[0]] if asked[:1] and asked[0] in KINDS else list(KINDS)
    found = {kind: search(kind, asked[1:] if len(kinds) == 1 else asked) for kind in kinds}
    if not any(found.values()):
        raise SpecError(
            f"nothing in the catalog fits {' '.join(asked)!r}",
            hint="leave a word out; `scalewise catalog prices` shows all prices",
        )
    if as_json:
        typer.echo(shown.as_json(found))
    else:
        echo(shown.sections(found))


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
    widest = max(len(name) for kind in KINDS for name in available(kind))
    for part in parts:
        say(f"{part['kind']:<11} {part['name']:<{widest}}  {part['from']}  {part['value']}")
