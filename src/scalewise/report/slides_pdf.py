"""A deck as PDF, one slide on each page of 16:9."""

from collections.abc import Sequence
from typing import cast

from scalewise.report.figures.matplotlib_figure import Columns
from scalewise.report.pdf import ACCENT, INK, POINT, RED, SOFT, Paper
from scalewise.report.slides import Slide

PAGE_SIZE = (338.67, 190.5)
MARGIN, BOTTOM = 18.0, 16.0
TEXT_SHARE, TABLE_SHARE, QUESTION_SHARE = 0.3, 0.42, 0.24
"""The share of the width for text or a table beside a figure, and for a question."""


def pdf(deck: Sequence[Slide], title: str) -> bytes:
    """Return the slides as a PDF file."""
    paper = Paper(size=PAGE_SIZE, margin=MARGIN, title=title)
    paper.set_auto_page_break(auto=False)
    for index, slide in enumerate(deck):
        paper.add_page()
        _draw(paper, slide, is_first=index == 0)
    return bytes(paper.output())


def _draw(paper: Paper, slide: Slide, *, is_first: bool) -> None:
    paper.set_xy(MARGIN, MARGIN + 6 if is_first and not slide.alerts else MARGIN - 2)
    paper.text_block(slide.topic, points=14, color=ACCENT, bold=True)
    paper.set_y(paper.get_y() + 2)
    size = 36.0 if is_first else 25.0
    if len(slide.title) > 90:
        size = 21.0
    color = RED if is_first and slide.blocked else INK
    paper.text_block(slide.title, points=size, bold=True, line_height=1.2, color=color)
    paper.set_y(paper.get_y() + (8 if is_first else 5))
    if slide.alerts:
        paper.framed(slide.alerts, points=16, blocked=slide.blocked)
        paper.set_y(paper.get_y() + 4)
    top = paper.get_y()
    height = PAGE_SIZE[1] - BOTTOM - top
    width = PAGE_SIZE[0] - 2 * MARGIN
    if slide.figure:
        share = TABLE_SHARE if slide.table else TEXT_SHARE
        figure_width = width * (1 - share) - 8 if slide.has_text else width
        columns: Columns = "slide beside text" if slide.has_text else "slide"
        paper.drawing(slide.figure, width=figure_width, max_height=height, columns=columns)
        if not slide.has_text:
            return
        width *= share
        paper.set_xy(MARGIN + figure_width + 8, top)
    _text(paper, slide, width, height)


def _text(paper: Paper, slide: Slide, width: float, height: float) -> None:
    """Write lines, table and commands, in the largest size that fits."""
    left, top = paper.get_x(), paper.get_y()
    sizes = () if slide.figure else (24.0, 22.0, 20.0)
    for points in (*sizes, 18.0, 16.0, 14.0, 12.0, 10.5, 9.0, 8.0, 7.0, 6.0):
        with paper.offset_rendering() as trial:
            _write(cast(Paper, trial), slide, left, width, points)
            fits = trial.get_y() <= top + height
        if fits:
            break
    paper.set_xy(left, top)
    _write(paper, slide, left, width, points)


def _write(paper: Paper, slide: Slide, left: float, width: float, points: float) -> None:
    for question, answer in slide.answers:
        _write_answer(paper, question, answer, left, width, points)
    for line in slide.lines:
        paper.set_x(left)
        paper.text_block(line, points=points, width=width)
        paper.set_y(paper.get_y() + points * POINT * 0.45)
    if slide.table:
        paper.set_x(left)
        paper.grid(slide.table, points=points * 0.8, width=width)
    if slide.commands:
        paper.set_xy(left, paper.get_y() + 3)
        paper.text_block("Next:", points=points * 0.8, color=SOFT, width=width)
    for command in slide.commands:
        paper.set_x(left)
        paper.text_block(command, points=points * 0.75, family="mono", width=width)


def _write_answer(
    paper: Paper, question: str, answer: str, left: float, width: float, points: float
) -> None:
    """Write a question and, to the right of it, its answer."""
    top, column = paper.get_y(), width * QUESTION_SHARE
    paper.set_x(left)
    paper.text_block(question, points=points * 0.85, bold=True, color=ACCENT, width=column - 4)
    bottom = paper.get_y()
    paper.set_xy(left + column, top)
    paper.text_block(answer, points=points, width=width - column, line_height=1.3)
    paper.set_y(max(bottom, paper.get_y()) + points * POINT * 0.7)
