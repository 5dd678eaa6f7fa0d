"""An MLflow file store: an experiment per curve, an MLflow run for its points and for each run."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from scalewise.report.interchange.contents import (
    ExportedCurve,
    ExportedRun,
    curve_scalars,
    folder_names,
    run_scalars,
)
from scalewise.report.interchange.package_settings import package_settings

OFFLINE = {
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""MLflow reads these when it is imported. Telemetry would also write into the home folder."""
METRICS_PER_BATCH, PARAMS_PER_BATCH = 1000, 100
MAX_TAG = 5000
"""Limits of MLflow."""


def write(curves: Sequence[ExportedCurve], folder: Path) -> None:
    """Add the curves to the store in ``folder``; what it holds stays."""
    with package_settings("MLFLOW_", OFFLINE):
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=folder.resolve().as_uri())
        # MLflow refuses some characters in names of experiments.
        for curve, name in zip(curves, folder_names(curve.name for curve in curves)):
            found = client.get_experiment_by_name(name)
            experiment = found.experiment_id if found else client.create_experiment(name)
            _write_run(client, experiment, curve, None)
            for run in curve.runs:
                _write_run(client, experiment, curve, run)


def _write_run(client: Any, experiment: str, curve: ExportedCurve, run: ExportedRun | None) -> None:
    """Write a run, or the points of the curve."""
    from mlflow.entities import Metric, Param

    started = run.started if run else min((r.started for r in curve.runs), default=0.0)
    ended = run.ended if run else max((r.ended for r in curve.runs), default=0.0)
    created = client.create_run(
        experiment,
        start_time=round(started * 1000),
        run_name=run.name if run else "scaling",
        tags={name: value[:MAX_TAG] for name, value in _tags(curve, run).items()},
    )
    run_id = created.info.run_id
    settings = run.settings if run else curve.settings
    params = iter({_key(name): str(value) for name, value in settings.items()}.items())
    while some := list(islice(params, PARAMS_PER_BATCH)):
        client.log_batch(run_id, params=[Param(*param) for param in some])
    scalars = run_scalars(run) if run else curve_scalars(curve)
    while batch := list(islice(scalars, METRICS_PER_BATCH)):
        metrics = [
            Metric(_key(scalar.tag), scalar.value, round(scalar.at * 1000), scalar.step)
            for scalar in batch
        ]
        client.log_batch(run_id, metrics=metrics)
    client.set_terminated(run_id, end_time=round(ended * 1000))


def _tags(curve: ExportedCurve, run: ExportedRun | None) -> dict[str, str]:
    tags = {
        "scalewise.study": curve.study,
        "scalewise.curve": curve.name,
        "scalewise.unit": curve.unit,
    }
    if run:
        tags |= {
            "scalewise.run": run.id,
            "scalewise.devices": str(run.devices),
            "scalewise.repeat": str(run.repeat),
        }
    if codes := curve.doubt_codes(run.devices if run else None):
        tags["scalewise.doubts"] = " ".join(codes)
        tags["mlflow.note.content"] = curve.doubt_text
    return tags


def _key(name: str) -> str:
    """Return a name that MLflow accepts as a key.

    >>> _key("options.a:b")
    'options.a_b'
    """
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-./ ") else "_" for c in name)[:250]
