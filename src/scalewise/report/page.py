"""The page: one self-contained HTML file that opens without a network.

The template shows everything as text and tables at once. Plotly comes from its Python package,
compressed; the page's script unpacks it and draws the figures, whose values are JSON in the page.
"""

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markupsafe import Markup

from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.number_format import format_count, format_duration, format_rounded
from scalewise.analysis.summary import Summary
from scalewise.report import formats
from scalewise.report.curve_report import CurveReport
from scalewise.report.figures import Figure
from scalewise.report.figures.all_figures import figures
from scalewise.report.figures.plotly_figure import plotly_figure, series_color
from scalewise.report.figures.svg_preview import svg_preview
from scalewise.report.figures.thinning import thinned
from scalewise.report.page_sections import (
    NOT_COMPARED,
    Compared,
    page_sections,
    short_names,
)
from scalewise.report.summary_sections import scales_table
from scalewise.report.tables import Table, is_text_column, percent
from scalewise.report.template import load_template
from scalewise.report.text.doubts import alert_lines
from scalewise.report.text.page import (
    LATER_QUESTIONS,
    first_answers,
    headline,
    hero_note,
    lead_sentence,
    machine_text,
)
from scalewise.report.text.summary import next_command
from scalewise.report.text.verdict import efficiency_label, time_efficiency

MAX_CURVES = 12
"""So many curves are shown in full; more are compared in one table."""
MAX_NAMES = 4
"""So many studies are named above the page."""
MAX_ROWS = 200
"""Rows of a table on the page; of more, the first ones are shown."""
SCRIPT_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028",
                  "\u2029": "\\u2029"}  # fmt: skip
"""Characters that could end a script element, or a line of JavaScript; JSON reads them back."""


def html(
    reports: Sequence[CurveReport],
    others: Sequence[ScalingCurve] = (),
    compared: Compared = NOT_COMPARED,
) -> str:
    """Return the page about these curves, with their comparison. ``others`` are shown in a table
    only, and in the downloads.
    """
    curves = [*(report.curve for report in reports), *others]
    hero = [short_names(figure, reports) for figure in figures(reports, "throughput")]
    sections = page_sections(reports, others, compared)
    numbered = _numbered([*hero, *(figure for part in sections for figure in part.figures)])
    drawn = {key: thinned(figure) for key, figure in numbered.items()}
    plots = {key: plotly_figure(figure) for key, (figure, _) in drawn.items()}
    return load_template("page.html").render(
        title=_title([*dict.fromkeys(curve.study for curve in curves)]),
        machine=machine_text(reports),
        cards=[_card(report) for report in reports],
        alerts=[*_alerts(reports)],
        hero=hero[0] if hero else None,
        preview=svg_preview(plots[next(iter(numbered))]) if hero else "",
        legend=[(line.name, series_color(line)) for line in hero[0].lines] if hero else [],
        sections=sections,
        max_rows=MAX_ROWS,
        count=format_count,
        figure_ids={id(figure): key for key, figure in numbered.items()},
        id=id,
        figure_notes={key: note for key, (_, note) in drawn.items()},
        figures=script_json(plots),
        hidden_curves=len(others),
        column_classes=column_classes,
        csv=compressed(formats.comma_separated(curves)),
        numbers=compressed(formats.as_json(curves)),
        plotly=compressed_plotly(),
        style=Markup(_read("page.css")),
        script=Markup(_read("page.js")),
        version=version("scalewise"),
    )


def _title(studies: Sequence[str]) -> str:
    more = f" and {len(studies) - MAX_NAMES:,} more" if len(studies) > MAX_NAMES else ""
    return ", ".join(studies[:MAX_NAMES]) + more


def _card(report: CurveReport) -> dict[str, Any]:
    """Return what the first screen says about one curve."""
    summary = report.summary
    answers = dict(first_answers(summary))
    return {
        "name": summary.curve.name,
        "verdict": summary.verdict.replace(" ", "-"),
        "headline": headline(summary),
        "lead": lead_sentence(summary),
        "answers": {q: a for q, a in answers.items() if q not in LATER_QUESTIONS},
        "later": {q: a for q, a in answers.items() if q in LATER_QUESTIONS},
        "next": next_command(summary),
        "tiles": [*_tiles(summary)],
        "note": hero_note(report),
        "table": scales_table(summary) if summary.shown_scales else None,
    }


def _tiles(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield numbers with labels: those of the chosen scale, and the speed of more devices if these
    are not worth it.
    """
    chosen, scales = summary.chosen, summary.shown_scales
    if chosen is None or not scales:
        return
    base, larger = scales[0], chosen
    if chosen is base and len(scales) > 1:
        fastest = summary.fastest
        larger = fastest if fastest and fastest is not base else scales[1]
    speedup = base.slowness / larger.slowness
    of = "" if larger is chosen else f" of {format_count(larger.devices)}"
    label = f"as fast as {format_count(base.devices)}"
    if larger is not chosen:
        label = f"speed on {larger.devices:,} against {base.devices:,}"
    yield f"{format_rounded(speedup)} ×", label
    yield percent(time_efficiency(summary, larger)), f"{efficiency_label(summary)}{of}"
    on = "" if larger is chosen else f" on {format_count(chosen.devices)}"
    if chosen.time:
        per = f" per {summary.curve.unit_of_work}" if summary.curve.unit_of_work else ""
        yield format_duration(chosen.time.value), f"time{per}{on}"
    if chosen.device_hours:
        yield format_rounded(chosen.device_hours.value), f"device-hours{on}"


def _alerts(reports: Sequence[CurveReport]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the severity and the lines of each curve's serious doubts, with the curve's name."""
    for report in reports:
        doubts = report.summary.doubts
        if lines := alert_lines(doubts):
            severity = "blocks" if any(d.severity == "blocks" for d in doubts) else "weakens"
            yield severity, report.curve.name if len(reports) > 1 else "", lines


def _numbered(shown: Sequence[Figure]) -> dict[str, Figure]:
    """Return figures by name; there may be one of the same name for each curve."""
    names = [figure.name for figure in shown]
    return {
        f"{name}-{index}" if names.count(name) > 1 else name: figure
        for index, (name, figure) in enumerate(zip(names, shown))
    }


def column_classes(table: Table) -> list[str]:
    """Return the CSS classes of each column: when it is shown, and whether it is text."""
    classes = []
    for index in range(len(table.header)):
        names: list[str] = (
            [table.shown[index]] if table.shown and table.shown[index] != "default" else []
        )
        if is_text_column(row[index] for row in table.rows[:MAX_ROWS]):
            names.append("text")
        classes.append(" ".join(names))
    return classes


def script_json(value: Any) -> Markup:
    """Return JSON for a script element, which no text in it can end."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup("".join(SCRIPT_ESCAPES.get(char, char) for char in text))


def compressed(text: str) -> Markup:
    """Return text as gzip in base64, which the page's script unpacks."""
    return Markup(base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode())


@cache
def compressed_plotly() -> Markup:
    """Return the program text of Plotly, compressed."""
    from plotly.offline import get_plotlyjs

    return compressed(get_plotlyjs())


def _read(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")
