"""Labels of marked points on the page: on which side of their points Plotly writes them."""

import math

import numpy as np

from scalewise.report.figures import Axis, Figure
from scalewise.report.figures.axis_range import axis_range, label_margins
from scalewise.report.figures.label_places import Box, best_place, points_along
from scalewise.report.figures.plotly_axes import TOP_MARGIN, known_values, plotly_text

LABEL_PIXELS = 13
"""Size of the font of a mark's label."""
CHARACTER_SHARE = 0.6
"""Width of a bold character, as a share of the size of its font."""
LINE_SPACING = 1.3
RING_PIXELS = 22
LABEL_DISTANCE = RING_PIXELS / 2 / 0.8 + 1
"""Pixels from a mark to its label, right and up, as Plotly puts it."""
NEAR_PIXELS = 60.0
"""Marks that are closer share a label, if theirs are equal."""
NARROW_PLOT = (270.0, 230.0)
"""Width and height of a plot in pixels, without its axes, on a phone."""
SIDES = {-1: "left", 0: "center", 1: "right"}
VERTICAL_SIDES = {-1: "bottom", 0: "middle", 1: "top"}
"""Plotly's names of the places of labels."""


def mark_labels(figure: Figure) -> dict[str, list[str]]:
    """Return the texts of marks, and the sides on which they cover no line and stay in the plot. On
    wider screens than that of NARROW_PLOT, there is more room. Of equal texts that would stand
    beside each other, only the first is written.
    """
    margins = label_margins(figure) or (0.05, 0.05)
    x_range, y_range = map(axis_range, (figure.x, figure.y), known_values(figure), margins)

    def pixels(x: float, y: float) -> tuple[float, float]:
        width, height = NARROW_PLOT
        return width * _share(x, figure.x, x_range), height * _share(y, figure.y, y_range)

    lines = [
        [pixels(x, y) for x, y in zip(line.x, line.y) if math.isfinite(y) and y > 0]
        for line in figure.lines
        if not line.on_right
    ]
    obstacles = np.concatenate([points_along(np.reshape(line, (-1, 2))) for line in lines])
    width, height = NARROW_PLOT
    frame = Box(0, 0, width, height + TOP_MARGIN)
    boxes: list[Box] = []
    labelled: list[tuple[str, tuple[float, float]]] = []
    labels: dict[str, list[str]] = {"text": [], "textposition": []}
    for mark in figure.marks:
        point = pixels(mark.x, mark.y)
        lines_of_text = plotly_text(mark.text).split(", ")
        near = [text for text, other in labelled if math.dist(point, other) < NEAR_PIXELS]
        text = "" if mark.text in near else f"<b>{'<br>'.join(lines_of_text)}</b>"
        size = (
            max(map(len, lines_of_text)) * CHARACTER_SHARE * LABEL_PIXELS,
            (1 + LINE_SPACING * (len(lines_of_text) - 1)) * LABEL_PIXELS,
        )
        (horizontal, vertical), _, box = best_place(
            point,
            size,
            [LABEL_DISTANCE],
            obstacles=obstacles,
            boxes=boxes,
            frame=frame,
        )
        labels["text"].append(text)
        labels["textposition"].append(f"{VERTICAL_SIDES[vertical]} {SIDES[horizontal]}")
        if text:
            boxes.append(box)
            labelled.append((mark.text, point))
    return labels


def _share(value: float, axis: Axis, ends: tuple[float, float]) -> float:
    """Return how far from the beginning of an axis a value is, as a share of its length."""
    low, high = ends
    return ((math.log10(value) if axis.log else value) - low) / (high - low)
