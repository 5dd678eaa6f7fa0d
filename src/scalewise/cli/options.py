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
