"""Escape names and messages, which may contain any characters: a function per output format."""

import re
import unicodedata
from typing import Any

HIDDEN = ("Cc", "Cf", "Cs")
"""Unicode categories of characters to escape: controls, formatting, lone surrogates."""
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]")
"""Start of a cell that a spreadsheet runs as a formula; some accept full-width signs too."""
MARKDOWN = {
    **{mark: f"\\{mark}" for mark in r"\`*_[]|~#$"},
    # Not every renderer accepts a backslash before these.
    "&": "&amp;", "<": "&lt;", ">": "&gt;",
}  # fmt: skip
AUTOLINK = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)
"""Characters by which GitHub recognises an address and makes it a link."""
LIST_ITEM = re.compile(r"([-+]|\d+[.)])(?=\s|-|$)")
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "–": "--", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    # At the start of a row, these would be read as arguments of the `\\` that ends the row above.
    "[": "{[}", "]": "{]}", "*": "{*}",
}  # fmt: skip


def printable(text: str) -> str:
    r"""Return one line: breaks and tabs become spaces, control characters their Python escapes.

    >>> printable("one\ntwo \x1b[31m")
    'one two \\x1b[31m'
    """
    line = " ".join(text.splitlines()).replace("\t", " ")
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in HIDDEN else char
        for char in line
    )


def escape_csv(value: Any) -> Any:
    """Return the content of a CSV cell; text that would run as a formula gets an apostrophe.

    >>> escape_csv("=1+1"), escape_csv("-3.5"), escape_csv(-3.5), escape_csv("vit-b16")
    ("'=1+1", '-3.5', -3.5, 'vit-b16')
    """
    if value is None or isinstance(value, (int, float)):
        return value
    text = printable(str(value))
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


def escape_markdown(text: str) -> str:
    r"""Return text that Markdown shows literally in a table cell, a heading or a list item.

    >>> escape_markdown("[a](http://b) | <c>"), escape_markdown("1. d_e"), escape_markdown("-1.5")
    ('\\[a\\](http\\://b) \\| &lt;c&gt;', '1\\. d\\_e', '-1.5')
    """
    escaped = "".join(MARKDOWN.get(char, char) for char in printable(text).strip())
    escaped = AUTOLINK.sub(r"\\\g<0>", escaped)
    if item := LIST_ITEM.match(escaped):  # A backslash goes before its last character.
        return f"{escaped[: item.end() - 1]}\\{escaped[item.end() - 1 :]}"
    return escaped


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX typesets literally, without extra packages.

    >>> escape_latex("50 % of $x_1")
    '50 \\% of \\$x\\_1'
    """
    return "".join(LATEX.get(char, char) for char in printable(text))


def escape_plot(text: str) -> str:
    """Return a label that matplotlib draws literally; ``plot.STYLE`` turns off its $math$."""
    label = printable(text)
    # Matplotlib omits a label with a leading _ from the legend.
    return f"\u200b{label}" if label.startswith("_") else label
