"""Escape names and messages, which may contain any characters: a function per output format."""

import os
import re
import shlex
import unicodedata
from typing import Any

HIDDEN = ("Cc", "Cf", "Cs")
"""Unicode categories of characters to escape: controls, formatting, lone surrogates."""
UNIT = re.compile(r"(?<=\d) (?=(%|s|ms|min|h|d|devices?|nodes?|times)\b|%)")
"""The space between a number and its unit."""
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


def shell_word(text: str) -> str:
    r"""Return the text as one word of a command, on one line.

    >>> print(shell_word("a study"), shell_word("it's\ntwo"))
    'a study' $'it\'s\ntwo'
    """
    if not any(unicodedata.category(char) in HIDDEN for char in text):
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(
        _shell_escape(char) if unicodedata.category(char) in HIDDEN else char for char in escaped
    ) + "'"  # fmt: skip


def _shell_escape(char: str) -> str:
    r"""Return the bytes of a character in a file's name, as the shell's ``$'…'`` writes them.

    >>> print(_shell_escape("\n"), _shell_escape("\x85"), _shell_escape("\udce9"))
    \n \xc2\x85 \xe9
    """
    if char.isascii():
        return char.encode("unicode_escape").decode()
    try:
        encoded = os.fsencode(char)
    except UnicodeEncodeError:  # No file's name has it.
        encoded = char.encode("utf-8", "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in encoded)


def shorten(text: str, length: int) -> str:
    """Return at most this many characters, with an ellipsis in the middle: what distinguishes names
    is often at their end.

    >>> shorten("a very long name", 9)
    'a ve…name'
    """
    if len(text) <= length:
        return text
    end = (length - 1) // 2
    return f"{text[: length - 1 - end]}…{text[len(text) - end :]}"


def keep_units(text: str) -> str:
    """Return the text with numbers and units that a line break does not separate.

    >>> keep_units("80 % of 4 devices")
    '80\\xa0% of 4\\xa0devices'
    """
    return UNIT.sub("\u00a0", text)


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
