"""Verbs about data sets: data make, data check, data bench."""

from pathlib import Path
from typing import Annotated, get_args

import typer

from scalewise.cli.app import HelpCommand, HelpGroup, app
from scalewise.cli.options import Json, flag, option
from scalewise.cli.output import count_progress, say, say_path
from scalewise.errors import SpecError, shown

data = typer.Typer(
    cls=HelpGroup,
    help="Make a data set, check its files, or time its loading.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(data, name="data", rich_help_panel="Data and tools")


@data.command(cls=HelpCommand)
def make(  # noqa: PLR0913 - one parameter per option
    to: Annotated[Path, typer.Argument(metavar="TO", help="The folder to make.")],
    like: Annotated[
        str | None, option("NAME", "As many images and classes as micro-224 or tiny-224.")
    ] = None,
    source: Annotated[
        Path | None,
        option(
            "FOLDER", "Tiny ImageNet or any image folder [default: synthetic images].", "--from"
        ),
    ] = None,
    images: Annotated[
        int | None, option("N", "Training images; a tenth as many are added for validation.")
    ] = None,
    classes: Annotated[int | None, option("N", "Use the first N classes.")] = None,
    edge: Annotated[int, option("PIXELS", "Width and height of every image.")] = 224,
    seed: Annotated[int, option("N", "Random seed for choosing or making images.")] = 0,
    packed: Annotated[bool, flag("--packed", "Decode to raw pixels in a few large files.")] = False,
) -> None:
    """Make a folder of images of one size, as files or packed pixels.

    Prints the path of the folder.

    Examples:
      scalewise data make datasets/tiny --like tiny-224 --from tiny-imagenet-200
      scalewise data make datasets/packed --packed --from datasets/tiny-224
    """
    from scalewise import datasets

    recipe = datasets.Recipe(
        to=to, like=like, source=source, images=images, classes=classes,
        edge=edge, seed=seed, packed=packed,
    )  # fmt: skip
    with count_progress("making") as report_progress:
        say_path(datasets.make(recipe, report_progress))


@data.command(cls=HelpCommand)
def check(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A data set of any kind.")],
    as_json: Json = False,
) -> None:
    """Check every file of a data set; exit code 1 if one is broken.

    Examples:
      scalewise data check datasets/tiny-224
    """
    from scalewise import datasets
    from scalewise.report.formats import dump_json, plain

    with count_progress("checking") as report_progress:
        result = datasets.check(folder, report_progress)
    say(dump_json(plain(result)) if as_json else result, wraps=not as_json)
    if result.problems:
        raise typer.Exit(1)


@data.command(cls=HelpCommand)
def bench(  # noqa: PLR0913 - one parameter per option
    source: Annotated[
        str, typer.Argument(metavar="DATA", help="The data, written as in a study file.")
    ],
    workers: Annotated[str, option("N,N,...", "Numbers of loader workers to try.")] = "0,1,2",
    batch: Annotated[int, option("N", "Samples per batch.")] = 128,
    edge: Annotated[int | None, option("PIXELS", "Image edge, as in a study file.")] = None,
    length: Annotated[int | None, option("N", "Sequence length, as in a study file.")] = None,
    augment: Annotated[str, option("NAME", "Augmentation, as in a study file.")] = "none",
    seconds: Annotated[float, option("SECONDS", "How long to time each number of workers.")] = 5.0,
    as_json: Json = False,
) -> None:
    """Time how fast data is loaded on this machine, without training.

    If training needs more samples per second, it will wait for its input.

    Examples:
      scalewise data bench datasets/micro-224 --workers 2,4,8
    """
    from scalewise import datasets
    from scalewise.report.formats import dump_json, plain
    from scalewise.spec.run import Augment
    from scalewise.validate import check_choice, check_integer, check_positive

    worker_counts = [text.strip() for text in workers.split(",")]
    if not all(count.isdecimal() and int(count) < 1000 for count in worker_counts):
        problem = (
            f"--workers takes whole numbers below 1000, separated by commas, got {shown(workers)}"
        )
        raise SpecError(problem, hint="for example --workers 2,4,8")
    check_choice("--augment", augment, get_args(Augment))
    check_integer("--batch", batch, minimum=1)
    check_positive("--seconds", seconds, example=5)
    settings = {
        "workers": [int(count) for count in worker_counts], "batch": batch, "edge": edge,
        "length": length, "augment": augment, "seconds": seconds,
    }  # fmt: skip
    with count_progress("loading") as report_progress:
        result = datasets.bench(source, settings, report_progress)
    say(dump_json(plain(result)) if as_json else result, wraps=not as_json)
