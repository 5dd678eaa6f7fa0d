"""Read run folders: records of what every rank did, and when.

Readers ignore what they do not know, pass over a line that was cut off, and
refuse a folder of a newer major version. Only the attempt that ended well is
read; what earlier attempts left behind stays where it is.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewise.errors import RecordError
from scalewise.record.files import read_json, read_spec
from scalewise.record.write import SCHEMA, rank_file
from scalewise.spec import RunSpec

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Span:
    """One part of a rank's life, in wall-clock seconds."""

    name: str
    start: float
    end: float
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Steps:
    """One rank's optimizer steps: those kept one by one, as columns."""

    index: NDArray[np.int64]
    seconds: Numbers
    samples: NDArray[np.int64]
    phases: Mapping[str, Numbers]


@dataclass(frozen=True)
class RankRecord:
    """What one rank did."""

    rank: int
    host: str
    spans: tuple[Span, ...]
    lines: tuple[Mapping[str, Any], ...]
    """Every line of the attempt, as written."""

    @cached_property
    def steps(self) -> Steps:
        """The steps that were kept one by one."""
        kept = [line for line in self.lines if "each" in line]
        phases = list(dict.fromkeys(name for line in kept for name in line["phases"]))
        return Steps(
            index=_column([line["index"] for line in kept], np.int64),
            seconds=_column([line["each"]["seconds"] for line in kept], np.float64),
            samples=_column([line["each"]["samples"] for line in kept], np.int64),
            phases={
                name: _column(
                    [line["each"].get(name) or [0.0] * len(line["index"]) for line in kept],
                    np.float64,
                )
                for name in phases
            },
        )

    def find(self, key: str) -> Any:
        """Return the newest value of ``key``, or nothing."""
        return next((line[key] for line in reversed(self.lines) if key in line), None)


@dataclass(frozen=True)
class RunRecord:
    """A run that ended well."""

    folder: Path
    spec: RunSpec
    started: float
    ended: float
    environment: Mapping[str, Any]
    ranks: tuple[RankRecord, ...]


def read_run(folder: Path) -> RunRecord:
    """Return what happened in a run that ended well."""
    outcome = read_json(folder / "outcome.json")
    spec = read_spec(folder)
    try:
        attempt, count = outcome["attempt"], outcome["ranks"]
        ranks = tuple(read_rank(folder, rank, attempt) for rank in range(count))
        return RunRecord(
            folder=folder,
            spec=spec,
            started=outcome["started"],
            ended=outcome["ended"],
            environment=ranks[0].find("environment"),
            ranks=ranks,
        )
    except (KeyError, TypeError) as why:
        raise RecordError(
            f"{folder} is damaged: {why!r} is missing",
            hint="`scalewise run --again` repeats the study",
        ) from why


def read_rank(folder: Path, rank: int, attempt: int) -> RankRecord:
    """Return what one rank did in one attempt; lines that were cut off are passed over."""
    path = rank_file(folder, rank)
    try:
        texts = path.read_bytes().splitlines()
    except OSError as why:
        raise RecordError(
            f"cannot read {path}: {why.strerror}", hint="`scalewise run --again` repeats the study"
        ) from why
    lines = []
    for text in texts:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and line.get("attempt") == attempt:
            if line.get("schema", SCHEMA) > SCHEMA:
                raise RecordError(
                    f"{path} has schema {line['schema']}, and this scalewise reads up to {SCHEMA}",
                    hint="upgrade scalewise",
                )
            lines.append(line)
    if not any("ended" in line for line in lines):
        raise RecordError(
            f"{path} is cut off: the rank's last line is missing",
            hint="`scalewise run --again` repeats the study",
        )
    spans = tuple(
        Span(line["span"], line["start"], line["end"], line) for line in lines if "span" in line
    )
    host = next((line["host"] for line in reversed(lines) if "host" in line), "")
    return RankRecord(rank, host, spans, tuple(lines))


def _column(parts: list[list[Any]], kind: Any) -> NDArray[Any]:
    return np.array([value for part in parts for value in part], dtype=kind)
