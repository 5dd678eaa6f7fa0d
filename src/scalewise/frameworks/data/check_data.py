"""Check every file of a data set: *problems* prevent proper training, *notes* do not."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.errors import Broken, ScalewiseError, SpecError
from scalewise.frameworks.data import cifar, idx, printable, tokens
from scalewise.frameworks.data.image_folder import (
    ANNOTATIONS,
    ENDINGS,
    VALIDATION,
    Listing,
    list_classes,
)
from scalewise.frameworks.data.process_pool import Progress, map_unordered
from scalewise.frameworks.data_source import DEFAULT_LENGTH, kind_of
from scalewise.probe.environment import usable_cores

if TYPE_CHECKING:  # It imports Pillow, which only image folders need.
    from scalewise.frameworks.data.pixels import Header

MAX_NAMES = 5
"""Maximum number of names or endings in one note."""
CHUNK_FILES = 128
"""Files that a process checks at a time."""


@dataclass(slots=True)
class Findings:
    """The result of a check; its fields are the JSON keys that the command line reads."""

    kind: str
    folder: str
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Samples per class, by split; token files have one class, which is called tokens."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Images per size (WIDTHxHEIGHT)."""
    modes: dict[str, int] = field(default_factory=dict)
    """Images per Pillow mode, such as RGB."""
    formats: dict[str, int] = field(default_factory=dict)
    problems: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add_problem(self, problem: str, path: str = "") -> None:
        self.problems.append({"path": printable(path), "problem": problem})


def check_data_set(
    folder: Path, progress: Progress, processes: int | None = None
) -> dict[str, Any]:
    """Check a data set of any kind; return the findings as JSON values."""
    kind = kind_of(folder)
    findings = Findings(kind, printable(folder))
    try:
        CHECKS[kind](folder, findings, progress, processes or usable_cores() or 1)
    except ScalewiseError as error:
        findings.add_problem(str(error), error.path if isinstance(error, Broken) else "")
    return asdict(findings)


def _check_images(folder: Path, findings: Findings, progress: Progress, processes: int) -> None:
    listing = _list_folder(folder, findings)
    if listing:
        paths = []
        for name, split in (("train", listing.train), ("validation", listing.validation)):
            findings.counts[name] = _class_counts(listing.classes, split.labels)
            paths += [f"{folder}/{split.name(n)}" for n in range(len(split))]
    else:
        paths = _unlisted_paths(folder)
    headers: Counter[Header] = Counter()
    broken: list[tuple[str, str]] = []
    done = 0
    chunks = [paths[start : start + CHUNK_FILES] for start in range(0, len(paths), CHUNK_FILES)]
    for _, (chunk_headers, chunk_broken) in map_unordered(_decode_files, chunks, processes):
        headers.update(chunk_headers)
        broken += chunk_broken
        done += sum(chunk_headers.values()) + len(chunk_broken)
        progress(done, len(paths))
    for path, problem in sorted(broken):
        findings.add_problem(problem, path)
    findings.formats = _tally((kind, count) for (kind, _, _), count in headers.items())
    findings.modes = _tally((mode, count) for (_, mode, _), count in headers.items())
    findings.sizes = _tally((f"{w}x{h}", count) for (_, _, (w, h)), count in headers.items())
    if len(findings.sizes) > 1:
        findings.notes.append(f"images have {len(findings.sizes)} sizes and are cropped to squares")
    if not_rgb := sum(count for mode, count in findings.modes.items() if mode != "RGB"):
        findings.notes.append(f"images that are not RGB and will be converted: {not_rgb:,}")


def _list_folder(folder: Path, findings: Findings) -> Listing | None:
    """Return a folder's listing (None: it cannot be trained on); add findings on its classes."""
    root = str(folder)
    try:
        classes, files = list_classes(root, "train")
        without_images = [name for name, names in zip(classes, files) if not names]
        for name in without_images:
            path = f"{root}/train/{name}"
            findings.add_problem(f"class {printable(name)} has no image in train", path)
        if without_images:
            counts = {printable(name): len(names) for name, names in zip(classes, files)}
            findings.counts["train"] = counts
            return None
        listing = Listing.of(folder)
    except SpecError as error:
        findings.add_problem(str(error))
        return None
    findings.notes += _layout_notes(root, listing)
    if listing.val_split_from_train:
        findings.notes.append("no val folder: every fifth training image is used for validation")
    else:
        counts = _class_counts(classes, listing.validation.labels)
        if missing := [name for name, count in counts.items() if not count]:
            findings.notes.append(f"classes without a validation image: {_first_names(missing)}")
    return listing


def _layout_notes(root: str, listing: Listing) -> list[str]:
    """Return notes on a single class, an unused validation folder, and files that are not read."""
    notes = []
    if len(listing.classes) == 1:
        notes.append("there is only 1 class: nothing can be learned")
    folders = [name for name in VALIDATION if os.path.isdir(os.path.join(root, name))]
    if len(folders) > 1:
        notes.append(f"{folders[0]} is used for validation, {folders[1]} is ignored")
    stray, endings = _unread_files(root, ["train", *folders[:1]], listing)
    if stray:
        names = _first_names([printable(name) for name in sorted(stray)])
        notes.append(f"images outside of class folders, which are not read: {names}")
    if endings:
        most_common = endings.most_common(MAX_NAMES)
        counts = ", ".join(f"{printable(ending)} ({count:,})" for ending, count in most_common)
        notes.append(f"files that are not read, by their ending: {counts}")
    return notes


def _unread_files(
    root: str, parts: Sequence[str], listing: Listing
) -> tuple[list[str], Counter[str]]:
    """Return the images that no split lists, and the number of other files by ending."""
    listed = {listing.validation.name(n) for n in range(len(listing.validation))}
    stray: list[str] = []
    endings: Counter[str] = Counter()
    for part in parts:
        for path, folders, names in os.walk(os.path.join(root, part)):
            folders[:] = [name for name in folders if not name.startswith(".")]
            folder = os.path.relpath(path, root)
            for name in names:
                ending = os.path.splitext(name)[1].lower()
                if name.startswith(".") or name == ANNOTATIONS:
                    continue
                if ending not in ENDINGS:
                    endings[ending or "none"] += 1
                # Train lists every class folder; val may list only images named in ANNOTATIONS.
                elif folder == part or (part != "train" and f"{folder}/{name}" not in listed):
                    stray.append(f"{folder}/{name}")
    return stray, endings


def _first_names(names: Sequence[str]) -> str:
    """Return the first few names, and in parentheses the number of all names."""
    more = " …" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more} ({len(names)})"


def _check_classes(findings: Findings) -> None:
    """Add findings about classes that are only in the validation split, or in no split."""
    train, validation = findings.counts["train"], findings.counts["validation"]
    for name in [name for name, count in train.items() if not count and validation[name]]:
        findings.add_problem(f"class {name} is in validation and not in train")
    if empty := [name for name, count in train.items() if not count and not validation[name]]:
        findings.notes.append(f"classes without an image: {_first_names(empty)}")


def _unlisted_paths(folder: Path) -> list[str]:
    """Return the paths of all images in a folder that ``_list_folder`` could not list."""
    paths = []
    for part in ("train", *VALIDATION):
        if (folder / part).is_dir():
            with suppress(SpecError):  # Already reported by _list_folder.
                _, files = list_classes(str(folder), part)
                paths += [f"{folder}/{name}" for class_files in files for name in class_files]
    return paths


def _decode_files(paths: Sequence[str]) -> tuple[Counter["Header"], list[tuple[str, str]]]:
    """Decode files; return how often each header occurs, and (path, problem) of broken files."""
    from scalewise.frameworks.data.pixels import read_header

    headers: Counter[Header] = Counter()
    broken = []
    for path in paths:
        try:
            headers[read_header(path, decode=True)] += 1
        except Broken as error:
            broken.append((path, str(error)))
    return headers, broken


def _check_packed(folder: Path, findings: Findings, progress: Progress, processes: int) -> None:
    from scalewise.frameworks.data.packed import Packed

    packed = Packed.of(folder)
    total = len(packed.train) + len(packed.validation)
    findings.sizes = {f"{packed.edge}x{packed.edge}": total}
    done = 0
    for name, rows in (("train", packed.train), ("validation", packed.validation)):
        findings.counts[name] = _class_counts(packed.classes, rows.labels)
        blocks = rows.layout.blocks
        for number, problem in map_unordered(rows.check_block, range(len(blocks)), processes):
            if problem:
                file, _ = rows.layout.locate(blocks[number].start)
                findings.add_problem(problem, f"{folder}/{file}")
            done += len(blocks[number])
            progress(done, total)


def _check_cifar(folder: Path, findings: Findings, progress: Progress, processes: int) -> None:
    images = cifar.read(folder)
    for name, split in (("train", images.train), ("validation", images.validation)):
        findings.counts[name] = _class_counts(images.classes, split.labels)
    findings.sizes = {"32x32": len(images.train) + len(images.validation)}
    _check_classes(findings)


def _check_idx(folder: Path, findings: Findings, progress: Progress, processes: int) -> None:
    splits = {name: idx.read_split(folder, name) for name in ("train", "validation")}
    classes = [str(n) for n in range(max(int(labels.max()) for _, labels in splits.values()) + 1)]
    for name, (_, labels) in splits.items():
        findings.counts[name] = _class_counts(classes, labels)
    _check_classes(findings)
    shapes = {name: images.shape for name, (images, _) in splits.items()}
    findings.sizes = _tally((f"{w}x{h}", count) for count, h, w in shapes.values())
    if len(findings.sizes) > 1:
        sizes = " and ".join(f"{name} {shape[2]}x{shape[1]}" for name, shape in shapes.items())
        findings.notes.append(f"images have two sizes, {sizes}: a run resizes them to one")


def _check_tokens(folder: Path, findings: Findings, progress: Progress, processes: int) -> None:
    files = tokens.read(folder)
    for name, stream in (("train", files.train), ("validation", files.validation)):
        if stream is not None:
            findings.counts[name] = {"tokens": len(stream)}
            low, high = tokens.token_range(stream)
            findings.notes.append(f"{name}: {stream.dtype.name}, tokens from {low} to {high}")
    try:
        tokens.refuse_short(folder, DEFAULT_LENGTH)
    except SpecError as error:
        findings.notes.append(f"{error}, the default length")


CHECKS = {
    "images": _check_images, "packed": _check_packed, "cifar": _check_cifar, "idx": _check_idx,
    "tokens": _check_tokens,
}  # fmt: skip


def _class_counts(classes: Sequence[str], labels: Any) -> dict[str, int]:
    counts = np.bincount(labels, minlength=len(classes))
    if len(counts) > len(classes):
        raise SpecError(f"a label is {len(counts) - 1}, and there are {len(classes)} classes")
    return {printable(name): int(count) for name, count in zip(classes, counts)}


def _tally(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the sum of the counts of each name, the most frequent name first."""
    total: Counter[str] = Counter()
    for name, count in counts:
        total[name] += count
    return dict(total.most_common())
