"""Verbs that analyze results: measure, explain, compare, predict, advise, report."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalewise.cli import predict_modes
from scalewise.cli.app import verb
from scalewise.cli.options import (
    PRICE_HELP,
    AllColumns,
    CsvDevicesPerNode,
    Despite,
    DevicesPerNode,
    FullRunText,
    Json,
    OptionalSource,
    Price,
    Purposes,
    Results,
    SamplesPerStep,
    Scaling,
    Source,
    Sources,
    StudyFolder,
    Where,
    flag,
    option,
    output_file,
)
from scalewise.cli.output import count_progress, print_sections, say_path
from scalewise.errors import SpecError, shown

if TYPE_CHECKING:
    from scalewise.spec import FullRun

PANEL = "Analyze the results"
SIMULATION_PANEL = "Simulation (with --simulate)"
simulation_option = partial(option, panel=SIMULATION_PANEL)
cost_option = partial(option, panel="Cost and energy")
target_option = partial(option, panel="Training target, queue and interruptions")


@verb(PANEL)
def summary(
    sources: Sources,
    full_run: FullRunText = None,
    samples_per_step: SamplesPerStep = None,
    scaling: Scaling = None,
    devices_per_node: CsvDevicesPerNode = None,
    as_json: Json = False,
) -> None:
    """Answer on one screen: worth it, how many devices, why, how sure.

    Examples:
      scalewise summary runs/demo
      scalewise summary runs/train --full-run "90 epochs"
      scalewise summary table.csv
    """
    from scalewise import results
    from scalewise.analysis.summary import summarize
    from scalewise.report import summary_sections

    loaded = results.all_explained(
        sources,
        scaling=scaling,
        devices_per_node=devices_per_node,
        full_run=_parse_full_run(full_run),
        samples_per_step=samples_per_step,
    )
    summaries = [summarize(curve, why, source=str(path)) for path, curve, why in loaded]
    if as_json:
        typer.echo(summary_sections.as_json(summaries))
    else:
        print_sections(summary_sections.sections(summaries))


@verb(PANEL)
def measure(
    sources: Sources,
    scaling: Scaling = None,
    devices_per_node: CsvDevicesPerNode = None,
    full_run: FullRunText = None,
    samples_per_step: SamplesPerStep = None,
    all_columns: AllColumns = False,
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

    curves = results.curves(
        sources,
        scaling=scaling,
        devices_per_node=devices_per_node,
        full_run=_parse_full_run(full_run),
        samples_per_step=samples_per_step,
    )
    if as_json:
        typer.echo(formats.as_json(curves))
    else:
        print_sections(sections(curves), all_columns=all_columns)


@verb(PANEL)
def explain(
    folder: StudyFolder,
    price: Price = None,
    full_run: FullRunText = None,
    samples_per_step: SamplesPerStep = None,
    all_columns: AllColumns = False,
    as_json: Json = False,
) -> None:
    """Show where time, efficiency and money went, and what to try.

    Examples:
      scalewise explain runs/demo
      scalewise explain runs/demo --price 2.50
    """
    from scalewise import results
    from scalewise.report import explanation_sections, receipt_table

    length = _parse_full_run(full_run)
    explanations = results.explanations(
        folder, price=price, full_run=length, samples_per_step=samples_per_step
    )
    receipt = results.receipt(folder, explanations, price=price)
    if as_json:
        typer.echo(explanation_sections.as_json(explanations, receipt))
    else:
        sections = explanation_sections.sections(explanations)
        print_sections(
            [*sections, receipt_table.section(explanations, receipt)], all_columns=all_columns
        )


@verb(PANEL)
def compare(  # noqa: PLR0913 - one parameter per option
    sources: Results,
    fail_if: Annotated[
        list[str] | None,
        option("CONDITION", "Exit with 4 if it is shown: 'throughput at 4 drops 3%'; repeatable."),
    ] = None,
    difference: Annotated[
        str, option("SHARE", "The difference that should be found, to say how many repeats.")
    ] = "3%",
    at: Annotated[str | None, option("DEVICES", "Compare only on these: 4,8.")] = None,
    where: Where = None,
    all_columns: AllColumns = False,
    despite: Despite = None,
    as_json: Json = False,
) -> None:
    """Compare two results: what differs by more than noise, and why.

    Examples:
      scalewise compare runs/before runs/after
      scalewise compare runs/before runs/after --fail-if "throughput at 4 drops 3%"
      scalewise compare runs/monday runs/tuesday runs/wednesday
    """
    from scalewise.cli import compare_command

    compare_command.compare(
        sources, fail_if=fail_if or [], difference=difference, at=at,
        where=_parse_where(where or []), despite=despite or [], all_columns=all_columns,
        as_json=as_json,
    )  # fmt: skip


@verb(PANEL)
def predict(  # noqa: PLR0913 - one parameter per option
    source: OptionalSource = None,
    at: Annotated[
        str | None,
        option("DEVICES", "Numbers of devices: 16,32,64. Measured ones check the prediction."),
    ] = None,
    where: Where = None,
    scaling: Scaling = None,
    devices_per_node: DevicesPerNode = None,
    full_run: FullRunText = None,
    samples_per_step: SamplesPerStep = None,
    like: Annotated[
        str | None, option("WORDS", "Show published curves that match, as in 'resnet50 v100'.")
    ] = None,
    simulate: Annotated[
        bool,
        flag(
            "--simulate",
            "Simulate from the smallest run and the links; one run is enough.",
            SIMULATION_PANEL,
        ),
    ] = False,
    collectives: Annotated[
        list[Path] | None,
        simulation_option("FILE", "Written by `doctor --collectives`; may be repeated."),
    ] = None,
    link_inside: Annotated[
        str | None, simulation_option("LINK", "The link inside a node, such as 200GB/s,5us.")
    ] = None,
    link_between: Annotated[
        str | None,
        simulation_option("LINK", "The network link of a node, such as 200Gbit/s,20us."),
    ] = None,
    algorithm: Annotated[
        str | None,
        simulation_option("NAME", "All-reduce: ring, tree, hierarchical or quickest."),
    ] = None,
    gradients: Annotated[
        str | None, simulation_option("SIZE", "Bytes of gradients, if not recorded.")
    ] = None,
    output: Annotated[Path | None, output_file("Also plot to this png, svg or pdf file.")] = None,
    all_columns: AllColumns = False,
    despite: Despite = None,
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
                   "--full-run": full_run, "--samples-per-step": samples_per_step,
                   "--simulate": simulate, "-o": output}  # fmt: skip
        reason = "not used with published curves alone"
        predict_modes.refuse_set_options(reason, options, "name a folder or a CSV")
        predict_modes.show_published(like, at, all_columns=all_columns, as_json=as_json)
        return
    if source is None:
        hint = "scalewise predict runs/demo --at 4,8; or --like resnet50 for published curves alone"
        raise SpecError("predict needs a study folder or a CSV file", hint=hint)
    if at is None:
        problem = "predict needs --at, the numbers of devices to predict"
        raise SpecError(problem, hint="for example --at 16,32")
    if simulate:
        options = {"--scaling": scaling, "--like": like, "--full-run": full_run,
                   "--samples-per-step": samples_per_step, "-o": output}  # fmt: skip
        predict_modes.refuse_set_options("not used by a simulation", options, "leave it out")
        predict_modes.simulate(
            source, at, curve_filter, devices_per_node=devices_per_node,
            collectives=collectives or [], link_inside=link_inside, link_between=link_between,
            algorithm=algorithm, gradients=gradients, despite=despite or [],
            all_columns=all_columns, as_json=as_json,
        )  # fmt: skip
        return
    if output:
        _refuse_overwriting(output, [source])
    predict_modes.predict_from_curve(
        source, at, curve_filter, scaling=scaling, devices_per_node=devices_per_node,
        full_run=_parse_full_run(full_run), samples_per_step=samples_per_step, like=like,
        output=output,
        despite=despite or [], all_columns=all_columns, as_json=as_json,
    )  # fmt: skip


@verb(PANEL)
def advise(  # noqa: PLR0913 - one parameter per option
    source: Source,
    purposes: Purposes,
    up_to: Annotated[
        int | None,
        option("N", "Also predict more devices than were measured, up to N.", minimum=1),
    ] = None,
    at: Annotated[str | None, typer.Option(hidden=True)] = None,  # The former name of --up-to.
    full_run: FullRunText = None,
    samples_per_step: SamplesPerStep = None,
    price: Annotated[str | None, cost_option("PRICE", PRICE_HELP)] = None,
    watts: Annotated[
        float | None, cost_option("W", "Power of one device, where no energy was measured.")
    ] = None,
    device: Annotated[
        str | None,
        cost_option("NAME", "Instead of --watts: its maximum power, from the catalog."),
    ] = None,
    whole_nodes: Annotated[
        bool, flag("--whole-nodes", "Charge partly used nodes in full.", "Cost and energy")
    ] = False,
    target: Annotated[
        str | None,
        target_option(
            "TARGET",
            "Judge by the time until 'epochs=90 at 256' (a global batch), loss=2.1 or "
            "accuracy=0.75.",
        ),
    ] = None,
    critical_batch: Annotated[
        str | None,
        target_option(
            "BATCH",
            "Global batch that needs twice the samples of a small one: 8192, noise or like:resnet.",
        ),
    ] = None,
    batch: Annotated[
        float | None,
        target_option("N", "Of a CSV: per device (weak) or global (strong)."),
    ] = None,
    wait: Annotated[
        str | None, target_option("TIME", "Time in the queue: 10min, or 8=10min,32=6h.")
    ] = None,
    interrupted_every: Annotated[
        str | None,
        target_option("TIME", "Of a device, on average: 12h, or '12h per node'."),
    ] = None,
    save: Annotated[str | None, target_option("TIME", "Time to save a checkpoint: 30s.")] = None,
    restart: Annotated[str | None, target_option("TIME", "Time to restart: 3min.")] = None,
    worth: Annotated[int | None, option("N", "What would make N devices worthwhile?")] = None,
    runs: Annotated[int | None, option("N", "How should N equal runs share the devices?")] = None,
    where: Where = None,
    scaling: Scaling = None,
    devices_per_node: DevicesPerNode = None,
    all_columns: AllColumns = False,
    despite: Despite = None,
    as_json: Json = False,
) -> None:
    """Advise how many devices to use for a purpose, and say why.

    Examples:
      scalewise advise runs/demo --for deadline=2h
      scalewise advise published.csv --for efficiency=0.9 --up-to 64
      scalewise advise runs/demo --for deadline=2h --full-run "90 epochs"
    """
    from scalewise import results
    from scalewise.analysis.advise import Conditions, Purpose
    from scalewise.analysis.advise import advise as choose_devices
    from scalewise.report import advice_sections
    from scalewise.report.text.doubts import naming_left_out, refuse_blocking

    purpose = Purpose.parse(purposes)
    curve, records = results.curve_and_records(
        source, where=_parse_where(where or []), scaling=scaling,
        devices_per_node=devices_per_node,
        # A target says how long the training is, also where the study has a full run.
        full_run=_parse_full_run(full_run) or ("as measured" if target else None),
        samples_per_step=samples_per_step,
    )  # fmt: skip
    refuse_blocking("advise", curve.doubts, despite or [])
    conditions = Conditions(
        target=target, critical_batch=critical_batch, batch=batch, wait=wait, save=save,
        interrupted_every=interrupted_every, restart=restart, records=records,
    )  # fmt: skip
    counts = predict_modes.parse_counts(at, curve) if at is not None else ()
    with naming_left_out(curve.doubts):
        advice = choose_devices(
            curve, purpose, counts, up_to=up_to, price=price, watts=watts, device=device,
            whole_nodes=whole_nodes, conditions=conditions, worth=worth, runs=runs,
        )  # fmt: skip
    refuse_blocking("advise", advice.prediction.doubts, despite or [])
    if as_json:
        typer.echo(advice_sections.as_json(advice))
    else:
        print_sections(advice_sections.sections(advice), all_columns=all_columns)


def _parse_full_run(text: str | None) -> "FullRun | None":
    from scalewise.spec import FullRun

    return None if text is None else FullRun.parse(text)


def _parse_where(pairs: list[str]) -> dict[str, str]:
    """Return ``{"strategy": "fsdp"}`` for ``--where strategy=fsdp``."""
    for pair in pairs:
        if "=" not in pair:
            raise SpecError(
                f"--where takes KEY=VALUE, got {shown(pair)}", hint="--where strategy=fsdp"
            )
    return dict(pair.split("=", 1) for pair in pairs)


@verb(PANEL)
def report(  # noqa: PLR0913 - one parameter per option
    sources: Sources,
    output: Annotated[
        Path | None,
        output_file(
            "The file to write: .html, .md, .txt, .csv, .tex, .json, .png, .svg or .pdf "
            "[default: report.html]."
        ),
    ] = None,
    plot: Annotated[
        str | None, option("NAME", "For png, svg and pdf: draw only this plot.")
    ] = None,
    columns: Annotated[
        int | None, option("1|2", "For --plot: columns of a paper it is wide.", minimum=1)
    ] = None,
    files: Annotated[
        Path | None, option("DIR", "Write every figure and table to files for papers.")
    ] = None,
    slides: Annotated[bool, flag("--slides", "Write a short deck: .html or .pdf.")] = False,
    evidence: Annotated[
        bool, flag("--evidence", "Write evidence for an allocation proposal: .pdf or .tex.")
    ] = False,
    request: Annotated[
        int | None, option("DEVICES", "For --evidence: the scale to justify.", minimum=1)
    ] = None,
    as_format: Annotated[
        str | None,
        option(
            "FORMAT",
            "For other tools: openmetrics, extrap or mllog (files), tensorboard, mlflow or wandb"
            " (folders).",
            "--as",
        ),
    ] = None,
    price: Price = None,
    scaling: Scaling = None,
    devices_per_node: CsvDevicesPerNode = None,
    full_run: FullRunText = None,
    samples_per_step: SamplesPerStep = None,
) -> None:
    """Write a page, slides, tables, plots, or data for other tools.

    Examples:
      scalewise report runs/demo -o demo.html
      scalewise report runs/a runs/b -o both.png --plot efficiency
      scalewise report runs/demo --price 2.50 --files paper
      scalewise report runs/demo --slides -o talk.html
      scalewise report runs/strong runs/weak --evidence -o evidence.pdf
      scalewise report runs/demo --as tensorboard -o logs
    """
    from scalewise import results
    from scalewise.analysis.cost.rates import price_of
    from scalewise.report import presentation
    from scalewise.report.interchange import choose_format, write_interchange
    from scalewise.report.write_report import write_report

    kind = presentation.document_kind(
        slides=slides, evidence=evidence, request=request, plot=plot, as_format=as_format
    )
    path = output or Path(presentation.DEFAULT_FILES.get(kind, "report.html"))
    results.refuse_same_source(sources)
    _refuse_overwriting(path, sources)
    if files is not None:
        _refuse_overwriting(files, sources)
        if kind or as_format or plot:
            problem = "--files goes with neither --slides, --evidence, --as nor --plot"
            raise SpecError(problem, hint="run the command once for each of them")
    table_options = {"scaling": scaling, "devices_per_node": devices_per_node}
    options: dict[str, Any] = {
        **table_options,
        "full_run": _parse_full_run(full_run),
        "samples_per_step": samples_per_step,
    }
    rate = None if price is None else price_of(price)
    if kind:
        presentation.refuse_suffix(kind, path)
        explained = results.all_explained(sources, price=rate, **options)
        written = presentation.write_document(
            kind, explained, path, request=request, price=rate, table_options=table_options
        )
        say_path(*written)
        return
    if name := choose_format(as_format, path):
        if plot is not None:
            raise SpecError(f"{name} has no plots", hint="--plot is for .png, .svg and .pdf files")
        if rate:
            raise SpecError(f"{name} has no costs", hint="leave --price out")
        loaded = results.curves_with_runs(sources, **options)
        say_path(write_interchange(loaded, path, name))
        return
    explained = results.all_explained(sources, price=rate, **options)
    if files is not None:
        from scalewise.report.paper_files import write_files

        with count_progress("writing figures") as on_progress:
            folders = write_files(explained, files, rate, on_progress)
        say_path(*folders)
    if files is None or output:
        shown: dict[str, Any] = {"plot": plot, "columns": columns, "price": rate}
        say_path(write_report(explained, path, table_options=table_options, **shown))


def _refuse_overwriting(output: Path, sources: list[Path]) -> None:
    """Refuse to overwrite input files or to write into run folders; allow files beside those."""
    target = output.resolve()
    for source in sources:
        inside = source.resolve() in target.parents
        beside_runs = target.parent == source.resolve() and target.name != "study.json"
        if target == source.resolve() or (inside and not beside_runs):
            raise SpecError(f"{output} would overwrite the records", hint="choose another -o")
