"""Which data set a path is."""

from pathlib import Path
from typing import Literal

from scalewise.errors import SpecError
from scalewise.frameworks.data import cifar, idx, shown, tokens
from scalewise.validate import MAY, is_there, nearest_path

Kind = Literal["packed", "cifar", "idx", "tokens", "images"]
WORDS: dict[Kind, str] = {
    "packed": "packed images",
    "cifar": "CIFAR's batches",
    "idx": "MNIST's idx files",
    "tokens": "tokens",
    "images": "a folder of images",
}
"""What each is called."""


def kind_of(path: Path) -> Kind:
    """Return what a path holds, from the names in it alone; refuse what is none of these.

    Whoever has a folder named train has images, whatever else lies beside it.
    """
    if not is_there(path):
        raise SpecError(
            f"there is no data in {shown(path)}", hint=nearest_path(path) or "is the path right?"
        )
    try:
        kind = _kind(path)
    except OSError as why:
        raise SpecError(f"cannot look into {shown(path)}: {why.strerror}", hint=MAY) from why
    if kind is None:
        raise SpecError(
            f"{shown(path)} is not a data set that scalewise knows",
            hint="an image folder has train/CLASS/*.jpg; others are packed images, CIFAR's "
            "batches, MNIST's idx files and token files",
        )
    return kind


def _kind(path: Path) -> Kind | None:
    if (path / "train").is_dir():
        return "images"
    if tokens.found(path):
        return "tokens"
    if (path / "index.json").is_file():
        return "packed"
    if cifar.found(path):
        return "cifar"
    if any(idx.found(path, name) for name in idx.FILES):
        return "idx"
    return None
