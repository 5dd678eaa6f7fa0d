"""Edit a script's text and render the change as a unified diff; other text stays exactly as is.

Positions are byte offsets, because Python's ``ast`` counts columns in bytes.
"""

import ast
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import StringIO
from itertools import pairwise
from typing import Literal

State = Literal["present", "missing", "not needed", "by hand"]
"""``present``: the script has the step; ``missing``: the patch adds the step; ``not needed``: the
script works without the step; ``by hand``: the message says what the user has to write."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the bytes from ``start`` up to ``end`` by ``text``."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """One of the six porting steps: its state, a message that explains the state, and its edits."""

    name: str
    state: State
    message: str
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Source:
    """A script's text, with the byte offsets of its lines and syntax nodes."""

    text: bytes
    _line_starts: list[int] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self._line_starts.append(0)
        for line in self.text.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Return the start and end offset of a node."""
        start = self._line_starts[node.lineno - 1] + node.col_offset
        last_line_start = self._line_starts[(node.end_lineno or node.lineno) - 1]
        return start, last_line_start + (node.end_col_offset or 0)

    def text_of(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.text[start:end].decode().replace("\r\n", "\n")

    def line_start(self, number: int) -> int:
        """Return the offset of line ``number``, counted from 1; the text's end if there is none."""
        return self._line_starts[min(number, len(self._line_starts)) - 1]

    def indent_of(self, node: ast.expr | ast.stmt) -> str:
        """Return the white space at the start of a node's first line."""
        line = self.text[self.line_start(node.lineno) : self.span(node)[0]].decode()
        return line[: len(line) - len(line.lstrip())]

    def begins_line(self, node: ast.stmt) -> bool:
        """Return whether only white space precedes a statement on its line."""
        return not self.text[self.line_start(node.lineno) : self.span(node)[0]].strip()

    def ends_line(self, node: ast.stmt) -> bool:
        """Return whether at most a comment follows a statement on its last line."""
        next_line = self.line_start((node.end_lineno or 0) + 1)
        tail = self.text[self.span(node)[1] : next_line].strip()
        return not tail or tail.startswith(b"#")

    def replace(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        """Return the edit that replaces the text of a node."""
        return Edit(*self.span(node), text)

    def insert_before(self, node: ast.stmt, lines: Iterable[str]) -> Edit:
        """Return the edit that inserts lines before a statement and its decorators, indented."""
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        start = self.line_start(first)
        return Edit(start, start, self._indented_lines(lines, self.indent_of(node)))

    def insert_after(self, node: ast.stmt, lines: Iterable[str]) -> Edit:
        """Return the edit that inserts lines after a statement, with the same indentation."""
        start = self.line_start((node.end_lineno or node.lineno) + 1)
        # The last line of a file may lack its newline.
        newline = "\n" if start == len(self.text) and not self.text.endswith(b"\n") else ""
        return Edit(start, start, newline + self._indented_lines(lines, self.indent_of(node)))

    def append_argument(self, call: ast.Call, text: str) -> Edit:
        """Return the edit that adds an argument at the end of a call, before a trailing comma."""
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        end = max(self.span(argument)[1] for argument in arguments)
        # A span excludes parentheses around the last argument: skip the closing ones.
        parentheses = re.match(rb"(\s*\))*", self.text[end : self.span(call)[1] - 1])
        end += parentheses.end() if parentheses else 0
        return Edit(end, end, f", {text}")

    def indent_statement(self, node: ast.stmt) -> list[Edit]:
        """Return edits that indent a statement by one level, but not lines inside its strings."""
        string_lines = {
            number
            for literal in ast.walk(node)
            if isinstance(literal, ast.Constant | ast.JoinedStr)
            for number in range(literal.lineno + 1, (literal.end_lineno or 0) + 1)
        }
        edits = []
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            start = self.line_start(number)
            has_text = self.text[start : self.line_start(number + 1)].strip()
            if has_text and number not in string_lines:
                edits.append(Edit(start, start, self.indent_unit))
        return edits

    def _indented_lines(self, lines: Iterable[str], indent: str) -> str:
        """Return lines with ``indent``, and four spaces replaced by the script's indent unit."""
        text = ""
        for line in lines:
            stripped = line.lstrip(" ")
            depth = (len(line) - len(stripped)) // 4
            text += f"{indent}{self.indent_unit * depth}{stripped}\n" if stripped else "\n"
        return text

    @property
    def indent_unit(self) -> str:
        """One level of indentation: that of the first indented block, or four spaces."""
        lines = self.text.decode().splitlines()
        for previous, line in pairwise(lines):
            # A line that begins in column 0 and ends with a colon opens a block.
            opens_block = previous.rstrip().endswith(":") and previous[:1].strip()
            if opens_block and line[:1] in (" ", "\t"):
                return line[: len(line) - len(line.lstrip())]
        return "    "


def apply_edits(source: Source, edits: Iterable[Edit]) -> bytes:
    """Return the edited text; edits at the same offset are applied in the order of ``edits``.

    >>> apply_edits(Source(b"a = 1"), [Edit(4, 5, "2"), Edit(0, 0, "b = ")])
    b'b = a = 2'
    """
    newline = "\r\n" if b"\r\n" in source.text else "\n"
    result, position = b"", 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        result += source.text[position : edit.start] + edit.text.replace("\n", newline).encode()
        position = edit.end
    return result + source.text[position:]


def unified_diff(name: str, before: bytes, after: bytes, encoding: str = "utf-8") -> str:
    """Return a diff for ``patch -p1`` and ``git apply``; empty if nothing changed."""
    old, new = (list(StringIO(text.decode(encoding), newline="\n")) for text in (before, after))
    tab = "\t" if " " in name else ""  # patch needs a tab to see where a name with spaces ends.
    lines = difflib.unified_diff(old, new, f"a/{name}{tab}", f"b/{name}{tab}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
