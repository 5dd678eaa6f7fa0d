"""Wrap sentences at words; a number stays with its unit, and a command to copy stays whole."""

import re

_TOKEN = re.compile(
    r"(?:`[^`]*`|\[[-−+\d][^\]]{0,40}\]|(?<!\w)'[^']{0,40}'(?!\w)|(?<!\w)\"[^\"]{0,40}\"|\S)+"
)
"""A word; or a command in backticks, an interval in brackets, a value in quotes: all of it."""
_NUMBER = re.compile(r"[-−+±~<>(]*\d[\d,.]*(?<![,.])(e[-+]?\d+)?|\[.*\]|[=×/±]|\d+x\d+")
"""A word that is kept on the line of the next one: ``5.3`` in ``5.3 s``, ``=`` in ``= 16``."""
_OPTION = re.compile(r"--[a-z][a-z-]*")
_VALUE = re.compile(r"['\"\d]")
"""The beginning of a word that is kept on the line of an option before it."""
_UNIT = ("%", "±", "×", "x", "=")
"""A word that is kept on the line of the word before it."""
_START = re.compile(r"\s*((?:\S+(?: \S+)? {2,}){1,2}(?=\S))?")
"""The indentation of a line, and its first columns if there are at least two spaces after them."""
_COMMAND = re.compile(r"\s*(\$ )?scalewise \S")
"""The beginning of a line that is a command to copy."""


def wrap(line: str, width: int) -> list[str]:
    """Return a line as lines of at most ``width`` characters; those after the first are indented.

    What cannot be broken has a line of its own, which may be longer.

    >>> wrap("On 2 devices a step takes 5.47 ms; see `scalewise explain runs/demo`", 20)
    ['On 2 devices a step', '  takes 5.47 ms; see', '  `scalewise explain runs/demo`']
    """
    if len(line) <= width or _COMMAND.match(line):
        return [line]
    start = _START.match(line)
    indent = " " * len(start[0]) if start and start[1] else f"{start[0] if start else ''}  "
    lines, current = [], ""
    for space, chunk in _chunks(line):
        if current.strip() and len(current) + len(space) + len(chunk) > width:
            lines.append(current)
            current = indent + chunk
        else:
            current += space + chunk
    return [*lines, current]


def _chunks(line: str) -> list[tuple[str, str]]:
    """Return the parts of a line that are never broken, each with the space before it."""
    chunks: list[tuple[str, str]] = []
    previous, end = "", 0
    for match in _TOKEN.finditer(line):
        token, space = match[0], line[end : match.start()]
        is_unit = token.rstrip(",;:.)") in _UNIT
        is_value = _OPTION.fullmatch(previous) and _VALUE.match(token)
        if chunks and (is_unit or is_value or _NUMBER.fullmatch(previous)):
            chunks[-1] = (chunks[-1][0], chunks[-1][1] + space + token)
        else:
            chunks.append((space, token))
        previous, end = token, match.end()
    return chunks
