"""A short deck: one message on each slide. Several curves share slides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scalewise.analysis.advise import Scale
from scalewise.analysis.number_format import format_count, format_duration
from scalewise.errors import cut
from scalewise.report.curve_report import CurveReport
from scalewise.report.figures import Figure, Line
from scalewise.report.figures.all_figures import figures
from scalewise.report.tables import NONE, Table, make_table, percent, value
from scalewise.report.text.doubts import alert_lines, first_alerts
from scalewise.report.text.method import as_sentence, environment_rows, method_sentences
from scalewise.report.text.page import machine_text
from scalewise.report.text.slides import (
    basis_title,
    conclusion_title,
    performance_title,
    predicted_sentence,
    prediction_title,
    purposes,
    scaling_title,
    time_efficiency_sentence,
    time_title,
    trust_title,
)
from scalewise.report.text.slides_of_several import (
    conclusion_of_several,
    efficiency_of_several,
    fastest_of_several,
    limits_of_several,
    times_of_several,
    trust_of_several,
    verdict_of_several,
)
from scalewise.report.text.spending import cost_heading
from scalewise.report.text.summary import cost_sentence, next_command, try_sentence
from scalewise.report.text.verdict import (
    Answer,
    headline,
    limit_answers,
    limit_title,
    verdict_answers,
)

MAX_CURVES = 6
"""More curves than these do not fit on a slide."""
MAX_TITLE = 120
"""Longer titles, which have long names, are cut."""
MAX_FACTS = 4
"""Facts about hardware and software on a slide; the evidence has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slide:
    """A message, and what shows it: a figure or a table, and a few lines."""

    topic: str
    """A word or two above the title."""
    title: str
    answers: tuple[Answer, ...] = ()
    """Questions with their answers, in large letters."""
    lines: tuple[str, ...] = ()
    figure: Figure | None = None
    table: Table | None = None
    alerts: tuple[str, ...] = ()
    """Doubts, shown in a frame."""
    commands: tuple[str, ...] = ()
    blocked: bool = False
    """Whether a doubt blocks the answer."""

    @property
    def has_text(self) -> bool:
        return bool(self.answers or self.lines or self.table or self.commands)


def slides(reports: Sequence[CurveReport]) -> list[Slide]:
    """Return the deck of one or more curves."""
    left_out = len(reports) - MAX_CURVES
    reports = [_answered(report) for report in reports[:MAX_CURVES]]
    made = (
        _title, _performance, _scaling, _limits, _times, _outlook, _conclusion, _trust
    )  # fmt: skip
    deck = [slide for make in made if (slide := make(reports))]
    if left_out > 0:
        verbs = ("was", "is") if left_out == 1 else ("were", "are")
        note = "{} {} given, and {} not shown.".format(format_count(left_out, "more curve"), *verbs)
        deck[0] = replace(deck[0], lines=(*deck[0].lines, note))
    if any(report.summary.verdict != "not reliable" for report in reports):
        return deck
    return [  # What was measured is shown, but nobody should quote it.
        replace(slide, title=f"Not reliable: {slide.title[0].lower()}{slide.title[1:]}")
        if slide.figure
        else slide
        for slide in deck
    ]


def _answered(report: CurveReport) -> CurveReport:
    """Return the report with the curve that the summary is about: a rehearsal per unit of work."""
    return replace(report, curve=report.summary.curve)


def _is_blocked(reports: Sequence[CurveReport]) -> bool:
    return any(report.summary.verdict == "not reliable" for report in reports)


def _one_line_each(
    reports: Sequence[CurveReport], sentence: Callable[[CurveReport], str | None]
) -> tuple[str, ...]:
    """Return a sentence about each curve, with its name before it."""
    lines = []
    for report in reports:
        if text := sentence(report):
            doubt = " (not reliable)" if report.summary.verdict == "not reliable" else ""
            lines.append(f"{short_name(report)}{doubt}: {text[0].lower()}{text[1:]}")
    return tuple(lines)


def short_name(report: CurveReport) -> str:
    """Return the name of a curve, cut to the width of a slide."""
    return cut(report.curve.name, 48)


def _slide(
    topic: str,
    reports: Sequence[CurveReport],
    sentence: Callable[[CurveReport], str | None],
    sentence_of_several: Callable[[Sequence[CurveReport]], str],
    **contents: Any,
) -> Slide:
    """Return a slide whose title is the sentence about the only curve, with these contents. Several
    curves have a common title, a line each and the figure.
    """
    if len(reports) == 1:
        return Slide(topic=topic, title=sentence(reports[0]) or "", **contents)
    return Slide(
        topic=topic,
        title=cut(sentence_of_several(reports), MAX_TITLE),
        lines=_one_line_each(reports, sentence),
        figure=contents.get("figure"),
    )


def _figure(reports: Sequence[CurveReport], *names: str) -> Figure | None:
    """Return the first of these figures that is worth drawing."""
    for name in names:
        if drawn := figures(reports, name):
            return drawn[0]
    return None


def _title(reports: Sequence[CurveReport]) -> Slide:
    blocked = _is_blocked(reports)
    if len(reports) > 1:
        return Slide(
            topic=f"Scaling of {format_count(len(reports), 'curve')}",
            title=verdict_of_several(reports),
            answers=tuple((short_name(report), _verdict_and_limit(report)) for report in reports),
            alerts=first_alerts([(short_name(r), r.summary.doubts) for r in reports]),
            blocked=blocked,
        )
    summary = reports[0].summary
    return Slide(
        topic=" · ".join(filter(None, [short_name(*reports), machine_text(reports)])),
        title=headline(summary),
        answers=tuple(verdict_answers(summary)),
        # The answers say what blocks, and the last slide has the fixes.
        alerts=() if blocked else tuple(alert_lines(summary.doubts, fixes=False)),
        commands=(next_command(summary),) if blocked else (),
        blocked=blocked,
    )


def _verdict_and_limit(report: CurveReport) -> str:
    summary = report.summary
    sentences = [as_sentence(headline(summary))]
    if summary.advice:
        sentences.append(limit_answers(summary)[0][1])
    return " ".join(sentences)


def _performance(reports: Sequence[CurveReport]) -> Slide:
    figure = _figure(reports, "throughput", "time")
    if figure:  # What is predicted has a slide of its own.
        shown = tuple(line for line in figure.lines if line.role in ("measured", "ideal"))
        figure = replace(figure, lines=_cut_ideal(shown))
    table = None if figure else _summary_table(reports[0])
    topic = "Absolute performance"
    return _slide(topic, reports, performance_title, fastest_of_several, figure=figure, table=table)


def _cut_ideal(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Return the lines without the part of ideal scaling beyond the measurements."""
    most = max((x for line in lines if line.role == "measured" for x in line.x), default=0.0)
    cut = []
    for line in lines:
        keep = [index for index, x in enumerate(line.x) if x <= most]
        x, y = (tuple(values[index] for index in keep) for values in (line.x, line.y))
        cut.append(replace(line, x=x, y=y) if line.role == "ideal" else line)
    return tuple(cut)


def _scaling(reports: Sequence[CurveReport]) -> Slide | None:
    if not any(map(scaling_title, reports)):
        return None
    line = time_efficiency_sentence(reports[0].summary)
    return _slide(
        "Scaling behaviour",
        reports,
        scaling_title,
        efficiency_of_several,
        lines=(line,) if line else (),
        figure=_figure(reports, "efficiency", "speedup"),
    )


def _limits(reports: Sequence[CurveReport]) -> Slide | None:
    if not any(limit_title(report.summary) for report in reports):
        return None
    summary = reports[0].summary
    cost = cost_sentence(summary) if summary.limit and summary.cost else ""
    figure = _figure(reports, "lost", "causes")
    return _slide(
        "What holds it back",
        reports,
        lambda report: limit_title(report.summary),
        limits_of_several,
        lines=(cost,) if cost else (),
        figure=figure,
        table=None if figure else _summary_table(reports[0]),
    )


def _times(reports: Sequence[CurveReport]) -> Slide | None:
    timed = [r for r in reports if r.summary.chosen and r.summary.chosen.time]
    if not timed:
        return None
    figure = _figure(timed, "time")
    # If there is a slide about limits, and it has no figure, it has the table.
    is_shown = figure and limit_title(timed[0].summary) and not timed[0].explanation
    table = None if is_shown else _summary_table(timed[0])
    return _slide("Time and cost", timed, time_title, times_of_several, figure=figure, table=table)


def _summary_table(report: CurveReport) -> Table | None:
    """Return the time and the device-hours of the measured numbers of devices."""
    summary = report.summary
    if not summary.shown_scales:
        return None
    columns = [*_scale_columns(report), ("", lambda s: "use" if s is summary.chosen else "")]
    return make_table(basis_title(summary), summary.shown_scales, columns, hide_unknown=True)


def _scale_columns(report: CurveReport) -> list[tuple[str, Callable[[Scale], str]]]:
    summary = report.summary
    return [
        ("devices", lambda s: f"{s.devices:,}"),
        ("time", lambda s: format_duration(s.time.value) if s.time else NONE),
        (summary.curve.rate_label, lambda s: NONE if s.time else value(s.throughput)),
        ("device-hours", lambda s: value(s.device_hours)),
        (cost_heading(report.rate), lambda s: value(s.cost)),
        ("efficiency", lambda s: percent(s.efficiency)),
    ]


def _purpose_table(report: CurveReport) -> Table | None:
    """Return which of the measured numbers of devices to use, by what counts most."""
    rows = purposes(report.summary)
    columns = [("what counts", lambda row: row[0])] + [
        (name, lambda row, cell=cell: cell(row[1])) for name, cell in _scale_columns(report)
    ]
    title = f"{basis_title(report.summary)}, of the measured numbers of devices"
    return make_table(title, rows, columns, hide_unknown=True) if rows else None


def _outlook(reports: Sequence[CurveReport]) -> Slide | None:
    if _is_blocked(reports) or not any(map(prediction_title, reports)):
        return None
    report = reports[0]
    largest = max(point.devices for point in report.curve.points)
    points = report.prediction.points if report.prediction else ()
    further = [point for point in points if point.devices > largest][1:]
    sentences = [f"{predicted_sentence(report, point)}." for point in further]
    return _slide(
        "What more devices would give",
        reports,
        prediction_title,
        lambda reports: "What is predicted for the next doubling",
        lines=(*sentences, "Predicted from the measured points; the band is the 90 % interval."),
        figure=_figure(reports, "throughput", "predicted-time"),
    )


def _conclusion(reports: Sequence[CurveReport]) -> Slide | None:
    summary = reports[0].summary
    if len(reports) == 1 and summary.verdict == "not reliable":
        return None  # The first slide says what to do.
    advice = try_sentence(summary)
    slide = _slide(
        "Conclusion",
        reports,
        lambda report: conclusion_title(report.summary),
        conclusion_of_several,
        lines=(advice,) if advice else (),
        table=_purpose_table(reports[0]),
    )
    if len(reports) > 1:
        slide = replace(slide, lines=_one_line_each(reports, _what_to_do))
    commands = dict.fromkeys(next_command(report.summary) for report in reports)
    return replace(slide, commands=tuple(commands))


def _what_to_do(report: CurveReport) -> str:
    sentences = (as_sentence(conclusion_title(report.summary)), try_sentence(report.summary))
    return " ".join(filter(None, sentences))


def _trust(reports: Sequence[CurveReport]) -> Slide:
    facts = [f"{name}: {text}" for name, text in environment_rows(reports)[:MAX_FACTS]]
    slide = _slide(
        "How it was measured",
        reports,
        lambda report: trust_title(report.summary),
        trust_of_several,
    )
    differing = slide.lines if len({trust_title(report.summary) for report in reports}) > 1 else ()
    methods = [method_sentences(report) for report in reports]
    common = [text for text in methods[0] if all(text in method for method in methods)]
    return replace(
        slide,
        lines=(*differing, *common, *([as_sentence("; ".join(facts))] if facts else [])),
        alerts=tuple(alert_lines(reports[0].summary.doubts)) if len(reports) == 1 else (),
        blocked=_is_blocked(reports),
    )
