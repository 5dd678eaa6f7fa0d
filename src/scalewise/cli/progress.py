"""Progress of a study on stderr: bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from scalewise.errors import ScalewiseError
from scalewise.report.escape import printable
from scalewise.spec import RunSpec
from scalewise.study import Watcher

LINE_SECONDS = 10.0
"""Minimum time between two progress lines about the same run."""


@contextmanager
def progress() -> Iterator[Watcher]:
    """Yield a watcher, whose methods the study calls: ``Bars`` on a terminal, else ``Lines``."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines()
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        yield Bars(bars)


class Lines:
    """Print progress as plain lines, for a log."""

    def __init__(self) -> None:
        self._todo_count = 0
        self._printed_at: dict[RunSpec, float] = {}
        """When the last line about each active run was printed."""

    def begin(self, todo: int, finished: int, request: str) -> None:
        self._todo_count = todo
        _print(_format_begin(todo, finished, request))

    def started(self, number: int, run: RunSpec) -> None:
        _print(f"[{number}/{self._todo_count}] {run.title}")
        self._printed_at[run] = time.monotonic()

    def progressed(self, run: RunSpec, share: float) -> None:
        if time.monotonic() - self._printed_at[run] > LINE_SECONDS:
            state = f"{share:.0%} of its steps" if share else "running"
            _print(f"  {self._prefix(run)}{state}")
            self._printed_at[run] = time.monotonic()

    def ended(self, run: RunSpec, cause: str, seconds: float) -> None:
        _print(f"  {self._prefix(run)}{'failed' if cause else 'finished'} after {seconds:.1f} s")
        del self._printed_at[run]

    def note(self, sentence: str) -> None:
        _print(sentence)

    def warn(self, problem: ScalewiseError) -> None:
        _print(f"warning: {problem}")
        _print(f"   hint: {problem.hint}")

    def _prefix(self, run: RunSpec) -> str:
        """Return the run's title for the start of a line; empty if only one run is active."""
        return f"{run.title}: " if len(self._printed_at) > 1 else ""


def _print(line: str) -> None:
    with suppress(OSError):  # A closed stderr must not end the study.
        typer.echo(printable(line), err=True)


class Bars:
    """Show a bar for the study, and one for each active run."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._study_bar = bars.add_task("study", total=None)
        self._run_bars: dict[RunSpec, TaskID] = {}

    def begin(self, todo: int, finished: int, request: str) -> None:
        self._print(_format_begin(todo, finished, request))
        # If there are no runs to do, show a full bar.
        self._bars.update(self._study_bar, total=todo or 1, completed=0 if todo else 1)

    def started(self, number: int, run: RunSpec) -> None:
        self._run_bars[run] = self._bars.add_task(printable(run.title), total=1.0)

    def progressed(self, run: RunSpec, share: float) -> None:
        self._bars.update(self._run_bars[run], completed=share)

    def ended(self, run: RunSpec, cause: str, seconds: float) -> None:
        result = "failed" if cause else "finished"
        self._print(f"{run.title} {result} after {seconds:.1f} s")
        self._bars.remove_task(self._run_bars.pop(run))
        self._bars.advance(self._study_bar)

    def note(self, sentence: str) -> None:
        self._print(sentence)

    def warn(self, problem: ScalewiseError) -> None:
        self._print(f"warning: {problem}", style="yellow")
        self._print(f"   hint: {problem.hint}")

    def _print(self, sentence: str, style: str = "") -> None:
        self._bars.console.print(Text(printable(sentence), style=style))


def _format_begin(todo: int, finished: int, request: str) -> str:
    """Return the study's first line; ``request`` says how many device-hours are requested."""
    text = f"{todo} to run, {finished} finished already"
    return f"{text}; {request}" if request and todo else text
