"""Arguments and options that several verbs have."""

from pathlib import Path
from typing import Annotated

import typer

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study file.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="The study's folder; runs/NAME if not given.")
]
Launcher = Annotated[
    str | None, typer.Option(help="local or slurm, instead of what the study file says.")
]
Variant = Annotated[
    str | None, typer.Option(help="A variant that the study file has of itself: [variant.NAME].")
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
MaybeSource = Annotated[
    Path | None,
    typer.Argument(
        metavar="FOLDER or CSV",
        help="A study's folder, or a CSV file: devices,throughput[,time] or devices,time.",
    ),
]
PURPOSES = (
    "deadline=2h, efficiency=0.8, budget=200 (device-hours), cost=500, "
    "energy=40kWh, throughput=5000, time or balanced; several are one purpose."
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
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Which curve of a study that has several."),
]
Price = Annotated[
    str | None,
    typer.Option(
        "--price",
        metavar="PRICE",
        help="What one device costs for one hour: 2.50, or a name of `scalewise catalog prices`, "
        "such as aws:p5.48xlarge or aws:p5.48xlarge:spot.",
    ),
]
"""As it was written: ``catalog.rates.price_of`` makes a rate of it."""
PerNodeAhead = Annotated[
    int | None,
    typer.Option(
        "--devices-per-node",
        min=1,
        help="Devices of a node; of a folder, if it used one node only.",
    ),
]
