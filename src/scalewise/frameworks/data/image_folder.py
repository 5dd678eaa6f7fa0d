"""List an image folder: ``train/`` and ``val/``, one folder per class.

Listing costs one file system request per folder, none per image. One rank lists for all ranks.
"""

import errno
import os
import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.errors import SpecError, shown
from scalewise.frameworks.data import Labels, printable

ENDINGS = (".jpg", ".jpeg", ".png", ".webp")
VALIDATION = ("val", "validation")
"""Names of the validation folder; the first that exists is used. ``test/`` is never read."""
ANNOTATIONS = "val_annotations.txt"
"""Tiny ImageNet keeps all validation images in one folder, and their classes in this file."""
HELD_OUT = 5
"""If there is no validation folder, every fifth training image is used for validation."""


class Split:
    """The files of one split, as paths relative to the data folder, and their labels."""

    def __init__(self, names: bytes, labels: Labels) -> None:
        self.names, self.labels = names, labels  # A zero byte ends each name.
        ends = np.flatnonzero(np.frombuffer(names, np.uint8) == 0)
        self._starts = np.concatenate([[0], ends + 1])

    @classmethod
    def of(cls, names: Iterable[str], labels: Sequence[int]) -> "Split":
        """Return a split; one bytes object holds all names, which is faster to send to workers."""
        joined = b"".join(os.fsencode(name) + b"\0" for name in names)
        return cls(joined, np.asarray(labels, dtype=np.int32))

    @classmethod
    def of_classes(cls, files: Sequence[Sequence[str]]) -> "Split":
        """Return a split of the files of each class, in the order of the classes."""
        return cls.of(
            (name for class_files in files for name in class_files),
            [label for label, class_files in enumerate(files) for _ in class_files],
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __reduce__(self) -> tuple[Any, ...]:
        return Split, (self.names, self.labels)

    def name(self, index: int) -> str:
        """Return the path of a file, relative to the data folder."""
        start, end = self._starts[index], self._starts[index + 1]
        return os.fsdecode(self.names[start : end - 1])

    def select(self, indices: Sequence[int]) -> "Split":
        """Return a split of these files only, in this order."""
        return Split.of((self.name(n) for n in indices), [int(self.labels[n]) for n in indices])


@dataclass(frozen=True, slots=True)
class Listing:
    """The classes and files of an image folder; classes are sorted as torchvision sorts them."""

    root: str
    classes: tuple[str, ...]
    train: Split
    validation: Split
    val_split_from_train: bool
    """Whether validation images are taken from train, because there is no val folder."""

    @classmethod
    def of(cls, folder: Path | str) -> "Listing":
        """List a folder; refuse one that cannot be trained on."""
        root = os.fspath(folder)
        classes, files = list_classes(root, "train")
        for name, class_files in zip(classes, files):
            if not class_files:
                raise SpecError(
                    f"class {printable(name)} has no image in {printable(root)}/train",
                    hint=f"remove the folder, or put images into it: {', '.join(ENDINGS)}",
                )
        train = Split.of_classes(files)
        validation = _list_validation(root, classes)
        # Ranks that receive the listing may have another working directory.
        absolute = os.path.abspath(root)
        if validation is not None:
            return cls(absolute, classes, train, validation, val_split_from_train=False)
        if len(train) < HELD_OUT:
            raise SpecError(
                f"{printable(root)} has no val folder, and {len(train)} images are too few to use "
                "some of them for validation",
                hint=f"add {printable(root)}/val with the same class folders",
            )
        is_validation = np.arange(len(train)) % HELD_OUT == HELD_OUT - 1
        validation = train.select(np.flatnonzero(is_validation).tolist())
        train = train.select(np.flatnonzero(~is_validation).tolist())
        return cls(absolute, classes, train, validation, val_split_from_train=True)

    def path(self, split: Split, index: int) -> str:
        return os.path.join(self.root, split.name(index))

    def to_bytes(self) -> bytes:
        """Return the listing as bytes, to be sent to the other ranks."""
        return zlib.compress(pickle.dumps(self), 1)

    @staticmethod
    def from_bytes(content: bytes) -> "Listing":
        """Return the listing that another rank of this run encoded."""
        listing: Listing = pickle.loads(zlib.decompress(content))
        return listing


def list_classes(root: str, part: str) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return the classes of ``train`` or ``val``, sorted by name, and the images of each."""
    top = os.path.join(root, part)
    try:
        with os.scandir(top) as entries:
            folders = [
                entry for entry in entries if not entry.name.startswith(".") and _is_folder(entry)
            ]
        classes = sorted(
            entry.name
            for entry in folders
            if not (entry.is_symlink() and _is_circular(top, entry.name, (os.path.realpath(top),)))
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SpecError(
            f"{printable(root)} has no folder {part}",
            hint="an image folder has train/CLASS/*.jpg and val/CLASS/*.jpg",
        ) from error
    except OSError as error:
        raise SpecError(f"cannot list {printable(top)}: {error.strerror}") from error
    if not classes:
        raise SpecError(
            f"{printable(top)} has no class folders",
            hint=f"put the images into one folder per class: {part}/CLASS/*.jpg",
        )
    return tuple(classes), [_list_images(root, f"{part}/{name}") for name in classes]


def _list_validation(root: str, classes: Sequence[str]) -> Split | None:
    """Return the validation split, labelled as in training; None if there is no such folder.

    A class without validation images is allowed, a class without training images is refused.
    """
    part = next((name for name in VALIDATION if os.path.isdir(os.path.join(root, name))), None)
    if part is None:
        return None
    annotated = os.path.isfile(os.path.join(root, part, ANNOTATIONS))
    # Many users sort Tiny ImageNet's images into class folders, and leave the old folder empty.
    if annotated and any(Path(root, part, "images").glob("*")):
        return _list_annotated(root, part, classes)
    names, files = list_classes(root, part)
    for name, class_files in zip(names, files):
        if name not in classes and class_files:
            hint = "a model cannot know a class it was never shown: move it, or remove it"
            if name == "images":
                hint = f"is this Tiny ImageNet without its {ANNOTATIONS}? unpack it again"
            raise SpecError(
                f"class {printable(name)} is in {part} and not in train of {printable(root)}",
                hint=hint,
            )
    files_of = dict(zip(names, files))
    split = Split.of_classes([files_of.get(name, []) for name in classes])
    if not len(split):
        raise SpecError(
            f"{printable(root)}/{part} has no images",
            hint="remove the folder: then every fifth training image is used for validation",
        )
    return split


def _list_annotated(root: str, part: str, classes: Sequence[str]) -> Split:
    """Return Tiny ImageNet's validation images, sorted by class and name."""
    path = os.path.join(root, part, ANNOTATIONS)
    label_of_class = {name: label for label, name in enumerate(classes)}
    labels: dict[str, int] = {}
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise SpecError(f"cannot read {printable(path)}: {error.strerror}") from error
    for line in filter(str.strip, lines):
        name, class_name = (*line.split("\t", 2), "")[:2]  # Columns 3 to 6 are a bounding box.
        label = label_of_class.get(class_name)
        if label is None:
            raise SpecError(
                f"{printable(path)} names a class that train does not have: "
                f"{shown(printable(line))}",
                hint="is it Tiny ImageNet's own file?",
            )
        if name in labels:
            raise SpecError(
                f"{printable(path)} names {printable(name)} twice", hint="unpack it again"
            )
        labels[name] = label
    if not labels:
        raise SpecError(
            f"{printable(path)} names no image",
            hint="remove it and sort the images into class folders, or download it again",
        )
    names = sorted(labels, key=lambda name: (labels[name], name))
    return Split.of((f"{part}/images/{name}" for name in names), [labels[name] for name in names])


def _list_images(root: str, top: str) -> list[str]:
    """Return the images below a folder, sorted by folder and name as torchvision does."""
    return [
        f"{folder}/{name}"
        for folder, names in sorted(_walk(root, top, ()))
        for name in sorted(names)
    ]


def _walk(root: str, top: str, link_parents: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder with its images; follow links to folders, but never in a circle.

    ``link_parents`` are the real paths of the folders that contain the links followed so far.
    """
    names, folders = [], []
    path = os.path.join(root, top)
    try:
        with os.scandir(path) as entries:  # Entries know their type; only links cost a request.
            for entry in entries:
                name = entry.name
                if name.startswith("."):
                    continue
                if name.lower().endswith(ENDINGS) and not entry.is_dir(follow_symlinks=False):
                    names.append(name)
                elif _is_folder(entry):
                    folders.append((name, entry.is_symlink()))
    except OSError as error:
        raise SpecError(f"cannot list {printable(path)}: {error.strerror}") from error
    yield top, names
    for name, is_link in folders:
        parents = (*link_parents, os.path.realpath(path)) if is_link else link_parents
        if not (is_link and _is_circular(path, name, parents)):
            yield from _walk(root, f"{top}/{name}", parents)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """Return whether an entry is a folder or a link to one; False for a link to itself."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise


def _is_circular(folder: str, link: str, parents: Sequence[str]) -> bool:
    """Return whether a link in a folder leads to one of ``parents``, or to a folder above it."""
    target = os.path.join(os.path.realpath(os.path.join(folder, link)), "")
    return any(os.path.join(parent, "").startswith(target) for parent in parents)
