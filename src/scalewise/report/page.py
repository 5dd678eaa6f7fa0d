"""The HTML report: one self-contained page with tables, plots and numbers."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from scalewise.analysis.advise import Advice, Outlook, outlook
from scalewise.analysis.explain import Explanation
from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.predict import Prediction
from scalewise.errors import ScalewiseError
from scalewise.report import (
    advice_sections,
    curve_table,
    explanation_sections,
    formats,
    plot,
    prediction_plot,
    prediction_sections,
)
from scalewise.report.escape import printable
from scalewise.report.tables import Section, Table
from scalewise.report.text.advice import returns_warnings

PlottedSection = tuple[Section, tuple[tuple[str, str], ...]]
"""A section, and its plots as (title, SVG)."""


def html(curves: Sequence[ScalingCurve], explained: Sequence[Explanation] = ()) -> str:
    """Return the page: measurements, explanations, predictions and advice."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        # Jinja escapes the result for HTML afterwards.
        finalize=lambda text: text if isinstance(text, Markup) else printable(str(text)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections: list[PlottedSection] = [(section, ()) for section in curve_table.sections(curves)]
    for section in explanation_sections.sections(explained):
        sections.append((replace(section, title=f"{section.title}: why"), ()))
    for ahead in filter(None, map(outlook, curves)):
        sections += outlook_sections(ahead)
    return templates.get_template("page.html").render(
        title=", ".join(dict.fromkeys(curve.study for curve in curves)),
        sections=sections,
        plots=[(plot.PLOTS[name].title, plot.svg(curves, name)) for name in plot.possible(curves)],
        numbers=formats.as_json(curves),
        version=version("scalewise"),
    )


def outlook_sections(ahead: Outlook) -> list[PlottedSection]:
    """Return the section of the prediction with its plots, and that of the advice."""
    title = f"{ahead.curve.name}: what more devices would give"
    plots: tuple[tuple[str, str], ...] = ()
    if isinstance(ahead.prediction, Prediction):
        (section,) = prediction_sections.sections(ahead.prediction)
        # The page shows the warnings of the measured curve elsewhere.
        warnings = [text for text in section.warnings if text not in ahead.curve.warnings]
        # The table of laws is left to `scalewise predict`, to keep the page small.
        first = replace(section, title=title, tables=section.tables[:1], warnings=tuple(warnings))
        metrics = prediction_plot.predicted_metrics(ahead.prediction)
        plots = tuple((name, prediction_plot.svg(ahead.prediction, name)) for name in metrics)
    else:
        first = Section(title, (_problem_line(ahead.prediction),))
    return [(first, plots), (_advice_section(ahead), ())]


def _advice_section(ahead: Outlook) -> Section:
    """Return the advice for all purposes, without repeated lines and warnings."""
    lines: list[str] = []
    tables: list[Table] = []
    warnings: list[str] = []
    for answer in ahead.advice:
        if not isinstance(answer, Advice):
            lines.append(_problem_line(answer))
            continue
        (section,) = advice_sections.sections(answer)
        lines += [line for line in section.lines if line not in lines]
        tables += [replace(table, title=f"{table.title} for {answer.purpose}")
                   for table in section.tables]  # fmt: skip
        earlier = (*ahead.curve.warnings, *warnings)
        warnings += [
            warning for warning in returns_warnings(answer.returns) if warning not in earlier
        ]
    title = f"{ahead.curve.name}: how many to use"
    return Section(title, tuple(lines), tuple(tables), tuple(warnings))


def _problem_line(problem: ScalewiseError) -> str:
    return f"{problem}: {problem.hint}" if problem.hint else str(problem)
