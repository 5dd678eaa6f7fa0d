"""Offline runs of Weights & Biases: one for the points of each curve, and one for each run.

wandb writes them through a service process of its own, which ends with ``wandb.teardown``.
"""

import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from scalewise.report.interchange.contents import (
    ExportedCurve,
    ExportedRun,
    Scalar,
    curve_scalars,
    folder_names,
    run_scalars,
)
from scalewise.report.interchange.package_settings import package_settings

MAX_TAG, MAX_GROUP = 64, 128
"""wandb's limits, in characters."""
AXES = {"step": "step", "epoch": "epoch", "run": "devices", "scaling": "devices"}
"""What each group of metrics is drawn over."""


def write(curves: Sequence[ExportedCurve], folder: Path) -> None:
    """Write offline runs into ``folder/wandb``; `wandb sync` uploads them, if the user wants it."""
    with tempfile.TemporaryDirectory() as scratch:  # Else wandb would write into the home folder.
        places = dict.fromkeys(("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"), scratch)
        switches = {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
        with package_settings("WANDB_", {**places, **switches}):
            import wandb

            try:
                for curve in curves:
                    for run in (None, *curve.runs):
                        _write_run(wandb, folder, curve, run)
            finally:
                wandb.teardown()


def _write_run(wandb: Any, folder: Path, curve: ExportedCurve, run: ExportedRun | None) -> None:
    """Write a run, or the points of the curve."""
    codes = curve.doubt_codes(run.devices if run else None)
    settings = wandb.Settings(
        mode="offline", silent=True, console="off", disable_git=True, save_code=False,
        x_disable_stats=True, x_disable_meta=True, x_save_requirements=False,
    )  # fmt: skip
    with wandb.init(
        dir=str(folder), settings=settings,
        project=folder_names([curve.study])[0], group=curve.name[:MAX_GROUP],
        name=run.name if run else "scaling", config=dict(run.settings if run else curve.settings),
        tags=[code[:MAX_TAG] for code in codes], notes=curve.doubt_text or None,
    ) as created:  # fmt: skip
        for prefix, axis in AXES.items():
            created.define_metric(f"{prefix}/*", step_metric=axis)
        for row in _rows(run_scalars(run) if run else curve_scalars(curve)):
            created.log(row)
        created.summary["unit"] = curve.unit


def _rows(scalars: Iterator[Scalar]) -> Iterator[dict[str, float]]:
    """Return rows of the history: the values of each step, of each epoch, of the run."""
    ordered = sorted(scalars, key=_place)
    for (prefix, step), values in groupby(ordered, key=_place):
        yield {AXES[prefix]: step, **{scalar.tag: scalar.value for scalar in values}}


def _place(scalar: Scalar) -> tuple[str, int]:
    return scalar.tag.partition("/")[0], scalar.step
