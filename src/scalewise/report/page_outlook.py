"""What lies ahead of a curve, as a page shows it: what more devices give, how many to use."""

from dataclasses import replace

from scalewise.analysis.advise import Advice, Outlook
from scalewise.analysis.predict import Prediction
from scalewise.report import advice, prediction_plot, prediction_sections
from scalewise.report.curve_table import Section, Table

Drawn = tuple[Section, tuple[tuple[str, str], ...]]
"""A section, and its plots: each a title and SVG."""


def drawn(found: Outlook) -> list[Drawn]:
    """Return both sections; the first has its plots."""
    name = found.curve.name
    ahead = f"{name}: what more devices would give"
    plots: tuple[tuple[str, str], ...] = ()
    if isinstance(found.prediction, Prediction):
        (told,) = prediction_sections.sections(found.prediction)
        # The laws beside it are for `scalewise predict`: a page stays light without.
        first = replace(told, title=ahead, tables=told.tables[:1], warnings=_own(found))
        plots = tuple((metric, prediction_plot.svg(found.prediction, metric))
                      for metric in prediction_plot.shown(found.prediction))  # fmt: skip
    else:
        first = Section(ahead, (found.prediction,), (), ())
    return [(first, plots), (_advised(found), ())]


def _own(found: Outlook) -> tuple[str, ...]:
    """Return the warnings of the prediction that the measurements do not have already."""
    assert isinstance(found.prediction, Prediction)
    return tuple(each for each in found.prediction.warnings if each not in found.curve.warnings)


def _advised(found: Outlook) -> Section:
    """Return the advice for each purpose, and what was weighed for it; nothing is said twice."""
    lines: list[str] = []
    tables: list[Table] = []
    warnings: list[str] = []
    for each in found.advice:
        if not isinstance(each, Advice):
            lines.append(each)
            continue
        (told,) = advice.sections(each)
        lines += [line for line in told.lines if line not in lines]
        tables += [replace(table, title=f"{table.title} for {each.purpose}")
                   for table in told.tables]  # fmt: skip
        known = (*found.curve.warnings, *warnings)
        warnings += [warning for warning in each.returns.warnings if warning not in known]
    title = f"{found.curve.name}: how many to use"
    return Section(title, tuple(lines), tuple(tables), tuple(warnings))
