"""Texts beside points, placed where they cover neither lines nor each other."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from matplotlib.axes import Axes

from scalewise.report.figures import Figure
from scalewise.report.figures.label_places import Box, best_place, points_along
from scalewise.report.figures.matplotlib_axes import plot_label
from scalewise.report.figures.palette import MARK_COLOR, line_color

MAX_LABELS = 60
"""More points than these are not labelled."""
MAX_TEXT = 40
RING_POINTS = 4.5
"""Radius of the ring of a mark."""
FRAME_PIXELS = 2
"""Labels stay so far inside the axes: other formats draw letters a little wider."""
DISTANCES = (5.0, 11.0, 18.0, 28.0)
"""In points."""
ALIGNMENTS: dict[int, Literal["left", "center", "right"]] = {-1: "right", 0: "center", 1: "left"}
VERTICAL_ALIGNMENTS: dict[int, Literal["bottom", "center", "top"]] = {
    -1: "top",
    0: "center",
    1: "bottom",
}


def place_labels(axes: Axes, figure: Figure) -> None:
    """Write the labels of points and marks. The layout of the figure must be known."""
    texts = dict(_texts(figure))
    if not texts or len(texts) > MAX_LABELS:
        return
    obstacles = _covered_points(axes, figure)
    frame = Box(*axes.get_window_extent().padded(-FRAME_PIXELS).extents)
    pixels = axes.figure.dpi / 72
    boxes: list[Box] = []
    for (x, y), (text, color) in texts.items():
        label = axes.annotate(text, (x, y), xytext=(0, 0), textcoords="offset points",
                              fontsize=7.5, color=color)  # fmt: skip
        label.set_in_layout(False)
        extent = label.get_window_extent()
        (horizontal, vertical), distance, box = best_place(
            tuple(axes.transData.transform((x, y))),
            (extent.width, extent.height),
            [points * pixels for points in DISTANCES],
            obstacles=obstacles,
            boxes=boxes,
            frame=frame,
        )
        label.set_horizontalalignment(ALIGNMENTS[horizontal])
        label.set_verticalalignment(VERTICAL_ALIGNMENTS[vertical])
        label.xyann = (horizontal * distance / pixels, vertical * distance / pixels)
        boxes.append(box)


def _texts(figure: Figure) -> Iterator[tuple[tuple[float, float], tuple[str, str]]]:
    """Yield position, text and color: of marks, and of all labelled points of a single curve."""
    marks: dict[tuple[float, float], tuple[str, str]] = {}
    for mark in figure.marks:
        color = MARK_COLOR if mark.color is None else line_color(mark.color)
        marks.setdefault((mark.x, mark.y), (plot_label(mark.text, MAX_TEXT), color))
    is_single = len({line.color for line in figure.lines}) == 1
    for line in figure.lines:
        for x, y, label in zip(line.x, line.y, line.labels):
            mark_text, color = marks.pop((x, y), ("", MARK_COLOR))
            if is_single or mark_text:
                texts = filter(None, [plot_label(label, MAX_TEXT), mark_text])
                yield (x, y), ("\n".join(texts), color)
    yield from marks.items()


def _covered_points(axes: Axes, figure: Figure) -> np.ndarray:
    """Return points along all lines, in pixels."""
    parts = [np.empty((0, 2))]
    for line in figure.lines:
        if not line.on_right:
            finite = [(x, y) for x, y in zip(line.x, line.y) if np.isfinite(y)]
            parts.append(points_along(axes.transData.transform(np.reshape(finite, (-1, 2)))))
    angles = np.linspace(0, 2 * np.pi, 12)
    ring = RING_POINTS * axes.figure.dpi / 72 * np.column_stack([np.cos(angles), np.sin(angles)])
    parts += [axes.transData.transform((mark.x, mark.y)) + ring for mark in figure.marks]
    points = np.concatenate(parts)
    return points[np.isfinite(points).all(axis=1)]
