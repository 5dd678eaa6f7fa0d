"""Change a text by small edits, and show the change as a unified diff.

Positions are bytes, as Python's own syntax tree counts them. What no edit touches
stays as it was, to the last space.
"""

import ast
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import StringIO
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Edit:
    """Put ``text`` in the place of what lies from ``start`` up to ``end``."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Source:
    """A script's text, which knows where the nodes of its syntax tree lie."""

    text: bytes
    _starts: list[int] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self._starts.append(0)
        for line in self.text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Return where a node begins and ends."""
        end_line, end = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[end_line - 1] + end

    def of(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.text[start:end].decode().replace("\r\n", "\n")

    def line(self, number: int) -> int:
        """Return where a line begins, counted from 1; one past the last is the end."""
        return self._starts[min(number, len(self._starts)) - 1]

    def indent(self, node: ast.expr | ast.stmt) -> str:
        """Return the white space in front of the line a node begins on."""
        line = self.text[self.line(node.lineno) : self.span(node)[0]].decode()
        return line[: len(line) - len(line.lstrip())]

    def begins_line(self, node: ast.stmt) -> bool:
        """Say whether nothing but white space stands before a statement on its line."""
        return not self.text[self.line(node.lineno) : self.span(node)[0]].strip()

    def ends_line(self, node: ast.stmt) -> bool:
        """Say whether nothing but a comment stands after a statement on its last line."""
        rest = self.text[self.span(node)[1] : self.line((node.end_lineno or 0) + 1)].strip()
        return not rest or rest.startswith(b"#")

    def replace(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        """Put another text in a node's place."""
        return Edit(*self.span(node), text)

    def before(self, node: ast.stmt, lines: Iterable[str]) -> Edit:
        """Put whole lines before a statement, as far to the right as it is."""
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(each.lineno for each in decorators)])
        return Edit(self.line(first), self.line(first), self.block(lines, self.indent(node)))

    def after(self, node: ast.stmt, lines: Iterable[str]) -> Edit:
        """Put whole lines after a statement, as far to the right as it is."""
        where = self.line((node.end_lineno or node.lineno) + 1)
        unended = where == len(self.text) and not self.text.endswith(b"\n")
        text = self.block(lines, self.indent(node))
        return Edit(where, where, "\n" + text if unended else text)

    def with_argument(self, call: ast.Call, text: str) -> Edit:
        """Add one argument at the end of a call, whether or not a comma stands there."""
        given = [*call.args, *(each.value for each in call.keywords)]
        end = max(self.span(each)[1] for each in given)
        # The last argument may stand in brackets of its own.
        closed = re.match(rb"(\s*\))*", self.text[end : self.span(call)[1] - 1])
        end += closed.end() if closed else 0
        return Edit(end, end, f", {text}")

    def block(self, lines: Iterable[str], indent: str) -> str:
        """Return lines with an indent, in the script's own unit of indentation."""
        unit = self.unit
        whole = []
        for line in lines:
            bare = line.lstrip(" ")
            depth = (len(line) - len(bare)) // 4
            whole.append(f"{indent}{unit * depth}{bare}\n" if bare else "\n")
        return "".join(whole)

    def indented(self, node: ast.stmt) -> list[Edit]:
        """Move a statement one step to the right; lines inside a long string stay."""
        inside = {
            number
            for each in ast.walk(node)
            if isinstance(each, ast.Constant | ast.JoinedStr)
            for number in range(each.lineno + 1, (each.end_lineno or 0) + 1)
        }
        return [
            Edit(self.line(number), self.line(number), self.unit)
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if number not in inside and self.text[self.line(number) : self.line(number + 1)].strip()
        ]

    @property
    def unit(self) -> str:
        """Return one step of indentation: that of the first indented line, or four spaces."""
        lines = self.text.decode().splitlines()
        for above, line in pairwise(lines):
            if above.rstrip().endswith(":") and above[:1].strip() and line[:1] in (" ", "\t"):
                return line[: len(line) - len(line.lstrip())]
        return "    "


def edited(source: Source, edits: Iterable[Edit]) -> bytes:
    """Return the text after all edits; those at one place come in the order given.

    >>> edited(Source(b"a = 1"), [Edit(4, 5, "2"), Edit(0, 0, "b = ")])
    b'b = a = 2'
    """
    ending = "\r\n" if b"\r\n" in source.text else "\n"
    done, at = b"", 0
    for each in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        done += source.text[at : each.start] + each.text.replace("\n", ending).encode()
        at = each.end
    return done + source.text[at:]


def unified(name: str, before: bytes, after: bytes, encoding: str = "utf-8") -> str:
    """Return the change as ``patch -p1`` and ``git apply`` take it; nothing if there is none."""
    old, new = (list(StringIO(text.decode(encoding), newline="\n")) for text in (before, after))
    tab = "\t" if " " in name else ""  # Where a name with a space ends, patch sees by this.
    lines = difflib.unified_diff(old, new, f"a/{name}{tab}", f"b/{name}{tab}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
