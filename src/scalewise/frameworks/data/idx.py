"""MNIST's own format: a magic number, the sizes, then bytes; plain or gzipped."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from scalewise.errors import SpecError
from scalewise.frameworks.data import Pixels, shown
from scalewise.validate import MAY

FILES = {
    "train images": "train-images-idx3-ubyte",
    "train labels": "train-labels-idx1-ubyte",
    "validation images": "t10k-images-idx3-ubyte",
    "validation labels": "t10k-labels-idx1-ubyte",
}


def found(folder: Path, name: str) -> Path | None:
    """Return the file of this name in ``FILES``, plain or gzipped, if it is there."""
    for suffix in ("", ".gz"):
        path = folder / (FILES[name] + suffix)
        if path.is_file():
            return path
    return None


def pair(folder: Path, which: str) -> tuple[Pixels, Pixels]:
    """Return the images (count × height × width) and the labels of ``train`` or ``validation``."""
    images = array(_there(folder, f"{which} images"), 3)
    labels = array(_there(folder, f"{which} labels"), 1)
    _refuse_unlike(folder, which, len(images), len(labels))
    return images, labels


def _refuse_unlike(folder: Path, which: str, images: int, labels: int) -> None:
    """Refuse images without labels, labels without images, and nothing of both."""
    if images != labels or not labels:
        raise SpecError(
            f"{shown(folder)} has {images} {which} images and {labels} labels",
            hint="download the four files again",
        )


def _there(folder: Path, name: str) -> Path:
    path = found(folder, name)
    if path is None:
        raise SpecError(
            f"data folder {shown(folder)} has no {name}: {FILES[name]} (or .gz)",
            hint="MNIST and Fashion-MNIST come as four such files",
        )
    return path


def edges(folder: Path, which: str) -> tuple[int, int]:
    """Return the height and the width of the ``train`` or ``validation`` images.

    Only the heads of files are read. All four must be there, and tell of as many images as labels.
    """
    for name in FILES:
        _there(folder, name)
    count, height, width = _sizes(_there(folder, f"{which} images"), 3)
    _refuse_unlike(folder, which, count, *_sizes(_there(folder, f"{which} labels"), 1))
    return height, width


def _sizes(path: Path, dimensions: int) -> list[int]:
    """Return what the head of a file says of its sizes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _head(file.read(4 + 4 * dimensions), dimensions)
    except (OSError, EOFError, zlib.error, ValueError) as bad:
        raise _not_whole(path, bad) from bad


def _head(content: bytes, dimensions: int) -> list[int]:
    if len(content) < 4 + 4 * dimensions:
        raise ValueError(f"it ends after {len(content)} bytes")
    magic, *sizes = struct.unpack_from(f">{1 + dimensions}I", content)
    if magic != 0x0800 + dimensions:
        raise ValueError(f"magic number {magic:#x}")
    if 0 in sizes[1:]:
        raise ValueError(f"images of {sizes[2]}x{sizes[1]}")
    return sizes


def array(path: Path, dimensions: int) -> Pixels:
    """Return an idx file of bytes with this many dimensions."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        sizes = _head(content, dimensions)
        values = np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
        if len(values) != math.prod(sizes):
            raise ValueError(f"it has {len(values):,} of {math.prod(sizes):,} bytes")
        return values.reshape(sizes)
    except (OSError, EOFError, zlib.error, ValueError) as bad:
        raise _not_whole(path, bad) from bad


def _not_whole(path: Path, why: Exception) -> SpecError:
    if isinstance(why, OSError) and why.strerror:
        return SpecError(f"cannot read {shown(path)}: {why.strerror}", hint=MAY)
    return SpecError(
        f"{shown(path)} is not a whole MNIST idx file: {why}", hint="download it again"
    )
