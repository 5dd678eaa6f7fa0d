"""A document as values: headings, paragraphs, lists, tables and figures, in the order of reading.

``document_pdf`` and ``document_latex`` write it. Texts are as users wrote them: these escape them.
"""

from dataclasses import dataclass
from typing import Literal

from scalewise.report.figures import Figure
from scalewise.report.tables import Table


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list with a mark before each text."""

    texts: tuple[str, ...]


Tone = Literal["plain", "doubtful", "blocked"]
"""Whether what a box says can be relied on."""


@dataclass(frozen=True, slots=True)
class Box:
    """A framed verdict, to be seen first: a title, and questions with their answers."""

    title: str
    answers: tuple[tuple[str, str], ...]
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines for a shell."""

    lines: tuple[str, ...]


Block = Heading | Paragraph | Items | Box | Commands | Table | Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A titled document."""

    title: str
    subtitle: str
    blocks: tuple[Block, ...]
