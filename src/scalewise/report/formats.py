"""The same curves as terminal text, Markdown, LaTeX, CSV and JSON."""

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

from scalewise.analysis.measure import Estimate, Point, ScalingCurve
from scalewise.report.curve_table import Section, Table, sections
from scalewise.report.escape import escape_csv, escape_latex, escape_markdown, printable

SCHEMA = 1
WIDE = 1000
"""Columns of plain text before it wraps."""


def terminal(curves: Sequence[ScalingCurve], width: int) -> RenderableType:
    """Return what a terminal of this width shows."""
    return on_screen(sections(curves), width)


def on_screen(told: Sequence[Section], width: int) -> RenderableType:
    """Return sections as a terminal of this width shows them; a wide table goes on below."""
    parts: list[RenderableType] = []
    for section in _escaped(told, printable):
        parts.append(Text(section.title, style="bold"))
        parts += [Text(line, style="dim") for line in section.lines]
        for table in section.tables:
            parts.append(Text())
            parts.append(Text(table.title, style="bold"))
            parts += [_rich(part) for part in _folded(table, width)]
        parts += [Text(f"! {warning}", style="yellow") for warning in section.warnings]
        parts.append(Text())
    return Group(*parts[:-1])


def _escaped(told: Sequence[Section], escape: Callable[[str], str]) -> list[Section]:
    """Return the sections with all their text escaped."""
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
        for section in told
    ]


def _folded(table: Table, width: int) -> list[Table]:
    """Cut a table into parts that fit, each with the first column."""
    columns = list(zip(table.header, *table.rows))
    needs = [max(map(len, column)) + 3 for column in columns]
    parts: list[list[int]] = [[0]]
    for place in range(1, len(columns)):
        if len(parts[-1]) > 1 and sum(needs[k] for k in parts[-1]) + needs[place] > width:
            parts.append([0])
        parts[-1].append(place)
    return [
        Table(
            table.title,
            tuple(table.header[k] for k in part),
            tuple(tuple(row[k] for k in part) for row in table.rows),
        )
        for part in parts
    ]


def _rich(table: Table) -> RenderableType:
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in table.header:
        shown.add_column(Text(name), justify="right", no_wrap=True)
    for row in table.rows:
        shown.add_row(*map(Text, row))
    return shown


def text(curves: Sequence[ScalingCurve]) -> str:
    """Return plain text, as wide as it needs to be."""
    return in_words(sections(curves))


def in_words(told: Sequence[Section]) -> str:
    """Return sections as plain text, as wide as it needs to be."""
    out = io.StringIO()
    Console(file=out, width=WIDE, color_system=None).print(on_screen(told, WIDE))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def markdown(curves: Sequence[ScalingCurve]) -> str:
    """Return Markdown."""
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
    told = sections(curves)
    for section, escaped in zip(told, _escaped(told, escape_latex)):
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
    """Return one flat table of every point, each estimate with its interval."""
    rows = [
        {"study": curve.study, **_where(curve), **_flat(p)}
        for curve in curves
        for p in curve.points
    ]
    header = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(escape_csv, header))
    writer.writerows([escape_csv(row.get(name)) for name in header] for row in rows)
    return out.getvalue()


def _where(curve: ScalingCurve) -> dict[str, Any]:
    return {"scaling": curve.scaling, **curve.where}


def _flat(point: Point) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, found in _values(point).items():
        if isinstance(found, Estimate):
            flat |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
        elif isinstance(found, Mapping):
            flat |= {f"{name}_{part}": each.value for part, each in found.items()}
        elif name == "warnings":
            flat[name] = "; ".join(found)
        else:
            flat[name] = found
    return flat


def _values(point: Point) -> dict[str, Any]:
    named = {each.name: getattr(point, each.name) for each in fields(point)}
    return {**named, "regime": point.regime}


def as_json(curves: Sequence[ScalingCurve]) -> str:
    """Return the documented JSON shape: nothing is null, never a made-up number."""
    return json.dumps({"schema": SCHEMA, "curves": [_curve(curve) for curve in curves]}, indent=1)


def _curve(curve: ScalingCurve) -> dict[str, Any]:
    return {
        "study": curve.study,
        "where": dict(curve.where),
        "scaling": curve.scaling,
        "work": curve.work,
        "unit": curve.unit,
        "turns_at": curve.turns_at,
        "conditions": dict(curve.conditions),
        "warnings": list(curve.warnings),
        "points": [{k: plain(v) for k, v in _values(point).items()} for point in curve.points],
    }


def plain(found: Any) -> Any:
    """Return a value as JSON can hold it; a number that is none is null."""
    if is_dataclass(found):
        return {each.name: plain(getattr(found, each.name)) for each in fields(found)}
    if isinstance(found, Mapping):
        return {key: plain(each) for key, each in found.items()}
    if isinstance(found, (tuple, list)):
        return [plain(each) for each in found]
    if isinstance(found, float):
        return float(found) if math.isfinite(found) else None
    return found
