"""CIFAR-10 and CIFAR-100 as published: pickles, which may only hold arrays and plain values."""

import io
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.errors import Broken, SpecError, shown
from scalewise.frameworks.data import Labelled, broken, printable
from scalewise.frameworks.pickles import RestrictedUnpickler, describe_failure, one_line
from scalewise.validate import PERMISSION_HINT

EDGE = 32


@dataclass(frozen=True, slots=True)
class Version:
    """File names of CIFAR-10 or CIFAR-100, and the keys in their pickles."""

    folder: str
    train_files: tuple[str, ...]
    validation_files: tuple[str, ...]
    meta_file: str
    labels_key: str
    names_key: str
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
    """The images of CIFAR-10 or CIFAR-100, and the names of their classes."""

    train: Labelled
    validation: Labelled
    classes: tuple[str, ...]


def find_batches(folder: Path) -> tuple[Path, Version] | None:
    """Return the folder with CIFAR's files (this one or its usual subfolder) and the version."""
    for version in VERSIONS:
        for root in (folder, folder / version.folder):
            names = (*version.train_files, *version.validation_files)
            # One of CIFAR-10's names is enough; CIFAR-100's are common, so both must exist.
            required = len(names) if version.train_files == ("train",) else 1
            if sum((root / name).is_file() for name in names) >= required:
                return root, version
    return None


def refuse_empty(folder: Path) -> None:
    """Refuse batches too small for a single image, without reading them."""
    root, version = _require_batches(folder)
    for names in (version.train_files, version.validation_files):
        files = [root / name for name in names]
        if sum(file.stat().st_size for file in files if file.is_file()) < 3 * EDGE * EDGE:
            raise _no_images_error(root, names)


def _require_batches(folder: Path) -> tuple[Path, Version]:
    batches = find_batches(folder)
    if batches is None:
        raise SpecError(
            f"{printable(folder)} has no CIFAR batches",
            hint="it should hold data_batch_1 … data_batch_5 and test_batch, or train and test",
        )
    root, version = batches
    for name in (*version.train_files, *version.validation_files):
        if not (root / name).is_file():
            raise SpecError(
                f"{printable(root)} has no {name}, a part of CIFAR-{version.classes}",
                hint="download it again, or unpack it again",
            )
    return batches


def _no_images_error(root: Path, files: tuple[str, ...]) -> SpecError:
    names = files[0] if len(files) == 1 else f"{files[0]} to {files[-1]}"
    return SpecError(f"{printable(root)} has no image in {names}", hint="download it again")


def read(folder: Path) -> Images:
    """Read CIFAR-10 or CIFAR-100 into memory."""
    root, version = _require_batches(folder)
    splits = []
    for names in (version.train_files, version.validation_files):
        batches = [_read_batch(root / name, version) for name in names]
        images, labels = map(np.concatenate, zip(*batches))
        if not len(labels):
            raise _no_images_error(root, names)
        splits.append(Labelled(images, labels))
    return Images(splits[0], splits[1], _read_class_names(root, version))


def _read_batch(path: Path, version: Version) -> tuple[Any, Any]:
    """Return a file's images, as count × height × width × channels, and their labels."""
    values = _unpickle(path)
    try:
        rows, raw_labels = values["data"], values[version.labels_key]
        if not isinstance(rows, np.ndarray):
            raise ValueError(f"its data is a {type(rows).__name__}, not an array")
        # Refused before numpy expands them: nested lists can be far larger than their file.
        if not isinstance(raw_labels, np.ndarray) and {*map(type, raw_labels)} - {int}:
            raise ValueError(f"its {version.labels_key} are not whole numbers")
        labels = np.asarray(raw_labels, dtype=np.int64)
        if rows.dtype != np.uint8 or rows.shape != (len(labels), 3 * EDGE * EDGE):
            raise ValueError(f"its data is {rows.dtype} of {rows.shape} for {len(labels)} labels")
        if len(labels) and not 0 <= labels.min() <= labels.max() < version.classes:
            raise ValueError(f"it has labels from {labels.min()} to {labels.max()}")
    except KeyError as missing:
        raise _broken_batch(path, f"it has no {missing}") from missing
    except (TypeError, ValueError, OverflowError) as error:
        raise _broken_batch(path, f"{error}") from error
    planes = rows.reshape(-1, 3, EDGE, EDGE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels


def _read_class_names(root: Path, version: Version) -> tuple[str, ...]:
    """Return the names of the classes, or their numbers where the meta file is missing."""
    path = root / version.meta_file
    if not path.is_file():
        return tuple(str(n) for n in range(version.classes))
    names = _unpickle(path).get(version.names_key)
    if not isinstance(names, list) or {*map(type, names)} - {str, bytes}:
        names = []  # Refused in the next lines.
    if not len(names) == len({*names}) == version.classes:
        raise _broken_batch(path, f"it has no {version.classes} {version.names_key}")
    return tuple(map(_as_text, names))


def _as_text(value: Any) -> str:
    """Return text as str: Python 2 pickled it as bytes."""
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _unpickle(path: Path) -> dict[str, Any]:
    """Return the dictionary in a file, with text keys whether Python 2 or 3 wrote it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise broken(path, problem, PERMISSION_HINT) from error
    try:
        values = RestrictedUnpickler(io.BytesIO(content), ALLOWED, encoding="bytes").load()
        if not isinstance(values, dict):
            raise ValueError(f"a {type(values).__name__} is not a dictionary")
        if {*map(type, values)} - {str, bytes}:
            raise ValueError("its keys are not text")
    except Exception as error:  # A damaged pickle can raise any exception.
        raise _broken_batch(path, f"it cannot be unpickled ({describe_failure(error)})") from error
    return {
        _as_text(key): value.values if isinstance(value, _Array) else value
        for key, value in values.items()
    }


def _broken_batch(path: Path, problem: str) -> Broken:
    return broken(path, f"is not a complete CIFAR batch: {problem}", "download it again")


class _ArrayType:
    """The dtype of an array in a pickle; not ``object``, which would read bytes as pointers."""

    def __init__(self, code: str | bytes, *_: Any) -> None:
        text = _as_text(code)
        if not re.fullmatch(r"[<>|=]?[biuf][1248]", text):
            raise pickle.UnpicklingError(
                f"an array of {shown(one_line(text))} is not allowed in it"
            )
        self.dtype = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order: Any = _as_text(state[1])
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """An array in a pickle; protocols up to 4 create it empty and fill it in ``__setstate__``."""

    def __init__(
        self, content: bytes = b"", array_type: Any = None, shape: Any = (), order: Any = "C"
    ) -> None:
        self.values: Any = None
        if array_type:
            self.values = np.frombuffer(content, array_type.dtype).reshape(shape, order=order)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, array_type, by_columns, content = state
        self.__init__(content, array_type, shape, "F" if by_columns else "C")  # type: ignore[misc]


def _encode(text: str, encoding: str) -> bytes:
    """Return bytes that Python 3 stored as text, as it does in pickle protocols up to 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"the encoding {encoding} is not allowed")
    return text.encode("latin1")


ALLOWED: dict[tuple[str, str], Any] = {  # Names in a pickle, and what is called for them.
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Array(),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: _Array(),
    ("numpy.core.numeric", "_frombuffer"): _Array,
    ("numpy._core.numeric", "_frombuffer"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _ArrayType,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): lambda: b"",  # Old protocols store empty bytes as this call.
}
