"""Published curves: as sections for people, and as JSON for programs."""

import json
from collections.abc import Sequence
from typing import Any

from scalewise.analysis.number_format import format_count
from scalewise.analysis.predict import Prediction
from scalewise.analysis.predict.published_curves import PublishedComparison, efficiency
from scalewise.catalog.curves import PublishedCurve
from scalewise.report.curve_table import NONE, Section, Table, number, percent
from scalewise.report.formats import SCHEMA

FACTS = (
    "model", "dataset", "framework", "hardware", "interconnect", "precision", "per_device_batch",
    "unit", "year", "notes",
)  # fmt: skip
"""What is told of a curve as its source has it."""


def sections(words: str, curves: Sequence[PublishedCurve], at: Sequence[int] = ()) -> list[Section]:
    """Return the curves that are like some words, each with its source."""
    table = Table(
        "Published curves",
        (
            "curve", "model", "hardware", "scaling", "per node", "what", "points",
            "efficiency at the largest", *(f"on {count:,}" for count in at), "source",
        ),
        tuple(_row(curve, at) for curve in curves),
    )  # fmt: skip
    lines = [
        f"{format_count(len(curves), 'published curve')} like {words!r}; efficiency is against the "
        "smallest count of each",
        *_sources(curves),
    ]
    return [Section(f"like {words}", tuple(lines), (table,), _suspects(curves))]


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


def _sources(curves: Sequence[PublishedCurve]) -> list[str]:
    """Return each source once, with where it is."""
    found = [
        f"{curve.family}: {facts['source_title']} ({facts['year']}), "
        + str(facts["source_url_or_repo_path"]).partition("#")[0]
        for curve in curves
        for facts in [curve.facts]
    ]
    return list(dict.fromkeys(found))


def _suspects(curves: Sequence[PublishedCurve]) -> tuple[str, ...]:
    return tuple(
        f"{curve.slug}: its source contradicts itself" for curve in curves if curve.suspect
    )


def beside(words: str, found: Prediction, others: PublishedComparison) -> Section:
    """Return how curves like some words went on, next to what is predicted."""
    last = format_count(others.last, "device")
    lines = [
        f"{len(others.continuations)} of {format_count(others.curve_count, 'published curve')} "
        "like "
        f"{words!r} "
        f"have the same metric and scaling and go on beyond {others.growth:g} × their smallest "
        "count, which is as far as this curve was measured",
    ]
    if others.retained:
        low, middle, high = others.retained
        lines.append(
            f"Of each doubling they kept {percent(middle)} at the median, {percent(low)} to "
            f"{percent(high)}; predicted here beyond {last}: {percent(others.predicted)}"
        )
    lines.append("They stand beside the prediction and are not mixed into it.")
    tables = (_if_so(found, others), _followed(others))
    shown = tuple(table for table in tables if table.rows)
    return Section(f"{found.curve.name}, and curves like {words}", tuple(lines), shown, ())


def _if_so(found: Prediction, others: PublishedComparison) -> Table:
    by_time = others.metric == "time"
    rows = []
    for point in found.points:
        gone, told = others.at(point.devices), point.time if by_time else point.throughput
        if gone and point.devices > others.last:
            predicted = number(told.value if told else None)
            rows.append((f"{point.devices}", *map(number, gone), predicted))
    unit = "complete s" if by_time else f"{found.curve.unit}/s"
    return Table(
        f"If it went on as they did, {unit}",
        ("devices", "as the worst", "as the median", "as the best", "predicted"),
        tuple(rows),
    )


def _followed(others: PublishedComparison) -> Table:
    return Table(
        "How they went on",
        ("curve", "hardware", "from", "to", "kept of each doubling"),
        tuple(
            (each.curve.slug, str(each.curve.facts["hardware"]), f"{each.first:,}",
             f"{each.last:,}", percent(each.retained))
            for each in others.continuations
        ),
    )  # fmt: skip


def as_json(words: str, curves: Sequence[PublishedCurve]) -> str:
    """Return the documented JSON shape."""
    told = {"schema": SCHEMA, "like": words, "curves": [_plain(curve) for curve in curves]}
    return json.dumps(told, indent=1)


def _plain(curve: PublishedCurve) -> dict[str, Any]:
    """Return one curve as JSON can hold it, with all that its source says."""
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


def beside_plain(found: Prediction, others: PublishedComparison) -> dict[str, Any]:
    """Return how they went on as JSON can hold it."""
    names = ("least", "median", "most")
    values = ((point.devices, others.at(point.devices)) for point in found.points)
    return {
        "growth": others.growth,
        "metric": others.metric,
        "kept": dict(zip(names, others.retained)) if others.retained else None,
        "predicted": others.predicted,
        "values": {
            str(count): dict(zip(("worst", "median", "best"), gone))
            for count, gone in values
            if gone and count > others.last
        },
        "followed": [
            {"curve": each.curve.slug, "from": each.first, "to": each.last, "kept": each.retained}
            for each in others.continuations
        ],
    }
