"""Streams of tokens: uint16 files as nanoGPT writes them, numpy files, or the bytes of a text.

All are memory-mapped: a rank holds what it reads, not the file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.errors import Broken, SpecError
from scalewise.frameworks.data import shown
from scalewise.frameworks.pickles import describe_failure

Stream = np.ndarray[Any, np.dtype[Any]]
ENDINGS = (".bin", ".npy")
STRIDE = 2**24
"""Tokens that are looked at together."""
MOST = 2**24
"""Words of a vocabulary: some sixty times those of the largest that are in use."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What to train on, and what to validate on where that is a file of its own."""

    train: Stream
    validation: Stream | None
    vocabulary: int | None
    """How many tokens there are: 256 of bytes, else unknown before the stream was read."""


def found(path: Path) -> tuple[Path, Path | None] | None:
    """Return the files of a stream: one that is named, or train and val of a folder."""
    if path.is_file():
        return path, None
    train, held = (
        next((file for end in ENDINGS if (file := path / f"{name}{end}").is_file()), None)
        for name in ("train", "val")
    )
    return (train, held) if train else None


def read(path: Path) -> Tokens:
    """Open a file, or the train.bin and val.bin (or .npy) of a folder."""
    files = found(path)
    if files is None:
        raise SpecError(
            f"there are no tokens in {shown(path)}",
            hint="give a .bin of uint16, a .npy of integers, a text, or a folder with train.bin",
        )
    train, held = files
    text = train.suffix.lower() not in ENDINGS
    return Tokens(stream(train), stream(held) if held else None, 256 if text else None)


def stream(path: Path) -> Stream:
    """Return the tokens of one file, one after another."""
    try:
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                if file.read(6) != b"\x93NUMPY":
                    raise ValueError("it does not begin as arrays of numpy do")
            tokens: Stream = np.load(path, mmap_mode="r", allow_pickle=False)
            if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
                raise ValueError(f"{tokens.dtype} of shape {tokens.shape} are no tokens")
        else:
            kind = np.uint16 if path.suffix.lower() == ".bin" else np.uint8
            size = path.stat().st_size
            if not size:
                raise ValueError("it is empty")
            if size % np.dtype(kind).itemsize:
                raise ValueError(f"{size} bytes are no {np.dtype(kind).name}")
            tokens = np.memmap(path, kind, "r")
    except Exception as bad:  # numpy parses the header of a .npy as Python.
        raise Broken(
            f"{shown(path)} cannot be read as tokens: {describe_failure(bad)}",
            hint="a .bin holds uint16, a .npy one row of integers; anything else is read as text",
            path=str(path),
        ) from bad
    if not len(tokens):
        raise Broken(f"{shown(path)} holds no tokens", path=str(path))
    return tokens


def refuse_short(path: Path, length: int) -> None:
    """Refuse a file that has no sequence of this length, or none to train on and one to hold."""
    train, held = found(path) or (path, None)
    for file, least in ((train, 1 if held else 2), (held, 1)):
        if file and (there := len(stream(file))) < least * length + 1:
            raise SpecError(
                f"{shown(file)} has {there:,} tokens, too few for sequences of {length}",
                hint="a smaller length, or more text",
            )


def span(tokens: Stream) -> tuple[int, int]:
    """Return the smallest token and the largest; this reads the whole stream."""
    parts = [tokens[n : n + STRIDE] for n in range(0, len(tokens), STRIDE)]
    least, most = min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)
    if least < 0 or most >= MOST:
        name = getattr(tokens, "filename", None)
        where = shown(name) if name else "the stream"
        odd = f"{least:,}, below 0" if least < 0 else f"{most:,}, more than any vocabulary has"
        raise SpecError(f"{where} has a token {odd}", hint="tokens count from 0")
    return least, most
