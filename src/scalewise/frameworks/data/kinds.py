"""Detect the format of a data set from its path."""

from pathlib import Path
from typing import Literal

from scalewise.errors import SpecError
from scalewise.frameworks.data import cifar, idx, printable, tokens
from scalewise.validate import PERMISSION_HINT, path_exists, suggest_path

Kind = Literal["packed", "cifar", "idx", "tokens", "images"]
KIND_NAMES: dict[Kind, str] = {
    "packed": "packed images",
    "cifar": "CIFAR's batches",
    "idx": "MNIST's idx files",
    "tokens": "tokens",
    "images": "a folder of images",
}
"""Each kind as messages name it."""


def kind_of(path: Path) -> Kind:
    """Return the kind of data set at a path, judged by file names only; refuse unknown ones.

    A folder with a subfolder ``train`` is an image folder, whatever else it contains.
    """
    if not path_exists(path):
        raise SpecError(
            f"there is no data in {printable(path)}",
            hint=suggest_path(path) or "is the path right?",
        )
    try:
        if (path / "train").is_dir():
            return "images"
        if tokens.find_files(path):
            return "tokens"
        if (path / "index.json").is_file():
            return "packed"
        if cifar.find_batches(path):
            return "cifar"
        if any(idx.find_file(path, name) for name in idx.FILES):
            return "idx"
    except OSError as error:
        raise SpecError(
            f"cannot look into {printable(path)}: {error.strerror}", hint=PERMISSION_HINT
        ) from error
    raise SpecError(
        f"{printable(path)} is not a data set that scalewise knows",
        hint="an image folder has train/CLASS/*.jpg; others are packed images, CIFAR's "
        "batches, MNIST's idx files and token files",
    )
