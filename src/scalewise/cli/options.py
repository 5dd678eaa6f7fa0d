"""Arguments and options that several verbs share, and the panels they are listed in."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

# Panels: headings in the help of a verb. Options without one are listed under "Options".
SPENDING_PANEL = "Spending limits and cost"
CURVE_PANEL = "Which curve"


def option(
    metavar: str, text: str, *names: str, panel: str | None = None, minimum: int | None = None
) -> Any:
    """Return an option with a value; without ``names``, the parameter's name becomes its name."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, min=minimum)


def output_file(text: str, metavar: str = "FILE") -> Any:
    """Return the option ``-o``, the path to write to."""
    return option(metavar, text, "-o", "--output")


def flag(name: str, text: str, panel: str | None = None) -> Any:
    """Return an option without a value. The explicit name keeps Typer from adding ``--no-NAME``."""
    return typer.Option(name, help=text, rich_help_panel=panel)


StudyFile = Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study file.")]
StudyFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The study folder.")]
Output = Annotated[Path | None, output_file("The study folder [default: runs/NAME].", "FOLDER")]
Launcher = Annotated[
    str | None, option("NAME", "local or slurm, instead of the study file's launcher.")
]
Variant = Annotated[str | None, option("NAME", "Use the [variant.NAME] section of the study file.")]
Again = Annotated[bool, flag("--again", "Repeat finished runs too.")]
Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="FOLDER...",
        help="Study folders, or tables (CSV, Excel's exports, Markdown).",
    ),
]
FULL_RUN_HELP = "Answer for '90 epochs', '1e9 samples' or 18x."
# Stays text here: `spec.FullRun` parses it.
FullRunLength = Annotated[
    str | None,
    option(
        "LENGTH",
        "Length of the real training, for all answers: '90 epochs', '1e9 samples', 18x.",
        "--full-run",
    ),
]
FullRunText = Annotated[str | None, option("LENGTH", FULL_RUN_HELP, "--full-run")]
SamplesPerStep = Annotated[
    int | None, option("N", "Of a program: samples per step of a rank, if not seen.", minimum=1)
]
Despite = Annotated[
    list[str] | None,
    option("CODE", "Answer although the doubt with this code blocks it."),
]
Json = Annotated[bool, flag("--json", "Print JSON for other programs.")]
AllColumns = Annotated[bool, flag("--all", "Show all columns and tables.")]
Scaling = Annotated[
    str | None,
    option(
        "RULE",
        "Of a CSV: weak (batch per device fixed) or strong.",
        panel=CURVE_PANEL,
    ),
]
_per_node = partial(option, "N", panel=CURVE_PANEL, minimum=1)
CsvDevicesPerNode = Annotated[int | None, _per_node("Of a CSV: devices per node.")]
DevicesPerNode = Annotated[int | None, _per_node("Of a CSV, or of a study that used one node.")]
_SOURCE_ARGUMENT = typer.Argument(
    metavar="SOURCE",
    help="A study folder, or a table (CSV, Excel's export, Markdown).",
)
Source = Annotated[Path, _SOURCE_ARGUMENT]
OptionalSource = Annotated[Path | None, _SOURCE_ARGUMENT]
_PURPOSE_EXAMPLES = (
    "deadline=2h, efficiency=0.8, budget=200 (device-hours), cost=500, "
    "energy=40kWh, throughput=5000, time or balanced; may be repeated."
)
Purposes = Annotated[list[str], option("PURPOSE", f"The goal: {_PURPOSE_EXAMPLES}", "--for")]
StopPurposes = Annotated[
    list[str] | None,
    option(
        "PURPOSE",
        f"Add devices only while that helps a goal: {_PURPOSE_EXAMPLES}",
        "--for",
        panel=SPENDING_PANEL,
    ),
]
MaxCost = Annotated[
    float | None,
    option("AMOUNT", "Maximum cost of the whole study; needs --price.", panel=SPENDING_PANEL),
]
MaxDeviceHours = Annotated[
    float | None, option("HOURS", "Maximum device-hours of the whole study.", panel=SPENDING_PANEL)
]
Where = Annotated[
    list[str] | None,
    option(
        "KEY=VALUE",
        "Of a study with several curves: strategy=fsdp.",
        panel=CURVE_PANEL,
    ),
]
Results = Annotated[
    list[Path],
    typer.Argument(
        metavar="RESULT...",
        help="Study folders, folders of single runs, or tables; more than two are a history.",
    ),
]
PRICE_HELP = "Per device-hour: 2.50, or a catalog name: aws:p5.48xlarge."
# A price stays text here, because `analysis.cost.rates.price_of` also accepts names.
Price = Annotated[str | None, option("PRICE", PRICE_HELP)]
