"""A deck as one self-contained HTML file, without any library."""

import re
from collections.abc import Sequence

from scalewise.report.figures.matplotlib_figure import as_svg
from scalewise.report.slides import Slide
from scalewise.report.template import load_template

SVG_ID = re.compile(r'(?<=\sid=")|(?<=url\(#)|(?<=href="#)')
"""Where the ids of an SVG element begin."""


def html(deck: Sequence[Slide], title: str) -> str:
    """Return the slides as a page that keys, touches and clicks move through."""
    drawn = [(slide, _drawing(slide, index)) for index, slide in enumerate(deck)]
    return load_template("slides.html").render(title=title, slides=drawn)


def _drawing(slide: Slide, index: int) -> str | None:
    """Return the figure of a slide with ids of its own: a pattern of a hidden slide is not drawn,
    and bars of another slide that refer to it by the same id would be empty.
    """
    if slide.figure is None:
        return None
    svg = as_svg(slide.figure, "slide beside text" if slide.has_text else "slide")
    return SVG_ID.sub(rf"\g<0>slide{index}-", svg)
