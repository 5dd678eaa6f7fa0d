"""Export the trained weights of a run under the names of the serial model."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scalewise.errors import SpecError
from scalewise.launch.processes import ask_worker
from scalewise.record import checkpoints
from scalewise.record.write import cannot_write

SUFFIXES = (".safetensors", ".pt")


@dataclass(frozen=True, slots=True)
class ExportedWeights:
    """The file that was written, and the checkpoint or file its weights come from."""

    path: Path
    source: Path
    tensors: int
    bytes: int

    def __str__(self) -> str:
        size = f"{self.tensors} tensors, {self.bytes / 2**20:,.1f} MiB"
        return f"{self.path}  ({size}, from {self.source})"


def export(run: Path, to: Path, step: int | None = None) -> ExportedWeights:
    """Write the weights of the checkpoint after ``step``, by default of the newest checkpoint.

    If the run has no checkpoint, write the weights in ``weights.pt``, which ``save = true`` makes.
    """
    if to.suffix not in SUFFIXES:
        hint = f"end the name in {' or '.join(SUFFIXES)}"
        raise SpecError(f"the name {to.name} does not end in a known format of weights", hint=hint)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(to, error) from error
    source = _find_weights(run, step)
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump({"source": str(source.absolute()), "to": str(to.absolute())}, file)
        file.flush()
        answer = ask_worker("export", file.name, timeout=3600.0)
    if "problem" in answer:
        raise SpecError(answer["problem"], hint=answer["hint"])
    return ExportedWeights(to, source, answer["tensors"], answer["bytes"])


def _find_weights(run: Path, step: int | None) -> Path:
    """Return the folder of the checkpoint to export, or ``weights.pt`` if there is none."""
    if not run.exists():
        raise SpecError(f"there is no folder {run}", hint="name a run's folder, runs/STUDY/RUN")
    if step is not None:
        paths = checkpoints.written(run / checkpoints.FOLDER)
        if step not in map(checkpoints.step_of, paths):
            steps = ", ".join(str(checkpoints.step_of(path)) for path in paths)
            hint = f"it has checkpoints after: {steps}" if steps else "it has no checkpoints"
            raise SpecError(f"{run} has no checkpoint after step {step}", hint=hint)
        return run / checkpoints.FOLDER / checkpoints.name_of(step)
    if checkpoints.is_checkpoint(run) or checkpoints.written(run / checkpoints.FOLDER):
        return checkpoints.candidates(run)[-1]
    if (run / "weights.pt").is_file():
        return run / "weights.pt"
    # Perhaps this is the folder of a study: name some of its runs that have weights.
    names = ("weights.pt", checkpoints.FOLDER)
    runs = [str(path.parent) for name in names for path in run.glob(f"*/{name}")]
    hint = "to keep the weights of a run, set save = true or checkpoint_every"
    if runs:
        hint = f"name one of its runs: {', '.join(runs[:3])}"
    raise SpecError(f"there are no weights in {run}", hint=hint)
