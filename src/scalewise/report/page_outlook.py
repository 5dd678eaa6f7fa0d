"""The outlook of a curve on a page: the prediction with its plots, and the advice."""

from dataclasses import replace

from scalewise.analysis.advise import Advice, Outlook
from scalewise.analysis.predict import Prediction
from scalewise.errors import ScalewiseError
from scalewise.report import advice_sections, prediction_plot, prediction_sections
from scalewise.report.tables import Section, Table
from scalewise.report.text.advice import returns_warnings

PlottedSection = tuple[Section, tuple[tuple[str, str], ...]]
"""A section, and its plots as (title, SVG)."""


def outlook_sections(outlook: Outlook) -> list[PlottedSection]:
    """Return the section of the prediction with its plots, and that of the advice."""
    title = f"{outlook.curve.name}: what more devices would give"
    plots: tuple[tuple[str, str], ...] = ()
    if isinstance(outlook.prediction, Prediction):
        (section,) = prediction_sections.sections(outlook.prediction)
        # The page shows the warnings of the measured curve elsewhere.
        warnings = [text for text in section.warnings if text not in outlook.curve.warnings]
        # The table of laws is left to `scalewise predict`, to keep the page small.
        first = replace(section, title=title, tables=section.tables[:1], warnings=tuple(warnings))
        metrics = prediction_plot.predicted_metrics(outlook.prediction)
        plots = tuple((name, prediction_plot.svg(outlook.prediction, name)) for name in metrics)
    else:
        first = Section(title, (_problem_line(outlook.prediction),), (), ())
    return [(first, plots), (_advice_section(outlook), ())]


def _advice_section(outlook: Outlook) -> Section:
    """Return the advice for all purposes, without repeated lines and warnings."""
    lines: list[str] = []
    tables: list[Table] = []
    warnings: list[str] = []
    for answer in outlook.advice:
        if not isinstance(answer, Advice):
            lines.append(_problem_line(answer))
            continue
        (section,) = advice_sections.sections(answer)
        lines += [line for line in section.lines if line not in lines]
        tables += [replace(table, title=f"{table.title} for {answer.purpose}")
                   for table in section.tables]  # fmt: skip
        earlier = (*outlook.curve.warnings, *warnings)
        warnings += [
            warning for warning in returns_warnings(answer.returns) if warning not in earlier
        ]
    title = f"{outlook.curve.name}: how many to use"
    return Section(title, tuple(lines), tuple(tables), tuple(warnings))


def _problem_line(problem: ScalewiseError) -> str:
    return f"{problem}: {problem.hint}" if problem.hint else str(problem)
