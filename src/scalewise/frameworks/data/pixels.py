"""One image file, decoded to a square of RGB bytes.

The shorter side is brought to the edge and the middle is cut out, in one pass over
the pixels. A JPEG that is at least twice, four or eight times too large is decoded at
that fraction of its size, never below what is needed. What a reader must know of odd
files: transparent ones lie on white, 16 bits become the upper 8, and the orientation
that a camera noted is ignored, as torchvision's ImageFolder does.
"""

import io
import os
import random
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from scalewise.errors import Broken, PluginError
from scalewise.frameworks.data import Pixels, shown

try:
    from PIL import Image, ImageFile, UnidentifiedImageError
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile
    from PIL.WebPImagePlugin import WebPImageFile
except ImportError as missing:
    raise PluginError(
        "images are read with Pillow, which is not installed",
        hint="pip install 'scalewise[images]'",
    ) from missing

Box = tuple[float, float, float, float]
Origin = Path | str | bytes | BinaryIO

ODD = ("BMP", "GIF", "JPEG2000", "PPM", "TGA", "TIFF")
"""Formats that are read besides the usual ones, whatever a file's name. Not EPS: that would be a
program, and Ghostscript would run it."""
LARGEST = 178_956_970
"""Pixels beyond which a file is taken for a decompression bomb: Pillow's own limit."""
QUICK = 1.5
"""How much smaller an image must become before its JPEG is decoded with less precision."""
TRIES = 10
"""Draws of a random crop before the largest one in the middle is taken."""


@dataclass(frozen=True, slots=True)
class Crop:
    """A random part of an image, and whether it is mirrored.

    Drawn from the seed, the epoch and the image's index alone: the same whichever
    worker, rank or number of devices decodes it.
    """

    seed: int
    scale: tuple[float, float] = (0.08, 1.0)
    """Least and largest share of the image's area."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Least and largest width over height."""
    flip: float = 0.5
    """How often it is mirrored."""

    def drawn(self, epoch: int, index: int, size: tuple[int, int]) -> tuple[Box, bool]:
        """Return the part of an image of this width and height, and whether to mirror it."""
        chance = random.Random((self.seed << 80) ^ (epoch << 48) ^ index)
        width, height = size
        mirrored = chance.random() < self.flip
        for _ in range(TRIES):
            area = _between(self.scale, chance) * width * height
            ratio = (self.ratio[1] / self.ratio[0]) ** chance.random() * self.ratio[0]
            wide, high = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
            if 0 < wide <= width and 0 < high <= height:
                left = int(chance.random() * (width - wide + 1))
                top = int(chance.random() * (height - high + 1))
                return (left, top, left + wide, top + high), mirrored
        return _middle(width, height), mirrored


def _between(ends: tuple[float, float], chance: random.Random) -> float:
    return ends[0] + (ends[1] - ends[0]) * chance.random()


def _middle(width: float, height: float) -> Box:
    """Return the largest square in the middle."""
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def decoded(
    source: Origin,
    edge: int,
    *,
    out: Pixels | None = None,
    crop: Crop | None = None,
    epoch: int = 0,
    index: int = 0,
) -> Pixels:
    """Return an image as ``edge`` × ``edge`` × 3 bytes, written into ``out`` where that is given.

    Without ``crop`` it is the middle, and an image that has this size already is
    returned as it is. A file that cannot be decoded raises ``Broken`` with its path.
    """
    found = np.empty((edge, edge, 3), np.uint8) if out is None else out
    if found.shape != (edge, edge, 3) or found.dtype != np.uint8:
        raise ValueError(f"{found.dtype} of {found.shape} cannot take an image of edge {edge}")
    try:
        with _opened(source) as image:
            _decode(image, edge, found, crop, (epoch, index))
    except MemoryError:
        raise
    except Exception as bad:  # Whatever a decoder stumbles over, the file is at fault.
        raise broken(source, bad) from bad
    return found


@dataclass(frozen=True, slots=True)
class Head:
    """What a file says of its image before any pixel."""

    format: str
    mode: str
    size: tuple[int, int]
    """Width and height."""


def head(source: Origin, *, whole: bool = False) -> Head:
    """Return the head of an image; with ``whole`` every pixel is decoded too, as a test."""
    try:
        with _opened(source) as image:
            found = Head(image.format or "unknown", image.mode, image.size)
            if whole:
                image.load()
    except Exception as bad:
        raise broken(source, bad) from bad
    return found


def broken(source: Origin, why: Exception) -> Broken:
    """Return the error for a file that no image can be had from."""
    path = os.fsdecode(source) if isinstance(source, (Path, str)) else ""
    words = (why.strerror if isinstance(why, OSError) else "") or str(why) or type(why).__name__
    if isinstance(why, UnidentifiedImageError):
        words = "it is not an image"
    if isinstance(why, (struct.error, SyntaxError, EOFError, IndexError)):
        words = "it ends too soon, or is damaged"
    return Broken(
        f"{shown(path) or 'an image'} cannot be read: {words}",
        hint="`scalewise data check FOLDER` names every such file",
        path=path,
    )


def _opened(source: Origin) -> ImageFile.ImageFile:
    """Open an image by its first bytes, whatever its name says; only its head is read."""
    file: Any
    if isinstance(source, (Path, str)):
        file = open(source, "rb", opener=_file)  # noqa: SIM115 - the image closes it
    else:
        file = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        head = file.read(12)
        file.seek(-len(head), os.SEEK_CUR)
        if not head:
            raise ValueError("it is empty")
        image = _of_kind(head, file)
        image._exclusive_fp = file is not source  # So that closing the image closes the file.
        if image.width * image.height > LARGEST:
            raise ValueError(f"{image.width} × {image.height} pixels, as decompression bombs have")
    except BaseException:
        if file is not source:
            file.close()
        raise
    return image


def _file(path: str, flags: int) -> int:
    """Open a file and nothing else: a pipe would have us wait for whoever writes into it."""
    opened = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise ValueError("it is not a file")
    return opened


def _of_kind(head: bytes, file: Any) -> ImageFile.ImageFile:
    """Open the usual formats directly.

    Pillow's own way tries one after another, loads all its plugins for a WebP, and warns
    of large images on stderr.
    """
    if head.startswith(b"\xff\xd8\xff"):
        return JpegImageFile(file)
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return PngImageFile(file)
    if head.startswith(b"RIFF") and head[8:] == b"WEBP":
        return WebPImageFile(file)
    return Image.open(file, formats=ODD)


def _decode(
    image: ImageFile.ImageFile,
    edge: int,
    out: Pixels,
    crop: Crop | None,
    which: tuple[int, int],
) -> None:
    width, height = image.size
    box, mirrored = crop.drawn(*which, image.size) if crop else (_middle(width, height), False)
    if isinstance(image, JpegImageFile):
        box = _drafted(image, box, edge)
    flat = _in_colours(image)
    if flat.size != (edge, edge) or box != (0, 0, edge, edge):
        flat = flat.resize((edge, edge), Image.Resampling.BILINEAR, box=box)
    pixels = np.frombuffer(flat.tobytes(), np.uint8).reshape(edge, edge, 3)
    np.copyto(out, pixels[:, ::-1] if mirrored else pixels)


def _drafted(image: JpegImageFile, box: Box, edge: int) -> Box:
    """Let a JPEG be decoded no larger than needed; return where the part lies in it then.

    One that is made smaller anyway takes the decoder's quick arithmetic too: what that
    is off by is averaged away.
    """
    width, height = image.size
    wide, high = box[2] - box[0], box[3] - box[1]
    least = -(-width * edge // wide), -(-height * edge // high)
    drafted = image.draft(None, (int(least[0]), int(least[1])))
    if drafted is None:
        return box
    # A side that does not divide is rounded up: its last pixel lies partly outside.
    shrunk = drafted[1][2] / width
    if min(wide, high) * shrunk >= QUICK * edge:
        image.decoderconfig = (image.decoderconfig[0], 1)
    return box[0] * shrunk, box[1] * shrunk, box[2] * shrunk, box[3] * shrunk


def _in_colours(image: Image.Image) -> Image.Image:
    """Return an image of red, green and blue, loaded."""
    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image
    if image.mode.startswith("I"):  # 16 bits of grey, in one way or another.
        deep = np.asarray(image).astype(np.int64)
        grey = (deep >> 8).clip(0, 255).astype(np.uint8)
        grey[deep == image.info.get("transparency", -1)] = 255
        return Image.fromarray(grey).convert("RGB")
    if image.mode == "F":
        return Image.fromarray(np.asarray(image).clip(0, 255).astype(np.uint8)).convert("RGB")
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        seen = image.convert("RGBA")
        white = Image.new("RGBA", seen.size, "white")
        return Image.alpha_composite(white, seen).convert("RGB")
    return image.convert("RGB")
