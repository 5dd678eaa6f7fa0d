"""Build a data set: an image folder of one size, or packed images.

It grows under another name, ``TO.draft``, and takes its own when it is whole: what
bears the name is never half of a data set.
"""

import json
import os
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from scalewise.errors import RecordError, SpecError
from scalewise.frameworks.data import Pixels, kinds, packed, shown
from scalewise.frameworks.data.image_folder import Listing, Split
from scalewise.frameworks.data.pixels import Head, decoded, head
from scalewise.frameworks.data.process_pool import cores, spread
from scalewise.frameworks.data.synthetic import picture

Tell = Callable[[int, int], None]
"""Is told how many images are done, and of how many."""

QUALITY = 90
"""Of the JPEGs that are written."""
PIECE = 64
"""Images that a process makes at a time."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """How large a known data set is; a tenth as many images validate."""

    classes: int
    images: int


MOST = 10_000_000
"""Made-up images: a hundred times Tiny ImageNet. Every one is planned before the first is made."""
LIKE = {"tiny-224": Likeness(200, 100_000), "micro-224": Likeness(200, 12_000)}
"""tiny-224 is Tiny ImageNet, exactly. micro-224 is a subset of it whose size is not
published: 12,000 is what its published training times and throughputs amount to."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to make of what, and where."""

    to: Path
    edge: int = 224
    like: str | None = None
    source: Path | None = None
    images: int | None = None
    """Training images in all, evenly from the classes; a tenth as many validate."""
    classes: int | None = None
    seed: int = 0
    packed: bool = False


Item = tuple[str, int, str]
"""The class of an image, its number there, and its file; no file where it is made up."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Every image of each split."""

    classes: tuple[str, ...]
    splits: dict[str, list[Item]]

    @property
    def total(self) -> int:
        return sum(map(len, self.splits.values()))


def made(recipe: Recipe, tell: Tell, processes: int | None = None) -> dict[str, Any]:
    """Build a data set, and return how much there is of it."""
    if os.path.lexists(recipe.to):
        raise SpecError(f"{shown(recipe.to)} is there already", hint="choose another folder")
    plan = planned(recipe)
    draft = recipe.to.with_name(f"{recipe.to.name}.draft")
    try:
        draft.mkdir(parents=True)
    except FileExistsError as why:
        raise SpecError(
            f"{shown(draft)} is there: another process makes it, or was ended before it was whole",
            hint=f"if nobody makes it now, remove it: rm -r {shlex.quote(shown(draft))}",
        ) from why
    except OSError as why:
        raise _cannot(recipe.to, why) from why
    try:
        write = _write_packed if recipe.packed else _write_folder
        write(recipe, plan, draft, tell, processes or cores())
        os.rename(draft, recipe.to)
    except BaseException as why:
        with suppress(OSError):
            shutil.rmtree(draft)
        if isinstance(why, OSError) and not isinstance(why, RecordError):
            raise _cannot(recipe.to, why) from why
        raise
    counts = {name: len(items) for name, items in plan.splits.items()}
    return {"classes": len(plan.classes), "edge": recipe.edge, **counts}


def planned(recipe: Recipe) -> Plan:
    """Return every image that a recipe asks for."""
    known = LIKE.get(recipe.like or "")
    classes = recipe.classes or (known.classes if known else None)
    images = recipe.images or (known.images if known else None)
    if recipe.source is not None:
        _refuse_other_kinds(recipe.source)
        return _chosen(Listing.of(recipe.source), classes, images, recipe.seed)
    if classes is None or images is None:
        raise SpecError(
            "there is nothing to make it of",
            hint="give --from FOLDER, --like micro-224, or --images and --classes",
        )
    _refuse_few(images, classes)
    if images > MOST:
        raise SpecError(
            f"a made-up set has at most {MOST:,} images, not {images:,}",
            hint=f"--images {MOST} or fewer",
        )
    names = tuple(f"class-{n:04d}" for n in range(classes))
    train, held = _shares(images, classes), _shares(max(1, images // 10), classes)
    splits = {
        "train": [(names[n], k, "") for n in range(classes) for k in range(train[n])],
        # Numbered beyond any training image: another image.
        "validation": [(names[n], images + k, "") for n in range(classes) for k in range(held[n])],
    }
    return Plan(names, splits)


def _refuse_few(images: int, classes: int) -> None:
    """Refuse to leave a class without an image: nobody could train on that."""
    if images < classes:
        raise SpecError(
            f"{images} images do not reach for {classes} classes",
            hint=f"give --images {classes} or more, or fewer --classes",
        )


def _refuse_other_kinds(source: Path) -> None:
    if (kind := kinds.kind_of(source)) != "images":
        raise SpecError(
            f"{shown(source)} is {kinds.WORDS[kind]}, and a set is made of a folder of images",
            hint="give a folder with train/CLASS/*.jpg",
        )


def _shares(images: int, classes: int) -> list[int]:
    """Return how many images of each class there are, as evenly as can be."""
    each, left = divmod(images, classes)
    return [each + (n < left) for n in range(classes)]


def _chosen(listing: Listing, classes: int | None, images: int | None, seed: int) -> Plan:
    """Return the first classes of a listing, and images of each that the seed draws."""
    if classes and classes > len(listing.classes):
        raise SpecError(
            f"{shown(listing.root)} has {len(listing.classes)} classes, not {classes}",
            hint=f"--classes {len(listing.classes)} takes all",
        )
    names = listing.classes[: classes or len(listing.classes)]
    if images is not None:
        _refuse_few(images, len(names))
    held = None if images is None else max(1, images // 10)
    drawn = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    plan = Plan(
        names,
        {
            "train": _some(listing, listing.train, names, images, drawn[0]),
            "validation": _some(listing, listing.validation, names, held, drawn[1]),
        },
    )
    if not plan.splits["validation"]:
        first = "first class" if len(names) == 1 else f"first {len(names)} classes"
        raise SpecError(
            f"no image validates the {first} of {shown(listing.root)}",
            hint="take more --classes, or put images into val",
        )
    return plan


def _some(
    listing: Listing,
    split: Split,
    names: Sequence[str],
    images: int | None,
    chance: np.random.Generator,
) -> list[Item]:
    """Return images of each class that has any, as evenly as can be; all, if no number is given."""
    places = [np.flatnonzero(split.labels == label) for label in range(len(names))]
    holders = [label for label, there in enumerate(places) if len(there)]
    even = _shares(images, len(holders)) if images is not None and holders else []
    shares = dict(zip(holders, even))
    found = []
    for label, (name, there) in enumerate(zip(names, places)):
        share = shares.get(label, len(there))
        if share < len(there):
            there = np.sort(chance.choice(there, share, replace=False))
        paths = [listing.path(split, int(n)) for n in there]
        found += [(name, number, path) for number, path in enumerate(paths)]
    return found


def _write_folder(recipe: Recipe, plan: Plan, draft: Path, tell: Tell, processes: int) -> None:
    """Write train/CLASS/NAME.jpg and val/CLASS/NAME.jpg."""
    targets = {"train": "train", "validation": "val"}
    pieces = []
    for split, items in plan.splits.items():
        for name in plan.classes:
            os.makedirs(os.path.join(draft, targets[split], name))
        named = list(zip(items, _names(items)))
        pieces += [
            (os.path.join(draft, targets[split]), named[start : start + PIECE])
            for start in range(0, len(named), PIECE)
        ]
    done = 0
    labels = {name: label for label, name in enumerate(plan.classes)}
    work = partial(_write_images, recipe.edge, recipe.seed, labels)
    for _, count in spread(work, pieces, processes):
        done += count
        tell(done, plan.total)


def _names(items: Sequence[Item]) -> list[str]:
    """Return a file name for each image, its own where no other of the class has it.

    None comes twice in a class, also where a file system takes X for x.
    """
    stems = [
        os.path.splitext(os.path.basename(path))[0] if path else f"{number:06d}"
        for _, number, path in items
    ]
    often = Counter((item[0], stem.lower()) for item, stem in zip(items, stems))
    taken = {key for key, count in often.items() if count == 1}
    names = []
    for (label, number, _), stem in zip(items, stems):
        name = stem
        if often[label, stem.lower()] > 1:
            name = f"{stem}-{number}"
            while (label, name.lower()) in taken:
                name += "-"
            taken.add((label, name.lower()))
        names.append(f"{name}.jpg")
    return names


def _write_images(
    edge: int, seed: int, labels: dict[str, int], piece: tuple[str, list[tuple[Item, str]]]
) -> int:
    """Write some images; a JPEG of the right size is copied as it is."""
    folder, items = piece
    for (name, number, path), file in items:
        target = os.path.join(folder, name, file)
        if path and head(path) == Head("JPEG", "RGB", (edge, edge)):
            decoded(path, edge)  # Raises where it is broken.
            shutil.copyfile(path, target)
            continue
        pixels = decoded(path, edge) if path else picture(seed, labels[name], number, edge)
        Image.fromarray(pixels).save(target, "JPEG", quality=QUALITY)
    return len(items)


def _write_packed(recipe: Recipe, plan: Plan, draft: Path, tell: Tell, processes: int) -> None:
    """Write the rows of each split, then the index that makes them a data set."""
    needed = plan.total * recipe.edge * recipe.edge * 3
    free = shutil.disk_usage(draft).free
    if needed > free:
        raise RecordError(
            f"{shown(recipe.to)} needs {needed / 2**20:,.1f} MiB, and the disk has "
            f"{free / 2**20:,.1f} MiB left",
            hint="free some space, or take fewer --images or a smaller --edge",
        )
    labels = {name: label for label, name in enumerate(plan.classes)}
    index: dict[str, Any] = {
        "schema": packed.SCHEMA, "format": packed.FORMAT,
        "edge": recipe.edge, "classes": list(plan.classes),
    }  # fmt: skip
    done = 0
    for split, items in plan.splits.items():
        layout = packed.Layout(recipe.edge, len(items), split)
        checksums = [""] * len(layout.blocks)
        pieces = [(block, items[block.start : block.stop]) for block in layout.blocks]
        work = partial(_write_rows, draft, layout, recipe.seed, labels)
        for number, checksum in spread(work, pieces, processes):
            checksums[number] = checksum
            done += len(layout.blocks[number])
            tell(done, plan.total)
        index[split] = packed.index_of(layout, [labels[item[0]] for item in items], checksums)
    (draft / packed.INDEX).write_text(json.dumps(index), encoding="utf-8")


def _write_rows(
    draft: Path,
    layout: packed.Layout,
    seed: int,
    labels: dict[str, int],
    piece: tuple[range, list[Item]],
) -> str:
    """Decode a block of images and write it at its place; return its checksum."""
    block, items = piece
    rows: Pixels = np.empty((len(items), layout.edge, layout.edge, 3), np.uint8)
    for row, (name, number, path) in zip(rows, items):
        if path:
            decoded(path, layout.edge, out=row)
        else:
            row[:] = picture(seed, labels[name], number, layout.edge)
    return packed.write_block(draft, layout, block, rows)


def _cannot(to: Path, why: OSError) -> RecordError:
    return RecordError(
        f"cannot write {shown(to)}: {why.strerror or why}",
        hint="choose another folder, or free some space; nothing half-made was left",
    )
