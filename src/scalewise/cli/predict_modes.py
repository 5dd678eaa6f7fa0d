"""The modes of ``predict``: from a curve, by simulation, or from published curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scalewise.cli.output import print_sections, say_path
from scalewise.errors import SpecError, shown
from scalewise.validate import check_integer

if TYPE_CHECKING:
    from scalewise.analysis.measure import ScalingCurve
    from scalewise.spec import FullRun

MAX_COUNT_DIGITS = 100
"""Longer numbers are refused before int(), which fails on a few thousand digits."""


def refuse_set_options(reason: str, options: Mapping[str, Any], hint: str) -> None:
    """Raise SpecError if any of these options is set; ``reason`` says why it has no effect."""
    if names := [name for name, value in options.items() if value]:
        raise SpecError(f"{', '.join(names)}: {reason}", hint=hint)


def parse_counts(text: str, curve: "ScalingCurve | None" = None) -> list[int]:
    """Parse ``--at 16,32,64``; ``curve`` gives the hint an example."""
    largest = max(point.devices for point in curve.points) if curve else 8
    counts = []
    for part in text.split(","):
        if not part.strip().isdecimal() or not part.isascii() or len(part) > MAX_COUNT_DIGITS:
            hint = f"for example --at {2 * largest},{4 * largest}"
            raise SpecError(f"--at takes whole numbers of devices, got {shown(text)}", hint=hint)
        counts.append(int(part))
    return counts


def predict_from_curve(  # noqa: PLR0913 - one parameter per option
    source: Path,
    at: str,
    where: Mapping[str, str],
    *,
    scaling: str | None,
    devices_per_node: int | None,
    full_run: "FullRun | None",
    samples_per_step: int | None,
    like: str | None,
    output: Path | None,
    all_columns: bool,
    despite: Sequence[str],
    as_json: bool,
) -> None:
    """Predict from a measured curve; with ``like``, compare with published curves."""
    from scalewise import results
    from scalewise.analysis.full_run import per_unit_of_work
    from scalewise.analysis.predict import predict_and_check
    from scalewise.report import prediction_sections
    from scalewise.report.text.doubts import naming_left_out, refuse_blocking

    curve, _ = results.curve_and_records(
        source,
        where=where,
        scaling=scaling,
        devices_per_node=devices_per_node,
        full_run=full_run,
        samples_per_step=samples_per_step,
    )
    with naming_left_out(curve.doubts):
        prediction = predict_and_check(per_unit_of_work(curve), parse_counts(at, curve))
    refuse_blocking("predict", prediction.doubts, despite)
    sections, extra_values = prediction_sections.sections(prediction), {}
    if like is not None:
        from scalewise.analysis.predict.published_curves import compare_published
        from scalewise.catalog.curves import find_curves
        from scalewise.report import published_sections

        comparison = compare_published(prediction, find_curves(like))
        sections.append(published_sections.comparison_section(like, prediction, comparison))
        values = published_sections.comparison_values(prediction, comparison)
        extra_values["like"] = {"words": like, **values}
    if output:
        from scalewise.report.write_figures import write_prediction

        write_prediction(prediction, output)
    if as_json:
        typer.echo(prediction_sections.as_json(prediction, **extra_values))
    else:
        print_sections(sections, all_columns=all_columns)
    if output:
        say_path(output, err=as_json)  # With --json, stdout holds nothing but JSON.


def show_published(like: str, at: str | None, *, all_columns: bool, as_json: bool) -> None:
    """Show the published curves that match ``like``, and their values on ``at`` devices."""
    from scalewise.catalog.curves import find_curves
    from scalewise.report import published_sections

    curves = find_curves(like)
    device_counts = sorted(set(parse_counts(at))) if at is not None else []
    for count in device_counts:
        check_integer("a number of devices", count, minimum=1)
    if as_json:
        typer.echo(published_sections.as_json(like, curves))
    else:
        sections = published_sections.sections(like, curves, device_counts)
        print_sections(sections, all_columns=all_columns)


def simulate(  # noqa: PLR0913 - one parameter per option
    source: Path,
    at: str,
    where: Mapping[str, str],
    *,
    devices_per_node: int | None,
    collectives: list[Path],
    link_inside: str | None,
    link_between: str | None,
    algorithm: str | None,
    gradients: str | None,
    all_columns: bool,
    despite: Sequence[str],
    as_json: bool,
) -> None:
    """Simulate larger device counts from the smallest run of a study."""
    from scalewise import results
    from scalewise.analysis.simulate import make_exchange, parse_link, parse_size, simulate_curve
    from scalewise.report import simulation_sections
    from scalewise.report.text.doubts import naming_left_out, refuse_blocking

    exchange = make_exchange(
        results.read_sweeps(collectives),
        inside=parse_link(link_inside) if link_inside else None,
        between=parse_link(link_between) if link_between else None,
        per_node=devices_per_node,
        algorithm=algorithm,
    )
    curve, records = results.study_curve(source, where)
    refuse_blocking("predict", curve.doubts, despite)
    with naming_left_out(curve.doubts):
        result = simulate_curve(
            curve, records, parse_counts(at), exchange, per_node=devices_per_node,
            gradients=parse_size(gradients) if gradients else None,
        )  # fmt: skip
    if as_json:
        typer.echo(simulation_sections.as_json(result))
    else:
        print_sections(simulation_sections.sections(result), all_columns=all_columns)
