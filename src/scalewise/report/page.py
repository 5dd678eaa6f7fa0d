"""The HTML report: one self-contained page with tables, plots and the numbers as JSON."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from scalewise.analysis.advise import Purpose, advise
from scalewise.analysis.advise.choice import DOUBLINGS_AHEAD
from scalewise.analysis.explain import Explanation
from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.predict import predict
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
from scalewise.report.text.doubts import warning_text

PlottedSection = tuple[Section, tuple[tuple[str, str], ...]]
"""A section, and its plots as (title, SVG)."""
PAGE_PURPOSES = ("balanced", "efficiency=0.8")
"""The purposes of ``scalewise advise`` for which the page shows advice."""


def html(curves: Sequence[ScalingCurve], explained: Sequence[Explanation] = ()) -> str:
    """Return the page: measurements, explanations, predictions and advice."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        # Control characters are escaped here; Jinja escapes the result for HTML afterwards.
        finalize=lambda text: text if isinstance(text, Markup) else printable(str(text)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections: list[PlottedSection] = [(section, ()) for section in curve_table.sections(curves)]
    for section in explanation_sections.sections(explained):
        sections.append((replace(section, title=f"{section.title}: why"), ()))
    for curve in curves:
        sections += outlook_sections(curve)
    return templates.get_template("page.html").render(
        title=", ".join(dict.fromkeys(curve.study for curve in curves)),
        sections=sections,
        plots=[(plot.PLOTS[name].title, plot.svg(curves, name)) for name in plot.available(curves)],
        numbers=formats.as_json(curves),
        version=version("scalewise"),
    )


def outlook_sections(curve: ScalingCurve) -> list[PlottedSection]:
    """Return the prediction with its plots, and the advice; empty for a single device count."""
    largest = max(point.devices for point in curve.points)
    if all(point.devices == largest for point in curve.points):
        return []
    title = f"{curve.name}: what more devices would give"
    plots: tuple[tuple[str, str], ...] = ()
    try:
        prediction = predict(curve, [largest * 2**step for step in range(1, DOUBLINGS_AHEAD + 1)])
    except ScalewiseError as error:
        outlook = Section(title, (_problem_line(error),))
    else:
        (section,) = prediction_sections.sections(prediction)
        # The page has the warnings of the measured curve in the section of that curve.
        measured = [warning_text(warning) for warning in curve.warnings]
        warnings = [text for text in section.warnings if text not in measured]
        # To keep the page small, the tables of laws (all but the first table) are omitted.
        outlook = replace(section, title=title, tables=section.tables[:1], warnings=tuple(warnings))
        metrics = prediction_plot.predicted_metrics(prediction)
        plots = tuple((name, prediction_plot.svg(prediction, name)) for name in metrics)
    return [(outlook, plots), (_advice_section(curve), ())]


def _advice_section(curve: ScalingCurve) -> Section:
    """Return the advice for PAGE_PURPOSES; lines and warnings appear once."""
    lines: list[str] = []
    tables: list[Table] = []
    warnings: list[str] = []
    for purpose in PAGE_PURPOSES:
        try:
            advice = advise(curve, Purpose.parse(purpose))
        except ScalewiseError as error:
            lines.append(_problem_line(error))
            continue
        (section,) = advice_sections.sections(advice)
        lines += [line for line in section.lines if line not in lines]
        tables += [replace(table, title=f"{table.title} for {purpose}") for table in section.tables]
        shown = (*map(warning_text, curve.warnings), *warnings)
        warnings += [text for text in returns_warnings(advice.returns) if text not in shown]
    title = f"{curve.name}: how many to use"
    return Section(title, tuple(lines), tuple(tables), tuple(warnings))


def _problem_line(problem: ScalewiseError) -> str:
    return f"{problem}: {problem.hint}" if problem.hint else str(problem)
