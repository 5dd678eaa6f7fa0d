"""MNIST's idx format: a magic number, the sizes, then bytes; plain or gzipped."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from scalewise.errors import SpecError
from scalewise.frameworks.data import Pixels, printable
from scalewise.validate import PERMISSION_HINT

FILES = {
    "train images": "train-images-idx3-ubyte",
    "train labels": "train-labels-idx1-ubyte",
    "validation images": "t10k-images-idx3-ubyte",
    "validation labels": "t10k-labels-idx1-ubyte",
}


def find_file(folder: Path, name: str) -> Path | None:
    """Return the path of a key of ``FILES``, plain or gzipped; None if it does not exist."""
    paths = (folder / f"{FILES[name]}{suffix}" for suffix in ("", ".gz"))
    return next(filter(Path.is_file, paths), None)


def read_split(folder: Path, split: str) -> tuple[Pixels, Pixels]:
    """Return the images (count × height × width) and the labels of ``train`` or ``validation``."""
    images = read_array(_require_file(folder, f"{split} images"), 3)
    labels = read_array(_require_file(folder, f"{split} labels"), 1)
    _refuse_unequal_counts(folder, split, len(images), len(labels))
    return images, labels


def image_size(folder: Path, split: str) -> tuple[int, int]:
    """Return the height and width of a split's images from headers; all four files must exist."""
    paths = {name: _require_file(folder, name) for name in FILES}
    (image_count, height, width), _ = _read_file(paths[f"{split} images"], 3, header_only=True)
    (label_count,), _ = _read_file(paths[f"{split} labels"], 1, header_only=True)
    _refuse_unequal_counts(folder, split, image_count, label_count)
    return height, width


def read_array(path: Path, dimensions: int) -> Pixels:
    """Return the array in an idx file, which must hold bytes in this many dimensions."""
    sizes, content = _read_file(path, dimensions)
    return np.frombuffer(content, np.uint8).reshape(sizes)


def _refuse_unequal_counts(folder: Path, split: str, images: int, labels: int) -> None:
    """Refuse a split whose images and labels differ in number, and an empty one."""
    if images != labels or not labels:
        raise SpecError(
            f"{printable(folder)} has {images} {split} images and {labels} labels",
            hint="download the four files again",
        )


def _require_file(folder: Path, name: str) -> Path:
    path = find_file(folder, name)
    if path is None:
        raise SpecError(
            f"data folder {printable(folder)} has no {name}: {FILES[name]} (or .gz)",
            hint="MNIST and Fashion-MNIST come as four such files",
        )
    return path


def _read_file(
    path: Path, dimensions: int, *, header_only: bool = False
) -> tuple[list[int], bytes]:
    """Return the sizes in a file's header, and the bytes after it (none with ``header_only``)."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(4 + 4 * dimensions)
            content = b"" if header_only else file.read()
        if len(header) < 4 + 4 * dimensions:
            raise ValueError(f"it ends after {len(header)} bytes")
        magic, *sizes = struct.unpack(f">{1 + dimensions}I", header)
        if magic != 0x0800 + dimensions:  # 0x08 stands for unsigned bytes.
            raise ValueError(f"its magic number is {magic:#x}")
        if 0 in sizes[1:]:
            raise ValueError(f"its images are {sizes[2]}x{sizes[1]}")
        if not header_only and len(content) != math.prod(sizes):
            raise ValueError(f"it has {len(content):,} of {math.prod(sizes):,} bytes")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        if isinstance(error, OSError) and error.strerror:
            problem, hint = f"cannot be read: {error.strerror}", PERMISSION_HINT
        else:
            problem, hint = f"is not a complete MNIST idx file: {error}", "download it again"
        raise SpecError(f"{printable(path)} {problem}", hint=hint) from error
    return sizes, content
