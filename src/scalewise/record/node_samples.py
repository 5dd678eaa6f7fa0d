"""Read the samples of each node's load and power. Unknown values in arrays are NaN, others None."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.errors import RecordError, shown
from scalewise.record.json_files import newer_schema
from scalewise.record.line_sums import read_attempt
from scalewise.record.read import Numbers, RunRecord
from scalewise.record.write import SCHEMA


@dataclass(frozen=True, kw_only=True)
class DeviceRecord:
    """One physical device; its arrays have a value for each of the node's samples."""

    index: int
    name: str | None
    uuid: str | None
    driver: str | None
    memory_total: float | None
    power_limit: float | None
    """The highest power that the device may draw, in watts."""
    utilisation: Numbers
    """The share of time, 0 to 1, in which any kernel ran on the device."""
    memory: Numbers  # Bytes in use.
    power: Numbers  # Watts.
    clock: Numbers
    """MHz of the multiprocessors."""
    temperature: Numbers
    """Degrees Celsius."""
    energy: Numbers
    """Joules, counted since the driver was loaded."""
    own: Numbers
    """How many of the run's processes compute on the device."""
    foreign: Numbers
    """How many processes that are not the run's compute on the device."""


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """One machine during one attempt."""

    host: str
    interval: float
    """Seconds between two samples, as planned."""
    cores: int | None
    memory_total: float | None
    at: Numbers
    """When each sample was taken, by the wall clock; strictly increasing."""
    cpu: Numbers
    """The busy share of all cores since the previous sample."""
    own: Numbers
    """The share of all cores that the run's own processes used."""
    memory: Numbers  # Bytes in use.
    energy: Numbers
    """Joules of the processors, counted since the sampler started."""
    spent: Numbers
    """Seconds of processor time that the sampler itself has used."""
    devices: tuple[DeviceRecord, ...]
    ahead: float | None = None
    """Seconds by which this node's clock is ahead of the first node's, from the fastest reply."""
    within: float | None = None
    """The largest possible error of ``ahead``, in seconds."""


def read_nodes(
    folder: Path, attempt: int, runs: Collection[str] = (), sums: Mapping[str, str] | None = None
) -> tuple[NodeRecord, ...]:
    """Return the samples of one attempt: one record per machine, sorted by name. ``sums`` are those
    of the run's outcome, see ``read_attempt``.
    """
    nodes = []
    stored = {name: total for name, total in (sums or {}).items() if name.startswith("node-")}
    for path in sorted({*folder.glob("node-*.jsonl"), *(folder / name for name in stored)}):
        try:
            nodes.append(_read_node(path, attempt, runs, stored.get(path.name)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(f"{path} is damaged: {shown(error)}") from error
    return tuple(node for node in nodes if node is not None)


class RunNodes(Sequence[NodeRecord]):
    """The samples of a run's machines, read when first used; empty if they cannot be read."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self.problem: RecordError | None = None
        """Why they cannot be read, once they were read."""

    @cached_property
    def _nodes(self) -> tuple[NodeRecord, ...]:
        record = self._record
        try:
            runs = {record.spec.id, record.folder.name}
            return read_nodes(record.folder, record.attempt, runs, record.sums)
        except RecordError as problem:
            self.problem = problem
            return ()

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, index: Any) -> Any:
        return self._nodes[index]


def node_problem(record: RunRecord) -> RecordError | None:
    """Return why the samples of a run's machines cannot be read; None if they can."""
    nodes = RunNodes(record)
    len(nodes)  # Reads them.
    return nodes.problem


def node_samples_by_folder(records: Iterable[RunRecord]) -> dict[Path, RunNodes]:
    """Return the samples of each run's machines, by run folder."""
    return {record.folder: RunNodes(record) for record in records}


def _read_node(
    path: Path, attempt: int, runs: Collection[str], stored_sum: str | None
) -> NodeRecord | None:
    """Return one machine's record, or None if the file has no line of this attempt."""
    header: Mapping[str, Any] | None = None
    samples: list[Mapping[str, Any]] = []
    for _, line in read_attempt(path, attempt, runs, stored_sum):
        if "schema" in line:
            if line["schema"] > SCHEMA:
                raise newer_schema(path, line["schema"])
            header, samples = line, []
        # Skip samples after the clock was set back, because readers need increasing times.
        elif "at" in line and (not samples or line["at"] > samples[-1]["at"]):
            samples.append(line)
    if header is None:
        return None
    offsets = [(row["within"], row["ahead"]) for row in samples if "within" in row]
    within, ahead = min(offsets, default=(None, None))
    return NodeRecord(
        host=header["host"],
        interval=header["interval"],
        cores=header.get("cores"),
        memory_total=header.get("memory"),
        **_columns(samples, "at", "cpu", "own", "memory", "energy", "spent"),
        devices=tuple(_device(facts, samples) for facts in header.get("devices") or []),
        ahead=ahead,
        within=within,
    )


def _device(facts: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> DeviceRecord:
    index = facts["index"]
    rows: list[Mapping[str, Any]] = [
        next((row for row in sample.get("devices") or [] if row.get("index") == index), {})
        for sample in samples
    ]
    return DeviceRecord(
        index=index,
        name=facts.get("name"),
        uuid=facts.get("uuid"),
        driver=facts.get("driver"),
        memory_total=facts.get("memory"),
        power_limit=facts.get("power_limit"),
        **_columns(
            rows, "utilisation", "memory", "power", "clock", "temperature", "energy", "own",
            "foreign",
        ),
    )  # fmt: skip


def _columns(rows: Sequence[Mapping[str, Any]], *names: str) -> dict[str, Any]:
    """Return an array for each name; ``null`` and missing values become NaN."""
    return {name: np.array([row.get(name) for row in rows], dtype=np.float64) for name in names}
