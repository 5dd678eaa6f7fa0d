"""Render sections and curves as terminal text, Markdown, LaTeX, CSV and JSON."""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from scalewise.analysis.measure import Doubt, Estimate, Point, ScalingCurve
from scalewise.report.curve_table import sections
from scalewise.report.escape import escape_csv, escape_markdown, printable
from scalewise.report.latex_table import PACKAGES, latex_table
from scalewise.report.layout import lay_out
from scalewise.report.tables import Section, Table
from scalewise.report.text.doubts import doubt_values, warning_text
from scalewise.report.text.read_as import read_as_sentence

SCHEMA = 1
"""Version of the JSON outputs that docs/reference/json.md describes."""
MAX_INDENTED_POINTS = 1000
"""JSON of more points is in one line: to indent it would take most of the time of a report."""
PLAIN_TEXT_COLUMNS = 100_000
"""Width of text files: no table is split, no sentence wrapped."""


def render_terminal(
    contents: Sequence[Section], width: int, *, brief: bool = False
) -> RenderableType:
    """Return sections as rich text for a terminal; ``brief`` leaves out what --all shows."""
    lines = lay_out(_escaped(contents, printable), width, brief=brief)
    return Group(*(Text(line.text, style=line.style, no_wrap=True) for line in lines))


def _escaped(contents: Sequence[Section], escape: Callable[[str], str]) -> list[Section]:
    return [
        Section(
            title=escape(section.title),
            lines=tuple(map(escape, section.lines)),
            tables=tuple(
                replace(
                    table,
                    title=escape(table.title),
                    header=tuple(map(escape, table.header)),
                    rows=tuple(tuple(map(escape, row)) for row in table.rows),
                )
                for table in section.tables
            ),
            warnings=tuple(map(escape, section.warnings)),
            alerts=tuple(map(escape, section.alerts)),
        )
        for section in contents
    ]


def text(curves: Sequence[ScalingCurve], answers: Sequence[Section] = ()) -> str:
    """Return the answers and the tables of curves as plain text with lines of any length."""
    return plain_text([*answers, *sections(curves)])


def plain_text(
    contents: Sequence[Section], width: int = PLAIN_TEXT_COLUMNS, *, brief: bool = False
) -> str:
    """Return sections as plain text; by default all of it, with lines of any length."""
    lines = lay_out(_escaped(contents, printable), width, brief=brief)
    return "\n".join(line.text for line in lines)


def markdown(curves: Sequence[ScalingCurve], answers: Sequence[Section] = ()) -> str:
    """Return the answers and the tables of curves as Markdown."""
    lines: list[str] = []
    for section in _escaped([*answers, *sections(curves)], escape_markdown):
        lines += [
            f"## {section.title}",
            "",
            *(f"> **{line.strip()}**\n" for line in section.alerts),
        ]
        lines += [*(f"- {line}" for line in section.lines), ""]
        for table in section.tables:
            lines += [f"### {table.title}", "", *_markdown_rows(table), ""]
        lines += [f"> {warning}\n" for warning in section.warnings]
    return "\n".join(lines).rstrip() + "\n"


def markdown_table(table: Table) -> str:
    """Return one table as Markdown, without its title."""
    (section,) = _escaped([Section("", (), (table,))], escape_markdown)
    return "\n".join(_markdown_rows(section.tables[0])) + "\n"


def _markdown_rows(escaped: Table) -> list[str]:
    return [
        "| " + " | ".join(escaped.header) + " |",
        "|" + " ---: |" * len(escaped.header),
        *("| " + " | ".join(row) + " |" for row in escaped.rows),
    ]


def latex(curves: Sequence[ScalingCurve]) -> str:
    """Return LaTeX tables for a paper; they need the package booktabs."""
    lines = [PACKAGES]
    for section in sections(curves):
        comments = (section.title, *section.alerts, *section.lines, *section.warnings)
        lines += [f"% {printable(line)}" for line in comments]
        for table in section.tables:
            lines += [*latex_table(table, f"{section.title}: {table.title}"), ""]
    return "\n".join(lines)


def comma_separated(curves: Sequence[ScalingCurve]) -> str:
    """Return CSV with a row for each point of each curve."""
    rows = [
        {"study": curve.study, "scaling": curve.scaling, **curve.where, **_csv_cells(point)}
        for curve in curves
        for point in curve.points
    ]
    header = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(escape_csv, header))
    writer.writerows([escape_csv(row.get(name)) for name in header] for row in rows)
    return out.getvalue()


def _csv_cells(point: Point) -> dict[str, Any]:
    """Return a point's CSV cells by column: three for an estimate (value, low, high), else one."""
    flat: dict[str, Any] = {}
    for name, metric in _point_values(point).items():
        if isinstance(metric, Estimate):
            flat |= {name: metric.value, f"{name}_low": metric.low, f"{name}_high": metric.high}
        elif isinstance(metric, Mapping):
            flat |= {f"{name}_{part}": estimate.value for part, estimate in metric.items()}
        elif name == "warnings":
            flat[name] = "; ".join(map(warning_text, metric))
        else:
            flat[name] = warning_text(metric) if isinstance(metric, Doubt) else metric
    return flat


def _point_values(point: Point) -> dict[str, Any]:
    values = {name: getattr(point, name) for name in _field_names(Point)}
    return {**values, "regime": point.regime}


def as_json(curves: Sequence[ScalingCurve]) -> str:
    """Return the curves as JSON (docs/reference/json.md); an unknown value is null."""
    names = ("study", "where", "scaling", "work", "unit", "turns_at", "conditions", "warnings")
    curve_values = [
        {
            **pick(curve, *names),
            **full_run_values(curve),
            "doubts": doubt_values(curve.doubts),
            "read_as": read_as_values(curve),
            "points": [_point_values(point) for point in curve.points],
        }
        for curve in curves
    ]
    is_long = sum(len(curve.points) for curve in curves) > MAX_INDENTED_POINTS
    return dump_json({"curves": curve_values}, indent=None if is_long else 1)


def full_run_values(curve: ScalingCurve) -> dict[str, Any]:
    """Return the training that a curve's times are for: ``full_run``, ``rehearsal``, ``per``."""
    full_run = curve.full_run
    return {
        "full_run": full_run and {"text": full_run.text, "samples": curve.baseline.samples},
        "rehearsal": curve.rehearsal is not None,
        "per": curve.unit_of_work,
    }


def read_as_values(curve: ScalingCurve) -> dict[str, Any] | None:
    """Return how a curve's table was read, with the sentence; None if it needs none."""
    reading = curve.read_as
    return {**plain(reading), "says": read_as_sentence(reading)} if reading else None


def pick(source: object, *names: str) -> dict[str, Any]:
    """Return the attributes of ``source`` with these names, as a dict."""
    return {name: getattr(source, name) for name in names}


def dump_json(document: Mapping[str, Any], indent: int | None = 1) -> str:
    """Return a document of plain values and dataclasses as JSON, with ``SCHEMA``."""
    return json.dumps({"schema": SCHEMA, **plain(document)}, indent=indent)


def plain(value: Any) -> Any:
    """Convert a value to types that JSON has; infinity and not-a-number become null."""
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, Doubt):
        return warning_text(value)
    kind: Any = type(value)
    if is_dataclass(value):
        return {name: plain(getattr(value, name)) for name in _field_names(kind)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None  # np.float64 to float.
    return value


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
