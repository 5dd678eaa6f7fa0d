"""Collect what was measured: curves from studies' folders, or from CSV files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scalewise.analysis.measure import ScalingCurve, curve_from_csv, scaling_curves
from scalewise.errors import NewerSchema, RecordError, SpecError
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
                    text,
                    name=path.stem,
                    source=str(path),
                    scaling=scaling,
                    devices_per_node=devices_per_node,
                )
            )
        else:
            found += _measured(path)
    return found


def _measured(folder: Path) -> list[ScalingCurve]:
    """Return a study's curves from the runs that can be read; say what is left out."""
    study = read_study(folder)
    runs = study.runs()
    there = [run for run in runs if finished(folder / run.id)]
    records, broken = [], []
    for run in there:
        try:
            records.append(read_run(folder / run.id, run))
        except NewerSchema:
            raise
        except RecordError as problem:
            broken.append(problem)
    if broken and not records:
        raise broken[0]
    told = [f"left out: {problem} ({problem.hint})" for problem in broken]
    if records and len(there) < len(runs):
        told.append(f"{len(runs) - len(there)} of {len(runs)} runs are not finished")
    return [
        replace(curve, warnings=(*told, *curve.warnings))
        for curve in scaling_curves(study, records)
    ]


def _read_csv(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as why:
        raise RecordError(f"cannot read {path}: {why}") from why
