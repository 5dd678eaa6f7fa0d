"""The application that every verb joins."""

import typer

app = typer.Typer(
    epilog="Start with `scalewise demo`. Add --debug to see the traceback of an error.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
