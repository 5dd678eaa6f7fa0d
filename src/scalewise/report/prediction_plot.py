"""The plot of a prediction: measured points, predicted points, and their 90 % interval."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalewise.analysis.measure import Estimate, Point
from scalewise.analysis.predict import PredictedPoint, Prediction
from scalewise.errors import SpecError
from scalewise.report.escape import escape_plot
from scalewise.report.plot import COLORS, STYLE, as_svg, devices_axis, log_axis, write_figure

Metric = Callable[[Point | PredictedPoint], Estimate | None]
METRICS: dict[str, tuple[Metric, str]] = {
    "Throughput": (lambda p: p.throughput, "{unit} per second"),
    "Complete time": (lambda p: p.time, "seconds, complete job"),
}
"""The metric and the label of its axis, by the title of the plot."""


def write(prediction: Prediction, path: Path) -> Path:
    """Write the plot as PNG or SVG and return its path."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise SpecError(f"cannot write {path}: unknown ending", hint="there are: .png .svg")
    write_figure(figure(prediction), path)
    return path


def predicted_metrics(prediction: Prediction) -> list[str]:
    """Return the titles in METRICS of the metrics that are predicted."""
    return [name for name, (metric, _) in METRICS.items() if any(map(metric, prediction.points))]


def svg(prediction: Prediction, name: str) -> str:
    """Return the plot of one metric as SVG text."""
    return as_svg(figure(prediction, [name]))


def figure(prediction: Prediction, names: Sequence[str] = ()) -> Figure:
    """Return a figure of these metrics side by side; by default, all that are predicted."""
    names = names or predicted_metrics(prediction)
    with rc_context(STYLE):
        canvas = Figure(figsize=(6.4 * len(names), 4.2), layout="constrained")
        for axes, name in zip(canvas.subplots(1, len(names), squeeze=False).flat, names):
            _draw(axes, prediction, name)
            axes.set_title(f"{name}: measured, and predicted", loc="left", fontweight="bold")
            axes.legend(frameon=False, fontsize=8)
    return canvas


def _draw(axes: Axes, prediction: Prediction, name: str) -> None:
    metric, label = METRICS[name]
    measured = [(p.devices, e.value) for p in prediction.curve.points if (e := metric(p))]
    predicted = [
        (p.devices, e)
        for p in prediction.points
        if (e := metric(p)) and p.devices > measured[-1][0]
    ]
    axes.plot(*zip(*measured), color=COLORS[0], marker="o", label="measured")
    if predicted:
        last, last_value = measured[-1]  # The predicted line starts at the last measured point.
        counts = [last, *(devices for devices, _ in predicted)]
        axes.plot(counts, [last_value, *(e.value for _, e in predicted)], color=COLORS[1],
                  marker="s", markevery=range(1, len(counts)), linestyle="--",
                  label="predicted")  # fmt: skip
        low = [last_value, *(e.low if e.low is not None else e.value for _, e in predicted)]
        high = [last_value, *(e.high if e.high is not None else e.value for _, e in predicted)]
        axes.fill_between(counts, low, high, color=COLORS[1], alpha=0.2, linewidth=0,
                          label="90 % interval")  # fmt: skip
    if name == "Throughput":
        first, first_value = measured[0]
        ends = [first, max(devices for devices, _ in [*measured, *predicted])]
        ideal = [first_value * devices / first for devices in ends]
        axes.plot(ends, ideal, color="0.6", linestyle="--", linewidth=1, label="ideal")
    devices_axis(axes, [devices for devices, _ in [*measured, *predicted]])
    log_axis(axes, "{x:,.6g}")
    axes.set_ylabel(label.format(unit=escape_plot(prediction.curve.unit)))
