"""``cache.json``: what answers need of a finished run, computed once from its rank files.

The rank files remain the truth. The cache says what it was made from, and is ignored if that has
changed, if it is damaged, or if another version of scalewise wrote it. It may be deleted.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from scalewise.errors import RecordError
from scalewise.files import MEBIBYTE, read_file
from scalewise.record.json_files import parse_json, read_json
from scalewise.record.read import RankRecord, RunRecord, read_run
from scalewise.record.schema import RankNotes, arguments
from scalewise.record.write import SCHEMA, write_bytes
from scalewise.spec import RunSpec

NAME = "cache.json"
MAX_BYTES = 512 * MEBIBYTE
"""The largest cache that is read."""
CODE = ("analysis/measure", "analysis/explain", "record", "spec")
"""If a source file in these folders changes, cached values may not be what it would compute."""
_NOTE_KEYS = {item.metadata.get("key", item.name) for item in fields(RankNotes)}


@dataclass(frozen=True, slots=True)
class RunCache:
    """The content of a cache that fits its run."""

    record: RunRecord
    """Its steps, spans and lines are read from the rank files when they are first used."""
    values: Mapping[str, Any]
    """What was computed from the steps, by name, as JSON values."""


def read_cache(folder: Path, spec: RunSpec) -> RunCache | None:
    """Return the cache of a finished run; None if there is none that fits."""
    try:
        stored = parse_json(read_file(folder / NAME, MAX_BYTES, within=folder.parent))
        outcome = read_json(folder / "outcome.json")
        if stored["made_from"] != _made_from(folder, spec, outcome):
            return None
        content = stored["content"]
        if stored["checksum"] != _checksum(_encode(content)):
            return None
        hosts, (common, by_rank) = content["hosts"], content["notes"]
        shared = arguments(RankNotes, common)
        notes = [RankNotes(**shared, **arguments(RankNotes, own)) for own in by_rank]
        if not len(hosts) == len(notes) == outcome["ranks"]:
            return None
        return RunCache(_record(folder, spec, outcome, hosts, notes), dict(content["values"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, RecordError):
        return None  # Whatever is wrong with it: the rank files have everything.


def write_cache(record: RunRecord, values: Mapping[str, Any], made_from: Mapping[str, Any]) -> None:
    """Write the cache of a run whose rank files were read; in one piece, or not at all.
    ``made_from`` was taken before they were read: if a file changed since, nothing is written.
    """
    with suppress(OSError, RecordError, ValueError, TypeError):
        hosts = [rank.host for rank in record.ranks]
        content = _encode({"hosts": hosts, "notes": _notes(record.ranks), "values": values})
        if made_from != read_made_from(record.folder, record.spec):
            return
        text = (
            f'{{"schema":{SCHEMA},"made_from":{_encode(made_from)},'
            f'"checksum":"{_checksum(content)}","content":{content}}}\n'
        )
        write_bytes(record.folder / NAME, text.encode())


def _encode(values: Any) -> str:
    return json.dumps(values, separators=(",", ":"))


def _checksum(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def without_steps(record: RunRecord) -> RunRecord:
    """Return the record without its steps, which take most of its memory; they are read again
    when they are used. What was computed from it is not copied.
    """
    outcome = {
        "started": record.started, "ended": record.ended, "attempt": record.attempt,
        "later": record.later_processes, "sums": record.sums,
    }  # fmt: skip
    hosts = [rank.host for rank in record.ranks]
    notes = [rank.notes for rank in record.ranks]
    return _record(record.folder, record.spec, outcome, hosts, notes)


def _record(
    folder: Path,
    spec: RunSpec,
    outcome: Mapping[str, Any],
    hosts: Sequence[str],
    notes: Sequence[RankNotes],
) -> RunRecord:
    @cache
    def complete() -> RunRecord:
        return read_run(folder, spec)

    return RunRecord(
        folder=folder,
        spec=spec,
        started=outcome["started"],
        ended=outcome["ended"],
        environment=notes[0].environment,
        ranks=tuple(
            RankRecord.without_steps(rank, host, note, lambda rank=rank: complete().ranks[rank])  # type: ignore[misc]
            for rank, (host, note) in enumerate(zip(hosts, notes, strict=True))
        ),
        attempt=outcome["attempt"],
        sums=outcome.get("sums", {}),
        later_processes=outcome.get("later", 0),
    )


def _notes(ranks: Sequence[RankRecord]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what all ranks noted alike, once, and what each noted otherwise."""
    by_rank = []
    for rank in ranks:
        newest: dict[str, Any] = {}
        for line in rank.lines:
            newest.update({key: line[key] for key in line.keys() & _NOTE_KEYS})
        by_rank.append(newest)
    texts = [{key: json.dumps(value) for key, value in notes.items()} for notes in by_rank]
    common = {
        key for key, text in texts[0].items() if all(other.get(key) == text for other in texts)
    }
    alike = {key: value for key, value in by_rank[0].items() if key in common}
    return alike, [
        {key: value for key, value in notes.items() if key not in common} for notes in by_rank
    ]


def read_made_from(folder: Path, spec: RunSpec) -> dict[str, Any]:
    """Return what a cache of this run would follow from now."""
    return _made_from(folder, spec, read_json(folder / "outcome.json"))


def _made_from(folder: Path, spec: RunSpec, outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a cache follows from: the outcome, the files of ranks and nodes, the code."""
    with os.scandir(folder) as entries:
        files = sorted(
            (entry.name, (stat := entry.stat()).st_size, stat.st_mtime_ns)
            for entry in entries
            if entry.name.endswith(".jsonl")  # The files of ranks and nodes.
        )
    return {
        "spec": spec.id,
        "outcome": dict(outcome),
        "files": _checksum(_encode(files)),
        "code": _code_digest(),
    }


@cache
def _code_digest() -> str:
    """Return a digest of the source files that cached values depend on."""
    root = Path(__file__).parent.parent
    digest = blake2b(digest_size=16)
    for folder in CODE:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
