"""Arguments and options that several verbs share, and the panels they are listed in."""

from pathlib import Path
from typing import Annotated

import typer

PROGRAM_PANEL = "Options for your own program (with --on)"
SPENDING_PANEL = "Spending limits and cost"
CURVE_PANEL = "Which curve"
SIMULATION_PANEL = "Simulation (with --simulate)"
COST_PANEL = "Cost and energy"
TARGET_PANEL = "Training target"
QUEUE_PANEL = "Queue and interruptions"
QUESTIONS_PANEL = "More questions"
"""Headings in the help of a verb; options without one are listed under "Options"."""

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study file.")]
StudyFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The study folder.")]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FOLDER", help="The study folder [default: runs/NAME]."),
]
Launcher = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="local or slurm, instead of the study file's launcher."),
]
Variant = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Use the [variant.NAME] section of the study file."),
]
Again = Annotated[bool, typer.Option("--again", help="Repeat finished runs too.")]
Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="FOLDER...",
        help="Study folders, or CSV files: devices,throughput[,time] or devices,time[,samples].",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
Scaling = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help="For a CSV: how the batch grows with devices, weak or strong.",
        rich_help_panel=CURVE_PANEL,
    ),
]
CsvDevicesPerNode = Annotated[
    int | None,
    typer.Option(
        "--devices-per-node",
        metavar="N",
        min=1,
        help="For a CSV: devices per node.",
        rich_help_panel=CURVE_PANEL,
    ),
]
DevicesPerNode = Annotated[
    int | None,
    typer.Option(
        "--devices-per-node",
        metavar="N",
        min=1,
        help="Devices per node: for a CSV, or for a study that used one node only.",
        rich_help_panel=CURVE_PANEL,
    ),
]
_SOURCE_ARGUMENT = typer.Argument(
    metavar="SOURCE",
    help="A study folder, or a CSV file: devices,throughput[,time] or devices,time.",
)
Source = Annotated[Path, _SOURCE_ARGUMENT]
OptionalSource = Annotated[Path | None, _SOURCE_ARGUMENT]
_PURPOSES = (
    "deadline=2h, efficiency=0.8, budget=200 (device-hours), cost=500, "
    "energy=40kWh, throughput=5000, time or balanced. Repeat to combine goals."
)
Purposes = Annotated[
    list[str], typer.Option("--for", metavar="PURPOSE", help=f"The goal: {_PURPOSES}")
]
StopPurposes = Annotated[
    list[str] | None,
    typer.Option(
        "--for",
        metavar="PURPOSE",
        help=f"Add devices only while that helps to reach a goal: {_PURPOSES}",
        rich_help_panel=SPENDING_PANEL,
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option(
        metavar="AMOUNT",
        help="Maximum cost of the whole study; needs --price.",
        rich_help_panel=SPENDING_PANEL,
    ),
]
MaxDeviceHours = Annotated[
    float | None,
    typer.Option(
        metavar="HOURS",
        help="Maximum device-hours of the whole study.",
        rich_help_panel=SPENDING_PANEL,
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Select a curve of a study that has several, such as strategy=fsdp.",
        rich_help_panel=CURVE_PANEL,
    ),
]
PRICE_HELP = (
    "Price of one device for one hour: 2.50, or a name from `scalewise catalog prices`, "
    "such as aws:p5.48xlarge or aws:p5.48xlarge:spot."
)
# As text: `analysis.cost.rates.price_of` turns it into a rate.
Price = Annotated[str | None, typer.Option("--price", metavar="PRICE", help=PRICE_HELP)]
