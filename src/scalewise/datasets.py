"""Make a data set, check one, or time its loading; the worker reads and writes the files."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.analysis.measure.estimate import Estimate, estimate_from_steps
from scalewise.analysis.number_format import format_count, format_estimate, format_number
from scalewise.errors import SpecError
from scalewise.launch.processes import stream_worker
from scalewise.record.schema import SkippedFiles
from scalewise.record.skipped_files import sentence
from scalewise.validate import check_choice, check_integer

PRESETS = ("micro-224", "tiny-224")
ProgressCallback = Callable[[int, int], None]
"""Is told how many samples are done, and of how many."""
MAX_EDGE_PIXELS = 4096
"""Pixels along the largest images that are made."""
MAX_PRINTED = 20
"""Problems that are printed; ``--json`` has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What to make of what; nothing means what the likeness says, or all there is."""

    to: Path
    like: str | None = None
    source: Path | None = None
    images: int | None = None
    classes: int | None = None
    edge: int = 224
    seed: int = 0
    packed: bool = False

    def __post_init__(self) -> None:
        if self.like is not None:
            check_choice("--like", self.like, PRESETS)
        for name in ("images", "classes"):
            if (value := getattr(self, name)) is not None:
                check_integer(f"--{name}", value, minimum=1)
        check_integer("--edge", self.edge, minimum=1, maximum=MAX_EDGE_PIXELS, example=224)
        check_integer("--seed", self.seed, minimum=0)
        if self.images and self.classes and self.images < self.classes:
            raise SpecError(
                f"{self.images} images are too few for {self.classes} classes",
                hint=f"give --images {self.classes} or more, or fewer --classes",
            )
        if not self.to.name:
            raise SpecError("the folder to make needs a name", hint="for example datasets/mine")


@dataclass(frozen=True, slots=True)
class MadeDataset:
    """What was written."""

    path: Path
    classes: int
    train: int
    validation: int
    edge: int

    def __str__(self) -> str:
        return (
            f"{self.path}  ({_format_class_count(self.classes)}, {self.train:,} training and "
            f"{format_count(self.validation, 'validation image')} of {self.edge} × {self.edge})"
        )


@dataclass(frozen=True, slots=True)
class CheckedDataset:
    """What was found in a data set; ``problems`` keep it from being used as it should."""

    kind: str
    folder: str
    counts: Mapping[str, Mapping[str, int]]
    sizes: Mapping[str, int]
    modes: Mapping[str, int]
    formats: Mapping[str, int]
    problems: list[Mapping[str, str]]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return what other programs read."""
        return {"schema": 1, **asdict(self)}

    def __str__(self) -> str:
        lines = [f"{self.folder}: {self.kind}"]
        lines += [f"  {name}: {_count_summary(classes)}" for name, classes in self.counts.items()]
        for what in ("sizes", "modes", "formats"):
            if often := getattr(self, what):
                lines.append(f"  {what}: {_most_common(often)}")
        lines += [f"  note: {note}" for note in self.notes[:MAX_PRINTED]]
        lines += _omitted_line(self.notes, "notes")
        lines += [f"  problem: {each['problem']}" for each in self.problems[:MAX_PRINTED]]
        lines += _omitted_line(self.problems, "problems")
        if not self.problems:
            lines.append("  no problems")
        return "\n".join(lines)


def make(recipe: Recipe, tell: ProgressCallback) -> MadeDataset:
    """Write a data set; it bears its name only when it is whole."""
    to, source = recipe.to, recipe.source
    asked = {
        "do": "make",
        **asdict(recipe),
        "to": str(to.absolute()),
        "source": str(source.absolute()) if source else None,
    }
    answer = _ask_worker(asked, tell)
    return MadeDataset(to, answer["classes"], answer["train"], answer["validation"], answer["edge"])


def check(folder: Path, tell: ProgressCallback) -> CheckedDataset:
    """Look at every file of a data set."""
    return CheckedDataset(**_ask_worker({"do": "check", "folder": str(folder)}, tell))


@dataclass(frozen=True, slots=True)
class LoadingRate:
    """How fast so many workers load."""

    workers: int
    rate: Estimate
    """Samples per second."""
    first: float
    """Seconds until the first batch."""


@dataclass(frozen=True, slots=True)
class LoadingBenchmark:
    """How fast a data set is loaded for this machine's device."""

    data: str
    kind: str
    device: str
    samples: int
    shape: tuple[int, ...]
    batch: int
    rates: tuple[LoadingRate, ...]
    left_out: tuple[str, ...] = ()
    """Files that cannot be read."""

    def to_dict(self) -> dict[str, Any]:
        """Return what other programs read."""
        return {"schema": 1, **asdict(self)}

    def __str__(self) -> str:
        each = " × ".join(map(str, self.shape[::-1] if len(self.shape) > 1 else self.shape))
        what = f"images of {each}" if len(self.shape) > 1 else f"sequences of {each} tokens"
        lines = [
            f"{self.data}: {self.kind}, {self.samples:,} {what}, batches of {self.batch}",
            f"loaded for {self.device}, with nobody who trains",
            "workers  samples/s                each worker  first batch",
        ]
        for row in self.rates:
            share = row.rate.value / max(1, row.workers)
            lines.append(
                f"{row.workers:>7}  {format_estimate(row.rate):<23}  {format_number(share):>11}  "
                f"{row.first:>9.2f} s"
            )
        if words := sentence([SkippedFiles(len(self.left_out), self.left_out)]):
            lines.append(words)
        return "\n".join(lines)


def bench(data: str, asked: Mapping[str, Any], tell: ProgressCallback) -> LoadingBenchmark:
    """Load a data set as a training would, once with each number of workers."""
    answer = _ask_worker({"do": "bench", "data": data, **asked}, tell)
    rates = []
    for row in answer.pop("rows"):
        seconds = np.array(row["seconds"])
        value = sum(row["read"]) / float(seconds.sum())
        rates.append(LoadingRate(row["workers"], estimate_from_steps(value, seconds), row["first"]))
    shape, lost = tuple(answer.pop("shape")), tuple(answer.pop("left_out"))
    return LoadingBenchmark(data, shape=shape, rates=tuple(rates), left_out=lost, **answer)


def _ask_worker(asked: Mapping[str, Any], tell: ProgressCallback) -> Any:
    answer = stream_worker("data", asked, lambda said: tell(said["done"], said["total"]))
    if "problem" in answer:
        raise SpecError(answer["problem"], hint=answer["hint"])
    return answer


def _count_summary(classes: Mapping[str, int]) -> str:
    """Say how many there are, and whether the classes are alike."""
    if list(classes) == ["tokens"]:
        return f"{classes['tokens']:,} tokens"
    least, most = min(classes, key=classes.__getitem__), max(classes, key=classes.__getitem__)
    each = f"{classes[least]:,} each"
    if classes[least] != classes[most]:
        each = f"from {classes[least]:,} ({least}) to {classes[most]:,} ({most})"
    images = format_count(sum(classes.values()), "image")
    return f"{images} in {_format_class_count(len(classes))}, {each}"


def _format_class_count(count: int) -> str:
    return "1 class" if count == 1 else f"{count:,} classes"


def _most_common(often: Mapping[str, int], kept: int = 5) -> str:
    parts = [f"{name} ({count:,})" for name, count in list(often.items())[:kept]]
    return ", ".join(parts) + (f" and {len(often) - kept} others" if len(often) > kept else "")


def _omitted_line(found: list[Any], what: str) -> list[str]:
    beyond = len(found) - MAX_PRINTED
    return [f"  … and {beyond:,} {what} more; --json has all"] if beyond > 0 else []
