"""One image file, decoded to a square of RGB bytes: shorter side resized, centre cropped.

A large JPEG is decoded at 1/2, 1/4 or 1/8 size. Transparency is composited on white, and 16 bits
are cut to the upper 8. Like torchvision's ImageFolder, this ignores the EXIF orientation.
"""

import io
import os
import random
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scalewise.errors import Broken, PluginError
from scalewise.frameworks.data import Pixels, printable

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
Origin = Path | str | bytes
"""The path of an image, or its content."""

OTHER_FORMATS = ("BMP", "GIF", "JPEG2000", "PPM", "TGA", "TIFF")
"""Formats read besides JPEG, PNG and WebP. EPS is excluded: Pillow would run it as a program."""
MAX_PIXELS = 178_956_970
"""A larger image is refused as a decompression bomb: Pillow's own limit."""
FAST_DCT_RATIO = 1.5
"""A JPEG that is shrunk by at least this factor uses the fast DCT: resizing averages its errors."""
CROP_TRIES = 10
"""Draws of a random crop before the centre crop is used instead."""


@dataclass(frozen=True, slots=True)
class Crop:
    """A random crop and flip, which depends on the seed, the epoch and the image's index only."""

    seed: int
    scale: tuple[float, float] = (0.08, 1.0)
    """Smallest and largest share of the image's area."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Smallest and largest width over height."""
    flip: float = 0.5
    """Probability of a horizontal flip."""

    def draw(self, epoch: int, index: int, size: tuple[int, int]) -> tuple[Box, bool]:
        """Return the box in an image of this width and height, and whether to flip it."""
        # The shifts keep the three numbers apart: an index needs less than 48 bits.
        rng = random.Random((self.seed << 80) ^ (epoch << 48) ^ index)
        width, height = size
        flipped = rng.random() < self.flip
        for _ in range(CROP_TRIES):
            smallest, largest = self.scale
            area = (smallest + (largest - smallest) * rng.random()) * width * height
            ratio = (self.ratio[1] / self.ratio[0]) ** rng.random() * self.ratio[0]  # Log-uniform.
            box_width, box_height = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
            if 0 < box_width <= width and 0 < box_height <= height:
                x = int(rng.random() * (width - box_width + 1))
                y = int(rng.random() * (height - box_height + 1))
                return (x, y, x + box_width, y + box_height), flipped
        return _centre_box(width, height), flipped


def _centre_box(width: float, height: float) -> Box:
    """Return the largest square in the centre."""
    side = min(width, height)
    x, y = (width - side) / 2, (height - side) / 2
    return x, y, x + side, y + side


def decode_image(
    source: Origin,
    edge: int,
    *,
    out: Pixels | None = None,
    crop: Crop | None = None,
    epoch: int = 0,
    index: int = 0,
) -> Pixels:
    """Return an image as ``edge`` × ``edge`` × 3 bytes, in ``out`` if passed; or raise ``Broken``.

    ``crop`` draws a random crop for ``epoch`` and ``index``; without it the centre is cropped.
    An image that has this size already is not resampled.
    """
    pixels = np.empty((edge, edge, 3), np.uint8) if out is None else out
    if pixels.shape != (edge, edge, 3) or pixels.dtype != np.uint8:
        raise ValueError(f"{pixels.dtype} of {pixels.shape} cannot take an image of edge {edge}")
    try:
        with _open_image(source) as image:
            size = image.size
            box, flipped = crop.draw(epoch, index, size) if crop else (_centre_box(*size), False)
            _decode(image, box, edge, pixels[:, ::-1] if flipped else pixels)
    except MemoryError:
        raise
    except Exception as error:  # A decoder can raise anything on a damaged file.
        raise broken_image(source, error) from error
    return pixels


class Header(NamedTuple):
    """Format, mode and size of an image, from the header of its file."""

    format: str
    mode: str
    size: tuple[int, int]
    """Width and height."""


def read_header(source: Origin, *, decode: bool = False) -> Header:
    """Return the header of an image; with ``decode`` all pixels are decoded too, as a check."""
    try:
        with _open_image(source) as image:
            header = Header(image.format or "unknown", image.mode, image.size)
            if decode:
                image.load()
    except Exception as error:
        raise broken_image(source, error) from error
    return header


def broken_image(source: Origin, error: Exception) -> Broken:
    """Return the error to raise for a file that cannot be decoded."""
    path = "" if isinstance(source, bytes) else os.fsdecode(source)
    reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
    if isinstance(error, UnidentifiedImageError):
        reason = "it is not an image"
    if isinstance(error, (struct.error, SyntaxError, EOFError, IndexError)):
        reason = "it ends too soon, or is damaged"
    return Broken(
        f"{printable(path) or 'an image'} cannot be read: {reason or type(error).__name__}",
        hint="`scalewise data check FOLDER` names every such file",
        path=path,
    )


def _open_image(source: Origin) -> ImageFile.ImageFile:
    """Open an image by its first bytes, whatever its name; only its header is read."""
    file: Any
    if isinstance(source, bytes):
        file = io.BytesIO(source)
    else:
        file = open(source, "rb", opener=_open_regular_file)  # noqa: SIM115 - the image closes it
    try:
        start = file.read(12)
        file.seek(0)
        if not start:
            raise ValueError("it is empty")
        image = _open_format(start, file)
        image._exclusive_fp = True  # So that closing the image closes the file.
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"{image.width} × {image.height} pixels are too many to decode")
    except BaseException:
        file.close()
        raise
    return image


def _open_regular_file(path: str, flags: int) -> int:
    """Open a regular file only: opening or reading a named pipe would block."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is not a file")
    return descriptor


def _open_format(start: bytes, file: Any) -> ImageFile.ImageFile:
    """Open JPEG, PNG and WebP by the first 12 bytes, other formats with ``Image.open``.

    ``Image.open`` is slower, as it tries all plugins in turn, and warns of large images on stderr.
    """
    if start.startswith(b"\xff\xd8\xff"):
        return JpegImageFile(file)
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return PngImageFile(file)
    if start.startswith(b"RIFF") and start[8:] == b"WEBP":
        return WebPImageFile(file)
    return Image.open(file, formats=OTHER_FORMATS)


def _decode(image: ImageFile.ImageFile, box: Box, edge: int, out: Pixels) -> None:
    """Write the part of an image in a box into ``out``, resized to ``edge`` × ``edge``."""
    if isinstance(image, JpegImageFile):
        box = _shrink_on_load(image, box, edge)
    rgb = _to_rgb(image)
    if rgb.size != (edge, edge) or box != (0, 0, edge, edge):
        rgb = rgb.resize((edge, edge), Image.Resampling.BILINEAR, box=box)
    np.copyto(out, np.frombuffer(rgb.tobytes(), np.uint8).reshape(edge, edge, 3))


def _shrink_on_load(image: JpegImageFile, box: Box, edge: int) -> Box:
    """Decode a JPEG at 1/2, 1/4 or 1/8 size, if that has enough pixels; return the new box."""
    width, height = image.size
    box_width, box_height = box[2] - box[0], box[3] - box[1]
    # The size of the entire image at which the box still has ``edge`` pixels, rounded up.
    needed = int(-(-width * edge // box_width)), int(-(-height * edge // box_height))
    draft = image.draft(None, needed)
    if draft is None:
        return box
    # ``draft[1]`` is the image's box in the new, larger pixels; it may end within a pixel.
    scale = draft[1][2] / width
    if min(box_width, box_height) * scale >= FAST_DCT_RATIO * edge:
        image.decoderconfig = (image.decoderconfig[0], 1)  # 1 selects the fast DCT.
    return box[0] * scale, box[1] * scale, box[2] * scale, box[3] * scale


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image
    if image.mode.startswith("I"):  # 16-bit grey: I, I;16, I;16B …
        grey16 = np.asarray(image).astype(np.int64)
        grey = (grey16 >> 8).clip(0, 255).astype(np.uint8)
        grey[grey16 == image.info.get("transparency", -1)] = 255  # White.
        return Image.fromarray(grey).convert("RGB")
    if image.mode == "F":
        return Image.fromarray(np.asarray(image).clip(0, 255).astype(np.uint8)).convert("RGB")
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB")
