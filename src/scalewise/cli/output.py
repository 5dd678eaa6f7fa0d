"""Print results to stdout, and messages about slow steps to stderr."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

SLOW_SECONDS = 2.0
"""A check that takes longer than this is announced on stderr."""


def say(message: object, *, err: bool = False) -> None:
    """Print a message; control characters in names are shown as escapes."""
    from scalewise.report.escape import printable

    typer.echo("\n".join(map(printable, str(message).split("\n"))), err=err)


def print_sections(sections: Any, alerts: Sequence[str] = ()) -> None:
    """Print ``alerts`` in red, then sections: in colour on a terminal, else as plain text."""
    from rich.console import Console
    from rich.text import Text

    from scalewise.report import formats

    console = Console()
    for line in alerts:
        console.print(Text(line, style="bold red"), soft_wrap=True)
    if console.is_terminal and not console.no_color:
        console.print(formats.render_terminal(sections, console.width))
    else:
        typer.echo(formats.plain_text(sections))


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
