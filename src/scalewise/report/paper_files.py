"""Every figure and table of a report as a file of its own, for papers: ``report --files``."""

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain import Explanation
from scalewise.analysis.measure import ScalingCurve
from scalewise.record.write import write_text
from scalewise.report import (
    advice_sections,
    curve_table,
    explanation_sections,
    prediction_sections,
    summary_sections,
)
from scalewise.report.curve_report import CurveReport, curve_reports
from scalewise.report.escape import escape_csv, escape_markdown, printable
from scalewise.report.figures import IMAGE_SUFFIXES
from scalewise.report.formats import markdown_table
from scalewise.report.latex_table import PACKAGES, latex_table
from scalewise.report.tables import NONE, Section, Table

COLUMNS = (1, 2)
"""Widths of the figures, in columns of a paper."""
MAX_PART = 40
"""Characters of a title in the name of a file."""
THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table with the name of its files, and what belongs to it."""

    name: str
    caption: str
    table: Table
    notes: tuple[str, ...] = ()
    """Doubts and warnings of its section."""


def write_files(
    loaded: Sequence[tuple[Path, ScalingCurve, Explanation | None]],
    folder: Path,
    price: Rate | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Write figures/NAME-1col.pdf, .svg, .png, the same with -2col, and tables/NAME.tex, .md, .csv;
    return the two folders. ``on_progress`` is called with the figures written and all of them.
    """
    from scalewise.report.figures import matplotlib_figure as paper  # Slow to import.
    from scalewise.report.figures.all_figures import all_figures

    reports = curve_reports(loaded, price)
    names: set[str] = set()
    named = [(name, figure) for name, shown in all_figures(reports).items() for figure in shown]
    for done, (name, figure) in enumerate(named, start=1):
        file_name = _unique(name, names)
        for columns in COLUMNS:
            canvas = paper.draw(figure, 1 if columns == 1 else 2)
            for suffix in IMAGE_SUFFIXES:
                paper.write(canvas, folder / "figures" / f"{file_name}-{columns}col{suffix}")
        on_progress(done, len(named))
    for table in report_tables(reports):
        for suffix, text in table_texts(table).items():
            write_text(folder / "tables" / f"{table.name}{suffix}", text)
    return [path for path in (folder / "figures", folder / "tables") if path.exists()]


def report_tables(reports: Sequence[CurveReport]) -> Iterator[NamedTable]:
    """Yield all tables of a report, with names that differ."""
    names: set[str] = set()
    for section in _sections(reports):
        notes = (*section.alerts, *section.warnings)
        for table in section.tables:
            parts = [table.title] if len(reports) == 1 else [section.title, table.title]
            name = _unique("-".join(filter(None, map(_slug, parts))) or "table", names)
            yield NamedTable(name, f"{section.title}: {table.title}", table, notes)


def _sections(reports: Sequence[CurveReport]) -> Iterator[Section]:
    yield from curve_table.sections([report.curve for report in reports])
    for section in summary_sections.sections([report.summary for report in reports]):
        # Its title is the answer, and changes with it.
        yield replace(section, title=section.title.partition(":")[0])
    explained = [report.explanation for report in reports if report.explanation]
    yield from explanation_sections.sections(explained)
    for report in reports:
        if report.prediction:
            yield from prediction_sections.sections(report.prediction)
        if report.summary.advice:
            yield from advice_sections.sections(report.summary.advice)


def table_texts(named: NamedTable) -> dict[str, str]:
    """Return the contents of a table's files by suffix. LaTeX has the columns that are shown by
    default, which fit on a page; the other files have all of them.
    """
    notes = [f"% {printable(note)}" for note in named.notes]
    tex_lines = [PACKAGES, *notes, *latex_table(_default_columns(named.table), named.caption,
                                                named.name)]  # fmt: skip
    quoted = [f"> {escape_markdown(note)}\n" for note in named.notes]
    caption = f"**{escape_markdown(named.caption)}**\n"
    return {
        ".tex": "\n".join(tex_lines) + "\n",
        ".md": "\n".join([caption, *quoted, markdown_table(named.table)]),
        ".csv": _comma_separated(named.table),
    }


def _default_columns(table: Table) -> Table:
    if not table.shown:
        return table
    kept = [index for index, shown in enumerate(table.shown) if shown == "default"]
    return replace(
        table,
        header=tuple(table.header[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in table.rows),
        shown=(),
    )


def _comma_separated(table: Table) -> str:
    """Return CSV: numbers without thousands separators, unknown values as empty cells."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in (table.header, *table.rows):
        cells = ("" if cell == NONE else cell for cell in row)
        writer.writerow(
            escape_csv(cell.replace(",", "") if THOUSANDS.fullmatch(cell) else cell)
            for cell in cells
        )
    return out.getvalue()


def _slug(text: str) -> str:
    """Return a title as part of a file name; of a long one, its first phrase.

    >>> _slug("Scaling, by throughput"), _slug("Ünï/../x")
    ('scaling-by-throughput', 'uni-x')
    """
    if len(text) > MAX_PART:
        text = re.split(r"[,:(]", text, maxsplit=1)[0]
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if len(slug) > MAX_PART:  # Cut after a whole word.
        slug = slug[: MAX_PART + 1].rpartition("-")[0] or slug[:MAX_PART]
    return slug


def _unique(name: str, names: set[str]) -> str:
    """Return the name, with a number if it is taken, and take it."""
    number, unique = 1, name
    while unique in names:
        number += 1
        unique = f"{name}-{number}"
    names.add(unique)
    return unique
