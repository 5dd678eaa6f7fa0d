"""Data sets as they lie on disks, read into numpy arrays; no engine.

pixels   one image file, decoded to a square of bytes
folder   an image folder, listed once
packed   the same images decoded beforehand, in a few large files
cifar, idx, tokens   the formats of CIFAR, of MNIST and of language models
kinds    which of these a path is
make, check   build such a set, or look at every file of one

Inputs stay bytes (uint8, height × width × channels) all the way: what a model wants
of them is cheaper to do once per batch, on the device.
"""

import os
from typing import Any

from scalewise.errors import PluginError

try:
    import numpy as np
except ImportError as missing:
    raise PluginError(
        "data sets are read with numpy, which is not installed",
        hint="pip install 'scalewise[images]'",
    ) from missing

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
Labels = np.ndarray[Any, np.dtype[np.int32]]


def shown(path: "str | os.PathLike[str]") -> str:
    """Return a path that any terminal can print: bytes that are no text are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
