"""Import logs: the runs of files and folders that other programs wrote."""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from scalewise.analysis.measure.logs import (
    DeviceCount,
    Log,
    LogOptions,
    LogRun,
    NotALog,
    read_log,
    summarize_log,
)
from scalewise.analysis.measure.logs.device_count import device_count_of_name, device_counts
from scalewise.analysis.measure.logs.event_file import EVENT_FILE, is_event_file
from scalewise.analysis.measure.logs.exported import without_means
from scalewise.analysis.measure.table_layout import is_table
from scalewise.errors import NotReadable, RecordError, ScalewiseError, SpecError, parameter, shown
from scalewise.files import access_hint, open_regular

MAX_FILES = 2000
"""Files of a folder that are looked at."""
MAX_BYTES = 4 * 2**20
"""Of a larger text, the first and the last half of this is read."""
MAX_EVENT_BYTES = 64 * 2**20
"""Of a larger event file, so much is read: it may hold images and graphs."""
SAID = "as given"
VALIDATION_FOLDERS = ("validation", "eval")
"""Where Keras and TensorFlow keep the event files of a validation."""
LIGHTNING_SETTINGS = "hparams.yaml"
"""The file beside ``metrics.csv`` in which Lightning keeps a run's settings."""
TABLE_SUFFIXES = (".csv", ".tsv", ".md")
MAX_TABLE = 2**20
"""A larger file is no table of device counts."""
DOCUMENT_SUFFIXES = (".md", ".rst", ".tex", ".html", ".htm", ".py", ".ipynb", ".sh", ".c", ".cpp")
"""Text and programs about trainings: a rate in them was not measured by a run."""
FORMATS_HINT = (
    "known are lines that PyTorch, Keras, Horovod, DeepSpeed, Hugging Face and others print, "
    "MLPerf logs, TensorBoard event files, CSV logs and JSON lines: docs/guides/import-logs.md"
)


@dataclass(frozen=True, slots=True)
class LogSource:
    """A file or folder to import, and the number of devices if the user gave it."""

    path: Path
    devices: int | None = None
    nodes: int | None = None

    @classmethod
    def parse(cls, text: str) -> "LogSource":
        """Return the source of ``run.log``, ``4=run.log`` or ``2x4=run.log``.

        >>> LogSource.parse("2x4=run.log")
        LogSource(path=PosixPath('run.log'), devices=8, nodes=2)
        """
        given = re.fullmatch(r"(?:(\d{1,5})x)?(\d{1,7})=(.+)", text, re.DOTALL | re.ASCII)
        if not given or Path(text).exists():
            return cls(Path(text))
        nodes = int(given[1]) if given[1] else None
        devices = int(given[2]) * (1 if nodes is None else nodes)
        if not devices:
            raise SpecError(f"{shown(text)} gives 0 devices", hint=f"for example 1={given[3]}")
        return cls(Path(given[3]), devices, nodes)


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """A run's log, and the file it is from."""

    path: Path
    source: LogSource
    log: Log
    is_cut: bool
    """Whether the file was too large to be read completely."""


@dataclass(frozen=True, kw_only=True)
class ImportedLogs:
    """Runs by number of devices, the files of folders that are no logs, and what went wrong."""

    runs: list[LogRun] = field(default_factory=list)
    skipped: list[tuple[Path, str]] = field(default_factory=list)
    """The file and the reason."""
    problems: list[ScalewiseError] = field(default_factory=list)
    """One for each log that could not be imported."""


def import_logs(sources: Sequence[LogSource], options: LogOptions) -> ImportedLogs:
    """Return the runs of logs, and the problems of those that cannot be imported; raise SpecError
    if the logs do not belong together.
    """
    loaded: list[LoadedLog] = []
    imported = ImportedLogs()
    for source in sources:
        try:
            loaded += _load(source, imported)
        except ScalewiseError as problem:
            imported.problems.append(problem)
    _refuse_several_curves([item.log for item in loaded])
    used = set(map(id, without_means([item.log for item in loaded])))
    for item in loaded:
        if id(item.log) in used:
            try:
                imported.runs.append(_run(item, options))
            except ScalewiseError as problem:
                imported.problems.append(problem)
    _check_units(imported.runs)
    imported.runs.sort(key=lambda run: run.devices)
    return imported


def _load(source: LogSource, imported: ImportedLogs) -> list[LoadedLog]:
    """Return the logs of a file or folder; of a folder, note the other files in ``imported``."""
    loaded: list[LoadedLog] = []
    for path in _files(source.path):
        try:
            loaded += _read(path, source)
        except NotALog as problem:
            if not source.path.is_dir():
                text = f"{path} is not a log that can be imported: {problem}"
                raise SpecError(text, hint=FORMATS_HINT) from problem
            imported.skipped.append((path, str(problem)))
        except ScalewiseError as problem:
            if not source.path.is_dir():
                raise
            imported.problems.append(problem)
    if not loaded:
        text = f"no file of {source.path} is a log with a throughput or a time"
        raise SpecError(text, hint=FORMATS_HINT)
    return loaded


def _files(path: Path) -> list[Path]:
    """Return a file, or all files of a folder except hidden ones."""
    if (path / "study.json").exists():
        raise SpecError(
            f"{path} is a study folder, not a log",
            hint=f"all verbs read it as it is: scalewise summary {shlex.quote(str(path))}",
        )
    if not path.is_dir():
        return [path]
    files: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [Path(folder, name) for name in sorted(names) if not name.startswith(".")]
        if len(files) > MAX_FILES:
            raise SpecError(
                f"{path} has more than {MAX_FILES} files", hint="name the logs, or their folder"
            )
    return [file for file in files if file.is_file()]


def _read(path: Path, source: LogSource) -> list[LoadedLog]:
    """Return the runs of a file."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = _read_bytes(file, size, path)
        settings = path.with_name(LIGHTNING_SETTINGS)
        text = _read_settings(settings) if settings.is_file() else ""
    except NotReadable:
        raise
    except OSError as error:
        problem = f"cannot read {path}: {error.strerror}"
        raise RecordError(problem, hint=access_hint(error)) from error
    if path.suffix in TABLE_SUFFIXES and size < MAX_TABLE and is_table(data):
        hint = f"all verbs read it as it is: scalewise summary {shlex.quote(str(path))}"
        raise SpecError(f"{path} is a table, not a log", hint=hint)
    if path.suffix.lower() in DOCUMENT_SUFFIXES:
        raise NotALog(f"a file that ends in {path.suffix} is a document or a program")
    logs = read_log(data)
    for log in logs:
        if log.format == EVENT_FILE and log.curve is not None:  # CURVE/RUN/events…
            log.curve = str(path.parent.parent)
        if text and not log.device_counts:
            log.device_counts = [
                replace(count, where=f"{LIGHTNING_SETTINGS}, {count.where}")
                for count in device_counts(text)
            ]
    return [LoadedLog(path, source, log, is_cut=size > len(data)) for log in logs]


def _read_settings(path: Path) -> str:
    with open_regular(path) as file:
        return file.read(MAX_BYTES).decode(errors="replace")


def _read_bytes(file: BinaryIO, size: int, path: Path) -> bytes:
    """Return the bytes of a file; of a large text, those of its beginning and its end."""
    data = file.read(MAX_BYTES)
    if is_event_file(data):
        if path.parent.name in VALIDATION_FOLDERS:
            raise NotALog("it is that of the validation")
        data += file.read(MAX_EVENT_BYTES)
    elif size > MAX_BYTES:
        file.seek(-(MAX_BYTES // 2), os.SEEK_END)
        data = data[: MAX_BYTES // 2] + b"\n" + file.read(MAX_BYTES // 2)
    return data


def _run(loaded: LoadedLog, options: LogOptions) -> LogRun:
    log, path = loaded.log, loaded.path
    name = f"{path}: {log.name}" if log.name else str(path)
    run = summarize_log(name, log, _device_count(path, loaded.source, log), options)
    if run is None:
        raise SpecError(
            f"{name} gives steps per second only, and no samples per step",
            hint=f"say the global batch: {parameter('batch', 256)}",
        )
    return replace(run, cut=loaded.is_cut, origin=str(loaded.source.path))


def _refuse_several_curves(logs: Sequence[Log]) -> None:
    curves = list(dict.fromkeys(log.curve for log in logs if log.curve is not None))
    if len(curves) > 1:
        names = ", ".join(curve or "one without a name" for curve in curves[:4])
        raise SpecError(
            f"the files have {len(curves)} curves: {names}",
            hint="a table holds one: import the folder, or write the file, of one curve",
        )


def _device_count(path: Path, source: LogSource, log: Log) -> DeviceCount:
    """Return the number of devices that the user, the log or its name gives."""
    in_log = {count.devices: count for count in log.device_counts}
    if source.devices:
        others = [c for c in in_log.values() if c.devices != source.devices]
        where = f"{SAID}; {others[0].where} says {others[0].devices}" if others else SAID
        return DeviceCount(source.devices, where, source.nodes)
    if len(in_log) > 1:
        first, second = list(in_log.values())[:2]
        raise SpecError(
            f"{path} gives two numbers of devices: {first.devices} ({first.where}) and "
            f"{second.devices} ({second.where})",
            hint=_devices_hint(path, first.devices),
        )
    by_name = device_count_of_name(path)
    if in_log:
        (count,) = in_log.values()
        if by_name and by_name.devices != count.devices:
            raise SpecError(
                f"{path}: {count.where} says {count.devices} devices, {by_name.where} says "
                f"{by_name.devices}",
                hint=_devices_hint(path, count.devices),
            )
        return count
    if by_name is None:
        problem = f"{path} does not say on how many devices it ran, nor does its name"
        raise SpecError(problem, hint=_devices_hint(path, "N"))
    return by_name


def _devices_hint(path: Path, devices: int | str) -> str:
    return f"say the number of devices: scalewise import {shlex.quote(f'{devices}={path}')}"


def _check_units(runs: Sequence[LogRun]) -> None:
    units = {run.unit: run for run in runs if run.unit not in (None, "samples")}
    if len(units) > 1:
        first, second = list(units.values())[:2]
        raise SpecError(
            f"{first.name} counts {first.unit}, {second.name} counts {second.unit}",
            hint="import logs of one training",
        )
