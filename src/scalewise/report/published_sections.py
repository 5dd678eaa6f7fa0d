"""Published curves: as sections, and as JSON."""

from collections.abc import Sequence
from typing import Any

from scalewise.analysis.number_format import format_count
from scalewise.analysis.predict import Prediction
from scalewise.analysis.predict.published_curves import PublishedComparison, efficiency
from scalewise.catalog.curves import PublishedCurve
from scalewise.report.formats import dump_json
from scalewise.report.tables import NONE, Section, Shown, Table, make_table, number, percent

FACTS = (
    "model", "dataset", "framework", "hardware", "interconnect", "precision", "per_device_batch",
    "unit", "year", "notes",
)  # fmt: skip
"""Keys of ``PublishedCurve.facts`` that are copied into the JSON output."""


def sections(query: str, curves: Sequence[PublishedCurve], at: Sequence[int] = ()) -> list[Section]:
    """Return one section: a table of these curves, which match the query, and their sources."""
    at_each: list[Shown] = ["default" for _ in at]
    table = Table(
        "Published curves",
        (
            "curve", "model", "hardware", "scaling", "per node", "unit", "points",
            "efficiency", *(f"on {count:,}" for count in at), "source",
        ),
        tuple(_row(curve, at) for curve in curves),
        (
            "default", "all", "wide", "wide", "wide", "all", "all",
            "default", *at_each, "all",
        ),
    )  # fmt: skip
    lines = [
        f"{format_count(len(curves), 'published curve')} like {query!r}; efficiency is relative to "
        "the smallest count of each curve",
        *dict.fromkeys(
            f"{curve.family}: {curve.facts['source_title']} ({curve.facts['year']}), "
            + str(curve.facts["source_url_or_repo_path"]).partition("#")[0]
            for curve in curves
        ),
    ]
    warnings = [f"{curve.slug}: its source contradicts itself" for curve in curves if curve.suspect]
    return [Section(f"like {query}", tuple(lines), (table,), tuple(warnings))]


def _row(curve: PublishedCurve, at: Sequence[int]) -> tuple[str, ...]:
    shares, facts = efficiency(curve), curve.facts
    return (
        curve.slug,
        str(facts["model"]),
        str(facts["hardware"]),
        curve.scaling or NONE,
        str(curve.devices_per_node or NONE),
        str(facts["unit"]),
        " · ".join(f"{count} {number(value)}" for count, value in curve.points),
        f"{percent(shares[max(shares)])} on {max(shares):,}",
        *(percent(shares.get(count)) for count in at),
        curve.family,
    )


def comparison_section(
    query: str, prediction: Prediction, comparison: PublishedComparison
) -> Section:
    """Return how published curves continued, compared with the prediction."""
    last = format_count(comparison.last, "device")
    searched = format_count(comparison.curve_count, "published curve")
    lines = [
        f"{len(comparison.continuations)} of {searched} like {query!r} have the same metric and "
        f"scaling and continue beyond {comparison.growth:g} × their smallest count, which is as "
        "far as this curve was measured"
    ]
    if comparison.retained:
        low, middle, high = comparison.retained
        lines.append(
            f"Their efficiency per doubling was {percent(middle)} at the median, {percent(low)} to "
            f"{percent(high)}; predicted here beyond {last}: {percent(comparison.predicted)}"
        )
    lines.append("They are shown for comparison and do not change the prediction.")
    tables = (_projection_table(prediction, comparison), _continuation_table(comparison))
    shown = tuple(table for table in tables if table.rows)
    return Section(f"{prediction.curve.name}, and curves like {query}", tuple(lines), shown)


def _projection_table(prediction: Prediction, comparison: PublishedComparison) -> Table:
    is_time = comparison.metric == "time"
    rows = []
    for point in prediction.points:
        projected = comparison.at(point.devices)
        estimate = point.time if is_time else point.throughput
        if projected and point.devices > comparison.last:
            predicted = number(estimate.value if estimate else None)
            rows.append((f"{point.devices}", *map(number, projected), predicted))
    unit = "complete time s" if is_time else prediction.curve.rate_unit
    return Table(
        f"If this curve continued as the published curves did, {unit}",
        ("devices", "as the worst", "as the median", "as the best", "predicted"),
        tuple(rows),
    )


def _continuation_table(comparison: PublishedComparison) -> Table:
    return make_table("How the published curves continued", comparison.continuations, [
        ("curve", lambda item: item.curve.slug),
        ("hardware", lambda item: str(item.curve.facts["hardware"])),
        ("from", lambda item: f"{item.first:,}"),
        ("to", lambda item: f"{item.last:,}"),
        ("efficiency per doubling", lambda item: percent(item.retained)),
    ])  # fmt: skip


def as_json(query: str, curves: Sequence[PublishedCurve]) -> str:
    """Return the curves as JSON (docs/reference/json.md)."""
    return dump_json({"like": query, "curves": [_curve_values(curve) for curve in curves]})


def _curve_values(curve: PublishedCurve) -> dict[str, Any]:
    """Return one curve as JSON values, with the facts of its source."""
    facts, shares = curve.facts, efficiency(curve)
    return {
        "curve": curve.slug,
        "family": curve.family,
        **{name: facts[name] for name in FACTS},
        "metric": curve.metric,
        "scaling": curve.scaling,
        "devices_per_node": curve.devices_per_node,
        "points": [list(point) for point in curve.points],
        "efficiency": {str(count): share for count, share in shares.items()},
        "suspect": curve.suspect,
        "source": {"title": facts["source_title"], "place": facts["source_url_or_repo_path"]},
    }


def comparison_values(prediction: Prediction, comparison: PublishedComparison) -> dict[str, Any]:
    """Return how published curves continued, as JSON values."""
    names = ("least", "median", "most")
    projections = ((point.devices, comparison.at(point.devices)) for point in prediction.points)
    return {
        "growth": comparison.growth,
        "metric": comparison.metric,
        "kept": dict(zip(names, comparison.retained)) if comparison.retained else None,
        "predicted": comparison.predicted,
        "values": {
            str(count): dict(zip(("worst", "median", "best"), projected))
            for count, projected in projections
            if projected and count > comparison.last
        },
        "followed": [
            {"curve": item.curve.slug, "from": item.first, "to": item.last, "kept": item.retained}
            for item in comparison.continuations
        ],
    }
