"""Make a data set, check one, or time its loading; a worker process reads and writes the files."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.analysis.measure.estimate import Estimate, estimate_from_steps
from scalewise.analysis.number_format import format_count, format_estimate, format_number
from scalewise.errors import SpecError, parameter
from scalewise.launch.processes import stream_worker
from scalewise.record.schema import SkippedFiles, skipped_sentence
from scalewise.validate import check_choice, check_integer

PRESETS = ("micro-224", "tiny-224")
"""Data sets whose numbers of images and classes a recipe can copy."""
ProgressCallback = Callable[[int, int], None]
"""Called with the number of samples done, and the total."""
MAX_EDGE_PIXELS = 4096
MAX_PRINTED = 20
"""At most this many problems, and this many notes, are printed; the JSON output has all."""
MAX_PRINTED_VALUES = 5
"""At most this many sizes, modes and formats are printed: the most frequent ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings of ``data make``; None stands for the preset's value, or for all of the source."""

    to: Path
    like: str | None = None
    """One of ``PRESETS``."""
    source: Path | None = None
    """The folder to take images from; with None, images are synthetic."""
    images: int | None = None
    classes: int | None = None
    edge: int = 224
    seed: int = 0
    packed: bool = False

    def __post_init__(self) -> None:
        if self.like is not None:
            check_choice(parameter("like"), self.like, PRESETS)
        for name in ("images", "classes"):
            if (value := getattr(self, name)) is not None:
                check_integer(parameter(name), value, minimum=1)
        check_integer(parameter("edge"), self.edge, minimum=1, maximum=MAX_EDGE_PIXELS, example=224)
        check_integer(parameter("seed"), self.seed, minimum=0)
        if self.images and self.classes and self.images < self.classes:
            raise SpecError(
                f"{self.images} images are too few for {self.classes} classes",
                hint=f"give {parameter('images', self.classes)} or more, or fewer "
                f"{parameter('classes')}",
            )
        if not self.to.name:
            raise SpecError("the folder to make needs a name", hint="for example datasets/mine")


@dataclass(frozen=True, slots=True)
class MadeDataset:
    """A data set that was written; ``train`` and ``validation`` are numbers of images."""

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
    """The contents of a data set; ``problems`` are defects that would affect training."""

    kind: str
    folder: str
    counts: Mapping[str, Mapping[str, int]]
    """For each split, the number of images by class; for text, ``{"tokens": N}``."""
    # How many images have each size, colour mode and file format, the most frequent first.
    sizes: Mapping[str, int]
    modes: Mapping[str, int]
    formats: Mapping[str, int]
    problems: list[Mapping[str, str]]
    notes: list[str]

    def __str__(self) -> str:
        lines = [f"{self.folder}: {self.kind}"]
        lines += [f"  {name}: {_count_summary(classes)}" for name, classes in self.counts.items()]
        for name in ("sizes", "modes", "formats"):
            if counts := getattr(self, name):
                frequent = list(counts)[:MAX_PRINTED_VALUES]
                text = ", ".join(f"{value} ({counts[value]:,})" for value in frequent)
                omitted = len(counts) - len(frequent)
                lines.append(f"  {name}: {text}{f' and {omitted} others' if omitted else ''}")
        problems = [problem["problem"] for problem in self.problems]
        for kind, texts in (("note", self.notes), ("problem", problems)):
            lines += [f"  {kind}: {text}" for text in texts[:MAX_PRINTED]]
            if (omitted := len(texts) - MAX_PRINTED) > 0:
                lines.append(f"  … and {omitted:,} {kind}s more; the JSON output has all")
        if not problems:
            lines.append("  no problems")
        return "\n".join(lines)


def make(recipe: Recipe, on_progress: ProgressCallback) -> MadeDataset:
    """Write a data set; its folder appears under its name only when it is complete."""
    to, source = recipe.to, recipe.source
    request = {
        "do": "make",
        **asdict(recipe),
        "to": str(to.absolute()),
        "source": str(source.absolute()) if source else None,
    }
    answer = _ask_worker(request, on_progress)
    return MadeDataset(to, answer["classes"], answer["train"], answer["validation"], answer["edge"])


def check(folder: Path, on_progress: ProgressCallback) -> CheckedDataset:
    """Check every file of a data set."""
    return CheckedDataset(**_ask_worker({"do": "check", "folder": str(folder)}, on_progress))


@dataclass(frozen=True, slots=True)
class LoadingRate:
    """The loading speed with a number of workers."""

    workers: int
    rate: Estimate
    """Samples per second."""
    first: float
    """Seconds until the first batch."""


@dataclass(frozen=True, slots=True)
class LoadingBenchmark:
    """The loading speed of a data set on this machine."""

    data: str
    kind: str
    device: str
    samples: int
    shape: tuple[int, ...]
    """(Channels, height, width) of an image, or (tokens,) of a sequence."""
    batch: int
    rates: tuple[LoadingRate, ...]
    left_out: tuple[str, ...] = ()
    """Files that cannot be read."""

    def __str__(self) -> str:
        size = " × ".join(map(str, self.shape[::-1]))
        samples = f"images of {size}" if len(self.shape) > 1 else f"sequences of {size} tokens"
        lines = [
            f"{self.data}: {self.kind}, {self.samples:,} {samples}, batches of {self.batch}",
            f"loaded for {self.device}, without training",
            "workers  samples/s                each worker  first batch",
        ]
        for row in self.rates:
            per_worker = format_number(row.rate.value / max(1, row.workers))
            rate = format_estimate(row.rate)
            lines.append(f"{row.workers:>7}  {rate:<23}  {per_worker:>11}  {row.first:>9.2f} s")
        lines.append(skipped_sentence([SkippedFiles(len(self.left_out), self.left_out)]))
        return "\n".join(filter(None, lines))


def bench(data: str, options: Mapping[str, Any], on_progress: ProgressCallback) -> LoadingBenchmark:
    """Time the loading of a data set, as in a training run, with each number of workers."""
    answer = _ask_worker({"do": "bench", "data": data, **options}, on_progress)
    rates = []
    for row in answer.pop("rows"):
        seconds = np.array(row["seconds"])
        per_second = sum(row["read"]) / float(seconds.sum())
        rate = estimate_from_steps(per_second, seconds)
        rates.append(LoadingRate(row["workers"], rate, row["first"]))
    shape, left_out = tuple(answer.pop("shape")), tuple(answer.pop("left_out"))
    return LoadingBenchmark(data, shape=shape, rates=tuple(rates), left_out=left_out, **answer)


def _ask_worker(request: Mapping[str, Any], on_progress: ProgressCallback) -> Any:
    answer = stream_worker(
        "data", request, lambda message: on_progress(message["done"], message["total"])
    )
    if "problem" in answer:
        raise SpecError(answer["problem"], hint=answer["hint"])
    return answer


def _count_summary(classes: Mapping[str, int]) -> str:
    """Return the number of images and classes, and whether the classes are balanced."""
    if list(classes) == ["tokens"]:
        return f"{classes['tokens']:,} tokens"
    smallest, largest = min(classes, key=classes.__getitem__), max(classes, key=classes.__getitem__)
    per_class = f"{classes[smallest]:,} each"
    if classes[smallest] != classes[largest]:
        per_class = f"from {classes[smallest]:,} ({smallest}) to {classes[largest]:,} ({largest})"
    images = format_count(sum(classes.values()), "image")
    return f"{images} in {_format_class_count(len(classes))}, {per_class}"


def _format_class_count(count: int) -> str:
    return "1 class" if count == 1 else f"{count:,} classes"
