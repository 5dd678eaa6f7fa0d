"""A document as PDF on A4."""

from collections.abc import Sequence

from scalewise.report.document import (
    Block,
    Box,
    Commands,
    Document,
    Heading,
    Items,
    Paragraph,
)
from scalewise.report.figures import Figure
from scalewise.report.pdf import ACCENT, SOFT, Paper, unsplit_height
from scalewise.report.tables import Table

A4 = (210.0, 297.0)
MARGIN, INDENT, FIGURE_GAP = 20.0, 5.0, 6.0
POINTS, TABLE_POINTS = 9.5, 8.0
MAX_FIGURE_HEIGHT = 75.0
HEADING_HEIGHT, TEXT_HEIGHT = 11.0, 10.0
"""Of a heading and of the beginning of a text: as much as must stay together on a page."""


def pdf(document: Document) -> bytes:
    """Return the document as a PDF file."""
    paper = Paper(size=A4, margin=MARGIN, title=document.title)
    paper.set_auto_page_break(auto=True, margin=MARGIN)
    paper.footer_text = document.title
    paper.add_page()
    paper.text_block(document.title, points=18, bold=True, line_height=1.25)
    paper.text_block(document.subtitle, points=POINTS, color=SOFT)
    paper.ln(3)
    blocks = [*document.blocks]
    while blocks:
        block = blocks.pop(0)
        following = blocks[0] if blocks else None
        if isinstance(block, Figure) and isinstance(following, Figure):
            _write_pair(paper, block, following)
            del blocks[0]
        else:
            if isinstance(block, Heading) and paper.will_page_break(_section_height(paper, blocks)):
                paper.add_page()
            _write(paper, block)
    return bytes(paper.output())


def _section_height(paper: Paper, blocks: Sequence[Block]) -> float:
    """Return the height of a heading with what must follow it on the same page: texts, and the
    first table or figure after them.
    """
    height = HEADING_HEIGHT
    for block in blocks:
        match block:
            case Paragraph():
                height += TEXT_HEIGHT
                continue
            case Table():
                height += unsplit_height(block, TABLE_POINTS)
            case Figure():
                height += paper.epw / 2
            case Heading():
                pass
            case _:
                height += TEXT_HEIGHT
        break
    return height


def _write_pair(paper: Paper, left: Figure, right: Figure) -> None:
    """Draw two figures beside each other."""
    width = (paper.epw - FIGURE_GAP) / 2
    if paper.will_page_break(width):  # A figure is not higher than wide.
        paper.add_page()
    top, bottoms = paper.get_y(), []
    for x, figure in ((MARGIN, left), (MARGIN + width + FIGURE_GAP, right)):
        paper.set_xy(x, top)
        paper.drawing(figure, width=width, max_height=width, columns=1)
        paper.text_block(figure.title, points=TABLE_POINTS, color=SOFT, width=width)
        bottoms.append(paper.get_y())
    paper.set_xy(MARGIN, max(bottoms))
    paper.ln(3)


def _write(paper: Paper, block: Block) -> None:
    match block:
        case Heading():
            paper.ln(3)
            paper.start_section(block.text)
            paper.text_block(block.text, points=13, bold=True, color=ACCENT)
            paper.ln(1)
        case Paragraph():
            paper.text_block(block.text, points=POINTS)
            paper.ln(2)
        case Items():
            for text in block.texts:
                paper.item(text, points=POINTS, indent=INDENT)
                paper.ln(1)
            paper.ln(1)
        case Box():
            paper.box(block, points=POINTS)
            paper.ln(3)
        case Commands():
            for line in block.lines:
                paper.text_block(line, points=8, family="mono")
            paper.ln(2)
        case Table():
            paper.grid(block, points=TABLE_POINTS)
            paper.ln(4)
        case Figure():
            paper.drawing(block, width=paper.epw, max_height=MAX_FIGURE_HEIGHT)
            paper.text_block(block.title, points=TABLE_POINTS + 0.5, color=SOFT)
            paper.ln(3)
