"""The sentences of a history of results: where it changed, and what to compare next."""

from scalewise.analysis.compare import Trend, TrendLine, TrendStep
from scalewise.analysis.compare.trend import MIN_RESULTS_FOR_DRIFT
from scalewise.analysis.number_format import format_count
from scalewise.report.escape import shell_word
from scalewise.report.text.compare import (
    launch_change,
    names_of,
    percent_change,
    ratio_interval,
)

MAX_CHANGES = 4
"""More changes are only in the table."""


def trend_lines(trend: Trend) -> list[str]:
    """Return the answer: the largest changes in the order of the results, then what to do next."""
    changes = [(line, step) for line in trend.series for step in line.steps]
    changes.sort(key=lambda change: -change[1].size)
    shown = changes[:MAX_CHANGES]
    shown += [(line, step) for line in trend.series for step in line.machine_steps][:MAX_CHANGES]
    shown.sort(key=lambda change: (change[1].index, change[0].devices))
    lines = [step_sentence(trend, line, step) for line, step in shown]
    if hidden := len(changes[MAX_CHANGES:]):
        lines.append(f"{format_count(hidden, 'smaller change')} in the table.")
    order = "by the start of their runs" if trend.by_time else "in the order given"
    results = format_count(len(trend.sides), "result")
    return [
        *(lines or [_no_change_sentence(trend)]),
        f"{results}, {order}.",
        f"Next: {next_command(trend)}",
    ]


def step_sentence(trend: Trend, line: TrendLine, step: TrendStep) -> str:
    """Say where the metric of one number of devices changed, and by how much."""
    name = names_of(trend.sides)[step.index]
    verb = "rose" if step.ratio.value > 1 else "dropped"
    quality = "better" if step.is_better else "worse"
    size = f"{percent_change(step.ratio.value)} ({ratio_interval(step.ratio)})"
    text = f"With {name}, {trend.metric} on {format_count(line.devices)} {verb} by"
    if step.machine is None:
        return f"{text} {size}: {quality} than before."
    speed = "slower" if step.machine.ratio.value > 1 else "faster"
    return (
        f"{text} {percent_change(step.ratio.value)}, but {launch_change(step.machine)} too:"
        f" the machine itself may have been {speed}."
    )


def _no_change_sentence(trend: Trend) -> str:
    if not any(line.noise_known for line in trend.series):
        return (
            "Cannot tell where it changed: every number was measured once, so the noise is "
            f"unknown; needs repeats, or at least {MIN_RESULTS_FOR_DRIFT} results."
        )
    return f"No change of {trend.metric} by more than noise."


def next_command(trend: Trend) -> str:
    """Return the command that looks at the largest change, or at the newest result."""
    largest = trend.largest_step
    index = largest[1].index if largest else len(trend.sides) - 1
    sources = (shell_word(trend.sides[k].source) for k in (index - 1, index))
    return f"scalewise compare {' '.join(sources)}"
