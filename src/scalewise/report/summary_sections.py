"""The summary as a section for the terminal, text files and the page, and as JSON."""

from collections.abc import Sequence
from typing import Any

from scalewise.analysis.advise import Scale
from scalewise.analysis.measure.curve import ONE_EPOCH
from scalewise.analysis.number_format import format_count, format_duration
from scalewise.analysis.summary import DEFAULT_PURPOSE, Summary
from scalewise.report.formats import dump_json, full_run_values, pick
from scalewise.report.tables import NONE, Section, Table, make_table, number, percent, value
from scalewise.report.text.certificate import certificate_values
from scalewise.report.text.doubts import alert_lines, doubt_values
from scalewise.report.text.measurement import has_throughput
from scalewise.report.text.spending import cost_heading
from scalewise.report.text.summary import (
    cost_sentence,
    limit_sentence,
    next_command,
    summary_lines,
    try_sentence,
    worth_sentence,
)

TITLES = {
    "yes": "use {devices}",
    "no": "stay with {devices}",
    "unknown": "no answer yet",
    "not reliable": "no answer",
}
"""By verdict: the headline of the summary."""


def headline(summary: Summary) -> str:
    """Return the verdict in a few words: "use 8 devices"."""
    devices = format_count(summary.chosen.devices) if summary.chosen else ""
    return TITLES[summary.verdict].format(devices=devices)


def sections(summaries: Sequence[Summary]) -> list[Section]:
    """Return a section for each summary: the answers, then the table of device counts."""
    return [_section(summary) for summary in summaries]


def _section(summary: Summary) -> Section:
    return Section(
        title=f"{summary.curve.name}: {headline(summary)}",
        lines=tuple(summary_lines(summary)),
        tables=(scales_table(summary),) if summary.shown_scales else (),
        alerts=tuple(alert_lines(summary.doubts)),
    )


def scales_table(summary: Summary) -> Table:
    """Return the time, device-hours and speedup of the chosen number of devices and of others."""
    scales = summary.shown_scales
    base = scales[0]
    basis = "complete time" if base.time else "throughput"
    if base.time and summary.curve.work == ONE_EPOCH:
        basis = "time of one epoch"
    if unit := summary.curve.unit_of_work:
        basis = f"time per {unit}"

    def speedup(scale: Scale) -> float:
        return base.slowness / scale.slowness

    # Efficiency is that of all other verbs: by throughput where it is known.
    both = bool(base.time) and has_throughput(summary.curve)
    title = "The full run" if summary.curve.full_run else "Measured"
    title = f"{title}, by {basis}{'; efficiency by throughput' if both else ''}"
    return make_table(title, scales, [
        ("devices", lambda s: f"{s.devices:,}"),
        ("time", lambda s: format_duration(s.time.value) if s.time else NONE),
        (summary.curve.rate_label, lambda s: NONE if s.time else value(s.throughput)),
        ("device-hours", lambda s: value(s.device_hours)),
        (cost_heading(summary.advice.rate if summary.advice else None), lambda s: value(s.cost)),
        ("speedup (time)" if both else "speedup", lambda s: number(speedup(s))),
        ("efficiency", lambda s: percent(s.efficiency)),
        ("", lambda s: "<- use" if s is summary.chosen else ""),
    ], hide_unknown=True)  # fmt: skip


def as_json(summaries: Sequence[Summary]) -> str:
    """Return the summaries as JSON (docs/reference/json.md)."""
    return dump_json({"summaries": [values(summary) for summary in summaries]})


def values(summary: Summary) -> dict[str, Any]:
    """Return one summary as values for JSON."""
    curve, cost, chosen = summary.curve, summary.cost, summary.chosen
    return {
        **pick(curve, "study", "where", "scaling", "unit", "unit_of_work"),
        **full_run_values(curve),
        "verdict": summary.verdict,
        "says": worth_sentence(summary),
        "purpose": DEFAULT_PURPOSE,
        "devices": chosen.devices if chosen else None,
        "scales": [
            pick(
                scale,
                "devices",
                "nodes",
                "time",
                "throughput",
                "device_hours",
                "efficiency",
                "fitted_interval",
            )
            for scale in summary.shown_scales
        ],
        "cost": cost
        and {
            **pick(cost, "cause", "seconds", "share"),
            "devices": summary.examined.devices if summary.examined else None,
        },
        "start_up": summary.start_up and pick(summary.start_up, "seconds", "share"),
        "costs_most": cost_sentence(summary) or None,
        "limit": summary.limit
        and {
            **pick(summary.limit, "cause", "seconds", "share"),
            "devices": summary.beyond.devices if summary.beyond else None,
        },
        "why_not_more": limit_sentence(summary) or None,
        "try": try_sentence(summary) or None,
        "certificates": [certificate_values(item) for item in curve.certificates],
        "doubts": doubt_values(summary.doubts),
        "next": next_command(summary),
    }
