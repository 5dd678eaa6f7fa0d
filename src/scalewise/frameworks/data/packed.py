"""Images decoded beforehand: raw bytes of one size in a few large files.

``index.json`` holds the edge, the classes and, for each split, its labels, its files
with their sizes, and a checksum of every block of images. Rows lie in the order of the
image folder they were made of, so the same indices are the same images, and a seed
gives the same batches from either. A shuffled epoch reads rows of ``edge² × 3`` bytes
(147 KiB at 224²) wherever they lie: well on local disks and in memory, slower than
reading on where a file system answers only in large requests.

Rows are read with ``pread``. Of files in memory a row of 224² takes 27 µs of a core so,
21 µs from a memory map that was touched before, and 34 µs from one that was not. On a
network it is one request per row, and a file that is cut meanwhile is an error instead
of the end of the process.
"""

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.errors import Broken, NewerSchema, SpecError
from scalewise.frameworks.data import Labels, Pixels, shown

INDEX = "index.json"
FORMAT = "scalewise packed images"
SCHEMA = 1
SPLITS = ("train", "validation")
SHARD = 2**30
"""Bytes of a file, about."""
BLOCK = 2**25
"""Bytes that share a checksum, about: they are decoded, written and checked together."""
AGAIN = "make it again: scalewise data make TO --packed --from FOLDER"


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of one size lie in files."""

    edge: int
    count: int
    split: str

    @property
    def row(self) -> int:
        """Bytes of an image."""
        return self.edge * self.edge * 3

    @property
    def block(self) -> int:
        """Images that share a checksum."""
        return max(1, BLOCK // self.row)

    @property
    def each(self) -> int:
        """Images of a full file: whole blocks of them."""
        return max(1, SHARD // (self.row * self.block)) * self.block

    @property
    def files(self) -> list[tuple[str, int]]:
        """Names of the files, and the bytes of each."""
        return [
            (f"{self.split}-{n:05d}.bin", min(self.each, self.count - start) * self.row)
            for n, start in enumerate(range(0, self.count, self.each))
        ]

    @property
    def blocks(self) -> list[range]:
        """The images of each block; none reaches over two files."""
        return [
            range(start, min(start + self.block, self.count))
            for start in range(0, self.count, self.block)
        ]

    def place(self, index: int) -> tuple[str, int]:
        """Return the file of an image and where it begins there."""
        file, row = divmod(index, self.each)
        return f"{self.split}-{file:05d}.bin", row * self.row


def checksum(rows: Pixels) -> str:
    """Return what tells whether a block is as it was written."""
    return f"{zlib.crc32(rows.data.cast('B')):08x}"


def write_block(folder: Path, layout: Layout, block: range, rows: Pixels) -> str:
    """Write a block at its place, and return its checksum; blocks may come in any order."""
    name, offset = layout.place(block.start)
    file = os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        rest = rows.data.cast("B")
        while rest:
            wrote = os.pwrite(file, rest, offset)
            rest, offset = rest[wrote:], offset + wrote
    finally:
        os.close(file)
    return checksum(rows)


def index_of(layout: Layout, labels: Sequence[int], checksums: Sequence[str]) -> dict[str, Any]:
    """Return what the index says of a split."""
    files = [{"name": name, "bytes": size} for name, size in layout.files]
    return {
        "labels": list(labels),
        "files": files,
        "block": layout.block,
        "checksums": list(checksums),
    }


class Rows:
    """The images of one split; files are opened when they are first read, by each process."""

    def __init__(self, folder: str, layout: Layout, labels: Labels, checks: Sequence[str]) -> None:
        self.folder, self.layout, self.labels, self.checksums = folder, layout, labels, checks
        self._open: dict[str, int] = {}
        self._owner = os.getpid()

    def __len__(self) -> int:
        return self.layout.count

    def read(self, indices: Sequence[int], out: Pixels | None = None) -> Pixels:
        """Return these images, written into ``out`` (len × edge × edge × 3) where that is given."""
        edge = self.layout.edge
        found = np.empty((len(indices), edge, edge, 3), np.uint8) if out is None else out
        for row, index in zip(found, indices):
            name, offset = self.layout.place(int(index))
            got = os.preadv(self._file(name), [row.data.cast("B")], offset)
            if got != self.layout.row:
                raise self._torn(name, f"image {index} ends after {got} bytes")
        return found

    def damaged(self, block: int) -> str:
        """Read a block; return what is wrong with it, or nothing."""
        images = self.layout.blocks[block]
        try:
            rows = self.read(images)
        except (Broken, OSError) as bad:
            return str(bad)
        if checksum(rows) == self.checksums[block]:
            return ""
        name, _ = self.layout.place(images.start)
        words = f"images {images.start} to {images.stop - 1} are not what was written"
        return str(self._torn(name, words))

    def close(self) -> None:
        """Let the files go."""
        for file in self._open.values():
            os.close(file)
        self._open.clear()

    def _file(self, name: str) -> int:
        if self._owner != os.getpid():  # A forked reader opens its own, and closes only those.
            self._open, self._owner = {}, os.getpid()
        if name not in self._open:
            try:
                self._open[name] = os.open(os.path.join(self.folder, name), os.O_RDONLY)
            except OSError as why:
                raise self._torn(name, why.strerror or str(why)) from why
        return self._open[name]

    def _torn(self, name: str, words: str) -> Broken:
        path = os.path.join(self.folder, name)
        return Broken(f"{shown(path)} is not whole: {words}", hint=AGAIN, path=path)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.folder, self.layout, self.labels, self.checksums

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]  # As if made anew.


@dataclass(frozen=True, slots=True)
class Packed:
    """A folder of packed images."""

    root: str
    edge: int
    classes: tuple[str, ...]
    train: Rows
    validation: Rows

    @classmethod
    def of(cls, folder: Path | str) -> "Packed":
        """Open a folder; refuse one whose files are not as long as its index says."""
        root = os.fspath(folder)
        path = Path(root, INDEX)
        told = _index(path)
        try:
            edge, classes = told["edge"], told["classes"]
            if not _is_whole(edge) or edge < 1:
                raise ValueError(f"edge {edge!r}")
            if not isinstance(classes, list) or not all(isinstance(each, str) for each in classes):
                raise ValueError("its classes are no names")
            splits = [_rows(root, edge, len(classes), name, told[name]) for name in SPLITS]
        except KeyError as missing:
            raise _damaged(path, f"it has no {missing}") from missing
        except (TypeError, ValueError, OverflowError) as bad:
            raise _damaged(path, str(bad)) from bad
        return cls(root, edge, tuple(classes), *splits)

    @property
    def splits(self) -> Iterator[tuple[str, Rows]]:
        """Yield each split by its name."""
        yield "train", self.train
        yield "validation", self.validation


def _index(path: Path) -> Mapping[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as why:
        raise SpecError(f"{shown(path.parent)} has no {INDEX}", hint=AGAIN) from why
    except OSError as why:
        words = f"{shown(path)} cannot be read: {why.strerror}"
        raise Broken(words, hint=AGAIN, path=str(path)) from why
    except (ValueError, RecursionError) as bad:
        raise _damaged(path, str(bad)) from bad
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise SpecError(f"{shown(path)} is not an index of packed images", hint=AGAIN)
    schema: Any = told.get("schema")
    if not _is_whole(schema) or schema < 1:
        raise _damaged(path, f"schema {schema!r}")
    if schema > SCHEMA:
        raise NewerSchema(
            f"{shown(path)} has schema {schema}, and this scalewise reads up to {SCHEMA}",
            hint="upgrade scalewise",
        )
    return told


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _damaged(path: Path, words: str) -> Broken:
    return Broken(f"{shown(path)} is damaged: {words}", hint=AGAIN, path=str(path))


def _labels(split: str, told: Any, classes: int) -> Labels:
    """Return the labels of a split; refuse what are none of these classes."""
    numbers = np.asarray(told)
    if numbers.ndim != 1 or numbers.dtype.kind != "i":
        raise ValueError(f"the labels of {split} are no row of whole numbers")
    if not 0 <= numbers.min() <= numbers.max() < classes:
        least, most = numbers.min(), numbers.max()
        raise ValueError(f"{split} has labels from {least} to {most}, for {classes} classes")
    return numbers.astype(np.int32)


def _rows(root: str, edge: int, classes: int, split: str, told: Any) -> Rows:
    if not isinstance(told, dict):
        raise ValueError(f"{split} is no table")
    labels = _labels(split, told["labels"], classes)
    layout = Layout(edge, len(labels), split)
    rows = Rows(root, layout, labels, told["checksums"])
    if [(each["name"], each["bytes"]) for each in told["files"]] != layout.files:
        raise ValueError(f"the files of {split} are not those of {len(labels)} images")
    sums = rows.checksums
    if not isinstance(sums, list) or not all(isinstance(each, str) for each in sums):
        raise ValueError(f"the checksums of {split} are no text")
    if len(sums) != len(layout.blocks) or told["block"] != layout.block:
        raise ValueError(f"{split} has {len(rows.checksums)} checksums")
    for name, size in layout.files:
        path = os.path.join(root, name)
        try:
            there = os.stat(path).st_size
        except OSError as why:
            raise rows._torn(name, why.strerror or str(why)) from why
        if there != size:
            raise rows._torn(name, f"it has {there:,} bytes instead of {size:,}")
    return rows
