"""The modes of ``predict``: from a curve, by simulation, or from published curves."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from scalewise.cli.output import print_sections
from scalewise.errors import SpecError
from scalewise.validate import check_integer

EXAMPLE = "scalewise predict runs/demo --at 4,8; or --like resnet50 for published curves alone"


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """Options about links and messages, not parsed yet."""

    collectives: list[Path]
    inside: str | None
    between: str | None
    algorithm: str | None
    gradients: str | None

    @property
    def by_option(self) -> Mapping[str, Any]:
        """The values by command-line option."""
        return {
            "--collectives": self.collectives,
            "--link-inside": self.inside,
            "--link-between": self.between,
            "--algorithm": self.algorithm,
            "--gradients": self.gradients,
        }


def require(source: Path | None, at: str | None) -> tuple[Path, str]:
    """Return the source and the device parse_counts; raise SpecError where one is missing."""
    if source is None:
        raise SpecError("predict needs a study folder or a CSV file", hint=EXAMPLE)
    if at is None:
        raise SpecError(
            "predict needs --at, the numbers of devices to predict", hint="for example --at 16,32"
        )
    return source, at


def refuse(reason: str, options: Mapping[str, Any], hint: str) -> None:
    """Raise SpecError if any of these options, which have no effect here, was set."""
    if names := [name for name, value in options.items() if value]:
        raise SpecError(f"{', '.join(names)}: {reason}", hint=hint)


def predict_from_curve(  # noqa: PLR0913 - one parameter per option
    source: Path,
    at: str,
    where: Mapping[str, str],
    *,
    scaling: str | None,
    devices_per_node: int | None,
    like: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Predict from a measured curve; with ``like``, compare with published curves."""
    from scalewise import results
    from scalewise.analysis.predict import parse_larger_counts, predict
    from scalewise.report import prediction_sections
    from scalewise.report.curve_table import not_correct

    curve, _ = results.curve_and_records(
        source, where=where, scaling=scaling, devices_per_node=devices_per_node
    )
    prediction = predict(curve, parse_larger_counts(curve, at))
    sections, comparison = prediction_sections.sections(prediction), {}
    if like is not None:
        from scalewise.analysis.predict.published_curves import compare_published
        from scalewise.catalog.curves import find_curves
        from scalewise.report import published_sections

        continued = compare_published(prediction, find_curves(like))
        sections.append(published_sections.comparison_section(like, prediction, continued))
        comparison["like"] = {
            "words": like,
            **published_sections.comparison_values(prediction, continued),
        }
    if output:
        from scalewise.report import prediction_plot

        prediction_plot.write(prediction, output)
    if as_json:
        typer.echo(prediction_sections.as_json(prediction, **comparison))
    else:
        print_sections(sections, alerts=not_correct(curve))
    if output:
        typer.echo(output, err=as_json)


def show_published(like: str, at: str | None, *, as_json: bool) -> None:
    """Show the published curves that match the words of ``like``."""
    from scalewise.analysis.predict import parse_counts
    from scalewise.catalog.curves import find_curves
    from scalewise.report import published_sections

    curves = find_curves(like)
    device_counts = sorted(set(parse_counts(at))) if at is not None else []
    for count in device_counts:
        check_integer("a number of devices", count, minimum=1)
    if as_json:
        typer.echo(published_sections.as_json(like, curves))
    else:
        print_sections(published_sections.sections(like, curves, device_counts))


def simulate(
    source: Path,
    at: str,
    where: Mapping[str, str],
    devices_per_node: int | None,
    network: NetworkOptions,
    *,
    as_json: bool,
) -> None:
    """Simulate from the smallest run of a study."""
    from scalewise import results
    from scalewise.analysis.predict import parse_counts
    from scalewise.analysis.simulate import make_exchange, parse_link, parse_size, simulate_curve
    from scalewise.report import simulation_sections
    from scalewise.report.curve_table import not_correct

    links = make_exchange(
        results.read_sweeps(network.collectives),
        inside=parse_link(network.inside) if network.inside else None,
        between=parse_link(network.between) if network.between else None,
        per_node=devices_per_node,
        algorithm=network.algorithm,
    )
    curve, records = results.study_curve(source, where)
    result = simulate_curve(
        curve,
        records,
        parse_counts(at),
        links,
        per_node=devices_per_node,
        gradients=parse_size(network.gradients) if network.gradients else None,
    )
    if as_json:
        typer.echo(simulation_sections.as_json(result))
    else:
        print_sections(simulation_sections.sections(result), alerts=not_correct(curve))
