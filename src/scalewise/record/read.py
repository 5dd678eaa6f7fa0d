"""Read the successful attempt of a run's folder; unknown keys and cut-off lines are ignored."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewise.errors import RecordError, shown
from scalewise.record import batch_sharing
from scalewise.record.check_rank import check_line, check_outcome
from scalewise.record.check_totals import check_rank_totals, check_ranks
from scalewise.record.json_files import newer_schema, read_json
from scalewise.record.line_sums import REPEAT, read_attempt
from scalewise.record.schema import (
    COMMUNICATION,
    STEPS,
    Outline,
    RankNotes,
    Sketch,
    SketchSamples,
    from_json,
)
from scalewise.record.write import SCHEMA, rank_file
from scalewise.spec import RunSpec

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Span:
    """One part of a rank's time from launch to end, in wall-clock seconds."""

    name: str
    start: float
    end: float
    epoch: int = 0
    samples: int = 0
    """Samples that this rank trained on during the span."""
    steps: int | None = None
    """Optimizer steps during the span, if they were counted."""
    checkpoint_step: int | None = None
    """For a checkpoint during training, the step after which it was written."""


@dataclass(frozen=True)
class Steps:
    """One rank's optimizer steps, as columns. Of a long run, the file has only some steps."""

    index: NDArray[np.int64]
    seconds: Numbers
    samples: NDArray[np.int64]
    phases: Mapping[str, Numbers]
    """Seconds by phase; NaN for a step in which the phase was not measured."""
    at: Numbers | None = None
    """When each step began, by the wall clock; None if that was not recorded."""

    def select(self, chosen: NDArray[np.bool_]) -> "Steps":
        """Return the steps at which ``chosen`` is true."""
        return Steps(
            index=self.index[chosen],
            seconds=self.seconds[chosen],
            samples=self.samples[chosen],
            phases={name: column[chosen] for name, column in self.phases.items()},
            at=None if self.at is None else self.at[chosen],
        )


@dataclass(frozen=True)
class RankRecord:
    """The measurements of one rank."""

    rank: int
    host: str
    spans: tuple[Span, ...]
    steps: Steps
    """The steps that count as measurements; those in ``traced`` are not among them."""
    lines: tuple[Mapping[str, Any], ...]
    """Every line of the attempt, without the values of single steps."""
    # A default value would be found on the class, and never be read from the files.
    traced: Steps | None = field(default_factory=lambda: None)
    """The steps that a profiler slowed down, and the steps around these."""

    @classmethod
    def without_steps(
        cls, rank: int, host: str, notes: RankNotes, read: Callable[[], "RankRecord"]
    ) -> "RankRecord":
        """Return a record whose steps, spans and lines are read when they are first used."""
        record = cls.__new__(cls)
        record.__dict__.update(rank=rank, host=host, notes=notes, _read=read)
        return record

    def __getattr__(self, name: str) -> Any:  # Called only for what the record does not have yet.
        if name.startswith("_") or "_read" not in self.__dict__:
            raise AttributeError(name)
        complete = self.__dict__["_read"]()
        del self.__dict__["_read"]  # Only now: if reading fails, the next use says why again.
        self.__dict__.update({part.name: getattr(complete, part.name) for part in fields(complete)})
        return getattr(self, name)

    @cached_property
    def notes(self) -> RankNotes:
        """The newest value of everything that the rank noted beside its steps and spans."""
        return RankNotes.from_lines(reversed(self.lines))

    @cached_property
    def sketches(self) -> tuple[Sketch, ...]:
        """The sketches of a run with ``certify``, in the order in which they were made; else empty.

        ``notes.certificate`` has the conditions, and why sketches are missing.
        """
        return tuple(Sketch.from_line(line["sketch"]) for line in self.lines if "sketch" in line)

    @cached_property
    def sketch_samples(self) -> tuple[SketchSamples, ...]:
        """The samples of each sketched step of a run with ``certify``; else empty."""
        lines = (line["sketch_samples"] for line in self.lines if "sketch_samples" in line)
        return tuple(from_json(SketchSamples, line) for line in lines)

    @property
    def outline(self) -> Outline:
        """The planned work of the rank; every rank that ended has written it."""
        assert self.notes.outline is not None
        return self.notes.outline


@dataclass(frozen=True)
class RunRecord:
    """A run that succeeded."""

    folder: Path
    spec: RunSpec
    started: float
    ended: float
    environment: Mapping[str, Any]
    ranks: tuple[RankRecord, ...]
    attempt: int = 1  # The number of the attempt that succeeded.
    sums: Mapping[str, str] = field(default_factory=dict)
    """The sum after the last line of each file of ranks and nodes when the run ended."""
    later_processes: int = 0
    """Processes that trained as a rank after the first one had ended; they were not recorded."""
    values: dict[str, Any] = field(init=False, compare=False, repr=False, default_factory=dict)
    """What was computed from this record already, by name (``analysis.measure.cached_value``)."""


def read_run(folder: Path, spec: RunSpec) -> RunRecord:
    """Return the record of a run of ``spec`` that succeeded."""
    outcome = read_json(folder / "outcome.json")
    check_outcome(folder / "outcome.json", outcome)
    if lost := outcome.get("lost"):
        names = ", ".join(map(str, lost))
        raise RecordError(
            f"{folder} lost rank {names} and went on with the others: its device count changed",
            hint=REPEAT,
        )
    try:
        attempt, count = outcome["attempt"], outcome["ranks"]
        runs, sums = {spec.id, folder.name}, outcome.get("sums", {})
        ranks = tuple(
            read_rank(folder, rank, attempt, runs, sums.get(rank_file(folder, rank).name), spec)
            for rank in range(count)
        )
        if not sums:
            check_ranks(folder, spec, outcome, [rank.lines for rank in ranks])
        if spec.samples_per_step:
            ranks = tuple(_with_stated_samples(rank, spec.samples_per_step) for rank in ranks)
        elif spec.program and not any(map(_shows_samples, ranks)):
            # The steps themselves are counted, those of rank 0 for all ranks.
            ranks = tuple(_with_stated_samples(rank, int(rank.rank == 0), STEPS) for rank in ranks)
        else:
            parts = batch_sharing.parts([rank.notes.facts for rank in ranks])
            ranks = tuple(map(_with_own_samples, ranks, parts))
        return RunRecord(
            folder=folder,
            spec=spec,
            started=outcome["started"],
            ended=outcome["ended"],
            environment=ranks[0].notes.environment,
            ranks=ranks,
            attempt=attempt,
            sums=sums,
            later_processes=outcome.get("later", 0),
        )
    except (KeyError, TypeError) as error:
        raise RecordError(f"{folder} is damaged: {shown(error)} is missing", hint=REPEAT) from error


def _shows_samples(rank: RankRecord) -> bool:
    """Return whether at least half of the rank's steps have samples: a program's input may show
    them only now and then.
    """
    samples = rank.steps.samples
    return bool(rank.outline.seen and 2 * np.count_nonzero(samples) >= len(samples))


def _with_own_samples(rank: RankRecord, part: batch_sharing.Part) -> RankRecord:
    """Return a rank's record in which samples shared by several ranks are divided among these."""
    index, part_count = part
    if part_count == 1:
        return rank

    def own(samples: Any) -> Any:
        # If there is a remainder, the first ranks get one more, so that all samples are counted.
        return (samples + part_count - 1 - index) // part_count

    def with_own(line: Mapping[str, Any]) -> dict[str, Any]:
        changed = dict(line)
        if isinstance(line.get("samples"), int):
            changed["samples"] = own(line["samples"])
        if "outline" in line:
            changed["outline"] = line["outline"] | {"seen": own(line["outline"]["seen"])}
        if rate := (line.get("loader") or {}).get("rate"):
            changed["loader"] = line["loader"] | {"rate": rate / part_count}
        return changed

    return replace(
        rank,
        spans=tuple(replace(span, samples=own(span.samples)) for span in rank.spans),
        steps=replace(rank.steps, samples=own(rank.steps.samples)),
        lines=tuple(with_own(line) for line in rank.lines),
        traced=rank.traced and replace(rank.traced, samples=own(rank.traced.samples)),
    )


def _with_stated_samples(rank: RankRecord, per_step: int, unit: str = "") -> RankRecord:
    """Return a rank's record with this many samples in each step, in another ``unit`` if given."""

    def with_stated(line: Mapping[str, Any]) -> dict[str, Any]:
        changed = dict(line)
        if "samples" in line and "steps" in line:
            first, end = line["steps"]
            changed["samples"] = per_step * (end - first)
        elif "samples" in line and "taken" in line:
            changed["samples"] = per_step * line["taken"]
        if "outline" in line:
            outline = line["outline"]
            changed["outline"] = outline | {"seen": per_step * outline["steps"]}
            if unit:
                changed["outline"]["unit"] = unit
        return changed

    def stated(steps: Steps) -> Steps:
        return replace(steps, samples=np.full_like(steps.samples, per_step))

    return replace(
        rank,
        spans=tuple(replace(span, samples=per_step * (span.steps or 0)) for span in rank.spans),
        steps=stated(rank.steps),
        lines=tuple(map(with_stated, rank.lines)),
        traced=rank.traced and stated(rank.traced),
    )


def read_rank(
    folder: Path,
    rank: int,
    attempt: int,
    runs: Collection[str] = (),
    stored_sum: str | None = None,
    spec: RunSpec | None = None,
) -> RankRecord:
    """Return what one rank recorded in one attempt; for ``runs`` and ``stored_sum``, see
    ``read_attempt``. If the ``spec`` of the run is given, numbers must agree with each other.
    """
    path = rank_file(folder, rank)
    numbered = []
    for number, line in read_attempt(path, attempt, runs, stored_sum):
        if type(version := line.get("schema")) is int and version > SCHEMA:
            raise newer_schema(path, version)
        check_line(path, number, line)
        numbered.append((number, line))
    lines = [line for _, line in numbered]
    for required in ("outline", "ended"):
        if not any(required in line for line in lines):
            raise RecordError(
                f"{path} is cut off: its line {shown(required)} is missing", hint=REPEAT
            )
    if spec and stored_sum is None:
        check_rank_totals(path, numbered, rank, spec)
    spans = tuple(
        Span(
            line["span"], line["start"], line["end"], line.get("epoch", 0),
            line.get("samples", 0), steps=line.get("taken"), checkpoint_step=line.get("step"),
        )
        for line in lines
        if "span" in line
    )  # fmt: skip
    host = next((line["host"] for line in reversed(lines) if "host" in line), "")
    steps, traced = _steps(lines)
    return RankRecord(rank, host, spans, steps, tuple(lines), traced)


def _steps(lines: list[dict[str, Any]]) -> tuple[Steps, Steps | None]:
    """Move the values of single steps from ``lines`` to arrays: measured steps, traced steps."""
    parts = [(line.pop("index"), line.pop("each")) for line in lines if "each" in line]
    names = list(dict.fromkeys(name for _, columns in parts for name in columns))

    def column(name: str, kind: Any) -> NDArray[Any]:
        default = np.nan if name in COMMUNICATION else 0.0
        values = [columns.get(name) or [default] * len(index) for index, columns in parts]
        return np.array(list(chain.from_iterable(values)), dtype=kind)

    not_phases = ("seconds", "samples", "at", "traced")
    all_steps = Steps(
        index=np.array([number for index, _ in parts for number in index], dtype=np.int64),
        seconds=column("seconds", np.float64),
        samples=column("samples", np.int64),
        phases={name: column(name, np.float64) for name in names if name not in not_phases},
        at=column("at", np.float64) if "at" in names else None,
    )
    if "traced" not in names:
        return all_steps, None
    traced = column("traced", np.float64) == 1
    return all_steps.select(~traced), all_steps.select(traced)
