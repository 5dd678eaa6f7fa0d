"""Verbs that answer from what was measured: measure, explain, predict, advise, report."""

from pathlib import Path
from typing import Annotated

import typer

from scalewise.cli import predict as ahead
from scalewise.cli.app import app
from scalewise.cli.options import (
    Json,
    MaybeSource,
    PerNode,
    PerNodeAhead,
    Price,
    Purposes,
    Scaling,
    Source,
    Sources,
    Where,
)
from scalewise.cli.output import echo, show
from scalewise.errors import SpecError


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
    from scalewise import results
    from scalewise.report import formats

    curves = results.curves(sources, scaling=scaling, devices_per_node=devices_per_node)
    if as_json:
        typer.echo(formats.as_json(curves))
    else:
        show(curves)


@app.command()
def explain(
    folder: Annotated[Path, typer.Argument(help="A study's folder.")],
    price: Price = None,
    as_json: Json = False,
) -> None:
    """Show where the time and the efficiency went, what was bought for it, and what to try.

    Example: scalewise explain runs/demo

    Example: scalewise explain runs/demo --price 2.50
    """
    from scalewise import results
    from scalewise.report import explanation, receipt_table

    found = results.explanations(folder, price=price)
    paid = results.receipt(folder, found, price=price)
    if as_json:
        typer.echo(explanation.as_json(found, paid))
    else:
        echo([*explanation.sections(found), receipt_table.section(found, paid)])


@app.command()
def predict(  # noqa: PLR0913 - each is an option
    source: MaybeSource = None,
    at: Annotated[str | None, typer.Option(help="Numbers of devices to predict: 16,32,64.")] = None,
    where: Where = None,
    scaling: Scaling = None,
    devices_per_node: PerNodeAhead = None,
    like: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="Show published curves of a model, a device, …"),
    ] = None,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="From the smallest run and its links: one run is enough."),
    ] = False,
    collectives: Annotated[
        list[Path] | None,
        typer.Option(help="To simulate: a sweep that `doctor --collectives` kept; several too."),
    ] = None,
    link_inside: Annotated[
        str | None,
        typer.Option(metavar="LINK", help="To simulate: inside a node, as 200GB/s,5us."),
    ] = None,
    link_between: Annotated[
        str | None,
        typer.Option(metavar="LINK", help="To simulate: out of a whole node, as 200Gbit/s,20us."),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(help="To simulate: all-reduce by ring, tree, hierarchical or quickest."),
    ] = None,
    gradients: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="To simulate: bytes of gradients, if not recorded."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also draw the band: a png or svg file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict what more devices would give, with intervals, and what to measure next.

    Example: scalewise predict runs/demo --at 4,8

    Example: scalewise predict published.csv --scaling weak --devices-per-node 4 --at 16,32

    Example: scalewise predict runs/one --at 2,4 --simulate --collectives runs/collectives.json

    Example: scalewise predict --like "resnet50 v100"
    """
    network = ahead.Network(
        collectives=collectives or [], inside=link_inside, between=link_between,
        algorithm=algorithm, gradients=gradients,
    )  # fmt: skip
    pairs = _pairs(where or [])
    if not simulate:
        ahead.refuse("links are for a simulation", network.said, "add --simulate")
    if source is None and like is not None:
        given = {"--where": where, "--scaling": scaling, "--devices-per-node": devices_per_node,
                 "--simulate": simulate, "-o": output}  # fmt: skip
        ahead.refuse("published curves alone have no use for it", given, "name a folder or a CSV")
        ahead.published_alone(like, at, as_json=as_json)
        return
    source, at = ahead.needed(source, at)
    if simulate:
        given = {"--scaling": scaling, "--like": like, "-o": output}
        ahead.refuse("a simulation has no use for it", given, "leave it out")
        ahead.simulated(source, at, pairs, devices_per_node, network, as_json=as_json)
        return
    if output:
        _refuse_sources(output, [source])
    ahead.from_curve(
        source, at, pairs, scaling=scaling, devices_per_node=devices_per_node, like=like,
        output=output, as_json=as_json,
    )  # fmt: skip


@app.command()
def advise(  # noqa: PLR0913 - each is an option
    source: Source,
    purposes: Purposes,
    at: Annotated[
        str | None, typer.Option(help="Weigh doublings up to these devices; two, if not given.")
    ] = None,
    price: Price = None,
    watts: Annotated[
        float | None, typer.Option(help="What one device draws, where no energy was measured.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="The same from the catalog: the most that a device may draw."),
    ] = None,
    whole_nodes: Annotated[
        bool, typer.Option("--whole-nodes", help="Charge nodes that are used in part whole.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            help="What the model is trained for: 'epochs=90 at 256' or 'samples=115e6 at 256' "
            "(work at a global batch), loss=2.1 or accuracy=0.75 (as the runs reached it)."
        ),
    ] = None,
    critical_batch: Annotated[
        str | None,
        typer.Option(help="Where work has doubled: 8192, noise (as recorded) or like:resnet."),
    ] = None,
    batch: Annotated[
        float | None,
        typer.Option(help="A CSV's batch: of one device if weak, of all together if strong."),
    ] = None,
    wait: Annotated[
        str | None, typer.Option(help="The time in the queue: 10min, or 8=10min,32=6h by devices.")
    ] = None,
    interrupted_every: Annotated[
        str | None,
        typer.Option(help="How often a device is taken away: 12h, or '12h per node'."),
    ] = None,
    save: Annotated[
        str | None, typer.Option(help="What saving takes, 30s; as recorded, if not given.")
    ] = None,
    restart: Annotated[
        str | None, typer.Option(help="What a restart takes, 3min; as recorded, if not given.")
    ] = None,
    worth: Annotated[
        int | None, typer.Option(help="Ask what would make so many devices worthwhile.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Ask how to place so many equal runs on the devices.")
    ] = None,
    where: Where = None,
    scaling: Scaling = None,
    devices_per_node: PerNodeAhead = None,
    as_json: Json = False,
) -> None:
    """Advise how many devices to use for a purpose, and say why.

    Example: scalewise advise runs/demo --for deadline=2h

    Example: scalewise advise published.csv --devices-per-node 4 --for efficiency=0.9

    Example: scalewise advise published.csv --for energy=40kWh --device h100
    Example: scalewise advise runs/demo --for time --target epochs=90 --critical-batch 8192
    """
    from scalewise import results
    from scalewise.analysis.advise import Conditions, Purpose
    from scalewise.analysis.advise import advise as choose
    from scalewise.analysis.predict import parse_larger_counts
    from scalewise.report import advice
    from scalewise.report.curve_table import not_correct

    purpose = Purpose.parse(purposes)
    curve, records = results.curve_and_records(
        source, where=_pairs(where or []), scaling=scaling, devices_per_node=devices_per_node
    )
    conditions = Conditions.parse(
        target=target,
        critical_batch=critical_batch,
        batch=batch,
        wait=wait,
        interrupted_every=interrupted_every,
        save=save,
        restart=restart,
        records=records,
    )
    more = parse_larger_counts(curve, at) if at is not None else ()
    found = choose(
        curve,
        purpose,
        more,
        price=price,
        watts=watts,
        device=device,
        whole_nodes=whole_nodes,
        conditions=conditions,
        worth=worth,
        runs=runs,
    )
    if as_json:
        typer.echo(advice.as_json(found))
    else:
        echo(advice.sections(found), first=not_correct(curve))


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
    from scalewise import results
    from scalewise.report.write_report import write

    _refuse_sources(output, sources)
    curves = results.curves(sources, scaling=scaling, devices_per_node=devices_per_node)
    folders = [source for source in sources if source.is_dir() and output.suffix == ".html"]
    why = [each for folder in folders for each in results.explanations(folder)]
    typer.echo(write(curves, output, plot=plot, why=why))


def _refuse_sources(output: Path, sources: list[Path]) -> None:
    """Refuse to write a report over what it is made from."""
    target = output.resolve()
    for source in sources:
        inside = source.resolve() in target.parents
        report_of_ours = target.parent == source.resolve() and target.name != "study.json"
        if target == source.resolve() or (inside and not report_of_ours):
            raise SpecError(f"{output} is where the records are", hint="choose another -o")
