"""Collect what was measured: curves from studies' folders, or from CSV files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scalewise.analysis.measure import ScalingCurve, curve_from_csv, scaling_curves
from scalewise.errors import RecordError, SpecError
from scalewise.record.files import finished, read_study
from scalewise.record.read import read_run


def curves(
    paths: Sequence[Path], *, scaling: str | None = None, devices_per_node: int | None = None
) -> list[ScalingCurve]:
    """Return what was measured: from studies' folders, or from CSV files."""
    found: list[ScalingCurve] = []
    for path in paths:
        if (scaling or devices_per_node) and path.is_dir():
            raise SpecError(
                f"{path} is a study's folder and knows its own scaling and nodes",
                hint="--scaling and --devices-per-node are for CSV files",
            )
        if path.is_file():
            text = _read_csv(path)
            found.append(
                curve_from_csv(
                    text, name=path.stem, scaling=scaling, devices_per_node=devices_per_node
                )
            )
        else:
            found += _measured(path)
    return found


def _measured(folder: Path) -> list[ScalingCurve]:
    study = read_study(folder)
    homes = [folder / run.id for run in study.runs()]
    there = [home for home in homes if finished(home)]
    left = len(homes) - len(there)
    told = [f"{left} of {len(homes)} runs are not finished"] if left and there else []
    return [
        replace(curve, warnings=(*told, *curve.warnings))
        for curve in scaling_curves(study, [read_run(home) for home in there])
    ]


def _read_csv(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as why:
        raise RecordError(f"cannot read {path}: {why}") from why
