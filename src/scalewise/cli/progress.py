"""Tell on stderr how a study goes on: a bar on a terminal, plain lines elsewhere."""

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

EVERY = 10.0
"""Seconds between two lines about a run that goes on."""


@contextmanager
def progress() -> Iterator[Watcher]:
    """Yield a watcher that fits where stderr goes."""
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
    with Progress(*columns, console=console, transient=True) as bar:
        yield Bar(bar)


class Lines:
    """Plain lines, for a log."""

    def __init__(self) -> None:
        self._todo = 0
        self._said: dict[RunSpec, float] = {}
        """When each run that is under way was last spoken of."""

    def begin(self, todo: int, there: int, asked: str) -> None:
        """Say how much there is to do."""
        self._todo = todo
        _say(_opening(todo, there, asked))

    def started(self, number: int, run: RunSpec) -> None:
        """Say which run begins."""
        _say(f"[{number}/{self._todo}] {run.title}")
        self._said[run] = time.monotonic()

    def moved(self, run: RunSpec, share: float) -> None:
        """Say now and then how far it is."""
        if time.monotonic() - self._said[run] > EVERY:
            _say(f"  {self._name(run)}{f'{share:.0%} of its steps' if share else 'running'}")
            self._said[run] = time.monotonic()

    def ended(self, run: RunSpec, cause: str, seconds: float) -> None:
        """Say how it ended."""
        _say(f"  {self._name(run)}{'failed' if cause else 'finished'} after {seconds:.1f} s")
        del self._said[run]

    def noted(self, sentence: str) -> None:
        """Say which way it takes."""
        _say(sentence)

    def said(self, problem: ScalewiseError) -> None:
        """Say what is wrong, and what to do about it."""
        _say(f"warning: {problem}")
        _say(f"   hint: {problem.hint}")

    def _name(self, run: RunSpec) -> str:
        """Name a run where several are under way."""
        return f"{run.title}: " if len(self._said) > 1 else ""


def _say(line: str) -> None:
    with suppress(OSError):  # Nobody listens any more: the study goes on.
        typer.echo(printable(line), err=True)


class Bar:
    """A bar for the study and one for each run that is under way."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._study = bar.add_task("study", total=None)
        self._runs: dict[RunSpec, TaskID] = {}

    def begin(self, todo: int, there: int, asked: str) -> None:
        """Show how much there is to do."""
        self._print(_opening(todo, there, asked))
        self._bar.update(self._study, total=todo or 1, completed=0 if todo else 1)

    def started(self, number: int, run: RunSpec) -> None:
        """Show which run begins."""
        self._runs[run] = self._bar.add_task(printable(run.title), total=1.0)

    def moved(self, run: RunSpec, share: float) -> None:
        """Show how far it is."""
        self._bar.update(self._runs[run], completed=share)

    def ended(self, run: RunSpec, cause: str, seconds: float) -> None:
        """Leave a line about it."""
        word = "failed" if cause else "finished"
        self._print(f"{run.title} {word} after {seconds:.1f} s")
        self._bar.remove_task(self._runs.pop(run))
        self._bar.advance(self._study)

    def noted(self, sentence: str) -> None:
        """Leave a line about the way it takes."""
        self._print(sentence)

    def said(self, problem: ScalewiseError) -> None:
        """Leave lines about what is wrong, and what to do about it."""
        self._print(f"warning: {problem}", style="yellow")
        self._print(f"   hint: {problem.hint}")

    def _print(self, sentence: str, style: str = "") -> None:
        self._bar.console.print(Text(printable(sentence), style=style))


def _opening(todo: int, there: int, asked: str) -> str:
    return f"{todo} to run, {there} finished already" + (f"; {asked}" if asked and todo else "")
