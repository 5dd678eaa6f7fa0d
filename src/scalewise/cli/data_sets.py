"""Verbs about data sets: data make, data check, data bench."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, get_args

import typer

from scalewise.cli.app import app
from scalewise.cli.options import Json
from scalewise.cli.output import say

data = typer.Typer(
    help="Make a data set, look at every file of one, or time its loading.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(data, name="data")

QUIET = 2.0
"""Seconds before a word about how far it is."""
EVERY = 10.0
"""Seconds between two lines of a log."""


@data.command()
def make(  # noqa: PLR0913 - each is an option
    to: Annotated[Path, typer.Argument(metavar="TO", help="The folder to make.")],
    like: Annotated[
        str | None, typer.Option(help="As large as micro-224 or tiny-224, in images and classes.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="Tiny ImageNet, or any image folder; without it, images are made up.",
        ),
    ] = None,
    images: Annotated[
        int | None, typer.Option(help="Training images in all; a tenth as many validate.")
    ] = None,
    classes: Annotated[int | None, typer.Option(help="The first so many classes.")] = None,
    edge: Annotated[int, typer.Option(help="Width and height of every image.")] = 224,
    seed: Annotated[int, typer.Option(help="Which images are drawn, or made up.")] = 0,
    packed: Annotated[
        bool, typer.Option("--packed", help="Decode them: raw pixels in a few large files.")
    ] = False,
) -> None:
    """Make an image folder of one size, or packed images, and print its path.

    Example: scalewise data make datasets/tiny-224 --like tiny-224 --from tiny-imagenet-200

    Example: scalewise data make datasets/packed --packed --from datasets/tiny-224
    """
    from scalewise import datasets

    recipe = datasets.Recipe(
        to=to, like=like, source=source, images=images, classes=classes,
        edge=edge, seed=seed, packed=packed,
    )  # fmt: skip
    with progress("making") as tell:
        made = datasets.make(recipe, tell)
    typer.echo(made)


@data.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A data set of any kind.")],
    as_json: Json = False,
) -> None:
    """Look at every file of a data set; end with 1 if something is broken.

    Example: scalewise data check datasets/tiny-224
    """
    from scalewise import datasets

    with progress("checking") as tell:
        found = datasets.check(folder, tell)
    say(json.dumps(found.to_dict(), indent=1) if as_json else found)
    if found.problems:
        raise typer.Exit(1)


@data.command()
def bench(  # noqa: PLR0913 - each is an option
    source: Annotated[str, typer.Argument(metavar="DATA", help="What a study says as data.")],
    workers: Annotated[
        str, typer.Option(help="Numbers of workers to try, with commas between.")
    ] = "0,1,2",
    batch: Annotated[int, typer.Option(help="Samples of a batch.")] = 128,
    edge: Annotated[int | None, typer.Option(help="As in a study.")] = None,
    length: Annotated[int | None, typer.Option(help="As in a study.")] = None,
    augment: Annotated[str, typer.Option(help="As in a study.")] = "none",
    seconds: Annotated[float, typer.Option(help="How long each number is timed.")] = 5.0,
    as_json: Json = False,
) -> None:
    """Time how fast data is loaded for this machine's device, with nobody who trains on it.

    A training waits for its input wherever it needs more than that.

    Example: scalewise data bench datasets/micro-224 --workers 2,4,8
    """
    from scalewise import datasets
    from scalewise.spec.run import Augment
    from scalewise.validate import choice, positive, whole

    numbers = _numbers(workers)
    choice("--augment", augment, get_args(Augment))
    whole("--batch", batch, least=1)
    positive("--seconds", seconds, example=5)
    asked = {
        "workers": numbers, "batch": batch, "edge": edge, "length": length,
        "augment": augment, "seconds": seconds,
    }  # fmt: skip
    with progress("loading") as tell:
        found = datasets.bench(source, asked, tell)
    say(json.dumps(found.to_dict(), indent=1) if as_json else found)


def _numbers(workers: str) -> list[int]:
    """Read a list of whole numbers."""
    from scalewise.errors import SpecError

    words = [word.strip() for word in workers.split(",")]
    if not all(word.isdecimal() and int(word) < 1000 for word in words):
        raise SpecError(
            f"--workers must be whole numbers with commas between, got {workers!r}",
            hint="for example --workers 2,4,8",
        )
    return [int(word) for word in words]


@contextmanager
def progress(doing: str) -> Iterator[Callable[[int, int], None]]:
    """Yield what is told how far it is: a bar on a terminal, plain lines elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(doing)
        return
    columns = (TextColumn(doing), BarColumn(), TextColumn("{task.fields[far]}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(doing, total=None, far="")

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, far=f"{done:,} of {total:,}")

        yield tell


def _lines(doing: str) -> Callable[[int, int], None]:
    said, silent = time.monotonic() - EVERY + QUIET, True

    def tell(done: int, total: int) -> None:
        nonlocal said, silent
        if time.monotonic() - said > EVERY or (done == total and not silent):
            said, silent = time.monotonic(), False
            with suppress(OSError):  # Nobody listens: the work goes on.
                print(f"{doing}: {done:,} of {total:,}", file=sys.stderr, flush=True)

    return tell
