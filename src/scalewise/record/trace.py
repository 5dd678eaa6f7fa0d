"""Read a rank's trace, and our laps (phases) of its steps, in seconds since the first lap began."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

from scalewise.errors import RecordError, parameter
from scalewise.files import MEBIBYTE, open_regular
from scalewise.record.json_files import parse_json, read_json
from scalewise.record.write import laps_file, trace_file

MAX_TRACE_BYTES = 1024 * MEBIBYTE
"""The longest trace that is read, unpacked."""
KINDS = ("cpu_op", "user_annotation", "kernel", "gpu_memcpy", "gpu_memset")
"""The categories of events that show work or waiting; events of other categories repeat these."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that ran on a thread of the host or on a stream of a device."""

    name: str
    kind: str
    thread: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Lap:
    """A part of a traced step as the watcher recorded it, by the host's clock."""

    step: int
    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Trace:
    """One rank's traced steps."""

    rank: int
    events: tuple[Event, ...]
    laps: tuple[Lap, ...]


def read_traces(folder: Path, ranks: int) -> tuple[Trace, ...]:
    """Return the traces of a run; not every rank has a trace."""
    return tuple(
        read_trace(folder, rank)
        for rank in range(ranks)
        if trace_file(folder, rank).exists() and laps_file(folder, rank).exists()
    )


def read_trace(folder: Path, rank: int) -> Trace:
    """Return one rank's trace with its laps."""
    laps = read_json(laps_file(folder, rank))["laps"]
    path = trace_file(folder, rank)
    try:
        with open_regular(path, within=folder.parent) as file, gzip.open(file) as unpacked:
            content = unpacked.read(MAX_TRACE_BYTES + 1)
        if len(content) > MAX_TRACE_BYTES:
            raise ValueError(f"it has more than {MAX_TRACE_BYTES // MEBIBYTE} MiB")
        values = parse_json(content)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise RecordError(
            f"cannot read {path}: {error}",
            hint=f"run it again with {parameter('again', value=True)}",
        ) from error
    origin = laps[0]["at"] if laps else 0.0
    shift = values.get("baseTimeNanoseconds", 0) / 1e9 - origin  # From the trace's times to ours.
    return Trace(
        rank=rank,
        events=tuple(
            Event(
                name=item["name"],
                kind=item["cat"],
                thread=f"{item['pid']}/{item['tid']}",
                start=item["ts"] / 1e6 + shift,
                end=item["ts"] / 1e6 + shift + item["dur"] / 1e6,
            )
            for item in values["traceEvents"]
            if item.get("ph") == "X" and item.get("cat") in KINDS
        ),
        laps=tuple(
            Lap(item["step"], item["name"], item["at"] - origin, item["until"] - origin)
            for item in laps
        ),
    )
