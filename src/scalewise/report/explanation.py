"""What explains a curve: as sections for people, and as JSON for programs."""

import json
from collections.abc import Callable, Sequence

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
from scalewise.record.spans import in_order_of_life
from scalewise.report.curve_table import (
    NONE,
    Section,
    Table,
    by_devices,
    number,
    percent,
    warnings_of,
)
from scalewise.report.formats import SCHEMA, plain

Cell = Callable[[Breakdown], str]
VERDICTS = {True: "yes", False: "no", None: "too small to say"}
ROUNDING = 5e-7
"""Seconds per step that are nothing but the rounding of the records."""


def sections(explanations: Sequence[Explanation]) -> list[Section]:
    """Return a section for each curve."""
    return [_section(each) for each in explanations]


def _section(found: Explanation) -> Section:
    last = found.points[-1]
    judged = any(point.efficiency is not None for point in found.points)
    tables = (
        by_devices(found.points, "Where the efficiency went: factors, relative to the baseline", [
            ("efficiency", lambda p: percent(p.efficiency)),
            *((cause, _factor(cause)) for cause in CAUSES if judged),
        ]),
        by_devices(found.points, "What each cause adds to a step, in milliseconds", [
            ("ideal", lambda p: _ms(p.ideal)),
            *((cause, _added(cause)) for cause in (*CAUSES, "unexplained")),
            ("step", lambda p: _ms(p.step)),
        ]),
        by_devices(found.points, "Computation and communication, in milliseconds per step", [
            ("compute", lambda p: _ms(p.compute)),
            ("exposed communication, with waiting", lambda p: _ms(p.exposed)),
            ("hidden", lambda p: _ms(p.hidden)),
            ("exposed/compute", lambda p: number(p.ratio)),
            ("largest share", _largest),
            ("slowest rank", lambda p: f"{p.slowest.rank}" if p.slowest else NONE),
            ("on", lambda p: p.slowest.host or NONE if p.slowest else NONE),
            ("behind by", lambda p: _ms(p.slowest.behind) if p.slowest else NONE),
            ("MFU", lambda p: percent(p.mfu)),
        ]),
        by_devices(
            found.points,
            "The complete time in seconds, and how it grew since the baseline",
            [
                (name, _part(name))
                for name in in_order_of_life(name for p in found.points for name in p.grown)
            ],
        ),
        _costs(last, found.rate.currency if found.rate else None),
        _changes(last),
        _hosts(found),
        _devices(found),
        *_traced(found),
    )  # fmt: skip
    return Section(
        title=found.name,
        lines=tuple(_lines(found)),
        tables=tuple(each for each in tables if len(each.header) > 1 and each.rows),
        warnings=(*found.warnings, *warnings_of(found.points)),
    )


def _hosts(found: Explanation) -> Table:
    """Return how busy each host was while the runs trained."""
    return Table(
        "How busy the hosts were",
        (
            "devices",
            "host",
            "ranks",
            "cores busy",
            "by the run",
            "memory GiB",
            "processor kJ",
            "clock ahead ms",
        ),
        tuple(
            (
                str(point.devices),
                host.host,
                _spans([each.rank for each in point.ranks if each.host == host.host]),
                percent(host.busy),
                percent(host.own),
                number(host.memory and host.memory / 2**30),
                number(host.energy and host.energy / 1e3),
                _clock(host),
            )
            for point in found.points
            for host in (point.busy.hosts if point.busy else ())
        ),
    )


def _spans(ranks: Sequence[int]) -> str:
    """Return whole numbers in few words.

    >>> _spans([0, 1, 2, 3, 6]), _spans([])
    ('0-3 6', '–')
    """
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return " ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in spans) or NONE


def _clock(host: HostUtilisation) -> str:
    """Return by how much a node's clock is ahead of the first one's, and how sure that is."""
    if host.ahead is None or host.within is None:
        return NONE
    return f"{1000 * host.ahead:+.2f} ± {1000 * host.within:.2f}"


def _devices(found: Explanation) -> Table:
    """Return how busy each accelerator was; one that only spins is busy too, at fewer watts."""
    return Table(
        "How busy the accelerators were",
        (
            "devices",
            "host",
            "index",
            "busy",
            "idle s",
            "watts",
            "kJ",
            "memory GiB",
            "MHz",
            "others",
        ),
        tuple(
            (
                str(point.devices),
                each.host,
                str(each.index),
                percent(each.busy),
                number(sum(end - start for start, end in each.idle)),
                number(each.power),
                number(each.energy and each.energy / 1e3),
                number(each.memory and each.memory / 2**30),
                number(each.clock) + (" falling" if each.throttled else ""),
                NONE if each.foreign is None else str(each.foreign),
            )
            for point in found.points
            for each in (point.busy.devices if point.busy else ())
        ),
    )


def _lines(found: Explanation) -> list[str]:
    last = found.points[-1]
    lines = _correct(found)
    if found.scales:
        devices, runs = found.scales.devices, found.scales.efficiency.count
        lines.append(
            f"{found.scales.verdict}: efficiency {percent(found.scales.efficiency)} "
            f"on {format_count(devices, 'device')}, from {format_count(runs, 'run')}"
        )
    lines.append(last.sentence)
    if last.action:
        lines.append(last.action)
    if last.exchange:
        lines.append(last.exchange)
    if last.operations:
        lines.append(last.operations)
    if found.boundary:
        lines.append(found.boundary.sentence)
    turn = found.left_compute_at
    if turn:
        regime = next(each.regime for each in found.points if each.devices == turn)
        lines.append(
            f"computation is not the largest part of a step from {format_count(turn, 'device')} "
            "on: "
            f"{regime} is"
        )
    elif last.regime == COMPUTE_AND_COMMUNICATION:
        lines.append(
            f"on {format_count(last.devices, 'device')} computation and communication, not told "
            "apart, "
            "are the largest part of a step"
        )
    elif last.regime:
        lines.append("computation is the largest part of a step everywhere")
    if found.rate and found.rate.name:
        lines.append(f"a price of {found.rate}")
    return lines + (_seen("tune", found.tune) if found.tune else [])


def _correct(found: Explanation) -> list[str]:
    if found.correct is None:
        return ["correct: not checked"]
    if found.correct:
        return _seen("not correct", found.correct)
    alone = found.points[-1].devices == 1
    return ["correct: no fault was seen" + (" on 1 device; most need two to show" if alone else "")]


def _seen(label: str, guards: Sequence[Finding]) -> list[str]:
    """Return two lines for each guard: what was seen, and what to do about it."""
    told = []
    for each in guards:
        asked = "is it correct?" if each.question else f"{label}:"
        told += [f"{asked} {each.sentence}", f"  hint: {each.hint}"]
    return told


def _costs(point: Breakdown, currency: str | None) -> Table:
    priced = any(cost.money is not None for cost in point.costs.values())
    money = f"{currency} per hour" if currency else "per hour"

    def row(cause: str, cost: Cost) -> tuple[str, ...]:
        there = abs(cost.step) >= ROUNDING
        rest = (cost.window, cost.devices, *[cost.money] * priced)
        return (cause, _ms(cost.step), *(number(each if there else 0.0) for each in rest))

    return Table(
        f"What each cause costs on {format_count(point.devices, 'device')}",
        ("cause", "ms per step", "s in the steady part", "devices", *[money] * priced),
        tuple(row(cause, cost) for cause, cost in point.costs.items()),
    )


def _changes(point: Breakdown) -> Table:
    return Table(
        f"What if, on {format_count(point.devices, 'device')}",
        ("change", "step ms", "samples/s", "more", "complete s", "saved s"),
        tuple(
            (
                each.change,
                _ms(each.step),
                number(each.throughput),
                percent(each.gain),
                number(each.complete),
                number(each.saved),
            )
            for each in point.what_if
        ),
    )


def _traced(found: Explanation) -> list[Table]:
    """Return the traced steps of every rank, and the light measurement against them."""
    seen = [(point.devices, point.trace) for point in found.points if point.trace]
    return [
        Table(
            "The traced steps, in milliseconds per step",
            ("devices", "rank", "compute", "communication", "overlap", "exposed",
             "of it unpacking", "input", "idle", "step"),
            tuple(
                (f"{devices}", f"{at.rank}", *map(_ms, (at.compute, at.communication, at.overlap,
                 at.exposed, at.unpacking, at.input, at.idle, at.step)))
                for devices, trace in seen
                for at in trace.ranks
            ),
        ),
        Table(
            "Light measurement against the trace, in milliseconds of a traced step",
            ("devices", "rank", "what", "light", "trace", "ratio", "of the step", "agrees"),
            tuple(
                (f"{devices}", f"{at.rank}", at.quantity, _ms(at.light), _ms(at.traced),
                 number(at.ratio), percent(at.share), VERDICTS[at.agrees])
                for devices, trace in seen
                for at in trace.checks
            ),
        ),
    ]  # fmt: skip


def _factor(cause: str) -> Cell:
    return lambda point: percent(point.factors.get(cause))


def _added(cause: str) -> Cell:
    return lambda point: _ms(point.seconds.get(cause))


def _largest(point: Breakdown) -> str:
    if point.regime is None:
        return NONE
    return f"{point.regime} {percent(point.shares[point.regime])}"


def _part(name: str) -> Cell:
    def cell(point: Breakdown) -> str:
        if name not in point.complete and not point.grown.get(name):
            return NONE
        seconds, grown = point.complete.get(name, 0.0), point.grown.get(name, 0.0)
        return f"{seconds:,.2f} ({grown:+,.2f})".replace("-0.00", "+0.00")

    return cell


def _ms(seconds: float | None) -> str:
    """Return milliseconds, as exact as the records are."""
    if seconds is None:
        return NONE
    return number(round(1000 * seconds, 4) if abs(seconds) >= ROUNDING else 0.0)


def as_json(explanations: Sequence[Explanation], receipt: Receipt | None = None) -> str:
    """Return the documented JSON shape: unknown is null, never a made-up number."""
    told = [{**plain(each), "left_compute_at": each.left_compute_at} for each in explanations]
    return json.dumps({"schema": SCHEMA, "curves": told, "receipt": plain(receipt)}, indent=1)
