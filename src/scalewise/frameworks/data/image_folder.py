"""An image folder, listed once: ``train/`` and ``val/``, one folder per class.

Directories are read, files are not touched: a shared file system answers one question
per folder and none per image. One rank lists; the others receive its bytes.
"""

import errno
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scalewise.errors import SpecError
from scalewise.frameworks.data import Labels, shown

ENDINGS = (".jpg", ".jpeg", ".png", ".webp")
VALIDATION = ("val", "validation")
"""Where validation images lie: the first of these that is there. ``test/`` is never read."""
ANNOTATIONS = "val_annotations.txt"
"""Tiny ImageNet keeps all validation images in one folder, and their classes in this file."""
HELD_OUT = 5
"""Every fifth training image validates where there is no folder for that."""


class Split:
    """Files of one part of a data set, relative to its folder, and their labels."""

    def __init__(self, names: bytes, labels: Labels) -> None:
        self.names, self.labels = names, labels
        ends = np.flatnonzero(np.frombuffer(names, np.uint8) == 0)
        self._starts = np.concatenate([[0], ends + 1])

    @classmethod
    def of(cls, names: Iterable[str], labels: Sequence[int]) -> "Split":
        """Keep names as one string of bytes: a hundred thousand objects are slow to pass on."""
        return cls(b"".join(os.fsencode(name) + b"\0" for name in names), _numbers(labels))

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        """Return a file's path within the data folder."""
        start, end = self._starts[index], self._starts[index + 1]
        return os.fsdecode(self.names[start : end - 1])

    def some(self, indices: Sequence[int]) -> "Split":
        """Return these files alone, in this order."""
        return Split.of((self.name(n) for n in indices), [int(self.labels[n]) for n in indices])


@dataclass(frozen=True, slots=True)
class Listing:
    """What an image folder holds; classes are sorted by name, as ImageFolder does."""

    root: str
    classes: tuple[str, ...]
    train: Split
    validation: Split
    cut: bool
    """Whether the folder has no validation images, and training images stand in for them."""

    @classmethod
    def of(cls, folder: Path | str) -> "Listing":
        """List a folder; refuse one that cannot be trained on."""
        root = os.fspath(folder)
        classes, train = scanned(root, "train")
        for empty in (name for name, files in zip(classes, train) if not files):
            raise SpecError(
                f"class {shown(empty)} has no image in {shown(root)}/train",
                hint=f"remove the folder, or put images into it: {', '.join(ENDINGS)}",
            )
        files = Split.of(*_flat(train))
        held = _validation(root, classes)
        whole = os.path.abspath(root)  # Whoever receives the list may stand elsewhere.
        if held is not None:
            return cls(whole, classes, files, held, cut=False)
        if len(files) < HELD_OUT:
            raise SpecError(
                f"{shown(root)} has no val folder, and {len(files)} images are too few to hold "
                "some back",
                hint=f"add {shown(root)}/val with the same class folders",
            )
        every = np.arange(len(files)) % HELD_OUT == HELD_OUT - 1
        apart = files.some(np.flatnonzero(every).tolist())
        return cls(whole, classes, files.some(np.flatnonzero(~every).tolist()), apart, cut=True)

    def path(self, split: Split, index: int) -> str:
        """Return where a file of one of the splits lies."""
        return os.path.join(self.root, split.name(index))

    def to_bytes(self) -> bytes:
        """Return the listing as bytes, for those who must not look themselves."""
        splits = (self.train, self.validation)
        head = {
            "root": self.root,
            "classes": self.classes,
            "cut": self.cut,
            "sizes": [[len(each.names), len(each)] for each in splits],
        }
        body = b"".join(each.names + each.labels.tobytes() for each in splits)
        return json.dumps(head).encode() + b"\n" + zlib.compress(body, 1)

    @classmethod
    def from_bytes(cls, content: bytes) -> "Listing":
        """Return the listing that ``to_bytes`` has put into bytes."""
        head, _, body = content.partition(b"\n")
        told, rest = json.loads(head), zlib.decompress(body)
        splits = []
        for names, count in told["sizes"]:
            labels = np.frombuffer(rest, np.int32, count, offset=names)
            splits.append(Split(rest[:names], labels))
            rest = rest[names + labels.nbytes :]
        return cls(told["root"], tuple(told["classes"]), splits[0], splits[1], told["cut"])


def _numbers(labels: Sequence[int]) -> Labels:
    return np.asarray(labels, dtype=np.int32)


def _flat(files: Sequence[Sequence[str]]) -> tuple[list[str], list[int]]:
    """Return all names of classes, one after another, and the number of the class of each."""
    names = [name for each in files for name in each]
    return names, [label for label, each in enumerate(files) for _ in each]


def scanned(root: str, part: str) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return the classes of a part, sorted by name, and the images of each."""
    top = os.path.join(root, part)
    try:
        with os.scandir(top) as found:
            entries = [each for each in found if not each.name.startswith(".") and _folder(each)]
        classes = sorted(
            each.name
            for each in entries
            if not (each.is_symlink() and _circular(top, each.name, (os.path.realpath(top),)))
        )
    except (FileNotFoundError, NotADirectoryError) as why:
        raise SpecError(
            f"{shown(root)} has no folder {part}",
            hint="an image folder has train/CLASS/*.jpg and val/CLASS/*.jpg",
        ) from why
    except OSError as why:
        raise SpecError(f"cannot list {shown(top)}: {why.strerror}") from why
    if not classes:
        raise SpecError(
            f"{shown(top)} has no class folders",
            hint=f"put the images into one folder per class: {part}/CLASS/*.jpg",
        )
    return tuple(classes), [_files(root, f"{part}/{name}") for name in classes]


def _validation(root: str, classes: Sequence[str]) -> Split | None:
    """Return what validates, labelled as the training classes are; nothing if there is no folder.

    A class without validation images is allowed, one without training images is not.
    """
    part = next((name for name in VALIDATION if os.path.isdir(os.path.join(root, name))), None)
    if part is None:
        return None
    if os.path.isfile(os.path.join(root, part, ANNOTATIONS)) and _holds_any(root, f"{part}/images"):
        return _annotated(root, part, classes)
    own, files = scanned(root, part)
    for name, held in zip(own, files):
        if name not in classes and held:
            way = "a model cannot know a class it was never shown: move it, or remove it"
            if name == "images":
                way = f"is this Tiny ImageNet without its {ANNOTATIONS}? unpack it again"
            raise SpecError(
                f"class {shown(name)} is in {part} and not in train of {shown(root)}", hint=way
            )
    known = dict(zip(own, files))
    found = Split.of(*_flat([known.get(name, []) for name in classes]))
    if not len(found):
        raise SpecError(
            f"{shown(root)}/{part} has no images",
            hint="remove the folder, and every fifth training image validates",
        )
    return found


def _holds_any(root: str, top: str) -> bool:
    """Say whether a folder is there and not empty: many sort its images by class, and leave it."""
    try:
        with os.scandir(os.path.join(root, top)) as entries:
            return any(entries)
    except OSError:
        return False


def _annotated(root: str, part: str, classes: Sequence[str]) -> Split:
    """Return Tiny ImageNet's validation images, sorted by class and name."""
    path = os.path.join(root, part, ANNOTATIONS)
    numbers = {name: label for label, name in enumerate(classes)}
    rows: dict[str, int] = {}
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError as why:
        raise SpecError(f"cannot read {shown(path)}: {why.strerror}") from why
    for line in filter(str.strip, lines):
        name, _, rest = line.partition("\t")
        label = numbers.get(rest.partition("\t")[0])
        if label is None:
            raise SpecError(
                f"{shown(path)} names a class that train does not have: {shown(line)!r}",
                hint="is it Tiny ImageNet's own file?",
            )
        if name in rows:
            raise SpecError(f"{shown(path)} names {shown(name)} twice", hint="unpack it again")
        rows[name] = label
    if not rows:
        raise SpecError(
            f"{shown(path)} names no image",
            hint="remove it and sort the images into class folders, or download it again",
        )
    names = sorted(rows, key=lambda name: (rows[name], name))
    return Split.of((f"{part}/images/{name}" for name in names), [rows[name] for name in names])


def _files(root: str, top: str) -> list[str]:
    """Return the images below a folder, sorted by folder and name as ImageFolder does."""
    return [
        f"{below}/{name}" for below, names in sorted(_walk(root, top, ())) for name in sorted(names)
    ]


def _walk(root: str, top: str, above: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder with its images. Links to folders are followed, but never in a circle.

    Whether an entry is a folder is known from the directory itself; only links are asked.
    """
    names, inside = [], []
    here = os.path.join(root, top)
    try:
        with os.scandir(here) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith("."):
                    continue
                if name.lower().endswith(ENDINGS) and not entry.is_dir(follow_symlinks=False):
                    names.append(name)
                elif _folder(entry):
                    inside.append((name, entry.is_symlink()))
    except OSError as why:
        raise SpecError(f"cannot list {shown(here)}: {why.strerror}") from why
    yield top, names
    for name, linked in inside:
        passed = (*above, os.path.realpath(here)) if linked else above
        if not (linked and _circular(here, name, passed)):
            yield from _walk(root, f"{top}/{name}", passed)


def _folder(entry: "os.DirEntry[str]") -> bool:
    """Say whether an entry is a folder, or a link to one; what links to itself leads nowhere."""
    try:
        return entry.is_dir()
    except OSError as why:
        if why.errno == errno.ELOOP:
            return False
        raise


def _circular(here: str, name: str, above: Sequence[str]) -> bool:
    """Say whether a link leads back to a folder that lies above it, on any way taken so far."""
    target = os.path.join(os.path.realpath(os.path.join(here, name)), "")
    return any(os.path.join(each, "").startswith(target) for each in above)
