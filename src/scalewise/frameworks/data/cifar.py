"""CIFAR-10 and CIFAR-100 as their authors publish them: Python pickles of bytes.

A pickle may call anything; these are read by one that lets arrays and plain values
through and nothing else.
"""

import io
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.errors import Broken, SpecError
from scalewise.frameworks.data import Labels, Pixels, shown
from scalewise.frameworks.pickles import RestrictedUnpickler, describe_failure, one_line
from scalewise.validate import MAY

EDGE = 32


@dataclass(frozen=True, slots=True)
class Version:
    """The files of one of the two sets, and the words in them."""

    folder: str
    train: tuple[str, ...]
    validation: tuple[str, ...]
    about: str
    labels: str
    names: str
    classes: int


VERSIONS = (
    Version(
        "cifar-10-batches-py", tuple(f"data_batch_{n}" for n in range(1, 6)), ("test_batch",),
        "batches.meta", "labels", "label_names", 10,
    ),
    Version(
        "cifar-100-python", ("train",), ("test",), "meta", "fine_labels", "fine_label_names", 100,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Images:
    """Images in memory, their labels, and the names of their classes."""

    train: Pixels
    train_labels: Labels
    validation: Pixels
    validation_labels: Labels
    classes: tuple[str, ...]


def found(folder: Path) -> tuple[Path, Version] | None:
    """Return where the files of a CIFAR lie, in the folder or one below, and which it is."""
    for version in VERSIONS:
        for place in (folder, folder / version.folder):
            names = (*version.train, *version.validation)
            # One with a name of its own is enough; train and test are names of many things.
            enough = len(names) if version.train == ("train",) else 1
            if sum((place / name).is_file() for name in names) >= enough:
                return place, version
    return None


def refuse_empty(folder: Path) -> None:
    """Refuse batches too small for a single image, without reading them."""
    place, version = _there(folder)
    for which in (version.train, version.validation):
        files = [place / name for name in which]
        if sum(file.stat().st_size for file in files if file.is_file()) < 3 * EDGE * EDGE:
            raise _no_images(place, which)


def _there(folder: Path) -> tuple[Path, Version]:
    there = found(folder)
    if there is None:
        raise SpecError(
            f"{shown(folder)} has no CIFAR batches",
            hint="it should hold data_batch_1 … data_batch_5 and test_batch, or train and test",
        )
    place, version = there
    for name in (*version.train, *version.validation):
        if not (place / name).is_file():
            raise SpecError(
                f"{shown(place)} has no {name}, a part of CIFAR-{version.classes}",
                hint="download it again, or unpack it again",
            )
    return there


def _no_images(place: Path, files: tuple[str, ...]) -> SpecError:
    names = files[0] if len(files) == 1 else f"{files[0]} to {files[-1]}"
    return SpecError(f"{shown(place)} has no image in {names}", hint="download it again")


def read(folder: Path) -> Images:
    """Read a CIFAR into memory."""
    place, version = _there(folder)
    train = [_batch(place / name, version) for name in version.train]
    held = [_batch(place / name, version) for name in version.validation]
    for files, batches in ((version.train, train), (version.validation, held)):
        if not any(len(labels) for _, labels in batches):
            raise _no_images(place, files)
    return Images(
        np.concatenate([pixels for pixels, _ in train]),
        np.concatenate([labels for _, labels in train]),
        np.concatenate([pixels for pixels, _ in held]),
        np.concatenate([labels for _, labels in held]),
        _names(place, version),
    )


def _batch(path: Path, version: Version) -> tuple[Pixels, Labels]:
    """Return a file's images, as height × width × channels, and their labels."""
    values = _unpickled(path)
    try:
        rows, numbers = values["data"], values[version.labels]
        if not isinstance(rows, np.ndarray):
            raise ValueError(f"its data is a {type(rows).__name__}, not an array")
        # Lists inside of lists could be far larger than their file.
        if not isinstance(numbers, np.ndarray) and {*map(type, numbers)} - {int}:
            raise ValueError(f"its {version.labels} are not whole numbers")
        labels = np.asarray(numbers, dtype=np.int32)
        if rows.dtype != np.uint8 or rows.shape != (len(labels), 3 * EDGE * EDGE):
            raise ValueError(f"{rows.dtype} of {rows.shape} for {len(labels)} labels")
        if len(labels) and not 0 <= labels.min() <= labels.max() < version.classes:
            raise ValueError(f"labels from {labels.min()} to {labels.max()}")
    except KeyError as missing:
        raise _not_whole(path, f"it has no {missing}") from missing
    except (TypeError, ValueError, OverflowError) as bad:
        raise _not_whole(path, f"{bad}") from bad
    planes = rows.reshape(-1, 3, EDGE, EDGE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels


def _names(place: Path, version: Version) -> tuple[str, ...]:
    """Return the names of the classes, or their numbers where nobody names them."""
    if not (place / version.about).is_file():
        return tuple(str(n) for n in range(version.classes))
    names = _unpickled(place / version.about).get(version.names)
    if not isinstance(names, list) or {*map(type, names)} - {str, bytes}:
        names = []
    if not len(names) == len({*names}) == version.classes:
        raise _not_whole(place / version.about, f"it has no {version.classes} {version.names}")
    return tuple(each.decode("latin1") if isinstance(each, bytes) else str(each) for each in names)


def _unpickled(path: Path) -> dict[str, Any]:
    """Return the table in a file, its keys as text, whichever Python wrote it."""
    try:
        content = path.read_bytes()
    except OSError as why:
        words = f"cannot read {shown(path)}: {why.strerror or why}"
        raise Broken(words, hint=MAY, path=str(path)) from why
    try:
        values = RestrictedUnpickler(io.BytesIO(content), ALLOWED, encoding="bytes").load()
        if not isinstance(values, dict):
            raise ValueError(f"a {type(values).__name__} is not a table")
        if {*map(type, values)} - {str, bytes}:
            raise ValueError("it has keys that are no text")
    except Exception as bad:  # A pickle fails in any way that its bytes choose.
        raise _not_whole(path, f"no pickle of one ({describe_failure(bad)})") from bad
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): (
            each.values if isinstance(each, _Array) else each
        )
        for key, each in values.items()
    }


def _not_whole(path: Path, words: str) -> Broken:
    return Broken(
        f"{shown(path)} is not a whole CIFAR batch: {words}",
        hint="download it again",
        path=str(path),
    )


class _ArrayType:
    """The dtype of an array in a pickle: numbers and truth values alone.

    numpy's own would believe what a pickle says of it, and take bytes of the file for pointers.
    """

    def __init__(self, code: str | bytes, *_: Any) -> None:
        text = code.decode("latin1") if isinstance(code, bytes) else str(code)
        if not re.fullmatch(r"[<>|=]?[biuf][1248]", text):
            raise pickle.UnpicklingError(f"an array of {one_line(text)!r} is not allowed in it")
        self.numpy = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order: Any = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        self.numpy = self.numpy.newbyteorder(order)


class _Array:
    """An array in a pickle, filled by its state."""

    values: Any = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_column, content = state
        self.values = _frombuffer(content, kind, shape, "F" if by_column else "C").values


def _reconstruct(*_: Any) -> _Array:
    """Make an array to be filled, as pickles do up to their fourth protocol."""
    return _Array()


def _frombuffer(content: bytes, kind: _ArrayType, shape: tuple[int, ...], order: Any) -> _Array:
    """Make an array of bytes, as pickles of Python 3 do since their fifth protocol."""
    array = _Array()
    array.values = np.frombuffer(content, kind.numpy).reshape(shape, order=order)
    return array


def _encode(text: str, encoding: str) -> bytes:
    """Turn text into bytes, as pickles of Python 3 do for the oldest protocols."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"the encoding {encoding} is not allowed")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """Return what old protocols call ``bytes()`` for: none at all."""
    return b""


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _frombuffer,
    ("numpy._core.numeric", "_frombuffer"): _frombuffer,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _ArrayType,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
}
