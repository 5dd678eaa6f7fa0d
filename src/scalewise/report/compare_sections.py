"""A comparison as sections for the terminal, text files and the page, and as JSON."""

from collections.abc import Sequence
from typing import Any

from scalewise.analysis.compare import CauseChange, Comparison, MetricDifference, SettingDifference
from scalewise.analysis.compare.side import SPEED_METRICS
from scalewise.analysis.measure import Doubt, Estimate
from scalewise.analysis.number_format import format_count, format_duration
from scalewise.report.formats import dump_json, pick
from scalewise.report.tables import NONE, Section, Table, make_table, mebibytes, number, percent
from scalewise.report.text.compare import (
    CAUSE_SUBJECTS,
    cause_sentence,
    compare_lines,
    next_step,
    setting_text,
    side_names,
    verdict_sentence,
)
from scalewise.report.text.doubts import alert_lines, doubt_values

MAX_HEADING = 20
"""Longer names are cut in the heading of a column."""
VERDICT_TITLES = {
    "faster": "faster",
    "slower": "slower",
    "mixed": "faster and slower",
    "no difference": "no difference seen",
    "cannot tell": "cannot tell",
}


def sections(comparison: Comparison) -> list[Section]:
    """Return the answer, then the tables of differences, causes and settings."""
    before, after = side_names(comparison)
    return [
        Section(
            title=f"{before} → {after}: {VERDICT_TITLES[comparison.verdict]}",
            lines=tuple(compare_lines(comparison)),
            tables=tuple(_tables(comparison)),
            alerts=tuple(_alerts(comparison)),
        )
    ]


def _alerts(comparison: Comparison) -> list[str]:
    """Return the serious doubts of both sides, each with the name of its side."""
    lines = []
    doubts = [(side.doubts, name) for side, name in
              zip((comparison.a, comparison.b), side_names(comparison))]  # fmt: skip
    common = [doubt for doubt in doubts[0][0] if doubt in doubts[1][0]]
    for own, name in [(common, ""), *doubts]:
        rest: Sequence[Doubt] = own if own is common else [d for d in own if d not in common]
        for line in alert_lines(rest):
            lines.append(line if line.startswith(" ") or not name else f"{name}: {line}")
    return lines


def _tables(comparison: Comparison) -> list[Table]:
    before, after = _headings(comparison)
    shown = [row for row in comparison.rows if row.metric in SPEED_METRICS or row.is_different]
    tables = [_difference_table("Differences", comparison, shown)]
    if len(shown) < len(comparison.rows):
        rest = [row for row in comparison.rows if row not in shown]
        tables.append(_difference_table("Other metrics", comparison, rest, only_all=True))
    if comparison.causes and comparison.cause_devices:
        devices = format_count(comparison.cause_devices)
        causes = [row for row in comparison.causes if row.before or row.after]
        tables.append(
            make_table(f"Where the time went on {devices}", causes, [
                ("cause", lambda row: CAUSE_SUBJECTS.get(row.cause, row.cause)),
                ("per", lambda row: "step" if row.per_step else "job"),
                (before, lambda row: _seconds(row, row.before)),
                (after, lambda row: _seconds(row, row.after)),
                ("change", lambda row: _seconds(row, row.change.value)),
                ("", lambda row: "more than noise" if row.is_certain else ""),
            ], only_all=comparison.moved is None)
        )  # fmt: skip
    if comparison.settings:
        tables.append(
            make_table("What differs", comparison.settings, [
                ("kind", lambda row: row.kind),
                ("setting", lambda row: row.name),
                (before, lambda row: setting_text(row.before)),
                (after, lambda row: setting_text(row.after)),
            ])
        )  # fmt: skip
    return tables


def _headings(comparison: Comparison) -> list[str]:
    """Return the names of both sides, short enough for a table."""
    return [setting_text(name, MAX_HEADING) for name in side_names(comparison)]


def _difference_table(
    title: str,
    comparison: Comparison,
    rows: Sequence[MetricDifference],
    *,
    only_all: bool = False,
) -> Table:
    before, after = _headings(comparison)
    return make_table(title, rows, [
        ("devices", lambda row: f"{row.devices:,}"),
        ("metric", lambda row: _unit(row, comparison)),
        (before, lambda row: _cell(row.metric, row.before)),
        (after, lambda row: _cell(row.metric, row.after)),
        ("change", lambda row: _signed(row.ratio.value)),
        ("90 % interval", lambda row: _signed_interval(row.ratio)),
        ("result", _mark),
        ("would see", lambda row: _would_see(row.would_see), "wide"),
        ("repeats", lambda row: " and ".join(map(str, row.repeats)), "all"),
    ], only_all=only_all)  # fmt: skip


def _would_see(share: float | None) -> str:
    return "> 100 %" if share is not None and share > 1 else percent(share)


def _signed_interval(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return NONE
    return f"{_signed(ratio.low).removesuffix(' %')} to {_signed(ratio.high)}"


def _unit(row: MetricDifference, comparison: Comparison) -> str:
    units = {"throughput": comparison.a.curve.rate_unit, "memory": "MiB", "energy": "Wh"}
    unit = units.get(row.metric)
    return f"{row.metric} {unit}" if unit else row.metric


def _cell(metric: str, estimate: Estimate) -> str:
    if metric == "memory":
        return mebibytes(estimate)
    if metric == "time":
        return format_duration(estimate.value)
    if metric == "accuracy":
        return percent(estimate)
    return number(estimate.value / 3600 if metric == "energy" else estimate.value)


def _signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %".replace("-0.0 ", "0.0 ").replace("+0.0 ", "0.0 ")


def _seconds(row: CauseChange, seconds: float) -> str:
    scale, unit = (1000.0, "ms") if row.per_step else (1.0, "s")
    return f"{number(round(scale * seconds, 4))} {unit}"


def _mark(row: MetricDifference) -> str:
    """Return the verdict of a row."""
    if row.is_better is None:
        return row.verdict
    return "better" if row.is_better else "worse"


def as_json(comparisons: Sequence[Comparison]) -> str:
    """Return comparisons as JSON (docs/reference/json.md)."""
    return dump_json({"comparisons": [values(comparison) for comparison in comparisons]})


def values(comparison: Comparison) -> dict[str, Any]:
    """Return one comparison as values for JSON."""
    return {
        "verdict": comparison.verdict,
        "says": verdict_sentence(comparison),
        "wanted": comparison.wanted,
        "more_repeats": comparison.more_repeats,
        "sides": [
            {
                **pick(side, "source", "started"),
                **pick(side.curve, "study", "where", "scaling", "unit"),
                "doubts": doubt_values(side.doubts),
            }
            for side in (comparison.a, comparison.b)
        ],
        "differences": [
            {
                **pick(row, "metric", "devices", "before", "after", "ratio", "verdict"),
                "better": row.is_better,
                "p": row.change.p if row.change else None,
                **pick(row, "would_see", "repeats", "more_repeats"),
                "may_be_machine": row.machine is not None,
            }
            for row in comparison.rows
        ],
        "machine": [
            {"devices": shift.devices, "launch": shift.ratio} for shift in comparison.machine
        ],
        "same_machine": comparison.same_machine,
        "moved": comparison.moved and _cause_values(comparison.moved),
        "moved_says": cause_sentence(comparison) or None,
        "cause_devices": comparison.cause_devices,
        "causes": [_cause_values(row) for row in comparison.causes],
        "settings": [_setting_values(item) for item in comparison.settings],
        "not_compared": [
            {"metric": metric, "reason": reason} for metric, reason in comparison.not_compared
        ],
        "next": next_step(comparison),
    }


def _cause_values(row: CauseChange) -> dict[str, Any]:
    return {
        **pick(row, "cause", "per_step", "before", "after", "change"),
        "certain": row.is_certain,
    }


def _setting_values(item: SettingDifference) -> dict[str, Any]:
    return pick(item, "kind", "name", "before", "after")
