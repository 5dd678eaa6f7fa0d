"""The Typer application. Its help is plain text: Typer's own layout imports rich, which is slow.

A section of the help text is called a *panel*, which is Typer's term.
"""

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from scalewise.errors import cut

_RANGE = re.compile(r"  \[x>=\d+\]|  \[default: 0; x>=0\]|; x>=\d+(?=\])")
"""The range of a number as Click writes it, and a default that says nothing."""


MAX_USAGE_ERROR = 400
"""Characters of the message about a wrong usage."""


class HelpCommand(TyperCommand):
    """A command whose help shows one example per line, and its options in panels."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after a verb. Without any, the missing argument is named before Typer
        imports pydantic to convert values, which takes as long as all of help.
        """
        required = [argument for argument in _arguments(self, ctx) if argument.required]
        if required and not args and not ctx.resilient_parsing:
            ctx.fail(f"Missing argument '{_usage_name(required[0])}'.")
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line: ``[OPTIONS]``, then the arguments' metavars."""
        return [self.options_metavar or "", *map(_usage_name, _arguments(self, ctx))]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the description, then the examples, which are never wrapped."""
        text, _, examples = inspect.cleandoc(self.help or "").partition("\n\nExamples:\n")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text)
        if examples:
            with formatter.section("Examples"):
                for line in examples.splitlines():
                    formatter.write(f"  {line.strip()}\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the options without a panel, then a section per panel."""
        arguments = [
            (_usage_name(argument), argument.help or "") for argument in _arguments(self, ctx)
        ]
        _write_section(formatter, "Arguments", arguments)
        _write_options(self, ctx, formatter)


class HelpGroup(TyperGroup):
    """A group whose help lists its commands in panels."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse the words up to the verb."""
        with _short_usage_errors():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Parse the words after the verb, and run it."""
        with _short_usage_errors():
            return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after ``scalewise``. Before a verb, no option is given, and Typer would
        import pydantic to convert the absent values of those for completion.
        """
        if args and not args[0].startswith("-"):
            self.params = [p for p in self.params if not str(p.name).endswith("_completion")]
        return super().parse_args(ctx, args)

    def get_help_option(self, ctx: Any) -> Any:
        """Return ``--help``, whose absent value is False, which needs no conversion."""
        help_option = super().get_help_option(ctx)
        if help_option is not None:
            help_option.default = False
        return help_option

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by panel, then the options."""
        names = self.list_commands(ctx)
        width = max(map(len, names), default=0)
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in names:
            command = self.get_command(ctx, name)
            panel = getattr(command, "rich_help_panel", None)
            summary = command.get_short_help_str(formatter.width) if command else ""
            # Without a panel, Typer sets a placeholder object, not None.
            heading = panel if isinstance(panel, str) else "Commands"
            panels.setdefault(heading, []).append((name.ljust(width), summary))
        for heading, rows in panels.items():
            _write_section(formatter, heading, rows)
        _write_options(self, ctx, formatter)


@contextmanager
def _short_usage_errors() -> Iterator[None]:
    """Show the words of a wrong usage on one line, cut where they are long."""
    try:
        yield
    except typer.TyperException as error:
        if message := getattr(error, "message", ""):
            from scalewise.report.escape import printable

            words = (cut(word) for word in printable(message).split(" "))
            error.message = cut(" ".join(words), MAX_USAGE_ERROR)
        raise


def _arguments(command: Any, ctx: Any) -> list[Any]:
    return [param for param in command.get_params(ctx) if param.param_type_name == "argument"]


def _usage_name(argument: Any) -> str:
    """Return the argument's name for the usage line, in brackets if it is optional."""
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    panels: dict[str, list[tuple[str, str]]] = {"Options": []}
    for param in command.get_params(ctx):
        row = param.get_help_record(ctx) if param.param_type_name == "option" else None
        if row is not None:  # (names, help text); None for a hidden option.
            panel = getattr(param, "rich_help_panel", None)
            names, text = row
            panels.setdefault(panel or "Options", []).append((names, _RANGE.sub("", text)))
    for heading, rows in panels.items():
        _write_section(formatter, heading, rows)


def _write_section(formatter: Any, heading: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(heading):
            formatter.write_dl(rows)


app = typer.Typer(
    cls=HelpGroup,
    epilog="Start with `scalewise demo`. Add --debug to see the traceback of an error.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def verb(panel: str, name: str | None = None) -> Callable[..., Any]:
    """Register the decorated function as a verb, listed under ``panel`` in ``--help``."""
    return app.command(name, cls=HelpCommand, rich_help_panel=panel)


def app_for(words: Sequence[str]) -> typer.Typer:
    """Return the application for a command line. The list of all verbs shows none of their options,
    and Typer takes a tenth of the time of help to build these: there, verbs have none.
    """
    if words and words[0] not in ("-h", "--help"):
        return app
    listed = copy.copy(app)
    listed.registered_commands = [copy.copy(command) for command in app.registered_commands]
    for command in listed.registered_commands:
        command.callback = _without_options(command.callback)
    return listed


def _without_options(verb_function: Callable[..., Any] | None) -> Callable[[], None]:
    def listed() -> None: ...

    listed.__name__ = verb_function.__name__ if verb_function else ""
    listed.__doc__ = verb_function.__doc__
    return listed
