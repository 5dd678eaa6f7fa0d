"""Progress of a study: in place with bars on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scalewise.cli.output import say
from scalewise.cli.status_lines import LineSchedule, progress_text, status_line, status_text
from scalewise.errors import ScalewiseError
from scalewise.report.escape import printable
from scalewise.spec import RunSpec
from scalewise.study import Status, Watcher

BAR_WIDTH = 12


@contextmanager
def progress() -> Iterator[Watcher]:
    """Yield a watcher, whose methods the study calls: ``Bars`` on a terminal, else ``Lines``."""
    console = Console(stderr=True)
    if not _can_update(console):
        yield Lines()
        return
    bars = Bars(console)
    with Live(get_renderable=bars.render, console=console, transient=True):
        yield bars


def show_until_ended(looks: Iterator[list[Status]]) -> list[Status]:
    """Show the states of runs on stdout as they come; return the last ones."""
    console, states = Console(), list[Status]()
    if not _can_update(console):
        schedule = LineSchedule()
        for states in looks:
            for state in filter(schedule.is_due, states):
                say(status_line(state))
        return states
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            for states in looks:
                table = _table()
                for state in states:
                    _add_row(table, state.run, state)
                live.update(table, refresh=True)
    finally:  # What was shown in place is gone now.
        for state in states:
            say(status_line(state))
    return states


def _can_update(console: Console) -> bool:
    """Return whether lines can be replaced by newer ones."""
    return console.is_terminal and not console.is_dumb_terminal


class Lines:
    """Print progress as plain lines, for a log."""

    def __init__(self) -> None:
        self._todo_count = 0
        self._active: set[RunSpec] = set()
        self._schedule = LineSchedule()

    def begin(self, todo: int, finished: int, request: str) -> None:
        self._todo_count = todo
        _print(_format_begin(todo, finished, request))

    def started(self, number: int, run: RunSpec) -> None:
        _print(f"[{number}/{self._todo_count}] {run.title}")
        self._active.add(run)
        self._schedule.printed(run, "running")

    def progressed(self, run: RunSpec, status: Status) -> None:
        if self._schedule.is_due(status):
            _print(f"  {self._prefix(run)}{status_text(status)}")

    def ended(self, run: RunSpec, cause: str, seconds: float) -> None:
        _print(f"  {self._prefix(run)}{'failed' if cause else 'finished'} after {seconds:.1f} s")
        self._active.remove(run)

    def note(self, sentence: str) -> None:
        _print(sentence)

    def warn(self, problem: ScalewiseError) -> None:
        _print(f"warning: {problem}")
        _print(f"   hint: {problem.hint}")

    def _prefix(self, run: RunSpec) -> str:
        """Return the run's title for the start of a line; empty if only one run is active."""
        return f"{run.title}: " if len(self._active) > 1 else ""


def _print(line: str) -> None:
    with suppress(OSError):  # A closed stderr must not end the study.
        typer.echo(printable(line), err=True)


class Bars:
    """Show a line for the study and one for each active run, with a bar if its length is known."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._todo_count = self._ended_count = 0
        self._states: dict[RunSpec, Status | None] = {}
        """The active runs, each with its last state."""

    def render(self) -> Table:
        """Return what is on the terminal now."""
        table = _table()
        todo, ended = self._todo_count, self._ended_count
        table.add_row("study", _bar(ended / todo if todo else 1.0), f"{ended} of {todo} runs")
        for run, status in list(self._states.items()):
            _add_row(table, run, status)
        return table

    def begin(self, todo: int, finished: int, request: str) -> None:
        self._print(_format_begin(todo, finished, request))
        self._todo_count = todo

    def started(self, number: int, run: RunSpec) -> None:
        self._states[run] = None

    def progressed(self, run: RunSpec, status: Status) -> None:
        self._states[run] = status

    def ended(self, run: RunSpec, cause: str, seconds: float) -> None:
        result = "failed" if cause else "finished"
        self._print(f"{run.title} {result} after {seconds:.1f} s")
        del self._states[run]
        self._ended_count += 1

    def note(self, sentence: str) -> None:
        self._print(sentence)

    def warn(self, problem: ScalewiseError) -> None:
        self._print(f"warning: {problem}", style="yellow")
        self._print(f"   hint: {problem.hint}")

    def _print(self, sentence: str, style: str = "") -> None:
        self._console.print(Text(printable(sentence), style=style))


def _table() -> Table:
    table = Table.grid(padding=(0, 1))
    for _ in range(3):
        table.add_column(no_wrap=True, overflow="ellipsis")
    return table


def _add_row(table: Table, run: RunSpec, status: Status | None) -> None:
    """Add a run's label, its bar if its length is known, and its state; None: it is starting."""
    share = status.progress.share if status and status.phase == "running" else None
    text = _short_text(status) if status else "starting"
    table.add_row(Text(printable(run.label)), _bar(share), Text(printable(text)))


def _bar(share: float | None) -> ProgressBar | str:
    """Return a bar; empty text if the share is unknown."""
    return "" if share is None else ProgressBar(total=1.0, completed=share, width=BAR_WIDTH)


def _short_text(status: Status) -> str:
    """Return a state for a line with a bar, which shows the share."""
    if status.phase == "running" and not status.cause and not status.job:
        return progress_text(status.progress, with_share=False)
    return status_text(status)


def _format_begin(todo: int, finished: int, request: str) -> str:
    """Return the study's first line; ``request`` says how many device-hours are requested."""
    text = f"{todo} to run, {finished} finished already"
    return f"{text}; {request}" if request and todo else text
