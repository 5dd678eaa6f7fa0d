"""The ways of ``predict``: from a curve, by simulation, by published curves."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from scalewise.cli.output import echo
from scalewise.errors import SpecError
from scalewise.validate import whole

EXAMPLE = "scalewise predict runs/demo --at 4,8; or --like resnet50 for published curves alone"


@dataclass(frozen=True, kw_only=True)
class Network:
    """What was said of links and what goes over them, as it was written."""

    collectives: list[Path]
    inside: str | None
    between: str | None
    algorithm: str | None
    gradients: str | None

    @property
    def said(self) -> Mapping[str, Any]:
        """What was given, by option."""
        return {
            "--collectives": self.collectives,
            "--link-inside": self.inside,
            "--link-between": self.between,
            "--algorithm": self.algorithm,
            "--gradients": self.gradients,
        }


def needed(source: Path | None, at: str | None) -> tuple[Path, str]:
    """Return what a prediction cannot do without."""
    if source is None:
        raise SpecError("predict needs a study's folder or a CSV file", hint=EXAMPLE)
    if at is None:
        raise SpecError(
            "predict needs --at, the numbers of devices to predict", hint="for example --at 16,32"
        )
    return source, at


def refuse(why: str, given: Mapping[str, Any], hint: str) -> None:
    """Refuse options that mean nothing here."""
    if said := [name for name, value in given.items() if value]:
        raise SpecError(f"{', '.join(said)}: {why}", hint=hint)


def from_curve(  # noqa: PLR0913 - each is an option
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
    """Predict from what was measured, and show it; published curves stand beside it."""
    from scalewise import results
    from scalewise.analysis.predict import parse_larger_counts, predict
    from scalewise.report import prediction_sections
    from scalewise.report.curve_table import not_correct

    curve, _ = results.curve_and_records(
        source, where=where, scaling=scaling, devices_per_node=devices_per_node
    )
    found = predict(curve, parse_larger_counts(curve, at))
    told, beside = prediction_sections.sections(found), {}
    if like is not None:
        from scalewise.analysis.predict.published_curves import compare_published
        from scalewise.catalog.search import like as alike
        from scalewise.report import published

        went_on = compare_published(found, alike(like))
        told.append(published.beside(like, found, went_on))
        beside["like"] = {"words": like, **published.beside_plain(found, went_on)}
    if output:
        from scalewise.report import prediction_plot

        prediction_plot.write(found, output)
    if as_json:
        typer.echo(prediction_sections.as_json(found, **beside))
    else:
        echo(told, first=not_correct(curve))
    if output:
        typer.echo(output, err=as_json)


def published_alone(like: str, at: str | None, *, as_json: bool) -> None:
    """Show the published curves that are like some words."""
    from scalewise.analysis.predict import parse_counts
    from scalewise.catalog.search import like as alike
    from scalewise.report import published

    curves = alike(like)
    asked = sorted(set(parse_counts(at))) if at is not None else []
    for count in asked:
        whole("a number of devices", count, least=1)
    if as_json:
        typer.echo(published.as_json(like, curves))
    else:
        echo(published.sections(like, curves, asked))


def simulated(
    source: Path,
    at: str,
    where: Mapping[str, str],
    devices_per_node: int | None,
    network: Network,
    *,
    as_json: bool,
) -> None:
    """Simulate from the smallest run of a folder, and show it."""
    from scalewise import results
    from scalewise.analysis.predict import parse_counts
    from scalewise.analysis.simulate import exchange, link, simulation, size
    from scalewise.report import simulation_sections as shown
    from scalewise.report.curve_table import not_correct

    links = exchange(
        results.read_sweeps(network.collectives),
        inside=link(network.inside) if network.inside else None,
        between=link(network.between) if network.between else None,
        per_node=devices_per_node,
        algorithm=network.algorithm,
    )
    curve, records = results.study_curve(source, where)
    found = simulation(
        curve,
        records,
        parse_counts(at),
        links,
        per_node=devices_per_node,
        gradients=size(network.gradients) if network.gradients else None,
    )
    if as_json:
        typer.echo(shown.as_json(found))
    else:
        echo(shown.sections(found), first=not_correct(curve))
