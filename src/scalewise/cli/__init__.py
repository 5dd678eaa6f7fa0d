"""The command line. A verb (subcommand) imports heavy modules only when it runs: help is fast."""

import io
import sys
from typing import Annotated

import typer

from scalewise.cli import study_commands  # noqa: F401 - imported first: its verbs come first in the help

# isort: split
from scalewise.cli import certify_command  # noqa: F401 - the same panel as the first verbs

# isort: split
from scalewise.cli import analysis_commands, data_commands, import_command, tool_commands  # noqa: F401 - registers their verbs
from scalewise.cli.app import app, app_for
from scalewise.cli.output import say, say_problem
from scalewise.errors import RunFailed, ScalewiseError, command_line, cut, shown
from scalewise.files import access_hint

__all__ = ["app", "main"]


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(version("scalewise"))
        raise typer.Exit


@app.callback()
def scalewise(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Scale a training job from one device to many, and find out whether it pays off."""
    token = command_line.set(True)  # Error texts then name options, not Python parameters.
    context.call_on_close(lambda: command_line.reset(token))


def main() -> None:
    """Run a command; exit with 1 after an error, 2 after wrong usage, 3 after a run that failed."""
    debug = _remove_debug_flag()
    if isinstance(sys.stdout, io.TextIOWrapper):  # The name of a file may be any bytes.
        sys.stdout.reconfigure(errors="surrogateescape")
    try:
        app_for(sys.argv[1:])()
    except SystemExit as end:
        if end.code == 2:
            _hint_at_separator()
        raise
    except (ScalewiseError, OSError, RuntimeError) as problem:
        if debug:
            raise
        if not _tell(problem):
            raise
        sys.exit(problem.exit_code if isinstance(problem, ScalewiseError) else 1)


def _hint_at_separator() -> None:
    """Say that ``--`` is missing: options of the user's program are then parsed as ours."""
    runs_program = sys.argv[1:2] in (["run"], ["certify"]) and any(
        arg.startswith("--on") for arg in sys.argv
    )
    if runs_program and "--" not in sys.argv:
        typer.echo(" hint: put -- before your program: run --on 1,2 -- train.py …", err=True)


def _tell(problem: Exception) -> bool:
    """Tell a problem and its hint; return False if it is a mistake of scalewise itself."""
    if isinstance(problem, BrokenPipeError):  # The reader of the output ended: scalewise … | head.
        return True
    if isinstance(problem, ScalewiseError):
        if isinstance(problem, RunFailed) and problem.details:
            say(problem.details, err=True, wraps=False)
        say_problem(problem)
        return True
    if isinstance(problem, OSError) and problem.filename:  # The file system refuses a name, …
        sentence, hint = f"{shown(str(problem.filename))}: {problem.strerror}", access_hint(problem)
    elif str(problem).startswith("Symlink loop"):  # Of Path.resolve, up to Python 3.12.
        hint = "its links lead to each other: give another path"
        sentence = cut(str(problem), 400)
    else:
        return False
    say(f"error: {sentence}", err=True)
    say(f" hint: {hint}", err=True)
    return True


def _remove_debug_flag() -> bool:
    """Remove --debug from sys.argv, but not from the program after ``--``; return if it was set."""
    program_start = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    other_args = [arg for arg in sys.argv[:program_start] if arg != "--debug"]
    sys.argv = other_args + sys.argv[program_start:]
    return len(other_args) < program_start
