"""Read arguments, call one function, print what it returns.

Nothing heavy is imported before a command needs it: help comes in a blink.

studies  carry a study out
answers  answer from what was measured
data     make and check data sets
tools    beside a study
"""

import sys
from typing import Annotated

import typer

from scalewise.cli import studies  # noqa: F401 - its verbs come first in the help

# isort: split
from scalewise.cli import analyze, data_sets, other_verbs  # noqa: F401 - their verbs follow
from scalewise.cli.app import app
from scalewise.cli.output import say
from scalewise.errors import RunFailed, ScalewiseError

__all__ = ["app", "main"]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(version("scalewise"))
        raise typer.Exit


@app.callback()
def scalewise(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take a training job from one device to many, and learn whether it is worth it."""


def main() -> None:
    """Run a command; tell the user about a problem in one sentence, not a traceback."""
    ours = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    debug = "--debug" in ours
    sys.argv = [word for word in ours if word != "--debug"] + sys.argv[len(ours) :]
    try:
        app()
    except SystemExit as ended:
        asked = sys.argv[1:2] == ["run"] and any(word.startswith("--on") for word in ours)
        if ended.code == 2 and asked and "--" not in sys.argv:
            typer.echo(" hint: put -- before your program: run --on 1,2 -- train.py …", err=True)
        raise
    except (ScalewiseError, BrokenPipeError) as problem:
        if debug:
            raise
        if isinstance(problem, BrokenPipeError):
            sys.exit(1)
        if isinstance(problem, RunFailed) and problem.words:
            say(problem.words, err=True)
        say(f"error: {problem}", err=True)
        if problem.hint:
            say(f" hint: {problem.hint}", err=True)
        sys.exit(3 if isinstance(problem, RunFailed) else 1)
