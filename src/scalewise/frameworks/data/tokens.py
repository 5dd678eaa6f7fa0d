"""Memory-mapped token streams: nanoGPT's uint16 files, numpy files, or the bytes of a text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.errors import SpecError
from scalewise.frameworks.data import broken, printable
from scalewise.frameworks.pickles import describe_failure

Stream = np.ndarray[Any, np.dtype[Any]]
ENDINGS = (".bin", ".npy")
CHUNK_TOKENS = 2**24
"""Tokens that ``token_range`` reads at a time."""
MAX_VOCABULARY = 2**24
"""Sixty times the largest vocabulary in use: a file with a larger token must be damaged."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The training stream, and the validation stream where it is a separate file."""

    train: Stream
    validation: Stream | None
    vocabulary: int | None
    """256 for the bytes of a text; None for token files, which do not state it."""


def find_files(path: Path) -> tuple[Path, Path | None] | None:
    """Return the training and validation files: the path itself, or train and val of a folder."""
    if path.is_file():
        return path, None
    train, validation = (
        next((file for end in ENDINGS if (file := path / f"{name}{end}").is_file()), None)
        for name in ("train", "val")
    )
    return (train, validation) if train else None


def read(path: Path) -> Tokens:
    """Open a file, or the train.bin and val.bin (or .npy) of a folder."""
    files = find_files(path)
    if files is None:
        raise SpecError(
            f"there are no tokens in {printable(path)}",
            hint="give a .bin of uint16, a .npy of integers, a text, or a folder with train.bin",
        )
    train, validation = files
    vocabulary = None if train.suffix.lower() in ENDINGS else 256
    return Tokens(open_stream(train), open_stream(validation) if validation else None, vocabulary)


def open_stream(path: Path) -> Stream:
    """Return the tokens of one file as a one-dimensional array."""
    try:
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                if file.read(6) != b"\x93NUMPY":
                    raise ValueError("it does not begin as a numpy file does")
            tokens: Stream = np.load(path, mmap_mode="r", allow_pickle=False)
            if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
                raise ValueError(f"{tokens.dtype} of shape {tokens.shape} is not a row of integers")
        else:
            dtype = np.dtype(np.uint16 if path.suffix.lower() == ".bin" else np.uint8)
            size = path.stat().st_size
            if not size:
                raise ValueError("it is empty")
            if size % dtype.itemsize:
                raise ValueError(f"{size} bytes are not a multiple of {dtype.itemsize}")
            tokens = np.memmap(path, dtype, "r")
    except Exception as error:  # numpy parses the header of a .npy as Python: it may raise anything
        hint = "a .bin holds uint16, a .npy one row of integers; anything else is read as text"
        problem = f"cannot be read as tokens: {describe_failure(error)}"
        raise broken(path, problem, hint) from error
    if not len(tokens):
        raise broken(path, "holds no tokens")
    return tokens


def refuse_short(path: Path, length: int) -> None:
    """Refuse files too short for one training and one validation sequence of this length."""
    train, validation = find_files(path) or (path, None)
    # Without a validation file, train holds both. The + 1 is the target of the last token.
    for file, sequences in ((train, 1 if validation else 2), (validation, 1)):
        if file and (count := len(open_stream(file))) < sequences * length + 1:
            raise SpecError(
                f"{printable(file)} has {count:,} tokens, too few for sequences of {length}",
                hint="use a smaller length, or more text",
            )


def token_range(tokens: Stream) -> tuple[int, int]:
    """Return the smallest and largest token, reading the entire stream; refuse invalid tokens."""
    chunks = [tokens[n : n + CHUNK_TOKENS] for n in range(0, len(tokens), CHUNK_TOKENS)]
    low = min(int(chunk.min()) for chunk in chunks)
    high = max(int(chunk.max()) for chunk in chunks)
    if low < 0 or high >= MAX_VOCABULARY:
        name = getattr(tokens, "filename", None)
        stream = printable(name) if name else "the stream"
        token = f"{low:,}, below 0" if low < 0 else f"{high:,}, more than any vocabulary has"
        raise SpecError(f"{stream} has a token {token}", hint="tokens count from 0")
    return low, high
