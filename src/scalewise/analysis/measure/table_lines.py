"""The lines of a table as cells: encodings, delimiters, quotes, comments and drawn borders."""

import codecs
import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from scalewise.errors import SpecError

DELIMITERS = {
    "tabs": "\t",
    "semicolons": ";",
    "bars": "|",
    "ampersands": "&",
    "commas": ",",
    "spaces": r"\s{2,}",
    "single spaces": r"\s+",
}
"""By name, in the order in which they are tried; the last two are regular expressions."""
MAX_QUOTED_LINES = 5
"""A quoted cell may extend over this many lines; a longer one is a stray quotation mark."""
BORDER = re.compile(r"[\s|+:=\-─━═┼╪│├┤┌┐└┘┬┴╞╡]+|\\(hline|cline|toprule|midrule|bottomrule)\b.*")
EXCEL_DELIMITER = re.compile(r'"?sep=.?"?', re.IGNORECASE)
"""A line that tells Excel which delimiter a file has."""
SPREADSHEETS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
IMAGES = (b"\x89PNG", b"%PDF", b"\xff\xd8\xff", b"GIF8")
"""How files begin that some encoding would take for text."""
LATEX_COMMAND = re.compile(r"\\(begin|end|centering|caption|label)\b")


@dataclass(frozen=True, slots=True)
class Line:
    """The cells of a line and its number in the file."""

    number: int
    cells: tuple[str, ...]
    comment: bool = False

    @property
    def is_blank(self) -> bool:
        """Whether all cells are empty."""
        return not any(self.cells)


def decode_table(data: bytes) -> str:
    """Return the text of a file in UTF-8, UTF-16 or Windows-1252. Raise ValueError if it is none.

    >>> decode_table("Größe;1 000".encode("cp1252"))
    'Größe;1 000'
    """
    text = decode_text(data)
    if re.search(r"[\x00-\x08\x0e-\x1f\x7f]", text):
        raise ValueError("it is not text")
    return text


def decode_text(data: bytes) -> str:
    """Return the text of a file, which may have control characters. Raise ValueError if it is a
    spreadsheet or an image.
    """
    if data.startswith(SPREADSHEETS):
        raise ValueError("it is a spreadsheet or an archive, not text; save the sheet as CSV")
    text = ""
    for encoding in _encodings(data):
        try:
            text = data.decode(encoding)
            break
        except UnicodeDecodeError:
            continue
    if (data and not text) or data.startswith(IMAGES):
        raise ValueError("it is not text")
    return text.lstrip("\ufeff")


def _encodings(data: bytes) -> tuple[str, ...]:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return ("utf-16",)
    if len(data) >= 4 and 0 in data[:4]:  # UTF-16 without a byte order mark.
        return ("utf-16-le",) if data[1] == 0 else ("utf-16-be",)
    return ("utf-8", "cp1252")


def split_lines(source: str, text: str, delimiter: str) -> list[Line]:
    """Return the lines that are neither empty nor borders, with ``delimiter`` between cells."""
    return [
        Line(number, cells, comment=raw.startswith("#"))
        for number, raw in _logical_lines(text)
        if any(cells := _cells(f"{source}, line {number}", raw, delimiter))
    ]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line; a quoted line break becomes a space."""
    for bar in "│┃║":
        text = text.replace(bar, "|")
    lines = text.lstrip("\ufeff").splitlines()
    index = 0
    while index < len(lines):
        number, raw = index + 1, lines[index].strip(" \r\n")
        index += 1
        if not raw.strip() or BORDER.fullmatch(raw) or EXCEL_DELIMITER.fullmatch(raw):
            continue
        if LATEX_COMMAND.match(raw):
            continue
        if raw.count('"') % 2 and not raw.startswith("#"):
            for extra in range(1, MAX_QUOTED_LINES):
                joined = " ".join([raw, *lines[index : index + extra]])
                if joined.count('"') % 2 == 0:
                    raw, index = joined, index + extra
                    break
        yield number, raw


def _cells(where: str, raw: str, delimiter: str) -> tuple[str, ...]:
    mark = DELIMITERS[delimiter]
    if raw.startswith("#"):  # A comment, or a header such as ``#GPUs,time``.
        raw = raw if raw[1:2].isalpha() else raw.lstrip("# ")
    if delimiter in ("tabs", "semicolons", "commas"):
        try:
            cells = next(csv.reader([raw], delimiter=mark, skipinitialspace=True), [])
        except csv.Error as bad:
            raise SpecError(f"{where}: {bad}", hint="close its quotation marks") from bad
    elif delimiter in ("bars", "ampersands"):
        raw = re.sub(r"\\\\\s*(\\hline)?$", "", raw.strip())
        cells = raw.removeprefix("|").removesuffix("|").split(mark)
    else:
        cells = re.split(mark, raw.strip())
    return tuple(clean_cell(cell) for cell in cells)


@lru_cache(4096)  # Cells repeat, and a wide table has hundreds of thousands.
def clean_cell(cell: str) -> str:
    """Return a cell without spaces, quotes, Markdown emphasis and footnote marks around it.

    >>> clean_cell(" **1,024** †"), clean_cell("\\\\textbf{8}"), clean_cell("`time`")
    ('1,024', '8', 'time')
    """
    cell = re.sub(r"\\(?:textbf|emph|mathbf|textit)\{([^}]*)\}", r"\1", cell)
    cell = cell.replace("\\%", "%").replace("\\#", "#").replace("\\_", "_").replace("$", "")
    cell = re.sub(r"\\(times|pm)\b", lambda m: {"times": "×", "pm": "±"}[m[1]], cell)
    previous = None
    while cell != previous:
        previous, cell = cell, cell.strip().strip('*`"†‡§').strip()
        cell = cell[1:-1] if re.fullmatch(r"'[^']*'", cell) else cell
    return cell
