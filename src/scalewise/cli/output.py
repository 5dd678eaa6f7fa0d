"""Print results to stdout, and messages about slow steps to stderr."""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import typer

from scalewise.errors import ScalewiseError

SLOW_SECONDS = 2.0
"""Work that takes longer than this is announced on stderr."""
LINE_SECONDS = 10.0
"""Time between two progress lines."""
PIPE_COLUMNS = 100
"""Width of tables and sentences that go to a pipe or a file."""
MIN_COLUMNS = 40
"""A narrower terminal is taken to be this wide."""


def say(message: object, *, err: bool = False, wraps: bool = True) -> None:
    """Print a message; control characters in names are shown as escapes.

    Sentences are wrapped at words if the width is known; ``wraps=False`` is for commands and data.
    """
    from scalewise.report.escape import printable
    from scalewise.report.wrap import wrap

    lines = list(map(printable, str(message).split("\n")))
    width = known_width(sys.stderr if err else sys.stdout) if wraps else None
    if width:
        lines = [part for line in lines for part in wrap(line, width)]
    typer.echo("\n".join(lines), err=err)


def say_path(*paths: object, err: bool = False) -> None:
    """Print paths, one per line, for other programs: to the byte; on a terminal without control
    characters.
    """
    from scalewise.report.escape import printable

    is_terminal = (sys.stderr if err else sys.stdout).isatty()
    for path in paths:
        typer.echo(printable(str(path)) if is_terminal else str(path), err=err)


def say_problem(problem: ScalewiseError) -> None:
    """Print an error and its hint to stderr."""
    say(f"error: {_one_line(problem)}", err=True)
    if problem.hint:
        say(f" hint: {_one_line(problem.hint)}", err=True)


def _one_line(text: object) -> str:
    """Return a sentence on one line, in which a path may have line breaks."""
    return str(text).strip("\n").replace("\n", "\\n")


def known_width(stream: TextIO) -> int | None:
    """Return the columns of a terminal, or those of the variable COLUMNS; None if unknown."""
    if stream.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return max(shutil.get_terminal_size((PIPE_COLUMNS, 24)).columns, MIN_COLUMNS)
    return None


def print_sections(sections: Any, *, all_columns: bool = False) -> None:
    """Print sections: in colour on a terminal, else as plain text.

    Without ``all_columns``, tables have their default columns.
    """
    from rich.console import Console

    from scalewise.report import formats

    console = Console()
    width = known_width(sys.stdout) or PIPE_COLUMNS
    if console.is_terminal and not console.no_color:
        rendered = formats.render_terminal(sections, width, brief=not all_columns)
        console.print(rendered, soft_wrap=True)
    else:
        typer.echo(formats.plain_text(sections, width, brief=not all_columns))


@contextmanager
def announce_slow_checks() -> Iterator[Callable[[str], None]]:
    """Yield a function to call with each check's name before the check; announces slow checks."""
    timers: list[threading.Timer] = []

    def announce(name: str) -> None:
        if timers:
            timers[-1].cancel()
        message = f"checking: {name} …"
        timers.append(threading.Timer(SLOW_SECONDS, typer.echo, [message], {"err": True}))
        timers[-1].daemon = True
        timers[-1].start()

    try:
        yield announce
    finally:
        if timers:
            timers[-1].cancel()


@contextmanager
def count_progress(activity: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, total) that shows a bar on a terminal, plain lines elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_progress(activity)
        return
    columns = (TextColumn(activity), BarColumn(), TextColumn("{task.fields[count]}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(activity, total=None, count="")

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, count=f"{done:,} of {total:,}")

        yield update


def _line_progress(activity: str) -> Callable[[int, int], None]:
    # Start with a time in the past, so that the first line comes after SLOW_SECONDS.
    printed_at = time.monotonic() - LINE_SECONDS + SLOW_SECONDS
    has_printed = False

    def update(done: int, total: int) -> None:
        nonlocal printed_at, has_printed
        if time.monotonic() - printed_at > LINE_SECONDS or (done == total and has_printed):
            printed_at, has_printed = time.monotonic(), True
            with suppress(OSError):  # A closed stderr must not end the work.
                print(f"{activity}: {done:,} of {total:,}", file=sys.stderr, flush=True)

    return update
