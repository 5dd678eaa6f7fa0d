"""Find a run's checkpoints, and check whether they are complete and undamaged.

checkpoints/step-000000120/
    checkpoint.json    the training's progress; written first
    __0_0.distcp …     each rank's part
    .metadata          which tensor is in which file
    checksums.json     size and checksum of every other file; written last

Checkpoints of early versions of scalewise have no checksums, and are read unchecked.
"""

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalewise.errors import RecordError, SpecError, shown
from scalewise.files import open_regular, read_file
from scalewise.record.json_files import parse_json
from scalewise.record.write import write_json
from scalewise.spec import RunSpec

FOLDER = "checkpoints"
LEAVE = "leave"
"""The file in a run's folder that asks its ranks to write a checkpoint and stop."""
STATE = "checkpoint.json"
METADATA = ".metadata"
"""PyTorch's own index of the tensors, which PyTorch writes after the tensors."""
CHECKSUMS = "checksums.json"
DAMAGED_PREFIX = "damaged-"
READ_BYTES = 1 << 20
"""Bytes that are read at a time for a checksum."""
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Exceptions that may occur when a JSON file has unexpected content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a training at a checkpoint, and the settings of the run that wrote it."""

    step: int
    """Optimizer steps done."""
    epoch: int
    place: int
    """Optimizer steps done in the current pass over the data."""
    global_batch: int
    layout: Mapping[str, Any]
    """How the work was split over devices; only the same layout gives bitwise equal results."""
    workload: str
    options: Mapping[str, Any]
    optimizer: str = ""
    scaler: Mapping[str, float] | None = None  # The state of the gradient scaler, if any.

    def steps_done(self, spec: RunSpec, steps_per_epoch: int) -> tuple[int, int]:
        """Return how many steps a resumed run skips, in total and in the current epoch.

        For another global batch, the numbers are converted to skip the same samples. The second
        number is at most one epoch.

        >>> progress = Progress(step=25, epoch=2, place=5, global_batch=64, layout={},
        ...                     workload="mlp", options={})
        >>> run = {"topology": "1x1", "workload": "mlp", "batch": 32, "epochs": 3}
        >>> progress.steps_done(RunSpec.from_dict(run), steps_per_epoch=20)
        (50, 10)
        >>> progress.steps_done(RunSpec.from_dict({**run, "batch": 64}), steps_per_epoch=3)
        (25, 3)
        """
        if spec.global_batch == self.global_batch:
            return self.step, min(steps_per_epoch, self.place)
        place = min(steps_per_epoch, self.place * self.global_batch // spec.global_batch)
        return self.step if spec.steps else self.epoch * steps_per_epoch + place, place


def layout_of(spec: RunSpec) -> dict[str, Any]:
    """Return the settings that decide what each rank holds and which random numbers it draws."""
    names = ("strategy", "batch", "accumulate", "pipeline_schedule")
    return {
        "world": spec.topology.world,
        **asdict(spec.degrees),
        **{name: getattr(spec, name) for name in names},
        "options": dict(spec.options),
    }


def has_layout_of(progress: Progress, spec: RunSpec) -> bool:
    """Return whether a checkpoint has a run's layout; older ones do not say all of theirs."""
    own = layout_of(spec)
    return all(own.get(name) == value for name, value in progress.layout.items())


def name_of(step: int) -> str:
    """Return the name of the checkpoint after a step."""
    return f"step-{step:09d}"


def step_of(checkpoint: Path) -> int | None:
    """Return the step that the folder of a checkpoint is named after, or None.

    >>> step_of(Path("checkpoints/step-000000120")), step_of(Path("step-000000120.bak"))
    (120, None)
    """
    match = re.fullmatch(r"step-(\d+)", checkpoint.name)
    return int(match[1]) if match else None


def written(folder: Path) -> list[Path]:
    """Return the checkpoints that were completely written, oldest first, even if damaged later."""
    return sorted(
        path for path in folder.glob("step-*") if step_of(path) is not None and _was_written(path)
    )


def complete(folder: Path) -> list[Path]:
    """Return the checkpoints whose files all exist with the right size, oldest first."""
    return [path for path in written(folder) if not size_damage(path)]


def remove_old(folder: Path, keep: int, needed: Path | None = None) -> None:
    """Keep ``needed`` and the newest ``keep`` that have their checksums; remove all others."""
    # Sizes are not checked: a shared file system may show another node's files with a delay.
    finished = [path for path in written(folder) if not _lacks_checksums(path)]
    for path in folder.glob("step-*"):
        if step_of(path) is not None and path not in (*finished[-keep:], needed):
            shutil.rmtree(path, ignore_errors=True)


def set_aside(checkpoint: Path) -> None:
    """Rename a damaged checkpoint, so that it stays on the disk but is not read again."""
    aside = checkpoint.with_name(f"{DAMAGED_PREFIX}{checkpoint.name}")
    shutil.rmtree(aside, ignore_errors=True)
    with suppress(OSError):
        checkpoint.rename(aside)


def candidates(path: Path) -> list[Path]:
    """Return the checkpoints in a run's folder, oldest first, or ``path`` if it is a checkpoint."""
    if is_checkpoint(path):
        return [path]
    checkpoints = written(path / FOLDER) or written(path)
    if not checkpoints:
        raise SpecError(
            f"there is no complete checkpoint in {path}",
            hint="name a run's folder, runs/STUDY/RUN; set checkpoint_every to write checkpoints",
        )
    return checkpoints


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder is a checkpoint, complete or not."""
    return _was_written(folder) or (folder / STATE).exists()


def find(source: Path) -> Path:
    """Return the newest of ``candidates`` whose files have the right sizes."""
    damaged: dict[Path, str] = {}
    for path in reversed(candidates(source)):
        problem = resume_damage(path)
        if not problem:
            return path
        damaged[path] = problem
    raise all_damaged(damaged)


def all_damaged(damaged: Mapping[Path, str]) -> SpecError:
    """Return the error for ``resume`` if all are damaged; ``damaged``: problems, newest first."""
    path, problem = next(iter(damaged.items()))
    return SpecError(
        f"{path} is damaged: {problem}"
        + (", and so are all older checkpoints there" if len(damaged) > 1 else ""),
        hint="name another checkpoint, or leave resume out",
    )


def describe_damage(damaged: Mapping[Path, str], resumed: Path | None) -> list[str]:
    """Return a sentence for each damaged checkpoint, with the checkpoint that was used instead.

    >>> describe_damage({Path("r/checkpoints/step-020"): "x.pt is missing"}, Path("step-010"))
    ['checkpoint step-020 is damaged (x.pt is missing): resumed from step-010']
    """
    instead = f"resumed from {resumed.name}" if resumed else "the run starts from its beginning"
    return [f"checkpoint {path.name} is damaged ({problem}): {instead}"
            for path, problem in damaged.items()]  # fmt: skip


def checksum(path: Path, tick: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Return the size of a file and the checksum of its content; ``tick`` reports progress."""
    digest, size = hashlib.blake2b(digest_size=16), 0
    with open_regular(path) as file:
        while part := file.read(READ_BYTES):
            digest.update(part)
            size += len(part)
            tick()
    return {"bytes": size, "blake2b": digest.hexdigest()}


def write_checksums(checkpoint: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the checksums of the ranks' parts (``files``), and of the other two files."""
    common = {name: checksum(checkpoint / name) for name in (STATE, METADATA)}
    write_json(checkpoint / CHECKSUMS, {"files": {**files, **common}})


def size_damage(checkpoint: Path) -> str:
    """Return what is wrong with the names and sizes of a checkpoint's files; empty if correct."""
    try:
        expected = {}
        if (checkpoint / CHECKSUMS).exists():
            expected = _read_checksums(checkpoint)
        elif _lacks_checksums(checkpoint):
            return f"{CHECKSUMS} is missing"
        for name, entry in expected.items():
            if not os.path.lexists(checkpoint / name):
                return f"{name} is missing"
            status = (checkpoint / name).stat()
            if not stat.S_ISREG(status.st_mode):
                return f"{name} is not a file"
            if status.st_size != entry["bytes"]:
                return f"{name} has {status.st_size:,} bytes, not {entry['bytes']:,}"
        if (checkpoint / STATE).exists():
            folder_step, state_step = step_of(checkpoint), read_progress(checkpoint).step
            if folder_step not in (None, state_step):
                return f"{STATE} is of another step, {state_step}"
    except OSError as unreadable:
        return _unreadable(unreadable, checkpoint)
    except (RecordError, *_MALFORMED):
        return f"{CHECKSUMS} or {STATE} was changed"
    return ""


def resume_damage(checkpoint: Path) -> str:
    """Return why training cannot resume from a checkpoint, without a check of file contents."""
    problem = size_damage(checkpoint)
    if problem or (checkpoint / STATE).exists():
        return problem
    return f"{STATE} cannot be read"


def content_damage(
    checkpoint: Path, rank: int = 0, ranks: int = 1, tick: Callable[[], None] = lambda: None
) -> str:
    """Return which file has changed; empty if none. The ranks divide the files among themselves."""
    try:
        if not (checkpoint / CHECKSUMS).exists():
            return ""
        for name, entry in sorted(_read_checksums(checkpoint).items())[rank::ranks]:
            if checksum(checkpoint / name, tick) != entry:
                return f"{name} was changed"
    except OSError as unreadable:
        return _unreadable(unreadable, checkpoint)
    except _MALFORMED:
        return f"{CHECKSUMS} was changed"
    return ""


def _read_checksums(checkpoint: Path) -> dict[str, dict[str, Any]]:
    values = parse_json(read_file(checkpoint / CHECKSUMS))
    return {name: {"bytes": entry["bytes"], "blake2b": entry["blake2b"]}
            for name, entry in values["files"].items()}  # fmt: skip


def _unreadable(problem: OSError, checkpoint: Path) -> str:
    name = Path(str(problem.filename or checkpoint)).name
    return f"{name} cannot be read: {problem.strerror or problem}"


def _was_written(checkpoint: Path) -> bool:
    try:
        return (checkpoint / METADATA).exists() or (checkpoint / CHECKSUMS).exists()
    except OSError:  # We may not open the folder: later checks report it as damaged.
        return True


def _lacks_checksums(checkpoint: Path) -> bool:
    """Return whether checksums.json is missing although checkpoint.json announces it."""
    try:
        if (checkpoint / CHECKSUMS).exists():
            return False
        values = parse_json(read_file(checkpoint / STATE))
        return bool(values.get("checksums") == CHECKSUMS)
    except (OSError, *_MALFORMED):
        return False  # The checkpoint was written by an early version, or not by scalewise.


def write_progress(checkpoint: Path, progress: Progress) -> None:
    """Write the training's progress: the first file of a checkpoint."""
    write_json(checkpoint / STATE, {**asdict(progress), "checksums": CHECKSUMS})


def read_progress(checkpoint: Path) -> Progress:
    """Return the training's progress at a checkpoint."""
    try:
        values = parse_json(read_file(checkpoint / STATE))
        values.pop("schema")
        values.pop("checksums", None)
        values.pop("checksum", None)
        return Progress(**values)
    except (OSError, *_MALFORMED) as bad:
        raise RecordError(
            f"{checkpoint} is damaged: {bad}", hint="name an older checkpoint"
        ) from bad


def refuse_another_model(checkpoint: Path, spec: RunSpec, options: Mapping[str, Any]) -> None:
    """Raise if a checkpoint was written with another workload, other options or optimizer."""
    progress = read_progress(checkpoint)
    if progress.optimizer not in ("", spec.optimizer):
        raise SpecError(
            f"{checkpoint} was written with {progress.optimizer}, but this run's optimizer is "
            f"{spec.optimizer}",
            hint=f'write optimizer = "{progress.optimizer}", or leave resume out',
        )
    own = {"workload": spec.workload, **options}
    saved = {"workload": progress.workload, **progress.options}
    if own != saved:
        key = next(key for key in {**own, **saved} if own.get(key) != saved.get(key))
        raise SpecError(
            f"{checkpoint} is of another model: its {key} is {shown(saved.get(key))}, "
            f"and this run's is {shown(own.get(key))}",
            hint="resume with the same workload and options, or leave resume out",
        )
