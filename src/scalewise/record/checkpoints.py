"""Where a run keeps its checkpoints, and which of them is whole.

Standard library only, and Python 3.10, as ``write``.

checkpoints/step-000000120/
    checkpoint.json    where the training stood: written first
    __0_0.distcp …     each rank's part
    .metadata          written last: without it the checkpoint is not whole
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalewise.errors import RecordError, SpecError
from scalewise.record.write import write_json
from scalewise.spec import RunSpec

FOLDER = "checkpoints"
LEAVE = "leave"
"""The file in a run's folder that asks its ranks to write one and go."""
STATE = "checkpoint.json"
LAST_WRITTEN = ".metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a training stood, and whose it was."""

    step: int
    """Optimizer steps done."""
    epoch: int
    place: int
    """Steps done in this pass over the data."""
    global_batch: int
    layout: Mapping[str, Any]
    """How the devices shared the work: only the same one goes on bit by bit."""
    workload: str
    options: Mapping[str, Any]
    optimizer: str = ""
    scaler: Mapping[str, float] | None = None

    def done(self, spec: RunSpec, per_pass: int) -> tuple[int, int]:
        """Return the steps that are done for a run, and how many of them in this pass.

        Where its global batch is another one, the samples of the pass count.

        >>> stood = Progress(step=25, epoch=2, place=5, global_batch=64, layout={},
        ...                  workload="mlp", options={})
        >>> run = {"topology": "1x1", "workload": "mlp", "batch": 32, "epochs": 3}
        >>> stood.done(RunSpec.from_dict(run), per_pass=20)
        (50, 10)
        >>> stood.done(RunSpec.from_dict({**run, "batch": 64}), per_pass=3)  # Of less data.
        (25, 3)
        """
        if spec.global_batch == self.global_batch:
            return self.step, min(per_pass, self.place)
        place = min(per_pass, self.place * self.global_batch // spec.global_batch)
        return self.step if spec.steps else self.epoch * per_pass + place, place


def layout_of(spec: RunSpec) -> dict[str, Any]:
    """Return what decides which rank holds what, and draws which chance."""
    names = ("strategy", "batch", "accumulate", "pipeline_schedule")
    return {
        "world": spec.topology.world,
        **asdict(spec.degrees),
        **{name: getattr(spec, name) for name in names},
    }


def name_of(step: int) -> str:
    """Return the name of the checkpoint after a step."""
    return f"step-{step:09d}"


def whole(folder: Path) -> list[Path]:
    """Return the whole checkpoints in a folder, the oldest first."""
    return sorted(path.parent for path in folder.glob(f"step-*/{LAST_WRITTEN}"))


def clear(folder: Path, keep: int) -> None:
    """Remove all but the newest whole checkpoints, and what is left of those that are not."""
    kept = whole(folder)[-keep:]
    for path in folder.glob("step-*"):
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def find(given: Path) -> Path:
    """Return the newest whole checkpoint of a run's folder, or the one that is named itself."""
    if (given / LAST_WRITTEN).exists():
        return given
    found = whole(given / FOLDER) or whole(given)
    if not found:
        raise SpecError(
            f"there is no whole checkpoint in {given}",
            hint="name a run's folder, runs/STUDY/RUN; checkpoint_every makes a run keep some",
        )
    return found[-1]


def write_progress(checkpoint: Path, progress: Progress) -> None:
    """Write where the training stands: the first file of a checkpoint."""
    write_json(checkpoint / STATE, asdict(progress))


def read_progress(checkpoint: Path) -> Progress:
    """Return where the training stood at a checkpoint."""
    try:
        values = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
        values.pop("schema")
        return Progress(**values)
    except (OSError, ValueError, KeyError, TypeError) as bad:
        raise RecordError(f"{checkpoint} is damaged: {bad}", hint="name an older one") from bad


def refuse_another_model(checkpoint: Path, spec: RunSpec, options: Mapping[str, Any]) -> None:
    """Refuse to go on from the checkpoint of another workload, or of other options of it.

    What an optimizer remembers is of no use to another one.
    """
    there = read_progress(checkpoint)
    if there.optimizer not in ("", spec.optimizer):
        raise SpecError(
            f"{checkpoint} was written with {there.optimizer}, and this run's optimizer is "
            f"{spec.optimizer}",
            hint=f'write optimizer = "{there.optimizer}", or leave resume out',
        )
    mine = {"workload": spec.workload, **options}
    theirs = {"workload": there.workload, **there.options}
    if mine != theirs:
        other = next(key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key))
        raise SpecError(
            f"{checkpoint} is of another model: its {other} is {theirs.get(other)!r}, "
            f"and this run's {mine.get(other)!r}",
            hint="go on with the same workload and options, or leave resume out",
        )
