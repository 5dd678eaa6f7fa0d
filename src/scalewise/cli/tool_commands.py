"""Verbs that need no study: export, port, doctor, catalog, plugins."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from scalewise.cli.app import verb
from scalewise.cli.options import AllColumns, Json, flag, option, output_file
from scalewise.cli.output import announce_slow_checks, print_sections, say, say_path
from scalewise.errors import SpecError, shown

PANEL = "Data and tools"


@verb(PANEL)
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, runs/STUDY/RUN.")],
    output: Annotated[Path, output_file("The file to write: .safetensors or .pt.")] = Path(
        "weights.safetensors"
    ),
    step: Annotated[
        int | None, option("N", "The checkpoint after step N, not the newest.", minimum=1)
    ] = None,
) -> None:
    """Write a run's weights to one file that the serial model can load.

    Examples:
      scalewise export runs/demo/3f2a9c1b7d40 -o weights.safetensors
    """
    from scalewise.export import export as export_weights

    say_path(export_weights(run, output, step))


@verb(PANEL)
def port(
    script: Annotated[Path, typer.Argument(metavar="TRAIN.py", help="A serial PyTorch script.")],
    output: Annotated[Path | None, output_file("Write the patch here, not to stdout.")] = None,
    write: Annotated[bool, flag("--write", "Change the script itself.")] = False,
) -> None:
    """Make a patch that adds data parallelism to a PyTorch script.

    Examples:
      scalewise port train.py | patch -p1
      scalewise port train.py -o train.patch
    """
    import scalewise.port
    from scalewise.record.write import write_bytes

    if output and output.resolve() == script.resolve():
        raise SpecError(f"{output} is the script itself", hint="choose another -o, or --write")
    ported = scalewise.port.port(script)
    say(ported, err=True)
    if output and ported.patch:
        write_bytes(output, ported.patch_bytes)
        say_path(output)
    if write:
        ported.write(script)
        say_path(script)
    if not (output or write):
        typer.echo(ported.patch_bytes, nl=False)


@verb(PANEL)
def doctor(
    collectives: Annotated[
        bool, flag("--collectives", "Time collectives between ranks, by size.")
    ] = False,
    ranks: Annotated[
        int | None,
        option("N", "Ranks on this machine [default: one per device, at least 2].", minimum=1),
    ] = None,
    output: Annotated[
        Path | None,
        output_file("With --collectives: the file to write [default: runs/collectives.json]."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Test what this machine and allocation can do.

    Examples:
      scalewise doctor
      scalewise doctor --collectives --ranks 4
    """
    from scalewise.doctor import examine

    if collectives:
        _time_collectives(output or Path("runs/collectives.json"), ranks, as_json=as_json)
        return
    if output:
        raise SpecError("-o is for --collectives", hint="scalewise doctor --json > doctor.json")
    findings = {}
    with announce_slow_checks() as announce:
        for finding in examine(Path.cwd(), ranks=ranks, on_check=announce):
            findings[finding.name] = finding.to_dict()
            if not as_json:
                say(finding)
    if as_json:
        typer.echo(json.dumps({"schema": 1, "findings": findings}, indent=1))


def _time_collectives(output: Path, ranks: int | None, *, as_json: bool) -> None:
    """Time collectives on this node; in an allocation of several nodes, print what to run."""
    from scalewise.doctor import default_ranks, framework_checks
    from scalewise.doctor.collective_sweep import multi_node_command, render_table, run_sweep

    if command := multi_node_command(os.environ, output, ranks):
        # srun itself starts the command on all nodes.
        once_or_each = "once" if command.startswith("srun") else "on each node"
        typer.echo(f"several nodes: no process was started; run this {once_or_each}:", err=True)
        typer.echo(command)
        return
    with announce_slow_checks() as announce:
        announce("the exchange between ranks")
        result = run_sweep(
            output, ranks or max(2, default_ranks(framework_checks.framework_facts("torch")))
        )
    text = json.dumps(result, indent=1) if as_json else f"{render_table(result)}\n\n{output}"
    say(text, wraps=False)


@verb(PANEL)
def catalog(
    query: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND] [WORD...]",
            help="devices, links or prices [default: all]; then words to search for.",
        ),
    ] = None,
    all_columns: AllColumns = False,
    as_json: Json = False,
) -> None:
    """Show known devices, links and prices, with source and date.

    Examples:
      scalewise catalog prices h100
      scalewise catalog devices
    """
    from scalewise.catalog.hardware import ROW_TYPES, search_catalog
    from scalewise.report import catalog_sections

    terms = query or []
    if terms and terms[0] in ROW_TYPES:
        kinds, terms = [terms[0]], terms[1:]
    else:
        kinds = list(ROW_TYPES)
    rows = {kind: search_catalog(kind, terms) for kind in kinds}
    if not any(rows.values()):
        hint = "leave a word out; `scalewise catalog prices` shows all prices"
        raise SpecError(f"nothing in the catalog fits {shown(' '.join(query or []))}", hint=hint)
    if as_json:
        typer.echo(catalog_sections.as_json(rows))
    else:
        print_sections(catalog_sections.sections(rows), all_columns=all_columns)


@verb(PANEL)
def plugins(as_json: Json = False) -> None:
    """Show every plugin: frameworks, strategies, launchers, laws, …

    Examples:
      scalewise plugins
    """
    from scalewise.plugins import KINDS, available

    rows = [
        {"kind": kind, "name": name, "value": entry_point.value,
         "from": entry_point.dist.name if entry_point.dist else None}
        for kind in KINDS for name, entry_point in available(kind).items()
    ]  # fmt: skip
    if as_json:
        typer.echo(json.dumps({"schema": 1, "plugins": rows}, indent=1))
        return
    width = max(len(name) for kind in KINDS for name in available(kind))
    for row in rows:
        say(f"{row['kind']:<11} {row['name']:<{width}}  {row['from']}  {row['value']}")
