"""Look at a whole data set: every file is decoded, every checksum compared.

*Problems* keep a set from being trained on as it should; *notes* are worth knowing.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.errors import Broken, ScalewiseError, SpecError
from scalewise.frameworks.data import Labels, cifar, idx, kinds, shown, tokens
from scalewise.frameworks.data.image_folder import (
    ANNOTATIONS,
    ENDINGS,
    VALIDATION,
    Listing,
    Split,
    scanned,
)
from scalewise.frameworks.data.process_pool import cores, spread
from scalewise.frameworks.data_source import LENGTH

Tell = Callable[[int, int], None]
FEW = 5
"""Names that a note holds."""
PIECE = 128
"""Files that a process looks at, at a time."""


@dataclass(slots=True)
class Findings:
    """What was found in a data set."""

    kind: str
    folder: str
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Samples of each class, by split; tokens have no classes and are counted as one."""
    sizes: dict[str, int] = field(default_factory=dict)
    """How many images have each size, width x height."""
    modes: dict[str, int] = field(default_factory=dict)
    formats: dict[str, int] = field(default_factory=dict)
    problems: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def problem(self, words: str, path: str = "") -> None:
        """Keep what is wrong, and the file that it is about."""
        self.problems.append({"path": shown(path), "problem": words})


def checked(folder: Path, tell: Tell, processes: int | None = None) -> dict[str, Any]:
    """Look at a data set of any kind; return what was found, for JSON."""
    kind = kinds.kind_of(folder)
    found = Findings(kind, shown(folder))
    look = {"images": _images, "packed": _packed, "cifar": _cifar, "idx": _idx, "tokens": _tokens}
    try:
        look[kind](folder, found, tell, processes or cores())
    except ScalewiseError as bad:
        found.problem(str(bad), bad.path if isinstance(bad, Broken) else "")
    return asdict(found)


def _images(folder: Path, found: Findings, tell: Tell, processes: int) -> None:
    listing = _listed(folder, found)
    splits = {"train": listing.train, "validation": listing.validation} if listing else {}
    for name, split in splits.items():
        found.counts[name] = _counts(listing.classes, split.labels) if listing else {}
    paths = _paths(folder, splits)
    heads: Counter[tuple[str, str, tuple[int, int]]] = Counter()
    done = 0
    pieces = [paths[start : start + PIECE] for start in range(0, len(paths), PIECE)]
    broken: list[tuple[str, str]] = []
    for _, looked in spread(_looked_at, pieces, processes):
        heads.update(looked[0])
        broken += looked[1]
        done += sum(looked[0].values()) + len(looked[1])
        tell(done, len(paths))
    for path, words in sorted(broken):
        found.problem(words, path)
    found.formats = _tally((form, often) for (form, _, _), often in heads.items())
    found.modes = _tally((mode, often) for (_, mode, _), often in heads.items())
    found.sizes = _tally((f"{w}x{h}", often) for (_, _, (w, h)), often in heads.items())
    if len(found.sizes) > 1:
        found.notes.append(f"there are {len(found.sizes)} sizes of images: each is cut to a square")
    if odd := sum(often for mode, often in found.modes.items() if mode != "RGB"):
        found.notes.append(f"images that are not RGB, and are read as such: {odd:,}")


def _listed(folder: Path, found: Findings) -> Listing | None:
    """List a folder, and say everything that is wrong or odd with its classes."""
    root = str(folder)
    try:
        classes, files = scanned(root, "train")
        empty = [name for name, names in zip(classes, files) if not names]
        for name in empty:
            found.problem(f"class {shown(name)} has no image in train", f"{root}/train/{name}")
        if empty:
            found.counts["train"] = {shown(n): len(names) for n, names in zip(classes, files)}
            return None
        listing = Listing.of(folder)
    except SpecError as bad:
        found.problem(str(bad))
        return None
    found.notes += _oddities(root, listing)
    if listing.cut:
        found.notes.append("there is no val folder: every fifth image of train validates")
    else:
        held = np.bincount(listing.validation.labels, minlength=len(classes))
        if lacking := [shown(name) for name, count in zip(classes, held) if not count]:
            found.notes.append(f"classes without a validation image: {_few(lacking)}")
    return listing


def _oddities(root: str, listing: Listing) -> list[str]:
    """Say what a reader of an image folder may not expect of it."""
    notes = []
    if len(listing.classes) == 1:
        notes.append("there is 1 class: a model has nothing to tell apart")
    stray: list[str] = []
    unread: Counter[str] = Counter()
    held = [name for name in VALIDATION if os.path.isdir(os.path.join(root, name))]
    if len(held) > 1:
        notes.append(f"{held[0]} is read to validate, and {held[1]} is not")
    validating = {listing.validation.name(n) for n in range(len(listing.validation))}
    for part in ("train", *held[:1]):
        for here, folders, names in os.walk(os.path.join(root, part)):
            folders[:] = [name for name in folders if not name.startswith(".")]
            below = os.path.relpath(here, root)
            for name in names:
                ending = os.path.splitext(name)[1].lower()
                if name.startswith(".") or name == ANNOTATIONS:
                    continue
                if ending not in ENDINGS:
                    unread[ending or "none"] += 1
                elif below == part or (part != "train" and f"{below}/{name}" not in validating):
                    stray.append(f"{below}/{name}")
    if stray:
        few = _few([shown(name) for name in sorted(stray)])
        notes.append(f"images of no class, which are not read: {few}")
    if unread:
        often = ", ".join(f"{shown(end)} ({count:,})" for end, count in unread.most_common(FEW))
        notes.append(f"files that are not read, by their ending: {often}")
    return notes


def _few(names: Sequence[str]) -> str:
    """Name the first, and count all."""
    return ", ".join(names[:FEW]) + (" …" if len(names) > FEW else "") + f" ({len(names)})"


def _unshown(found: Findings) -> None:
    """Say which classes of labelled rows nobody learns, and which have no image at all."""
    train, held = found.counts["train"], found.counts["validation"]
    for name in (name for name, count in train.items() if not count and held[name]):
        found.problem(f"class {name} is in validation and not in train")
    if empty := [name for name, count in train.items() if not count and not held[name]]:
        found.notes.append(f"classes without an image: {_few(empty)}")


def _paths(folder: Path, splits: Mapping[str, Split]) -> list[str]:
    """Return every image file, also of a folder that cannot be trained on."""
    names = [split.name(n) for split in splits.values() for n in range(len(split))]
    if not splits:
        for part in ("train", "val", "validation"):
            if (folder / part).is_dir():
                names += _names(str(folder), part)
    return [f"{folder}/{name}" for name in names]


def _names(root: str, part: str) -> list[str]:
    try:
        return [name for names in scanned(root, part)[1] for name in names]
    except SpecError:  # It was said already.
        return []


def _looked_at(
    paths: Sequence[str],
) -> tuple[Counter[tuple[str, str, tuple[int, int]]], list[tuple[str, str]]]:
    """Decode files whole; return how many are of which kind, and those that are broken."""
    from scalewise.frameworks.data.pixels import head

    heads: Counter[tuple[str, str, tuple[int, int]]] = Counter()
    broken = []
    for path in paths:
        try:
            found = head(path, whole=True)
            heads[found.format, found.mode, found.size] += 1
        except Broken as bad:
            broken.append((path, str(bad)))
    return heads, broken


def _packed(folder: Path, found: Findings, tell: Tell, processes: int) -> None:
    from scalewise.frameworks.data.packed import Packed

    there = Packed.of(folder)
    total = len(there.train) + len(there.validation)
    found.sizes = {f"{there.edge}x{there.edge}": total}
    done = 0
    for name, rows in there.splits:
        found.counts[name] = _counts(there.classes, rows.labels)
        blocks = rows.layout.blocks
        for number, words in spread(rows.damaged, range(len(blocks)), processes):
            if words:
                file, _ = rows.layout.place(blocks[number].start)
                found.problem(words, f"{folder}/{file}")
            done += len(blocks[number])
            tell(done, total)


def _cifar(folder: Path, found: Findings, tell: Tell, processes: int) -> None:
    there = cifar.read(folder)
    found.counts["train"] = _counts(there.classes, there.train_labels)
    found.counts["validation"] = _counts(there.classes, there.validation_labels)
    found.sizes = {"32x32": sum(sum(each.values()) for each in found.counts.values())}
    _unshown(found)


def _idx(folder: Path, found: Findings, tell: Tell, processes: int) -> None:
    pairs = {which: idx.pair(folder, which) for which in ("train", "validation")}
    most = max(int(labels.max()) for _, labels in pairs.values())
    for which, (_, labels) in pairs.items():
        found.counts[which] = _counts([str(n) for n in range(most + 1)], labels.astype(np.int32))
    _unshown(found)
    shapes = {which: images.shape for which, (images, _) in pairs.items()}
    found.sizes = _tally((f"{width}x{high}", count) for count, high, width in shapes.values())
    if len(found.sizes) > 1:
        sizes = " and ".join(f"{which} {shape[2]}x{shape[1]}" for which, shape in shapes.items())
        found.notes.append(f"images have two sizes, {sizes}: a run brings them to one")


def _tokens(folder: Path, found: Findings, tell: Tell, processes: int) -> None:
    there = tokens.read(folder)
    streams = {"train": there.train, "validation": there.validation}
    for name, stream in streams.items():
        if stream is not None:
            found.counts[name] = {"tokens": len(stream)}
            least, most = tokens.span(stream)
            found.notes.append(f"{name}: {stream.dtype.name}, tokens from {least} to {most}")
    try:
        tokens.refuse_short(folder, LENGTH)
    except SpecError as short:
        found.notes.append(f"{short}, the usual length")


def _counts(classes: Sequence[str], labels: Labels) -> dict[str, int]:
    often = np.bincount(labels, minlength=len(classes))
    if len(often) > len(classes):
        raise SpecError(f"a label is {len(often) - 1}, and there are {len(classes)} classes")
    return {shown(name): int(count) for name, count in zip(classes, often)}


def _tally(often: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Add up, most frequent first."""
    found: Counter[str] = Counter()
    for name, count in often:
        found[name] += count
    return dict(found.most_common())
