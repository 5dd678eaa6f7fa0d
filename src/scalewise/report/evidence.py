"""Evidence of scalability for an allocation proposal: tables, method, requested scale, doubts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from scalewise.analysis.advise.requested_scale import RequestedScale, requested_scale
from scalewise.errors import ScalewiseError, cut
from scalewise.report.curve_report import CurveReport
from scalewise.report.document import (
    Block,
    Box,
    Commands,
    Document,
    Heading,
    Items,
    Paragraph,
    Tone,
)
from scalewise.report.evidence_tables import (
    MAX_HEADER,
    MAX_NAME,
    pair_table,
    request_table,
    settings_table,
    speed_table,
    time_table,
)
from scalewise.report.figures.all_figures import figures
from scalewise.report.method_tables import report_command, reproduce_commands
from scalewise.report.text.evidence import (
    MISSING_TEXT,
    NOT_RELIABLE,
    SCALING_TEXT,
    SCALING_TITLES,
    blocked_request,
    doubt_and_fix,
    justification_sentences,
    request_answers,
    request_title,
)
from scalewise.report.text.method import (
    as_sentence,
    environment_rows,
    list_values,
    method_sentences,
)
from scalewise.report.text.page import machine_text


@dataclass(frozen=True, slots=True)
class Request:
    """What a proposal asks for on the basis of one curve."""

    report: CurveReport
    scale: RequestedScale | None
    problem: str = ""
    """Why there is no scale."""

    @property
    def name(self) -> str:
        return cut(self.report.curve.name, MAX_NAME)


def evidence(reports: Sequence[CurveReport], request: int | None = None) -> Document:
    """Return the evidence of one or more curves; ``request`` is the number of devices to justify,
    by default the one that the summary of each curve suggests.
    """
    requests = [_request(report, request) for report in reports]
    names = ", ".join(dict.fromkeys(report.curve.study for report in reports))
    machine = machine_text(reports)
    return Document(
        title=f"Scalability of {cut(names, MAX_NAME)}",
        subtitle=f"Evidence for an allocation proposal, made by scalewise {version('scalewise')}"
        + (f", measured on: {machine}" if machine else ""),
        blocks=(
            *_summary(requests),
            *_test_case(reports),
            *_scaling(reports),
            *_requested(requests),
            *_method(reports),
            *_doubts(reports),
            *_reproduction(reports, request),
        ),
    )


def _request(report: CurveReport, devices: int | None) -> Request:
    summary = report.summary
    if summary.verdict == "not reliable":
        return Request(report, None)
    wanted = devices or (summary.chosen.devices if summary.chosen else None)
    if wanted is None:
        return Request(report, None, f"No scale can be justified yet: {summary.problem}.")
    try:
        return Request(report, requested_scale(report.curve, wanted))
    except ScalewiseError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return Request(report, None, f"No scale can be justified: {error}{hint}.")


def _named(name: str, text: str, several: bool) -> str:
    return f"{name}: {text}" if several else text


def _summary(requests: Sequence[Request]) -> Iterator[Block]:
    several = len(requests) > 1
    yield Heading("Summary")
    for request in requests:
        summary, scale = request.report.summary, request.scale
        severities = {doubt.severity for doubt in summary.doubts}
        tone: Tone = "doubtful" if "weakens" in severities else "plain"
        if summary.verdict == "not reliable":
            title, answers, tone = NOT_RELIABLE, blocked_request(summary), "blocked"
        elif scale is None:
            title, answers, tone = request.problem, [], "doubtful"
        else:
            title, answers = request_title(scale, summary), request_answers(scale, summary)
            if scale.basis != "measured":
                tone = "doubtful"
        yield Box(_named(request.name, title, several), tuple(answers), tone)


def _test_case(reports: Sequence[CurveReport]) -> Iterator[Block]:
    yield Heading("Test case")
    yield settings_table(reports) or Paragraph("The settings of the runs are not recorded.")


def _scaling(reports: Sequence[CurveReport]) -> Iterator[Block]:
    groups: dict[str | None, list[CurveReport]] = {"strong": [], "weak": [], None: []}
    for report in reports:
        groups[report.curve.scaling if report.curve.scaling in groups else None].append(report)
    for scaling, members in groups.items():
        if not members:
            if scaling and not groups[None]:
                yield Heading(SCALING_TITLES[scaling])
                yield Paragraph(MISSING_TEXT[scaling])
            continue
        is_reliable = any(report.summary.verdict != "not reliable" for report in members)
        yield Heading(f"{SCALING_TITLES[scaling]}{'' if is_reliable else ' (not reliable)'}")
        yield Paragraph(SCALING_TEXT[scaling])
        for report in members:
            yield speed_table(report)
            if any(point.time for point in report.summary.curve.points):
                yield time_table(report)
        for figure in (f for name in ("throughput", "efficiency") for f in figures(members, name)):
            if scaling is None or len(members) == len(reports):
                yield figure
            else:  # Names and titles differ from those of the other scaling.
                title = f"{SCALING_TITLES[scaling]}: {figure.title.lower()}"
                yield replace(figure, name=f"{scaling}-{figure.name}", title=title)


def _requested(requests: Sequence[Request]) -> Iterator[Block]:
    yield Heading("Requested scale and its justification")
    several = len(requests) > 1
    for request in requests:
        scale, text = request.scale, "No number of devices is requested: see the summary."
        if scale:
            text = " ".join(justification_sentences(scale, request.report.summary))
        yield Paragraph(_named(request.name, text, several))
        if scale and scale.basis != "measured":
            yield request_table(request.report, scale)


def _method(reports: Sequence[CurveReport]) -> Iterator[Block]:
    yield Heading("Method of measurement")
    by_text: dict[str, list[str]] = {}
    for report in reports:
        for sentence in method_sentences(report):
            by_text.setdefault(sentence, []).append(cut(report.curve.name, MAX_HEADER))
    yield Items(
        tuple(  # What does not hold for all curves says for which it does.
            text if len(names) == len(reports) else f"{list_values(names)}: {text}"
            for text, names in by_text.items()
        )
    )
    yield Heading("Hardware and software")
    if rows := environment_rows(reports):
        yield pair_table("As the runs recorded it", ("part", "recorded"), rows)
    else:
        yield Paragraph("Not recorded: the numbers come from tables. State it here.")


def _doubts(reports: Sequence[CurveReport]) -> Iterator[Block]:
    yield Heading("Doubts and limits")
    texts = []
    for report in reports:
        for doubt in report.curve.doubts:
            severity = {"blocks": "Not reliable: ", "weakens": "Doubtful: "}.get(doubt.severity, "")
            text = as_sentence(f"{severity}{doubt_and_fix(doubt)}")
            texts.append(_named(cut(report.curve.name, MAX_HEADER), text, len(reports) > 1))
    if texts:
        yield Items(tuple(dict.fromkeys(texts)))
    else:
        yield Paragraph("No doubts were found about these measurements.")


def _reproduction(reports: Sequence[CurveReport], request: int | None) -> Iterator[Block]:
    yield Heading("How to reproduce this")
    commands: list[str] = []
    for report in reports:
        commands += [command for _, command in reproduce_commands(report)[:-1]]
    options = {"--evidence": True, "--request": request}
    commands.append(report_command(reports, "evidence.pdf", options))
    if any(report.explanation for report in reports):
        yield Paragraph(
            "The study folders hold the settings of every run (study.json) and the times that each "
            "rank recorded; the last command makes this document from them."
        )
    yield Commands(tuple(dict.fromkeys(commands)))
