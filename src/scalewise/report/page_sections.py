"""What the page shows: sections of a question, its answer, figures and tables."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from scalewise.analysis.advise import Purpose, advise
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.measure import ScalingCurve
from scalewise.errors import ScalewiseError
from scalewise.report import (
    advice_sections,
    curve_table,
    explanation_sections,
    prediction_sections,
)
from scalewise.report.curve_report import CurveReport
from scalewise.report.figures import Figure
from scalewise.report.figures.all_figures import all_figures
from scalewise.report.method_tables import method_tables, reproduce_commands
from scalewise.report.tables import Section, Table, warnings_of
from scalewise.report.text import page as text
from scalewise.report.text.doubts import note_texts, refuse_blocking, warning_text
from scalewise.report.text.measurement import curve_lines
from scalewise.report.text.prediction import below_fixed_warnings

PAGE_PURPOSES = ("balanced", "efficiency=0.8")
"""The purposes of ``scalewise advise`` for which the page compares options."""
CURVE_TOPICS = {
    "scaling": ("scaling",),
    "time": ("time", "spans"),
    "memory": ("work",),
    "cost": ("energy",),
    "causes": ("operations",),
}
"""By section: the tables of a measured curve that belong there."""
EXPLANATION_TOPICS = {
    "causes": ("factors", "seconds", "phases", "what if", "costs"),
    "time": ("spans",),
    "ranks": ("traced steps", "trace check", "hosts", "accelerators"),
}
"""By section: the tables of an explanation that belong there."""
FIGURE_SECTIONS = {
    "scaling": ("speedup", "efficiency"),
    "causes": ("causes", "lost", "exposed", "sent"),
    "time": ("time", "epoch"),
    "ranks": ("ranks",),
    "memory": ("memory",),
    "cost": ("pareto", "pareto-energy", "energy", "cost"),
    "more": ("predicted-time",),
}
"""By section: the figures that belong there. The first screen has the throughput."""
ANSWERS: dict[str, Callable[[CurveReport], str]] = {
    "scaling": text.scaling_answer,
    "causes": text.causes_answer,
    "time": text.time_answer,
    "ranks": text.ranks_answer,
    "memory": text.memory_answer,
    "cost": text.cost_answer,
    "more": text.more_answer,
    "method": text.method_answer,
}


@dataclass(frozen=True, slots=True)
class Part:
    """What a section says about one curve."""

    title: str
    """The curve's name; empty on a page about one curve."""
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    """What a command does, and the command."""

    @property
    def has_content(self) -> bool:
        return bool(self.lines or self.tables or self.notes)


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section of the page."""

    key: str
    question: str
    answers: tuple[tuple[str, str], ...]
    """The name of a curve (empty on a page about one curve), and the answer about it."""
    figures: tuple[Figure, ...] = ()
    parts: tuple[Part, ...] = ()
    alerts: tuple[str, ...] = ()
    """Lines about doubts of a comparison, to be shown before its answers."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What the page says about the comparison of its results."""

    sections: tuple[Section, ...] = ()
    figures: tuple[Figure, ...] = ()


NOT_COMPARED = Compared()


def page_sections(
    reports: Sequence[CurveReport],
    others: Sequence[ScalingCurve] = (),
    compared: Compared = NOT_COMPARED,
) -> list[PageSection]:
    """Return the sections that have something to show, with those of a comparison; ``others`` are
    only shown side by side.
    """
    sections = []
    drawn = all_figures(reports)
    for key, question in text.QUESTIONS.items():
        answers = tuple(_answers(key, reports))
        alerts: tuple[str, ...] = ()
        parts = tuple(part for part in _parts(key, reports, others) if part.has_content)
        figures = [
            short_names(figure, reports)
            for name in FIGURE_SECTIONS.get(key, ())
            for figure in drawn.get(name, ())
        ]
        if key == "compare" and compared.sections:
            answers = tuple(("", section.lines[0]) for section in compared.sections)
            parts = (*map(_compared_part, compared.sections), *parts)
            alerts = tuple(line for section in compared.sections for line in section.alerts)
            figures += compared.figures
        if answers or parts or figures:
            sections.append(PageSection(key, question, answers, tuple(figures), parts, alerts))
    return sections


def _compared_part(section: Section) -> Part:
    return Part(section.title, section.lines[1:], section.tables, section.warnings)


def short_names(figure: Figure, reports: Sequence[CurveReport]) -> Figure:
    """Return the figure of a single curve without the curve's name, which heads the page."""
    if len(reports) > 1:
        return figure
    name = reports[0].curve.name
    lines = [
        replace(line, name="measured" if line.name == name else line.name.removeprefix(f"{name}: "))
        for line in figure.lines
    ]
    title = figure.title.removeprefix(f"{name}: ")
    return replace(figure, lines=tuple(lines), title=title[0].upper() + title[1:])


def _answers(key: str, reports: Sequence[CurveReport]) -> Iterator[tuple[str, str]]:
    if key == "compare" and len(reports) > 1:
        yield "", text.compare_answer(reports)
    for report in reports:
        answer = ANSWERS[key](report) if key in ANSWERS else ""
        if answer:
            yield report.curve.name if len(reports) > 1 else "", answer


def _parts(
    key: str, reports: Sequence[CurveReport], others: Sequence[ScalingCurve]
) -> Iterator[Part]:
    for report in reports:
        part = PARTS[key](report) if key in PARTS else None
        part = part or Part("", tables=tuple(_tables(key, report)))
        yield replace(part, title=report.curve.name if len(reports) > 1 else "")
    curves = [report.curve for report in reports]
    if key == "compare" and len(reports) > 1:
        section = curve_table.side_by_side([*curves, *others])
        yield Part("", section.lines, section.tables, section.warnings)
    if key == "scaling" and (kinds := curve_table.acceleration_section(curves)):
        yield Part(kinds.title, kinds.lines, kinds.tables)


def _method_part(report: CurveReport) -> Part:
    curve = report.curve
    notes = (*note_texts(curve.warnings), *warnings_of(curve.points))
    return Part(
        "",
        tuple(curve_lines(curve)),
        tuple(method_tables(report)),
        notes,
        tuple(reproduce_commands(report)),
    )


def _causes_part(report: CurveReport) -> Part | None:
    if not report.explanation:
        return None
    lines = explanation_sections.explanation_lines(report.explanation)
    notes = tuple(note_texts(report.explanation.warnings))
    return Part("", tuple(lines), tuple(_tables("causes", report)), notes)


def _cost_part(report: CurveReport) -> Part | None:
    if len({point.devices for point in report.curve.points}) < 2:
        return None
    advice = advice_section(report.curve, report.rate)
    return Part("", advice.lines, (*advice.tables, *_tables("cost", report)), advice.warnings)


def _more_part(report: CurveReport) -> Part | None:
    if not report.prediction:
        return None
    (section,) = prediction_sections.sections(report.prediction)
    # To keep the page small, the tables of laws (all but the first table) are omitted.
    answer = text.more_answer(report)
    return Part("", tuple(line for line in section.lines if line not in answer), section.tables[:1])


PARTS: dict[str, Callable[[CurveReport], Part | None]] = {
    "causes": _causes_part,
    "cost": _cost_part,
    "more": _more_part,
    "method": _method_part,
}
"""By section: what it says about a curve besides ``ANSWERS``. Other sections, and those for which
the function returns None, have the curve's tables alone.
"""


def _tables(key: str, report: CurveReport) -> Iterator[Table]:
    topics = CURVE_TOPICS.get(key, ())
    by_topic = curve_table.tables_by_topic(report.curve, topics)
    explained = (
        explanation_sections.tables_by_topic(report.explanation) if report.explanation else {}
    )
    for topic in EXPLANATION_TOPICS.get(key, ()):
        if topic in explained:
            yield explained[topic]
    yield from by_topic.values()


def advice_section(curve: ScalingCurve, rate: Rate | None = None) -> Section:
    """Return the advice for PAGE_PURPOSES; lines and warnings appear once."""
    lines: list[str] = []
    tables: list[Table] = []
    warnings: list[str] = []
    for purpose in PAGE_PURPOSES:
        try:
            advice = advise(curve, Purpose.parse(purpose), price=rate)
            refuse_blocking("advise", advice.prediction.doubts)
        except ScalewiseError as error:
            lines.append(f"{error}: {error.hint}" if error.hint else str(error))
            continue
        (section,) = advice_sections.sections(advice)
        lines += [line for line in section.lines if line not in lines]
        tables += [replace(table, title=f"{table.title} for {purpose}") for table in section.tables]
        shown = (*map(warning_text, curve.warnings), *warnings)
        warnings += [note for note in below_fixed_warnings(advice.prediction) if note not in shown]
    return Section(curve.name, tuple(dict.fromkeys(lines)), tuple(tables), tuple(warnings))
