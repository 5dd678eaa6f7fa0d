"""Arguments and options that several verbs have."""

from pathlib import Path
from typing import Annotated

import typer

from scalewise.checks import positive


def _priced(price: float | None) -> float | None:
    """Refuse a price that is none."""
    if price is not None:
        positive("price", price, example=2.5)
    return price


StudyFile = Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study file.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="The study's folder; runs/NAME if not given.")
]
Launcher = Annotated[
    str | None, typer.Option(help="local or slurm, instead of what the study file says.")
]
Again = Annotated[bool, typer.Option("--again", help="Repeat finished runs too.")]
Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="FOLDER…",
        help="Studies' folders, or CSV files: devices,throughput[,time] or devices,time[,samples].",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
Scaling = Annotated[
    str | None, typer.Option(help="How a CSV's batch grew with devices: weak or strong.")
]
PerNode = Annotated[
    int | None, typer.Option("--devices-per-node", min=1, help="Devices per node of a CSV.")
]
Source = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER or CSV",
        help="A study's folder, or a CSV file: devices,throughput[,time] or devices,time.",
    ),
]
PURPOSES = (
    "deadline=2h, efficiency=0.8, budget=200 (device-hours), cost=500, "
    "throughput=5000, time or balanced; several are one purpose."
)
Purposes = Annotated[list[str], typer.Option("--for", metavar="PURPOSE", help=PURPOSES)]
WhilePaying = Annotated[
    list[str] | None,
    typer.Option(
        "--for",
        metavar="PURPOSE",
        help=f"Go on to more devices only while they serve this: {PURPOSES}",
    ),
]
MaxCost = Annotated[
    float | None, typer.Option(help="The most that the study may cost in all; needs --price.")
]
MaxDeviceHours = Annotated[
    float | None, typer.Option(help="The most device-hours that the study may take in all.")
]
Price = Annotated[
    float | None, typer.Option(callback=_priced, help="What one device costs for one hour.")
]
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Which curve of a study that has several."),
]
PerNodeAhead = Annotated[
    int | None,
    typer.Option(
        "--devices-per-node",
        min=1,
        help="Devices of a node; of a folder, if it used one node only.",
    ),
]
