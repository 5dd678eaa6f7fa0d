"""The number of devices of a log: from its lines, or from the name of its file.

``DEVICE_LINES`` and ``NAME_PATTERNS`` are the tables; add an entry for what your programs print.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from scalewise.analysis.measure.logs.log import DeviceCount
from scalewise.analysis.measure.table_numbers import MAX_DEVICES

DEVICE_KEYS = ("devices", "world_size", "num_gpus", "gpus", "num_devices", "n_gpus",
               "number_of_ranks", "number_of_devices", "number_of_accelerators")  # fmt: skip
"""Keys of JSON lines, and of values and metadata of MLPerf's events, that give the number of
devices. The rules of MLPerf ask for none of them.
"""
MAX_OCCURRENCES = 200
"""Lines with one word that are looked at: a device count is printed at the start or the end."""
MAX_LINE = 1000
"""Characters of a line that are looked at."""
_DEVICE = r"(?:gpu|device|accelerator|tpu|npu|hpu|gcd|chip)"
_IS = r"['\"]?(?:\(s\))?\s*[:=]?\s*['\"]?"


@dataclass(frozen=True)
class FactLines:
    """Patterns of lines that give a count; each begins with the words that make the search fast."""

    patterns: tuple[tuple[str, str], ...]
    """A word of the line, in lower case, and the pattern whose first group is the count."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the patterns."""
        return tuple(word for word, _ in self.patterns)

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the line number and the count of each line that gives one."""
        lower = text.lower()
        for word, pattern in self.patterns:
            regex = re.compile(pattern)
            for number, line in _lines_with(lower, word):
                if match := regex.search(line):
                    count = int(match[1]) if len(match[1]) < 9 else 0
                    if 0 < count <= MAX_DEVICES:
                        yield number, count


DEVICE_LINES = FactLines(
    (
        ("world", rf"\bworld[ _-]?size{_IS}(\d+)\b(?!\.\d)"),
        ("img/sec on", r"total img/sec on (\d+) \w+\(s\)"),
        ("number of", rf"\bnumber of {_DEVICE}s?{_IS}(\d+)\b"),
        ("number of", rf"\bnumber of (?:replicas|ranks|processes|workers){_IS}(\d+)\b"),
        ("num", rf"\bnum[_ -]?{_DEVICE}s?{_IS}(\d+)\b(?! per)"),
        ("num", rf"\bnum[_ ](?:processes|replicas|replicas_in_sync){_IS}(\d+)\b"),
        ("gpus", r"(?<![\w.])n?_?gpus['\"]?\s*[:=]\s*['\"]?(\d+)\b"),
        ("devices", r"(?<![\w./])devices['\"]?\s*[:=]\s*['\"]?(\d+)\b(?![\d,]*\])"),
        (" on ", r"\b(?:training|running|trained|train|run|started|distributed|benchmark)\b"
         rf".{{0,40}}? on (\d+) {_DEVICE}(?:s|\(s\))?\b(?! per)"),
        ("using", rf"\busing (\d+) {_DEVICE}s?\b"),
        ("member:", r"\bmember: \d+/(\d+)\b"),
        ("distributed processes", r"starting with (\d+) processes"),
        ("process", r"1 device per process\. ?process \d+, total (\d+)"),
        ("single process", r"training with a single process on (1) "),
        ("slurm_ntasks", r"\bslurm_ntasks=(\d+)\b"),
    )
)  # fmt: skip
BATCH_LINES = FactLines(
    (
        ("batch", rf"\bglobal[ _-]batch(?:[ _-]?size)?{_IS}(\d+)\b"),
        ("total train batch size", r"total train batch size[^=:]*[=:]\s*(\d+)\b"),
        ("train_batch_size", r"(?<![\w])train_batch_size['\"]?\s*(?:\.{2,})?\s*[:=]?\s*(\d+)\b"),
    )
)
"""Samples per step of all devices. A plain ``batch size`` may be that of one: it is not used."""
MIRRORED = re.compile(r"using mirroredstrategy with devices \(([^)]*)\)")
_BEFORE, _AFTER = r"(?<![a-z\d.])", r"(?![a-z\d])"
NAME_PATTERNS = (
    rf"{_BEFORE}(?P<nodes>\d+)x(?P<each>\d+){_AFTER}",
    rf"{_BEFORE}(?P<nodes>\d+)[_-]?n(?:odes?)?[_-]?(?P<each>\d+)[_-]?g(?:pus?)?{_AFTER}",
    rf"(?<![\d.])(?P<devices>\d+)[_-]?(?:{_DEVICE}s?|ranks?|procs?|processes|workers|cores){_AFTER}",
    rf"{_BEFORE}(?:n?gpus?|n_gpus?|num_gpus?|devices?|ndev|n|np|nproc|procs|ntasks|p|ws|world|"
    rf"world_?size|workers|ranks)[_=-]?(?P<devices>[1-9]\d*){_AFTER}",
)
"""Parts of file and folder names, in lower case. ``rank3`` is no count."""


def device_counts(text: str) -> list[DeviceCount]:
    """Return the numbers of devices that the lines of a log give, each of them once."""
    found: dict[int, int] = {}
    for number, count in DEVICE_LINES.find(text):
        found.setdefault(count, number)
    for number, line in _lines_with(text.lower(), "mirroredstrategy"):
        if match := MIRRORED.search(line):
            found.setdefault(match[1].count("device:") or 1, number)
    return [DeviceCount(count, f"line {number}") for count, number in found.items()]


def device_count_of_name(path: PurePath) -> DeviceCount | None:
    """Return the number of devices that a file's name gives, or else that of one of its folders.

    >>> device_count_of_name(PurePath("run_4gpu.log")).devices
    4
    >>> device_count_of_name(PurePath("logs/n8/train.out")).where
    'the folder name n8'
    >>> device_count_of_name(PurePath("slurm-123456.out")) is None
    True
    """
    for part in (path.name, *(parent.name for parent in path.parents)):
        counts = {count for pattern in NAME_PATTERNS for count in _counts(pattern, part.lower())}
        totals = {devices for devices, _ in counts}
        if len(totals) == 1:
            devices, nodes = max(counts, key=lambda count: count[1] or 0)
            kind = "file name" if part == path.name else f"folder name {part}"
            return DeviceCount(devices, f"the {kind}", nodes)
        if counts:
            return None
    return None


def _counts(pattern: str, name: str) -> Iterator[tuple[int, int | None]]:
    for match in re.finditer(pattern, name):
        numbers = {key: int(text[:8]) for key, text in match.groupdict().items()}
        nodes = numbers.get("nodes")
        devices = numbers.get("devices") or (nodes or 0) * numbers.get("each", 0)
        if 0 < devices <= MAX_DEVICES:
            yield devices, nodes


def _lines_with(lower: str, word: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of the first lines that contain a word."""
    position, number, counted = 0, 1, 0
    for _ in range(MAX_OCCURRENCES):
        position = lower.find(word, position)
        if position < 0:
            return
        start, end = line_bounds(lower, position)
        number += lower.count("\n", counted, start)
        counted = start
        yield number, lower[start:end]
        position = max(end, position + 1)


def line_bounds(text: str, position: int) -> tuple[int, int]:
    """Return start and end of the line around a position; of a long one, the part around it."""
    nearby = max(0, position - MAX_LINE)
    start = max(text.rfind(mark, nearby, position) for mark in "\n\r") + 1 or nearby
    ends = [text.find(mark, position, start + MAX_LINE) for mark in "\n\r"]
    return start, min((end for end in ends if end >= 0), default=min(len(text), start + MAX_LINE))
