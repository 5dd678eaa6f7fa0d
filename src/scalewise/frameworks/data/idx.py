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
    for suffix in ("", ".gz"):
        path = folder / (FILES[name] + suffix)
        if path.is_file():
            return path
    return None


def read_split(folder: Path, split: str) -> tuple[Pixels, Pixels]:
    """Return the images (count × height × width) and the labels of ``train`` or ``validation``."""
    images = read_array(_require_file(folder, f"{split} images"), 3)
    labels = read_array(_require_file(folder, f"{split} labels"), 1)
    _refuse_counts(folder, split, len(images), len(labels))
    return images, labels


def image_size(folder: Path, split: str) -> tuple[int, int]:
    """Return the height and width of the ``train`` or ``validation`` images.

    Reads headers only. All four files must exist, with as many images as labels.
    """
    for name in FILES:
        _require_file(folder, name)
    count, height, width = _read_sizes(_require_file(folder, f"{split} images"), 3)
    _refuse_counts(folder, split, count, *_read_sizes(_require_file(folder, f"{split} labels"), 1))
    return height, width


def read_array(path: Path, dimensions: int) -> Pixels:
    """Return an idx file of bytes with this many dimensions."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        sizes = _parse_header(content, dimensions)
        values = np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
        if len(values) != math.prod(sizes):
            raise ValueError(f"it has {len(values):,} of {math.prod(sizes):,} bytes")
        return values.reshape(sizes)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise _unreadable(path, error) from error


def _refuse_counts(folder: Path, split: str, images: int, labels: int) -> None:
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


def _read_sizes(path: Path, dimensions: int) -> list[int]:
    """Return the sizes in a file's header, without reading its content."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _parse_header(file.read(4 + 4 * dimensions), dimensions)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise _unreadable(path, error) from error


def _parse_header(content: bytes, dimensions: int) -> list[int]:
    if len(content) < 4 + 4 * dimensions:
        raise ValueError(f"it ends after {len(content)} bytes")
    magic, *sizes = struct.unpack_from(f">{1 + dimensions}I", content)
    if magic != 0x0800 + dimensions:
        raise ValueError(f"magic number {magic:#x}")
    if 0 in sizes[1:]:
        raise ValueError(f"images of {sizes[2]}x{sizes[1]}")
    return sizes


def _unreadable(path: Path, error: Exception) -> SpecError:
    if isinstance(error, OSError) and error.strerror:
        return SpecError(f"cannot read {printable(path)}: {error.strerror}", hint=PERMISSION_HINT)
    return SpecError(
        f"{printable(path)} is not a complete MNIST idx file: {error}", hint="download it again"
    )
