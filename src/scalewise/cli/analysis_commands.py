"""Verbs that analyze results: measure, explain, predict, advise, report."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from scalewise.cli import predict_modes
from scalewise.cli.app import verb
from scalewise.cli.options import (
    PRICE_HELP,
    CsvDevicesPerNode,
    DevicesPerNode,
    Json,
    OptionalSource,
    Price,
    Purposes,
    Scaling,
    Source,
    Sources,
    StudyFolder,
    Where,
    flag,
    option,
    output_file,
)
from scalewise.cli.output import print_sections
from scalewise.errors import SpecError

PANEL = "Analyze the results"
SIMULATION_PANEL = "Simulation (with --simulate)"
simulation_option = partial(option, panel=SIMULATION_PANEL)
cost_option = partial(option, panel="Cost and energy")
target_option = partial(option, panel="Training target")
queue_option = partial(option, panel="Queue and interruptions")
question_option = partial(option, panel="More questions")


@verb(PANEL)
def measure(
    sources: Sources,
    scaling: Scaling = None,
    devices_per_node: CsvDevicesPerNode = None,
    as_json: Json = False,
) -> None:
    """Show throughput, time, speedup, efficiency, memory and quality.

    Several studies are shown side by side.

    Examples:
      scalewise measure runs/demo
      scalewise measure published.csv --scaling weak --devices-per-node 4
    """
    from scalewise import results
    from scalewise.report import formats
    from scalewise.report.curve_table import sections

    curves = results.curves(sources, scaling=scaling, devices_per_node=devices_per_node)
    if as_json:
        typer.echo(formats.as_json(curves))
    else:
        print_sections(sections(curves))


@verb(PANEL)
def explain(folder: StudyFolder, price: Price = None, as_json: Json = False) -> None:
    """Show where time, efficiency and money went, and what to try.

    Examples:
      scalewise explain runs/demo
      scalewise explain runs/demo --price 2.50
    """
    from scalewise import results
    from scalewise.report import explanation_sections, receipt_table

    explanations = results.explanations(folder, price=price)
    receipt = results.receipt(folder, explanations, price=price)
    if as_json:
        typer.echo(explanation_sections.as_json(explanations, receipt))
    else:
        sections = explanation_sections.sections(explanations)
        print_sections([*sections, receipt_table.section(explanations, receipt)])


@verb(PANEL)
def predict(  # noqa: PLR0913 - one parameter per option
    source: OptionalSource = None,
    at: Annotated[str | None, option("DEVICES", "Numbers of devices to predict: 16,32,64.")] = None,
    where: Where = None,
    scaling: Scaling = None,
    devices_per_node: DevicesPerNode = None,
    like: Annotated[
        str | None, option("WORDS", "Show published curves that match, as in 'resnet50 v100'.")
    ] = None,
    simulate: Annotated[
        bool,
        flag(
            "--simulate",
            "Simulate from the smallest run and the speed of the links; needs only one run.",
            SIMULATION_PANEL,
        ),
    ] = False,
    collectives: Annotated[
        list[Path] | None,
        simulation_option("FILE", "A sweep that `doctor --collectives` wrote; may be repeated."),
    ] = None,
    link_inside: Annotated[
        str | None, simulation_option("LINK", "The link inside a node, such as 200GB/s,5us.")
    ] = None,
    link_between: Annotated[
        str | None,
        simulation_option("LINK", "The network link of a whole node, such as 200Gbit/s,20us."),
    ] = None,
    algorithm: Annotated[
        str | None,
        simulation_option("NAME", "All-reduce algorithm: ring, tree, hierarchical or quickest."),
    ] = None,
    gradients: Annotated[
        str | None, simulation_option("SIZE", "Bytes of gradients, if not recorded.")
    ] = None,
    output: Annotated[Path | None, output_file("Also plot to this png or svg file.")] = None,
    as_json: Json = False,
) -> None:
    """Predict performance on more devices, with intervals.

    Also says what to measure next.

    Examples:
      scalewise predict runs/demo --at 4,8
      scalewise predict published.csv --scaling weak --at 16,32
      scalewise predict runs/one --at 2,4 --simulate --collectives sweep.json
      scalewise predict --like "resnet50 v100"
    """
    curve_filter = _parse_where(where or [])
    if not simulate:
        simulation_options = {
            "--collectives": collectives, "--link-inside": link_inside,
            "--link-between": link_between, "--algorithm": algorithm, "--gradients": gradients,
        }  # fmt: skip
        predict_modes.refuse_set_options(
            "only for a simulation", simulation_options, "add --simulate"
        )
    if source is None and like is not None:
        options = {"--where": where, "--scaling": scaling, "--devices-per-node": devices_per_node,
                   "--simulate": simulate, "-o": output}  # fmt: skip
        reason = "not used with published curves alone"
        predict_modes.refuse_set_options(reason, options, "name a folder or a CSV")
        predict_modes.show_published(like, at, as_json=as_json)
        return
    if source is None:
        hint = "scalewise predict runs/demo --at 4,8; or --like resnet50 for published curves alone"
        raise SpecError("predict needs a study folder or a CSV file", hint=hint)
    if at is None:
        problem = "predict needs --at, the numbers of devices to predict"
        raise SpecError(problem, hint="for example --at 16,32")
    if simulate:
        options = {"--scaling": scaling, "--like": like, "-o": output}
        predict_modes.refuse_set_options("not used by a simulation", options, "leave it out")
        predict_modes.simulate(
            source, at, curve_filter, devices_per_node=devices_per_node,
            collectives=collectives or [], link_inside=link_inside, link_between=link_between,
            algorithm=algorithm, gradients=gradients, as_json=as_json,
        )  # fmt: skip
        return
    if output:
        _refuse_overwriting(output, [source])
    predict_modes.predict_from_curve(
        source, at, curve_filter, scaling=scaling, devices_per_node=devices_per_node, like=like,
        output=output, as_json=as_json,
    )  # fmt: skip


@verb(PANEL)
def advise(  # noqa: PLR0913 - one parameter per option
    source: Source,
    purposes: Purposes,
    at: Annotated[
        str | None,
        option(
            "DEVICES", "Also consider doublings up to these devices [default: two more doublings]."
        ),
    ] = None,
    price: Annotated[str | None, cost_option("PRICE", PRICE_HELP)] = None,
    watts: Annotated[
        float | None, cost_option("W", "Power of one device, where no energy was measured.")
    ] = None,
    device: Annotated[
        str | None,
        cost_option("NAME", "Instead of --watts: this device's maximum power, from the catalog."),
    ] = None,
    whole_nodes: Annotated[
        bool, flag("--whole-nodes", "Charge partly used nodes in full.", "Cost and energy")
    ] = False,
    target: Annotated[
        str | None,
        target_option(
            "TARGET",
            "When training is done: 'epochs=90 at 256' or 'samples=115e6 at 256' "
            "(that work at global batch 256), loss=2.1 or accuracy=0.75 (as reached by the runs).",
        ),
    ] = None,
    critical_batch: Annotated[
        str | None,
        target_option(
            "BATCH",
            "The global batch at which training needs twice the samples of a small batch: 8192, "
            "noise (recorded gradient noise) or like:resnet (published).",
        ),
    ] = None,
    batch: Annotated[
        float | None,
        target_option("N", "For a CSV: batch per device (weak scaling) or global batch (strong)."),
    ] = None,
    wait: Annotated[
        str | None, queue_option("TIME", "Time in the queue: 10min, or 8=10min,32=6h by devices.")
    ] = None,
    interrupted_every: Annotated[
        str | None,
        queue_option(
            "TIME", "Mean time between interruptions of a device: 12h, or '12h per node'."
        ),
    ] = None,
    save: Annotated[
        str | None, queue_option("TIME", "Time to save a checkpoint, 30s [default: as recorded].")
    ] = None,
    restart: Annotated[
        str | None, queue_option("TIME", "Time to restart, 3min [default: as recorded].")
    ] = None,
    worth: Annotated[
        int | None, question_option("N", "What would make N devices worthwhile?")
    ] = None,
    runs: Annotated[
        int | None, question_option("N", "How should N equal runs be placed on the devices?")
    ] = None,
    where: Where = None,
    scaling: Scaling = None,
    devices_per_node: DevicesPerNode = None,
    as_json: Json = False,
) -> None:
    """Advise how many devices to use for a purpose, and say why.

    Examples:
      scalewise advise runs/demo --for deadline=2h
      scalewise advise published.csv --devices-per-node 4 --for efficiency=0.9
      scalewise advise published.csv --for energy=40kWh --device h100
      scalewise advise runs/demo --for time --target epochs=90 --critical-batch 8192
    """
    from scalewise import results
    from scalewise.analysis.advise import Conditions, Purpose
    from scalewise.analysis.advise import advise as choose_devices
    from scalewise.report import advice_sections
    from scalewise.report.text.measurement import correctness_alerts

    purpose = Purpose.parse(purposes)
    curve, records = results.curve_and_records(
        source, where=_parse_where(where or []), scaling=scaling, devices_per_node=devices_per_node
    )
    conditions = Conditions(
        target=target, critical_batch=critical_batch, batch=batch, wait=wait, save=save,
        interrupted_every=interrupted_every, restart=restart, records=records,
    )  # fmt: skip
    counts = predict_modes.parse_counts(at, curve) if at is not None else ()
    advice = choose_devices(
        curve, purpose, counts, price=price, watts=watts, device=device, whole_nodes=whole_nodes,
        conditions=conditions, worth=worth, runs=runs,
    )  # fmt: skip
    if as_json:
        typer.echo(advice_sections.as_json(advice))
    else:
        print_sections(advice_sections.sections(advice), alerts=correctness_alerts(curve))


def _parse_where(pairs: list[str]) -> dict[str, str]:
    """Return ``{"strategy": "fsdp"}`` for ``--where strategy=fsdp``."""
    for pair in pairs:
        if "=" not in pair:
            raise SpecError(f"--where takes KEY=VALUE, got {pair!r}", hint="--where strategy=fsdp")
    return dict(pair.split("=", 1) for pair in pairs)


@verb(PANEL)
def report(
    sources: Sources,
    output: Annotated[
        Path, output_file("The file to write: .html, .md, .txt, .csv, .tex, .json, .png or .svg.")
    ] = Path("report.html"),
    plot: Annotated[str | None, option("NAME", "For png and svg: draw only this plot.")] = None,
    scaling: Scaling = None,
    devices_per_node: CsvDevicesPerNode = None,
) -> None:
    """Write a report: a self-contained page, a table, or plots.

    Examples:
      scalewise report runs/demo -o demo.html
      scalewise report runs/a runs/b -o both.png --plot efficiency
    """
    from scalewise import results
    from scalewise.report.write_report import write

    _refuse_overwriting(output, sources)
    curves = results.curves(sources, scaling=scaling, devices_per_node=devices_per_node)
    folders = [source for source in sources if source.is_dir() and output.suffix == ".html"]
    explanations = [item for folder in folders for item in results.explanations(folder)]
    typer.echo(write(curves, output, plot=plot, explained=explanations))


def _refuse_overwriting(output: Path, sources: list[Path]) -> None:
    """Refuse to overwrite input files or to write into run folders; allow files beside those."""
    target = output.resolve()
    for source in sources:
        inside = source.resolve() in target.parents
        beside_runs = target.parent == source.resolve() and target.name != "study.json"
        if target == source.resolve() or (inside and not beside_runs):
            raise SpecError(f"{output} would overwrite the records", hint="choose another -o")
