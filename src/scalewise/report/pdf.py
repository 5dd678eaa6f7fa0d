"""PDF pages by fpdf2: fonts, texts, tables and figures. Lengths are in millimetres."""

import io
import logging
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from fpdf import FPDF
from fpdf.enums import MethodReturnValue, TableBordersLayout, TableCellFillMode
from fpdf.fonts import FontFace, TTFFont

from scalewise.errors import cut
from scalewise.report.document import Box, Tone
from scalewise.report.escape import keep_units, printable
from scalewise.report.figures import Figure
from scalewise.report.figures.matplotlib_figure import Columns, draw, render
from scalewise.report.tables import MAX_CELL_CHARACTERS, Table, is_text_column

INK, SOFT, ACCENT = (22, 32, 42), (85, 98, 111), (0, 98, 155)
AMBER, RED = (179, 107, 0), (179, 38, 30)
AMBER_PAPER, RED_PAPER, BLUE_PAPER = (255, 244, 214), (253, 234, 234), (235, 244, 250)
TONES = {
    "plain": (BLUE_PAPER, ACCENT),
    "doubtful": (AMBER_PAPER, AMBER),
    "blocked": (RED_PAPER, RED),
}
"""By tone of a box: the colors of its ground and of its edge."""
CODE = re.compile(r"`([^`]+)`")
POINT = 25.4 / 72
"""Millimetres of a typographic point."""
LINE_HEIGHT = 1.4
"""Of a line of text, in font sizes."""
BOX_PADDING, BOX_COLUMN = 2.2, 43.0
CELL_PADDING, CELL_SIDE_PADDING = 0.6, 1.6
MAX_UNSPLIT_ROWS = 20
"""A table with fewer rows than these is not split between two pages."""


class Paper(FPDF):
    """A PDF whose text may have any characters; a sign stands for those that the font lacks."""

    def __init__(self, *, size: tuple[float, float], margin: float, title: str) -> None:
        logging.getLogger("fpdf").setLevel(logging.ERROR)  # It warns of each missing character.
        super().__init__(unit="mm", format=size)
        fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        for style, name in (("", "DejaVuSans"), ("B", "DejaVuSans-Bold")):
            self.add_font("sans", style, fonts / f"{name}.ttf")
        self.add_font("mono", "", fonts / "DejaVuSansMono.ttf")
        self.set_margins(margin, margin)
        self.set_title(printable(title))
        self.set_creator("scalewise")
        self.set_lang("en")
        self.footer_text = ""

    def footer(self) -> None:
        """Write the page number and ``footer_text`` at the end of the page."""
        self.set_y(-12)
        self.set_font("sans", size=8)
        self.set_text_color(*SOFT)
        text = f"{self.page_no()} / {{nb}}"
        self.cell(0, 5, f"{self.footer_text}  {text}" if self.footer_text else text, align="R")

    def shown(self, text: str) -> str:
        """Return the text with a sign in place of characters that the font lacks, and with quotes
        around code.
        """
        font = self.fonts["sans"]
        assert isinstance(font, TTFFont)  # Added above.
        quoted = CODE.sub("“\\1”", printable(text))
        return "".join(char if ord(char) in font.cmap else "\ufffd" for char in quoted)

    def text_block(
        self,
        text: str,
        *,
        points: float,
        bold: bool = False,
        color: tuple[int, int, int] = INK,
        width: float = 0,
        family: str = "sans",
        line_height: float = LINE_HEIGHT,
    ) -> None:
        """Write a paragraph at the current position and move below it; 0 is the page's width."""
        self.set_font(family, "B" if bold else "", points)
        self.set_text_color(*color)
        x = self.get_x()
        height = points * POINT * line_height
        shown = keep_units(self.shown(text))
        self.multi_cell(width, height, shown, align="L", new_x="LEFT", new_y="NEXT")
        self.set_x(x)

    def item(self, text: str, *, points: float, indent: float) -> None:
        """Write an item of a list, with a mark before it."""
        self.set_font("sans", "", points)
        self.set_text_color(*INK)
        self.cell(indent, points * POINT * LINE_HEIGHT, "•")
        self.text_block(text, points=points)

    def framed(
        self, lines: Sequence[str], *, points: float, blocked: bool, width: float = 0
    ) -> None:
        """Write lines on a colored ground: doubts, red if one blocks the answer."""
        paper, edge = TONES["blocked" if blocked else "doubtful"]
        x, y, width = self.get_x(), self.get_y(), width or self.epw
        self.set_fill_color(*paper)
        self.set_text_color(*INK)
        self.set_font("sans", "", points)
        text = "\n".join(keep_units(self.shown(line.strip())) for line in lines)
        self.set_x(x + 2)
        height = points * POINT * LINE_HEIGHT
        self.multi_cell(
            width - 2, height, text, align="L", fill=True, padding=2, new_x="LEFT", new_y="NEXT"
        )
        if self.get_y() > y:  # Not across a page break.
            self.set_fill_color(*edge)
            self.rect(x, y, 1.2, self.get_y() - y, style="F")
        self.set_fill_color(0)  # Shapes of drawings without a color of their own are black.
        self.set_xy(x, self.get_y() + 2)

    def box(self, box: Box, *, points: float) -> None:
        """Write a verdict on a colored ground: its title, and answers beside their questions."""
        rows = [("", box.title, points + 2), *((name, text, points) for name, text in box.answers)]
        for index, (name, text, size) in enumerate(rows):
            self._box_row(name, text, size, box.tone, is_last=index == len(rows) - 1)

    def _box_row(self, name: str, text: str, points: float, tone: Tone, *, is_last: bool) -> None:
        ground, edge = TONES[tone]
        column = BOX_COLUMN if name else 0.0
        left, width = self.l_margin + BOX_PADDING + 1, self.epw - 2 * BOX_PADDING - 1 - column
        height = self._text_height(text, points=points, bold=not name, width=width)
        if name:
            wrapped = self._text_height(name, points=points, bold=True, width=column - 2)
            height = max(height, wrapped)
        height += BOX_PADDING * (2 if is_last else 1)
        if self.will_page_break(height):
            self.add_page()
        top = self.get_y()
        for color, wide in ((ground, self.epw), (edge, 1.2)):
            self.set_fill_color(*color)
            self.rect(self.l_margin, top, wide, height + 0.05, style="F")  # Without a gap below it.
        self.set_fill_color(0)  # Shapes of drawings without a color of their own are black.
        if name:
            self.set_xy(left, top + BOX_PADDING)
            self.text_block(name, points=points, bold=True, color=edge, width=column - 2)
        self.set_xy(left + column, top + BOX_PADDING)
        self.text_block(text, points=points, bold=not name, width=width)
        self.set_xy(self.l_margin, top + height)

    def _text_height(self, text: str, *, points: float, bold: bool, width: float) -> float:
        self.set_font("sans", "B" if bold else "", points)
        line, shown = points * POINT * LINE_HEIGHT, keep_units(self.shown(text))
        lines = self.multi_cell(
            width, line, shown, align="L", dry_run=True, output=MethodReturnValue.LINES
        )
        assert isinstance(lines, list)  # As the argument asks.
        return line * len(lines)

    def drawing(
        self, figure: Figure, *, width: float, max_height: float, columns: Columns = 2
    ) -> None:
        """Draw a figure at the current position, as large as fits, and move below it."""
        canvas = draw(figure, columns)
        inches_wide, inches_high = canvas.get_size_inches()
        ratio = float(inches_high / inches_wide)
        # fpdf2 does not draw the hatches of bars.
        suffix = ".png" if figure.bars or figure.heat else ".svg"
        available, width = width, min(width, max_height / ratio)
        if self.will_page_break(width * ratio):
            self.add_page()
        x, y = self.get_x(), self.get_y()
        self.image(
            io.BytesIO(render(canvas, suffix)),
            x=x + (available - width) / 2, y=y, w=width, h=width * ratio,
            alt_text=printable(figure.description),
        )  # fmt: skip
        self.set_xy(x, y + width * ratio)

    def grid(
        self, table: Table, *, points: float, width: float = 0, min_points: float = 6.5
    ) -> None:
        """Write a table with its title: numbers to the right, texts to the left."""
        x = self.get_x()
        self.set_draw_color(*SOFT)
        self.set_text_color(*INK)
        cells = [
            [self.shown(cut(text, MAX_CELL_CHARACTERS)) for text in row]
            for row in (table.header, *table.rows)
        ]
        available = width or self.epw
        while True:  # A smaller font before cells are wrapped.
            self.set_font("sans", "B", points)
            widths = [
                max(map(self.get_string_width, column)) + 2 * CELL_SIDE_PADDING + 1
                for column in zip(*cells)
            ]
            self.set_font("sans", "", points)
            if sum(widths) <= available or points <= min_points:
                break
            points -= 0.5
        total = min(sum(widths), available)
        line_height = points * POINT * LINE_HEIGHT
        if self.will_page_break(unsplit_height(table, points)):
            self.add_page()
        self.set_x(x)
        self.text_block(table.title, points=points, color=SOFT, width=available)
        self.set_text_color(*INK)
        aligns = ["LEFT" if is_text_column(column[1:]) else "RIGHT" for column in zip(*cells)]
        margin, self.l_margin = self.l_margin, x
        with self.table(
            width=total,
            align="L",
            col_widths=_fitted(widths, available),
            text_align=tuple(aligns),
            borders_layout=TableBordersLayout.HORIZONTAL_LINES,
            cell_fill_mode=TableCellFillMode.NONE,
            headings_style=FontFace(emphasis="B", color=INK),
            line_height=line_height,
            padding=(CELL_PADDING, CELL_SIDE_PADDING),
        ) as grid:
            for row in cells:
                line = grid.row()
                for text in row:
                    line.cell(text)
        self.l_margin = margin
        self.set_x(x)


def unsplit_height(table: Table, points: float) -> float:
    """Return the height of a table with its title, or of as much of it as stays together."""
    lines = 2 + min(len(table.rows), MAX_UNSPLIT_ROWS)
    return lines * (points * POINT * LINE_HEIGHT + 2 * CELL_PADDING)


def _fitted(widths: Sequence[float], available: float) -> tuple[float, ...]:
    """Return the widths of columns; if they are too wide together, the widest ones shrink."""
    widths = list(widths)
    while (excess := sum(widths) - available) > 0.01:
        widest = max(widths)
        others = [width for width in widths if width < widest]
        count = len(widths) - len(others)
        step = min(excess / count, widest - max(others, default=0.0) or excess / count)
        widths = [width - step if width == widest else width for width in widths]
    return tuple(widths)
