"""The explanation of a curve: as a section, and as JSON."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from scalewise.analysis.explain import (
    CAUSES,
    COMPUTE_AND_COMMUNICATION,
    Breakdown,
    Cost,
    Explanation,
    Finding,
    Receipt,
)
from scalewise.analysis.explain.utilisation import HostUtilisation
from scalewise.analysis.number_format import format_count
from scalewise.record.schema import in_order_of_life
from scalewise.report.formats import dump_json, full_run_values, pick
from scalewise.report.tables import (
    NONE,
    Section,
    Table,
    columns_by_key,
    integer,
    make_table,
    milliseconds,
    number,
    percent,
    table_by_devices,
    warnings_of,
)
from scalewise.report.text.certificate import certified_sentence
from scalewise.report.text.doubts import alert_lines, doubt_values, note_texts
from scalewise.report.text.explanation import (
    boundary_sentence,
    complete_time_sentence,
    exchange_sentence,
    mfu_sentence,
    point_action,
    point_sentence,
    rank_speed_sentence,
    verdict_text,
)
from scalewise.report.text.measurement import full_run_line, two_efficiencies
from scalewise.report.text.spending import describe_rate

VERDICTS = {True: "yes", False: "no", None: "too small to say"}
ROUNDING_SECONDS = 5e-7
"""Shorter times per step are rounding errors of the records and shown as 0."""

FACTORS_TITLE = "Where the efficiency went: factors, relative to the baseline"
PHASES_TITLE = "Computation and communication (exposed: with waiting), in ms"
MAX_DEFAULT_SPANS = 5
"""So many spans of a job, the longest ones, are shown without ``--all``."""


def sections(explanations: Sequence[Explanation]) -> list[Section]:
    """Return a section for each curve."""
    return [_section(explanation) for explanation in explanations]


def tables_by_topic(explanation: Explanation) -> dict[str, Table]:
    """Return the tables of an explanation that have values, by what they are about."""
    points, last = explanation.points, explanation.points[-1]
    has_efficiency = any(point.efficiency is not None for point in points)
    of_full_run = " of the full run" if explanation.curve.full_run else ""
    traced, trace_check = _trace_tables(explanation)
    tables = {
        "factors": table_by_devices(points, FACTORS_TITLE, [
            ("efficiency", lambda p: percent(p.efficiency)),
            *columns_by_key(
                CAUSES if has_efficiency else (),
                lambda cause, p: percent(p.factors.get(cause)),
            ),
        ]),
        "seconds": table_by_devices(points, "What each cause adds to a step, in milliseconds", [
            ("ideal", lambda p: _ms(p.ideal)),
            *columns_by_key(
                (*CAUSES, "unexplained"),
                lambda cause, p: _ms(p.seconds.get(cause)),
                lambda cause: "wide" if cause == "unexplained" else "default",
            ),
            ("step", lambda p: _ms(p.step)),
        ]),
        "phases": table_by_devices(points, PHASES_TITLE, [
            ("compute", lambda p: _ms(p.compute)),
            ("exposed", lambda p: _ms(p.exposed)),
            ("hidden", lambda p: _ms(p.hidden)),
            ("exposed/compute", lambda p: number(p.ratio)),
            ("largest share", lambda p: (
                f"{p.regime} {percent(p.shares[p.regime])}" if p.regime else NONE
            )),
            ("slowest rank", lambda p: f"{p.slowest.rank}" if p.slowest else NONE),
            ("on", lambda p: p.slowest.host or NONE if p.slowest else NONE, "all"),
            ("behind by", lambda p: _ms(p.slowest.behind) if p.slowest else NONE, "all"),
            ("MFU", lambda p: percent(p.mfu)),
        ]),
        "spans": table_by_devices(
            points,
            f"The complete time{of_full_run} in seconds, and how it grew since the baseline",
            columns_by_key(
                in_order_of_life(name for p in points for name in p.grown),
                _complete_cell,
                lambda name: "default" if name in _largest_spans(points) else "all",
            ),
        ),
        "costs": _cost_table(last, explanation.rate.currency if explanation.rate else None),
        "what if": _what_if_table(last),
        "hosts": _host_table(explanation),
        "accelerators": _device_table(explanation),
        "traced steps": traced,
        "trace check": trace_check,
    }  # fmt: skip
    return {topic: table for topic, table in tables.items() if len(table.header) > 1 and table.rows}


def _section(explanation: Explanation) -> Section:
    return Section(
        title=explanation.name,
        lines=tuple(explanation_lines(explanation)),
        tables=tuple(tables_by_topic(explanation).values()),
        warnings=(*note_texts(explanation.warnings), *warnings_of(explanation.points)),
        alerts=tuple(alert_lines(explanation.doubts)),
    )


def _host_table(explanation: Explanation) -> Table:
    rows = [  # row[0] is the point, row[1] the host.
        (point, host)
        for point in explanation.points
        for host in (point.busy.hosts if point.busy else ())
    ]

    def clock(host: HostUtilisation) -> str:
        """Return by how many ms a node's clock is ahead of the first node's, ± uncertainty."""
        if host.ahead is None or host.within is None:
            return NONE
        return f"{1000 * host.ahead:+.2f} ± {1000 * host.within:.2f}"

    return make_table("How busy the hosts were", only_all=True, rows=rows, columns=[
        ("devices", lambda row: str(row[0].devices)),
        ("host", lambda row: row[1].host),
        ("ranks", lambda row: _rank_ranges(
            [rank.rank for rank in row[0].ranks if rank.host == row[1].host]
        )),
        ("cores busy", lambda row: percent(row[1].busy)),
        ("by the run", lambda row: percent(row[1].own)),
        ("memory GiB", lambda row: number(row[1].memory and row[1].memory / 2**30)),
        ("processor kJ", lambda row: number(row[1].energy and row[1].energy / 1e3)),
        ("clock ahead ms", lambda row: clock(row[1])),
    ])  # fmt: skip


def _rank_ranges(ranks: Sequence[int]) -> str:
    """Return ranks as ranges.

    >>> _rank_ranges([0, 1, 2, 3, 6]), _rank_ranges([])
    ('0-3 6', '–')
    """
    ranges: list[list[int]] = []
    for rank in ranks:
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    return " ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in ranges) or NONE


def _device_table(explanation: Explanation) -> Table:
    """Return how busy each accelerator was; one that waits in a loop is busy, but at few watts."""
    rows = [  # row[0] is the device count, row[1] the device.
        (point.devices, device)
        for point in explanation.points
        for device in (point.busy.devices if point.busy else ())
    ]
    return make_table("How busy the accelerators were", only_all=True, rows=rows, columns=[
        ("devices", lambda row: str(row[0])),
        ("host", lambda row: row[1].host),
        ("index", lambda row: str(row[1].index)),
        ("busy", lambda row: percent(row[1].busy)),
        ("idle s", lambda row: number(sum(end - start for start, end in row[1].idle))),
        ("watts", lambda row: number(row[1].power)),
        ("kJ", lambda row: number(row[1].energy and row[1].energy / 1e3)),
        ("memory GiB", lambda row: number(row[1].memory and row[1].memory / 2**30)),
        ("MHz", lambda row: number(row[1].clock) + (" falling" if row[1].throttled else "")),
        ("foreign processes", lambda row: integer(row[1].foreign)),
    ])  # fmt: skip


def explanation_lines(explanation: Explanation) -> list[str]:
    """Return the sentences about the largest point and the curve."""
    last = explanation.points[-1]
    lines = [*filter(None, [complete_time_sentence(last, explanation.curve)])]
    lines += _correctness_lines(explanation)
    if explanation.scales:
        devices, efficiency = explanation.scales.devices, explanation.scales.efficiency
        lines.append(
            f"{verdict_text(explanation.scales)}: efficiency {percent(efficiency)} "
            f"on {format_count(devices)}, from {format_count(efficiency.count, 'run')}"
        )
    curve = explanation.curve
    lines += filter(None, [two_efficiencies(curve), full_run_line(curve)])
    text = _point_text(last)
    lines += filter(None, (text[key] for key in ("sentence", "action", "exchange", "operations")))
    if last.heat and last.heat.is_straggler:
        lines += filter(None, [text["rank_speed"]])
    if explanation.boundary:
        lines.append(boundary_sentence(explanation.boundary))
    left_compute_at = explanation.left_compute_at
    if left_compute_at:
        regime = next(p.regime for p in explanation.points if p.devices == left_compute_at)
        lines.append(
            "computation is not the largest part of a step from "
            f"{format_count(left_compute_at, 'device')} on: {regime} is"
        )
    elif last.regime == COMPUTE_AND_COMMUNICATION:
        lines.append(
            f"on {format_count(last.devices, 'device')} computation and communication, not "
            "measured apart, are the largest part of a step"
        )
    elif last.regime:
        lines.append("computation is the largest part of a step at every device count")
    if explanation.rate and explanation.rate.name:
        lines.append(f"a price of {describe_rate(explanation.rate)}")
    return lines + (_finding_lines("tune", explanation.tune) if explanation.tune else [])


def _correctness_lines(explanation: Explanation) -> list[str]:
    if certified := certified_sentence(explanation.curve.certificates):
        questions = [found for found in explanation.correct or () if found.question]
        return [f"correct: {certified}", *_finding_lines("", questions)]
    if explanation.correct is None:
        return ["correct: not checked"]
    if explanation.correct:
        # Faults are doubts, which are shown first; what may be intended is asked here.
        return _finding_lines("", [found for found in explanation.correct if found.question])
    is_one_device = explanation.points[-1].devices == 1
    caveat = " on 1 device; most faults need two devices to show" if is_one_device else ""
    return [f"correct: no fault was seen{caveat}"]


def _finding_lines(label: str, findings: Sequence[Finding]) -> list[str]:
    """Return two lines for each finding: the sentence and its hint."""
    lines = []
    for finding in findings:
        prefix = "is it correct?" if finding.question else f"{label}:"
        lines += [f"{prefix} {finding.sentence}", f"  hint: {finding.hint}"]
    return lines


def _cost_table(point: Breakdown, currency: str | None) -> Table:
    has_price = any(cost.money is not None for cost in point.costs.values())
    money_heading = f"{currency} per hour" if currency else "per hour"

    def amount(cost: Cost, field: str) -> str:
        return number(getattr(cost, field) if abs(cost.step) >= ROUNDING_SECONDS else 0.0)

    title = f"What each cause costs on {format_count(point.devices, 'device')}"
    return make_table(title, point.costs.items(), [
        ("cause", lambda row: row[0]),
        ("ms per step", lambda row: _ms(row[1].step)),
        ("s in the steady part", lambda row: amount(row[1], "window")),
        ("devices", lambda row: amount(row[1], "devices")),
        *([(money_heading, lambda row: amount(row[1], "money"))] if has_price else []),
    ], only_all=not has_price)  # fmt: skip


def _what_if_table(point: Breakdown) -> Table:
    return make_table(f"What if, on {format_count(point.devices, 'device')}", point.what_if, [
        ("change", lambda scenario: scenario.change),
        ("step ms", lambda scenario: _ms(scenario.step)),
        ("samples/s", lambda scenario: number(scenario.throughput)),
        ("more", lambda scenario: percent(scenario.gain)),
        ("complete time s", lambda scenario: number(scenario.complete)),
        ("saved s", lambda scenario: number(scenario.saved)),
    ])  # fmt: skip


def _trace_tables(explanation: Explanation) -> tuple[Table, Table]:
    """Return the traced steps of every rank, and a comparison with the usual ("light") timers."""
    traces = [(point.devices, point.trace) for point in explanation.points if point.trace]
    return (
        Table(
            "The traced steps, in milliseconds per step",
            ("devices", "rank", "compute", "communication", "overlap", "exposed",
             "of it unpacking", "input", "idle", "step"),
            tuple(
                (f"{devices}", f"{rank.rank}", *map(_ms, (rank.compute, rank.communication,
                 rank.overlap, rank.exposed, rank.unpacking, rank.input, rank.idle, rank.step)))
                for devices, trace in traces
                for rank in trace.ranks
            ),
            ("default",) * 6 + ("all",) + ("default",) * 3,
        ),
        Table(
            "Light measurement against the trace, in milliseconds of a traced step",
            ("devices", "rank", "what", "light", "trace", "ratio", "of the step", "agrees"),
            tuple(
                (f"{devices}", f"{check.rank}", check.quantity, _ms(check.light),
                 _ms(check.traced), number(check.ratio), percent(check.share),
                 VERDICTS[check.agrees])
                for devices, trace in traces
                for check in trace.checks
            ),
            only_all=True,
        ),
    )  # fmt: skip


def _largest_spans(points: Sequence[Breakdown]) -> list[str]:
    """Return the spans that are shown without ``--all``: the longest ones at any point."""
    longest: dict[str, float] = {}
    for point in points:
        for name, seconds in point.complete.items():
            longest[name] = max(seconds, longest.get(name, 0.0))
    return sorted(longest, key=lambda name: longest[name])[-MAX_DEFAULT_SPANS:]


def _complete_cell(name: str, point: Breakdown) -> str:
    """Return the seconds of one span of the job, and in parentheses its growth since baseline."""
    if name not in point.complete and not point.grown.get(name):
        return NONE
    seconds, grown = point.complete.get(name, 0.0), point.grown.get(name, 0.0)
    return f"{seconds:,.2f} ({grown:+,.2f})".replace("-0.00", "+0.00")


def _ms(seconds: float | None) -> str:
    """Return seconds as milliseconds; rounding errors of the records become 0."""
    negligible = seconds is not None and abs(seconds) < ROUNDING_SECONDS
    return milliseconds(0.0 if negligible else seconds)


def as_json(explanations: Sequence[Explanation], receipt: Receipt | None = None) -> str:
    """Return the explanations as JSON (docs/reference/json.md); an unknown value is null."""
    curves = [_curve_values(explanation) for explanation in explanations]
    return dump_json({"curves": curves, "receipt": receipt})


def _curve_values(explanation: Explanation) -> dict[str, Any]:
    scales = explanation.scales
    names = [field.name for field in fields(Breakdown) if field.name not in ("facts", "heat")]
    curve_names = [field.name for field in fields(Explanation) if field.name != "curve"]
    return {
        **pick(explanation, *curve_names),
        **full_run_values(explanation.curve),
        "points": [{**pick(point, *names), **_point_text(point)} for point in explanation.points],
        "scales": scales
        and {"verdict": verdict_text(scales), **pick(scales, "efficiency", "devices")},
        "left_compute_at": explanation.left_compute_at,
        "doubts": doubt_values(explanation.doubts),
    }


def _point_text(point: Breakdown) -> dict[str, str | None]:
    """Return the sentences about a point; the keys are those of the JSON output."""
    return {
        "sentence": point_sentence(point),
        "action": point_action(point),
        "rank_speed": rank_speed_sentence(point.heat),
        "exchange": exchange_sentence(point),
        "operations": mfu_sentence(point.facts.point),
    }
