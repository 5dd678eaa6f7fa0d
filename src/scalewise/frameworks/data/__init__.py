"""Data sets on disk, read into numpy arrays without any framework.

Images are uint8 (height × width × channels): the device normalizes batches, which is cheaper.
"""

import os
from dataclasses import dataclass
from typing import Any

from scalewise.errors import Broken, PluginError

try:
    import numpy as np
except ImportError as missing:
    raise PluginError(
        "data sets are read with numpy, which is not installed",
        hint="pip install 'scalewise[images]'",
    ) from missing

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
Labels = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class Labelled:
    """Images in memory and their labels."""

    images: Pixels
    labels: np.ndarray[Any, np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.labels)


def printable(path: "str | os.PathLike[str]") -> str:
    """Return a path that any terminal can print: bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def broken(path: "str | os.PathLike[str]", problem: str, hint: str = "") -> Broken:
    """Return the error for a file of a data set; its message is the path, then ``problem``."""
    return Broken(f"{printable(path)} {problem}", hint=hint, path=os.fspath(path))
