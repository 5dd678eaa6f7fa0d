"""Plots of curves: one function per plot, which draws on the axes passed to it."""

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    LogLocator,
    NullLocator,
    PercentFormatter,
    StrMethodFormatter,
)

from scalewise.analysis.measure import Estimate, Point, ScalingCurve
from scalewise.errors import NotEnoughData, SpecError
from scalewise.record.schema import SPAN_COLORS, in_order_of_life
from scalewise.record.write import write_bytes
from scalewise.report.escape import escape_plot
from scalewise.validate import suggest_name

COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7A5C3E",
)  # fmt: skip
"""Okabe and Ito's palette for colour-blind readers, with brown in place of its yellow."""
MARKERS = "osD^vP*X<"
"""One more marker than colors: when a color is used again, its marker differs."""
PLUGIN_SPAN_COLOR = "#DDDDDD"
"""Color of a span of the complete time that a plugin has added."""
STYLE: Any = {
    "axes.axisbelow": True, "axes.grid": True, "axes.spines.right": False,
    "axes.spines.top": False, "figure.dpi": 100, "font.size": 10, "grid.alpha": 0.25,
    "svg.fonttype": "path", "text.parse_math": False, "text.usetex": False,
    "svg.hashsalt": "scalewise",  # Constant, so that equal figures give equal files.
}  # fmt: skip

Curves = Sequence[ScalingCurve]
Metric = Callable[[Point], Estimate | None]


def draw_from_zero(axes: Axes, curves: Curves, plot: "Plot") -> None:
    """Draw the plot's metric against devices, with a vertical axis from 0."""
    _draw_lines(axes, curves, plot.metric)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(plot.label)


@dataclass(frozen=True)
class Plot:
    """A kind of plot. It needs curves with a point at which ``metric`` returns a value."""

    title: str
    metric: Metric
    label: str = ""
    draw: Callable[[Axes, Curves, "Plot"], None] = draw_from_zero


def draw_shares(axes: Axes, curves: Curves, plot: Plot) -> None:
    """Draw the plot's metric, a share, against devices in percent."""
    draw_from_zero(axes, curves, plot)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def draw_efficiency(axes: Axes, curves: Curves, plot: Plot) -> None:
    """Draw parallel efficiency against devices, with ideal scaling."""
    draw_shares(axes, curves, plot)
    axes.axhline(1.0, color="0.6", linestyle="--", linewidth=1, label="ideal")


def draw_throughput(axes: Axes, curves: Curves, plot: Plot) -> None:
    """Draw samples per second against devices, with ideal scaling."""
    _draw_lines(axes, curves, plot.metric, ideal=lambda curve: [
        (p.devices, p.ideal.value) for p in curve.points if p.ideal
    ])  # fmt: skip
    log_axis(axes, "{x:,.5g}")
    axes.set_ylabel(f"{escape_plot(curves[0].unit)} per second")


def draw_speedup(axes: Axes, curves: Curves, plot: Plot) -> None:
    """Draw the speedup over the baseline against devices, with ideal scaling."""
    _draw_lines(axes, curves, plot.metric, ideal=lambda curve: [
        (p.devices, p.devices / curve.baseline.devices) for p in curve.points
    ])  # fmt: skip
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_ylabel("speedup")


def draw_throughput_and_efficiency(axes: Axes, curves: Curves, plot: Plot) -> None:
    """Draw throughput (left axis) and efficiency (right axis) in one plot."""
    _draw_lines(axes, curves, lambda p: p.throughput)
    right = axes.twinx()
    for index, curve in enumerate(curves):
        points = [(p.devices, p.efficiency.value) for p in curve.points if p.efficiency]
        right.plot(*zip(*points), linestyle=":", fillstyle="none", **_line_style(index),
                   label=f"{escape_plot(curve.name)}: efficiency")  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"{escape_plot(curves[0].unit)} per second (solid)")
    right.set_ylim(0, max(1.05, right.get_ylim()[1]))
    right.yaxis.set_major_formatter(PercentFormatter(1.0))
    right.set_ylabel("parallel efficiency (dotted)")
    right.grid(visible=False)


def draw_time(axes: Axes, curves: Curves, plot: Plot) -> None:
    """Draw the complete time of the job as bars, stacked by span where spans are known."""
    bars = [(curve, point) for curve in curves for point in curve.points if point.time]
    labelled: set[str] = set()
    for position, (_, point) in enumerate(bars):
        bottom = 0.0
        assert point.time is not None
        parts = point.complete or {"total": point.time}
        for name in in_order_of_life(parts):
            color = SPAN_COLORS.get(name, PLUGIN_SPAN_COLOR) if point.complete else COLORS[0]
            axes.bar(position, parts[name].value, bottom=bottom, width=0.7, color=color,
                     label=escape_plot(name) if name not in labelled else None)  # fmt: skip
            labelled.add(name)
            bottom += parts[name].value
    axes.set_xticks(range(len(bars)), [str(point.devices) for _, point in bars])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("devices")
    if len(curves) > 1:
        for curve, name in zip(curves, _short_names(curves)):
            positions = [index for index, (plotted, _) in enumerate(bars) if plotted is curve]
            axes.axvline(positions[-1] + 0.5, color="0.8", linewidth=1)
            middle = float(np.mean(positions))
            angle = 20 if len(curves) <= MAX_LEGEND_INSIDE else 50
            axes.annotate(name, (middle, -0.16), fontsize=8, ha="right", va="top", rotation=angle,
                          rotation_mode="anchor", xycoords=axes.get_xaxis_transform())  # fmt: skip
    axes.set_ylabel(plot.label)


PLOTS = {
    "throughput": Plot("Throughput", lambda p: p.throughput, draw=draw_throughput),
    "speedup": Plot("Speedup", lambda p: p.speedup or p.speedup_time, draw=draw_speedup),
    "efficiency": Plot("Efficiency", lambda p: p.efficiency, "parallel efficiency",
                       draw_efficiency),
    "time": Plot("Complete time", lambda p: p.time, "seconds, complete job", draw_time),
    "epoch": Plot("Epoch time", lambda p: p.epoch_time, "seconds per epoch"),
    "model": Plot("Memory of the model", lambda p: p.held and p.held * (1 / 2**20),
                  "MiB of the model on a device"),
    "sent": Plot("Communicated bytes", lambda p: p.sent and p.sent * (1 / 2**20),
                 "MiB sent per step and device"),
    "exposed": Plot("Exposed communication", lambda p: p.exposed,
                    "exposed communication, of a step", draw_shares),
    "both": Plot("Throughput and efficiency", lambda p: p.throughput and p.efficiency,
                 draw=draw_throughput_and_efficiency),
}  # fmt: skip
LEGEND_OUTSIDE: dict[str, Any] = {
    "time": {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "reverse": True},
    "both": {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2},
}
"""Position of legends that would cover bars or the lines of a second axis, by plot."""
MAX_LEGEND_INSIDE = 6
"""A legend with more names is drawn beside the plot."""
LEGEND_BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}


def available(curves: Curves) -> list[str]:
    """Return the names of the plots for which every curve has data."""
    return [
        name
        for name, plot in PLOTS.items()
        if all(any(map(plot.metric, curve.points)) for curve in curves)
    ]


def figure(curves: Curves, names: Sequence[str]) -> Figure:
    """Return a figure of these plots, with two plots per row."""
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    with rc_context(STYLE):
        canvas = Figure(figsize=(6.4 * columns, 4.2 * rows), layout="constrained")
        grid = canvas.subplots(rows, columns, squeeze=False)
        for axes, name in zip(grid.flat, names):
            PLOTS[name].draw(axes, curves, PLOTS[name])
            axes.set_title(PLOTS[name].title, loc="left", fontweight="bold", pad=14)
            handles, labels = axes.get_legend_handles_labels()
            unique = dict(zip(labels, handles))  # Every curve adds a label "ideal".
            position = LEGEND_OUTSIDE.get(
                name, LEGEND_BESIDE if len(unique) > MAX_LEGEND_INSIDE else {"loc": "best"}
            )
            axes.legend(unique.values(), unique.keys(), frameon=False, fontsize=8, **position)
        for axes in list(grid.flat)[len(names) :]:
            axes.remove()
    return canvas


def svg(curves: Curves, name: str) -> str:
    """Return one plot as SVG text."""
    return as_svg(figure(curves, [name]))


def as_svg(canvas: Figure) -> str:
    """Return a figure as the text of an SVG element."""
    out = io.StringIO()
    with rc_context(STYLE):
        canvas.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def write(curves: Curves, path: Path, *, plot: str | None = None) -> None:
    """Write one plot as PNG or SVG; without ``plot``, all plots that have data."""
    names = available(curves)
    if plot is not None and plot not in PLOTS:
        raise SpecError(
            f"there is no plot {plot!r}",
            hint=suggest_name(plot, PLOTS) or f"there are: {', '.join(PLOTS)}",
        )
    if plot is not None and plot not in names:
        raise NotEnoughData(f"no data was measured for plot {plot!r}")
    if not names:
        raise NotEnoughData("no data was measured for any plot")
    write_figure(figure(curves, [plot] if plot else names), path)


def write_figure(canvas: Figure, path: Path) -> None:
    """Write a figure in the format that the file name's suffix names."""
    out = io.BytesIO()
    with rc_context(STYLE):
        canvas.savefig(out, format=path.suffix[1:].lower(), dpi=150)
    write_bytes(path, out.getvalue())


def _draw_lines(
    axes: Axes,
    curves: Curves,
    metric: Metric,
    ideal: Callable[[ScalingCurve], list[tuple[int, float]]] = lambda curve: [],
) -> None:
    """Draw a metric of each curve against devices with error bars; ``ideal`` returns a line."""
    for index, curve in enumerate(curves):
        points = [(p.devices, e) for p in curve.points if (e := metric(p))]
        down = [e.value - (e.value if e.low is None else e.low) for _, e in points]
        up = [(e.value if e.high is None else e.high) - e.value for _, e in points]
        axes.errorbar([devices for devices, _ in points], [e.value for _, e in points],
                      yerr=[down, up], capsize=3, label=escape_plot(curve.name),
                      **_line_style(index))  # fmt: skip
        if line := ideal(curve):
            axes.plot(*zip(*line), color="0.6", linestyle="--", linewidth=1, label="ideal")
    devices_axis(axes, [point.devices for curve in curves for point in curve.points])


def devices_axis(axes: Axes, counts: Iterable[int]) -> None:
    """Make the horizontal axis a logarithmic axis of devices, with a tick at each count."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(counts))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xlabel("devices")


def log_axis(axes: Axes, tick_format: str) -> None:
    """Make the vertical axis logarithmic; ``tick_format`` formats its ticks' value ``x``."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter(tick_format))
    axes.yaxis.set_minor_locator(NullLocator())


def _short_names(curves: Curves) -> list[str]:
    """Return the curves' names, ``STUDY (DETAILS)``; only DETAILS if all have the same study."""
    parts = [curve.name.partition(" (") for curve in curves]
    one_study = len({study for study, _, _ in parts}) == 1 and all(
        details for _, _, details in parts
    )
    return [
        escape_plot(details.removesuffix(")") if one_study else curve.name)
        for curve, (_, _, details) in zip(curves, parts)
    ]


def _line_style(index: int) -> dict[str, Any]:
    return {"color": COLORS[index % len(COLORS)], "marker": MARKERS[index % len(MARKERS)]}
