"""Put answers on the screen, and say what takes long."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer


def say(message: object, *, err: bool = False) -> None:
    """Print a message; control characters in names are shown as escapes."""
    from scalewise.report.escape import printable

    typer.echo("\n".join(map(printable, str(message).split("\n"))), err=err)


def show(curves: Any) -> None:
    """Print curves."""
    from scalewise.report.curve_table import sections

    echo(sections(curves))


def echo(sections: Any, first: Sequence[str] = ()) -> None:
    """Print sections: in colour on a terminal, plain and wide elsewhere.

    Lines that must not be overlooked come ``first``.
    """
    from rich.console import Console
    from rich.text import Text

    from scalewise.report import formats

    console = Console()
    for line in first:
        console.print(Text(line, style="bold red"), soft_wrap=True)
    if console.is_terminal and not console.no_color:
        console.print(formats.on_screen(sections, console.width))
    else:
        typer.echo(formats.in_words(sections))


@contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Yield a function that is told each question; one that takes long is told on stderr."""
    timers: list[threading.Timer] = []

    def tell(name: str) -> None:
        if timers:
            timers[-1].cancel()
        timers.append(threading.Timer(2.0, typer.echo, [f"asking: {name} …"], {"err": True}))
        timers[-1].daemon = True
        timers[-1].start()

    try:
        yield tell
    finally:
        if timers:
            timers[-1].cancel()
