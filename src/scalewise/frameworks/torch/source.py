"""Where the data comes from, and whether it is there; standard library only."""

import gzip
import re
import struct
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from scalewise.errors import PluginError, SpecError

IDX = {
    "train images": "train-images-idx3-ubyte",
    "train labels": "train-labels-idx1-ubyte",
    "validation images": "t10k-images-idx3-ubyte",
    "validation labels": "t10k-labels-idx1-ubyte",
}


GPTS = (
    "gpt",
    *(f"gpt-{size}" for size in ("nano", "micro", "mini", "124m", "350m", "760m", "1.3b")),
)
OF_WORKLOADS = dict.fromkeys(GPTS, "tokens:10000")
LENGTH = 64
"""Tokens of one sample of a text, or of made-up ones."""


@dataclass(frozen=True, slots=True)
class Source:
    """The embedded digits, synthetic images or tokens, a text, or a folder of MNIST idx files."""

    kind: str
    folder: Path = Path()
    shape: tuple[int, int, int] = (0, 0, 0)
    """Samples, height and width of synthetic images; samples, length and 1 of tokens."""

    @classmethod
    def of(cls, data: str | None, workload: str | None = None) -> "Source":
        """Read a run's ``data`` field; refuse what is not there.

        Where the run names none it is the embedded digits, or made-up tokens for a
        workload that learns from those.

        >>> Source.of("synthetic:1000").shape
        (1000, 28, 28)
        """
        data = data or OF_WORKLOADS.get(workload or "", "digits")
        if data == "digits":
            if find_spec("sklearn") is None:
                raise PluginError(
                    "the embedded digits come with scikit-learn, which is not installed",
                    hint="pip install 'scalewise[digits]', or give data = \"synthetic:10000\"",
                )
            return cls("digits")
        if data.partition(":")[0] == "synthetic":
            return cls("synthetic", shape=_shape(data))
        if data.partition(":")[0] == "tokens":
            return cls("tokens", shape=_tokens(data))
        folder = Path(data).expanduser()
        if folder.is_file():
            return cls("text", folder)
        if not folder.is_dir():
            raise SpecError(
                f"there is no data folder {data}",
                hint='give a folder of MNIST idx files, a text file, "digits", "synthetic:10000" '
                'or "tokens:10000"',
            )
        found = cls("idx", folder)
        for name in IDX:
            found.idx(name)
        return found

    @property
    def sample(self) -> tuple[int, int, int] | int:
        """What one sample looks like: channels, height and width, or a number of tokens."""
        if self.kind == "text":
            return LENGTH
        if self.kind == "tokens":
            return self.shape[1]
        if self.kind == "idx":
            return 1, *_edges(self.idx("train images"))
        return (1, 8, 8) if self.kind == "digits" else (1, *self.shape[1:])

    def idx(self, name: str) -> Path:
        """Return the idx file of this name, plain or gzipped."""
        for suffix in ("", ".gz"):
            path = self.folder / (IDX[name] + suffix)
            if path.is_file():
                return path
        raise SpecError(
            f"data folder {self.folder} has no {name}: {IDX[name]} (or .gz)",
            hint="MNIST and Fashion-MNIST come as four such files",
        )


def _edges(images: Path) -> tuple[int, int]:
    """Return the height and width of images, from the head of their idx file."""
    try:
        with gzip.open(images) if images.suffix == ".gz" else images.open("rb") as file:
            _, _, height, width = struct.unpack(">4i", file.read(16))
    except (OSError, EOFError, zlib.error, struct.error) as bad:
        raise SpecError(
            f"{images} is not a whole MNIST idx file: {bad}", hint="download it again"
        ) from bad
    return height, width


def _tokens(data: str) -> tuple[int, int, int]:
    found = re.fullmatch(r"tokens:(\d+)(?:x(\d+))?", data)
    if not found or not all(int(part or 1) for part in found.groups()):
        raise SpecError(
            f"not a set of made-up tokens: {data!r}",
            hint='write "tokens:SAMPLES" or "tokens:SAMPLESxLENGTH"',
        )
    return int(found[1]), int(found[2] or LENGTH), 1


def _shape(data: str) -> tuple[int, int, int]:
    found = re.fullmatch(r"synthetic:(\d+)(?:x(\d+)x(\d+))?", data)
    if not found or not all(int(part or 1) for part in found.groups()):
        raise SpecError(
            f"not a synthetic data set: {data!r}",
            hint='write "synthetic:SAMPLES" or "synthetic:SAMPLESxHEIGHTxWIDTH"',
        )
    samples, height, width = found.groups()
    return int(samples), int(height or 28), int(width or 28)
