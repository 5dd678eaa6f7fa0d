"""A history of results as a section for the terminal, text files and the page, and as JSON."""

from datetime import UTC, datetime
from typing import Any

from scalewise.analysis.compare import Trend
from scalewise.analysis.number_format import format_count
from scalewise.report.formats import dump_json, pick
from scalewise.report.tables import ColumnOf, Section, Table, make_table, value
from scalewise.report.text.compare import names_of, setting_text
from scalewise.report.text.doubts import alert_lines, doubt_values
from scalewise.report.text.trend import next_command, step_sentence, trend_lines

MAX_ALERTED_SIDES = 3
"""Of more results with doubts, only the number is said."""


def sections(trend: Trend) -> list[Section]:
    """Return the answer, and a table with a row for each result."""
    return [
        Section(
            title=_title(trend),
            lines=tuple(trend_lines(trend)),
            tables=(_table(trend),),
            alerts=tuple(_alerts(trend)),
        )
    ]


def _title(trend: Trend) -> str:
    answers = {"changed": f"{trend.metric} changed", "no change": "no change seen"}
    return f"{len(trend.sides)} results: {answers.get(trend.verdict, trend.verdict)}"


def _alerts(trend: Trend) -> list[str]:
    lines: list[str] = []
    doubtful = [
        (name, alerts)
        for side, name in zip(trend.sides, names_of(trend.sides))
        if (alerts := alert_lines(side.doubts))
    ]
    for name, alerts in doubtful[:MAX_ALERTED_SIDES]:
        lines += [line if line.startswith(" ") else f"{name}: {line}" for line in alerts]
    if hidden := doubtful[MAX_ALERTED_SIDES:]:
        number = format_count(len(hidden), "more result")
        lines.append(f"Also doubtful: {number} (the JSON output has the details)")
    return lines


def _table(trend: Trend) -> Table:
    names = names_of(trend.sides)
    unit = trend.sides[0].curve.rate_unit if trend.metric == "throughput" else "s"
    columns: list[ColumnOf[int]] = [
        ("result", lambda k: setting_text(names[k])),
        ("started", lambda k: _date(trend.sides[k].started), "wide"),
    ]
    for line in trend.series:
        columns.append((f"on {line.devices:,}", lambda k, line=line: value(line.values[k])))
    columns.append(("", lambda k: _marks(trend, k)))
    title = f"{trend.metric.capitalize()} ({unit}) by number of devices"
    return make_table(title, range(len(trend.sides)), columns)


def _date(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _marks(trend: Trend, index: int) -> str:
    """Return how the history changed with this result, on which numbers of devices."""
    changes = [
        f"{100 * (step.ratio.value - 1):+.1f} % on {line.devices:,}"
        for line in trend.series
        for step in line.steps
        if step.index == index
    ]
    return f"<- {', '.join(changes)}" if changes else ""


def as_json(trend: Trend) -> str:
    """Return the history as JSON (docs/reference/json.md)."""
    return dump_json({"trend": values(trend)})


def values(trend: Trend) -> dict[str, Any]:
    """Return a history as values for JSON."""
    largest = trend.largest_step
    return {
        **pick(trend, "metric", "by_time"),
        "says": step_sentence(trend, *largest) if largest else trend_lines(trend)[0],
        "results": [
            {
                **pick(side, "source", "started"),
                **pick(side.curve, "study", "where", "unit"),
                "doubts": doubt_values(side.doubts),
            }
            for side in trend.sides
        ],
        "series": [
            {
                "devices": line.devices,
                "measured": line.values,
                "steps": [
                    {**pick(step, "index", "ratio"), "better": step.is_better}
                    for step in line.steps
                ],
                "machine_steps": [
                    {**pick(step, "index", "ratio"), "launch": step.machine.ratio}
                    for step in line.machine_steps
                    if step.machine
                ],
            }
            for line in trend.series
        ],
        "next": next_command(trend),
    }
