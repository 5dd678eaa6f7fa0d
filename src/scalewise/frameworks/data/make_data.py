"""Build an image folder or packed images in ``TO.draft``; rename it when it is complete."""

import json
import os
import shlex
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from scalewise.errors import RecordError, SpecError
from scalewise.frameworks.data import Pixels, packed, printable
from scalewise.frameworks.data.image_folder import Listing, Split
from scalewise.frameworks.data.pixels import Header, decode_image, read_header
from scalewise.frameworks.data.process_pool import Progress, map_unordered
from scalewise.frameworks.data_source import kind_of
from scalewise.probe.environment import usable_cores

JPEG_QUALITY = 90
CHUNK_IMAGES = 64
"""Images that a process writes at a time."""
PATTERN_EDGE, NOISE_EDGE = 6, 24
"""Points along each side of a synthetic class's pattern, and of the noise over it."""
MAX_SYNTHETIC_IMAGES = 10_000_000
"""A hundred times Tiny ImageNet. The plan of more images would not fit into memory."""
KNOWN_SIZES = {"tiny-224": (200, 100_000), "micro-224": (200, 12_000)}
"""Classes and training images of known data sets. tiny-224 is Tiny ImageNet. micro-224 is a subset
of it with unpublished size: 12,000 images follow from its published times and throughputs.
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The data set to make in the folder ``to``, from an image folder or of synthetic images."""

    to: Path
    edge: int = 224
    like: str | None = None
    """A name in ``KNOWN_SIZES``, for defaults of ``images`` and ``classes``."""
    source: Path | None = None
    """The image folder to take images from; None for synthetic images."""
    images: int | None = None
    """Training images, divided evenly over classes. A tenth as many more are for validation."""
    classes: int | None = None
    seed: int = 0
    packed: bool = False


Item = tuple[int, int, str]
"""An image's label, its number within the class, and its source file ("" if synthetic)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The images of each split."""

    classes: tuple[str, ...]
    splits: dict[str, list[Item]]

    @property
    def total(self) -> int:
        return sum(map(len, self.splits.values()))


def make_data_set(
    recipe: Recipe, progress: Progress, processes: int | None = None
) -> dict[str, Any]:
    """Build a data set; return its classes, edge and images per split."""
    if os.path.lexists(recipe.to):
        raise SpecError(f"{printable(recipe.to)} exists already", hint="choose another folder")
    plan = plan_images(recipe)
    draft = recipe.to.with_name(f"{recipe.to.name}.draft")
    try:
        draft.mkdir(parents=True)
    except FileExistsError as error:
        raise SpecError(
            f"{printable(draft)} exists: another process is writing it, or was stopped before the "
            "end",
            hint=f"if no process is writing it, remove it: rm -r {shlex.quote(printable(draft))}",
        ) from error
    except OSError as error:
        raise _write_error(recipe.to, error) from error
    try:
        write = _write_packed if recipe.packed else _write_folder
        write(recipe, plan, draft, progress, processes or usable_cores() or 1)
        os.rename(draft, recipe.to)
    except BaseException as error:
        with suppress(OSError):
            shutil.rmtree(draft)
        if isinstance(error, OSError) and not isinstance(error, RecordError):
            raise _write_error(recipe.to, error) from error
        raise
    counts = {name: len(items) for name, items in plan.splits.items()}
    return {"classes": len(plan.classes), "edge": recipe.edge, **counts}


def plan_images(recipe: Recipe) -> Plan:
    """Return the list of all images to write for a recipe."""
    like_classes, like_images = KNOWN_SIZES.get(recipe.like or "", (None, None))
    classes, images = recipe.classes or like_classes, recipe.images or like_images
    if recipe.source is not None:
        if (kind := kind_of(recipe.source)) != "images":
            raise SpecError(
                f"{printable(recipe.source)} is {kind} data, and only a folder of images can be "
                "converted",
                hint="give a folder with train/CLASS/*.jpg",
            )
        return _plan_from_folder(Listing.of(recipe.source), classes, images, recipe.seed)
    if classes is None or images is None:
        raise SpecError(
            "no source and no size for the data set",
            hint="give --from FOLDER, --like micro-224, or --images and --classes",
        )
    _refuse_few(images, classes)
    if images > MAX_SYNTHETIC_IMAGES:
        raise SpecError(
            f"a synthetic set has at most {MAX_SYNTHETIC_IMAGES:,} images, not {images:,}",
            hint=f"give --images {MAX_SYNTHETIC_IMAGES} or fewer",
        )
    validation = max(1, images // 10)
    splits = {
        split: [
            (label, first + n, "")
            for label, share in enumerate(_even_shares(count, classes))
            for n in range(share)
        ]
        # Validation images get other numbers, so that they differ from the training images.
        for split, count, first in (("train", images, 0), ("validation", validation, images))
    }
    return Plan(tuple(f"class-{n:04d}" for n in range(classes)), splits)


def _refuse_few(images: int, classes: int) -> None:
    """Refuse fewer images than classes: a class without an image cannot be trained on."""
    if images < classes:
        raise SpecError(
            f"{images} images are too few for {classes} classes",
            hint=f"give --images {classes} or more, or fewer --classes",
        )


def _even_shares(images: int, classes: int) -> list[int]:
    """Return the images of each class; two classes differ by at most one."""
    quotient, remainder = divmod(images, classes)
    return [quotient + (n < remainder) for n in range(classes)]


def _plan_from_folder(listing: Listing, classes: int | None, images: int | None, seed: int) -> Plan:
    """Return a plan with the first classes of a listing and a random choice of their images."""
    if classes and classes > len(listing.classes):
        raise SpecError(
            f"{printable(listing.root)} has {len(listing.classes)} classes, not {classes}",
            hint=f"give --classes {len(listing.classes)}, which takes all of them",
        )
    names = listing.classes[:classes]
    if images is not None:
        _refuse_few(images, len(names))
    validation = None if images is None else max(1, images // 10)
    splits = {
        "train": _draw_images(listing, listing.train, len(names), images, [seed, 0]),
        "validation": _draw_images(listing, listing.validation, len(names), validation, [seed, 1]),
    }
    if not splits["validation"]:
        first = "first class" if len(names) == 1 else f"first {len(names)} classes"
        raise SpecError(
            f"no validation image in the {first} of {printable(listing.root)}",
            hint="take more --classes, or put images into val",
        )
    return Plan(names, splits)


def _draw_images(
    listing: Listing, split: Split, classes: int, images: int | None, seed: Sequence[int]
) -> list[Item]:
    """Return ``images`` random images (None: all), evenly from the classes that have images."""
    rng = np.random.default_rng(seed)
    indices_of_class = [np.flatnonzero(split.labels == label) for label in range(classes)]
    nonempty = [label for label, indices in enumerate(indices_of_class) if len(indices)]
    shares = {}
    if images is not None and nonempty:
        shares = dict(zip(nonempty, _even_shares(images, len(nonempty))))
    items = []
    for label, indices in enumerate(indices_of_class):
        share = shares.get(label, len(indices))
        if share < len(indices):
            indices = np.sort(rng.choice(indices, share, replace=False))
        paths = [listing.path(split, int(n)) for n in indices]
        items += [(label, number, path) for number, path in enumerate(paths)]
    return items


def _write_folder(
    recipe: Recipe, plan: Plan, draft: Path, progress: Progress, processes: int
) -> None:
    """Write train/CLASS/NAME.jpg and val/CLASS/NAME.jpg."""
    files: list[tuple[Item, str]] = []
    for split, folder in (("train", "train"), ("validation", "val")):
        for name in plan.classes:
            os.makedirs(draft / folder / name)
        items = plan.splits[split]
        folders = [f"{folder}/{plan.classes[label]}" for label, _, _ in items]
        files += zip(items, map("/".join, zip(folders, _file_names(items))))
    chunks = [files[start : start + CHUNK_IMAGES] for start in range(0, len(files), CHUNK_IMAGES)]
    done = 0
    write_chunk = partial(_write_images, draft, recipe.edge, recipe.seed)
    for _, count in map_unordered(write_chunk, chunks, processes):
        done += count
        progress(done, plan.total)


def _file_names(items: Sequence[Item]) -> list[str]:
    """Return the sources' names, made unique within a class even on a disk that ignores case."""
    stems = [
        os.path.splitext(os.path.basename(path))[0] if path else f"{number:06d}"
        for _, number, path in items
    ]
    counts = Counter((item[0], stem.lower()) for item, stem in zip(items, stems))
    used = {key for key, count in counts.items() if count == 1}
    names = []
    for (label, number, _), stem in zip(items, stems):
        name = stem
        if counts[label, stem.lower()] > 1:
            name = f"{stem}-{number}"
            while (label, name.lower()) in used:
                name += "-"
            used.add((label, name.lower()))
        names.append(f"{name}.jpg")
    return names


def _write_images(draft: Path, edge: int, seed: int, files: Sequence[tuple[Item, str]]) -> int:
    """Write some images and return how many; a JPEG of the right size is copied unchanged."""
    for (label, number, path), name in files:
        target = os.path.join(draft, name)
        # A file that is only copied is decoded too, which refuses a broken one.
        pixels = decode_image(path, edge) if path else synthetic_image(seed, label, number, edge)
        if path and read_header(path) == Header("JPEG", "RGB", (edge, edge)):
            shutil.copyfile(path, target)
        else:
            Image.fromarray(pixels).save(target, "JPEG", quality=JPEG_QUALITY)
    return len(files)


def _write_packed(
    recipe: Recipe, plan: Plan, draft: Path, progress: Progress, processes: int
) -> None:
    """Write the rows of each split, then the index."""
    needed = plan.total * recipe.edge * recipe.edge * 3
    free = shutil.disk_usage(draft).free
    if needed > free:
        raise RecordError(
            f"{printable(recipe.to)} needs {needed / 2**20:,.1f} MiB, and the disk has "
            f"{free / 2**20:,.1f} MiB left",
            hint="free some space, or take fewer --images or a smaller --edge",
        )
    index: dict[str, Any] = {
        "schema": packed.SCHEMA, "format": packed.FORMAT,
        "edge": recipe.edge, "classes": list(plan.classes),
    }  # fmt: skip
    done = 0
    for split, items in plan.splits.items():
        layout = packed.Layout(recipe.edge, len(items), split)
        checksums = [""] * len(layout.blocks)
        chunks = [(block, items[block.start : block.stop]) for block in layout.blocks]
        write_chunk = partial(_write_rows, draft, layout, recipe.seed)
        for number, checksum in map_unordered(write_chunk, chunks, processes):
            checksums[number] = checksum
            done += len(layout.blocks[number])
            progress(done, plan.total)
        index[split] = packed.index_entry(layout, [label for label, _, _ in items], checksums)
    (draft / packed.INDEX).write_text(json.dumps(index), encoding="utf-8")


def _write_rows(
    draft: Path, layout: packed.Layout, seed: int, chunk: tuple[range, list[Item]]
) -> str:
    """Decode and write one block of images; return its checksum."""
    block, items = chunk
    rows: Pixels = np.empty((len(items), layout.edge, layout.edge, 3), np.uint8)
    for row, (label, number, path) in zip(rows, items):
        if path:
            decode_image(path, layout.edge, out=row)
        else:
            row[:] = synthetic_image(seed, label, number, layout.edge)
    return packed.write_block(draft, layout, block, rows)


def synthetic_image(seed: int, label: int, number: int, edge: int) -> Pixels:
    """Return an RGB image: one pattern per class plus noise; equal arguments give equal images."""
    # numpy ignores a trailing 0 in a seed: without the + 1, noise 0 would equal the pattern.
    pattern_rng, noise_rng = map(np.random.default_rng, ([seed, label], [seed, label, number + 1]))
    pattern = _smooth_colours(pattern_rng, PATTERN_EDGE, edge)
    noise = _smooth_colours(noise_rng, NOISE_EDGE, edge)
    return (0.6 * pattern + 0.4 * noise).astype(np.uint8)


def _smooth_colours(rng: np.random.Generator, points: int, edge: int) -> Pixels:
    """Return ``points`` × ``points`` random colours, interpolated to ``edge`` × ``edge`` pixels."""
    colours = Image.fromarray(rng.integers(0, 256, (points, points, 3)).astype(np.uint8))
    return np.asarray(colours.resize((edge, edge), Image.Resampling.BICUBIC))


def _write_error(to: Path, error: OSError) -> RecordError:
    return RecordError(
        f"cannot write {printable(to)}: {error.strerror or error}",
        hint="choose another folder, or free some space; no partial data set was left behind",
    )
