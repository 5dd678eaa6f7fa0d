"""The verb ``certify``: does the training on N devices learn what one device learns?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scalewise.cli.app import verb
from scalewise.cli.options import Again, Json, Launcher, Output, Variant, option
from scalewise.cli.output import print_sections, say
from scalewise.cli.study_commands import PANEL, PROGRAM_PANEL, run_with_progress
from scalewise.errors import ConditionShown, SpecError

if TYPE_CHECKING:
    from scalewise.spec import StudySpec


@verb(PANEL)
def certify(  # noqa: PLR0913 - one parameter per option
    args: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY.toml, FOLDER... or -- PROGRAM...",
            help="A study file; folders with certificates; with --on, a script or -m MODULE.",
        ),
    ],
    on: Annotated[
        str | None,
        option(
            "DEVICES", "Compare a program on so many devices with 1: 1,2,4.", panel=PROGRAM_PANEL
        ),
    ] = None,
    global_batch: Annotated[
        int | None,
        option(
            "N",
            "Samples per step: {batch} in the arguments becomes N / devices.",
            panel=PROGRAM_PANEL,
            minimum=1,
        ),
    ] = None,
    steps: Annotated[int | None, option("N", "Steps of each run [default: 24].", minimum=3)] = None,
    variant: Variant = None,
    output: Output = None,
    launcher: Launcher = None,
    again: Again = False,
    as_json: Json = False,
) -> None:
    """Test that N devices learn what one learns; exit with 4 if not.

    Short runs compare gradients and updates of every layer at an equal global batch. With folders,
    compare what was recorded there; later folders are compared with the first. Where no verdict is
    possible, stderr says so, and the exit code is 0.

    Examples:
      scalewise certify study.toml
      scalewise certify --on 1,2 -- train.py --epochs 3
      scalewise certify --on 1,2 --global-batch 64 -- train.py --batch-size {batch}
      scalewise certify runs/train
      scalewise certify runs/before runs/after
    """
    from scalewise import study
    from scalewise.certificates import certificates
    from scalewise.report import certificate_sections

    folders = [Path(arg) for arg in args]
    is_reading = on is None and all(folder.is_dir() for folder in folders)
    if not is_reading:
        spec = _load_study(args, on, variant)
        plan = study.plan_certificate(
            study.with_launcher(spec, launcher),
            steps=steps or study.CERTIFICATE_STEPS,
            global_batch=global_batch,
        )
        folders = [output or Path("runs") / spec.name]
        run_with_progress(
            lambda watcher: study.run_certificate(plan, folders[0], watcher, again=again)
        )
    found = certificates(folders)
    if as_json:
        typer.echo(certificate_sections.as_json(found))
    else:
        print_sections(certificate_sections.sections(found))
    if not is_reading:
        say(f"the runs are in {folders[0]}", err=True)
    if unknown := sum(item.verdict == "cannot tell" for item in found):
        say(f"{unknown} of {len(found)} comparisons cannot be told", err=True)
    differing = [item for item in found if item.verdict == "differs"]
    if differing:
        count = f"{len(differing)} of {len(found)} comparisons differ"
        raise ConditionShown(f"the training is not that of one device: {count}")


def _load_study(args: list[str], on: str | None, variant: str | None) -> "StudySpec":
    from scalewise import study

    if on is not None:
        return study.from_program(args, on)
    if len(args) > 1 or args[0].endswith(".py"):
        hint = "scalewise certify --on 1,2 -- train.py; or folders that `certify` has made"
        raise SpecError("a program needs --on, the devices to run it on", hint=hint)
    if not Path(args[0]).exists():
        hint = "give a study file, a folder that `certify` has made, or --on 1,2 -- train.py"
        raise SpecError(f"there is no {args[0]}", hint=hint)
    return study.load(Path(args[0]), variant)
