"""Render sections and curves as terminal text, Markdown, LaTeX, CSV and JSON."""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from scalewise.analysis.measure import Doubt, Estimate, Point, ScalingCurve
from scalewise.report.curve_table import sections
from scalewise.report.escape import escape_csv, escape_latex, escape_markdown, printable
from scalewise.report.tables import Section, Table
from scalewise.report.text.doubts import warning_text

SCHEMA = 1
"""Version of the JSON outputs that docs/reference/json.md describes."""
PLAIN_TEXT_COLUMNS = 1000
"""Width at which plain text is rendered, so that no table is split."""


def render_terminal(contents: Sequence[Section], width: int) -> RenderableType:
    """Return sections as rich text for a terminal. A wide table is split into several."""
    parts: list[RenderableType] = []
    for section in _escaped(contents, printable):
        parts.append(Text(section.title, style="bold"))
        parts += [Text(line, style="dim") for line in section.lines]
        for table in section.tables:
            parts += [Text(), Text(table.title, style="bold")]
            parts += [_rich_table(part) for part in _split_columns(table, width)]
        parts += [Text(f"! {warning}", style="yellow") for warning in section.warnings]
        parts.append(Text())
    return Group(*parts[:-1])


def _escaped(contents: Sequence[Section], escape: Callable[[str], str]) -> list[Section]:
    return [
        Section(
            title=escape(section.title),
            lines=tuple(map(escape, section.lines)),
            tables=tuple(
                Table(
                    escape(table.title),
                    tuple(map(escape, table.header)),
                    tuple(tuple(map(escape, row)) for row in table.rows),
                )
                for table in section.tables
            ),
            warnings=tuple(map(escape, section.warnings)),
        )
        for section in contents
    ]


def _split_columns(table: Table, width: int) -> list[Table]:
    """Split a table into tables that fit the width; each of them repeats the first column."""
    columns = list(zip(table.header, *table.rows))
    widths = [max(map(len, column)) + 3 for column in columns]  # Rich puts 3 between columns.
    parts: list[list[int]] = [[0]]
    for index in range(1, len(columns)):
        if len(parts[-1]) > 1 and sum(widths[k] for k in parts[-1]) + widths[index] > width:
            parts.append([0])
        parts[-1].append(index)
    return [
        Table(
            table.title,
            tuple(table.header[k] for k in part),
            tuple(tuple(row[k] for k in part) for row in table.rows),
        )
        for part in parts
    ]


def _rich_table(table: Table) -> RenderableType:
    rich_table = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in table.header:
        rich_table.add_column(Text(name), justify="right", no_wrap=True)
    for row in table.rows:
        rich_table.add_row(*map(Text, row))
    return rich_table


def text(curves: Sequence[ScalingCurve]) -> str:
    """Return the tables of curves as plain text with lines of any length."""
    return plain_text(sections(curves))


def plain_text(contents: Sequence[Section]) -> str:
    """Return sections as plain text with lines of any length."""
    out = io.StringIO()
    Console(file=out, width=PLAIN_TEXT_COLUMNS, color_system=None).print(
        render_terminal(contents, PLAIN_TEXT_COLUMNS)
    )
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def markdown(curves: Sequence[ScalingCurve]) -> str:
    """Return the tables of curves as Markdown."""
    lines: list[str] = []
    for section in _escaped(sections(curves), escape_markdown):
        lines += [f"## {section.title}", "", *(f"- {line}" for line in section.lines), ""]
        for table in section.tables:
            lines += [f"### {table.title}", ""]
            lines.append("| " + " | ".join(table.header) + " |")
            lines.append("|" + " ---: |" * len(table.header))
            lines += ["| " + " | ".join(row) + " |" for row in table.rows]
            lines.append("")
        lines += [f"> {warning}\n" for warning in section.warnings]
    return "\n".join(lines).rstrip() + "\n"


def latex(curves: Sequence[ScalingCurve]) -> str:
    """Return LaTeX tables for a paper; they need the package booktabs."""
    lines = ["% needs \\usepackage{booktabs}"]
    contents = sections(curves)
    for section, escaped in zip(contents, _escaped(contents, escape_latex)):
        comments = (section.title, *section.lines, *section.warnings)
        lines += [f"% {printable(line)}" for line in comments]
        for table in escaped.tables:
            lines += [
                "\\begin{table}",
                "  \\centering",
                f"  \\caption{{{escaped.title}: {table.title}}}",
                f"  \\begin{{tabular}}{{{'r' * len(table.header)}}}",
                "    \\toprule",
                f"    {' & '.join(table.header)} \\\\",
                "    \\midrule",
                *(f"    {' & '.join(row)} \\\\" for row in table.rows),
                "    \\bottomrule",
                "  \\end{tabular}",
                "\\end{table}",
                "",
            ]
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
    values = {field.name: getattr(point, field.name) for field in fields(point)}
    return {**values, "regime": point.regime}


def as_json(curves: Sequence[ScalingCurve]) -> str:
    """Return the curves as JSON (docs/reference/json.md); an unknown value is null."""
    names = ("study", "where", "scaling", "work", "unit", "turns_at", "conditions", "warnings")
    curve_values = [
        {**pick(curve, *names), "points": [_point_values(point) for point in curve.points]}
        for curve in curves
    ]
    return dump_json({"curves": curve_values})


def pick(source: object, *names: str) -> dict[str, Any]:
    """Return the attributes of ``source`` with these names, as a dict."""
    return {name: getattr(source, name) for name in names}


def dump_json(document: Mapping[str, Any]) -> str:
    """Return a document of plain values and dataclasses as JSON, with ``SCHEMA``."""
    return json.dumps({"schema": SCHEMA, **plain(document)}, indent=1)


def plain(value: Any) -> Any:
    """Convert a value to types that JSON has; infinity and not-a-number become null."""
    if isinstance(value, Doubt):
        return warning_text(value)
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None  # np.float64 to float.
    return value
