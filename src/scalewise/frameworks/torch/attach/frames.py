"""Read what a program calls its global batch: its options, and the names in its frames.

Read only. Frames of libraries are passed over.
"""

import re
import sys
import sysconfig
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import islice
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import torch

GLOBAL = re.compile(r"global|total|effective")
COUNT = re.compile(r"batches|(^|_)(idx|index|id|num|n|count|step|steps|counter)(_|$)")
OPTIMIZED = 0x1
"""The flag of a function's code: its names do not live in a dictionary."""
MOST = 1000
"""Names of a frame, or keys of a table, that are looked at."""
LIBRARIES = (
    str(Path(torch.__file__).parent),
    sysconfig.get_paths()["stdlib"],
    str(Path(__file__).parents[3]),
    "<frozen",
)


def says_global(name: str) -> bool:
    """Say whether a name is that of a batch over all devices.

    >>> says_global("--global-batch-size"), says_global("batch_size"), says_global("total_batches")
    (True, False, False)
    """
    plain = name.lower().replace("-", "_").replace(".", "_")
    return "batch" in plain and bool(GLOBAL.search(plain)) and not COUNT.search(plain)


def meant_batches(frame: FrameType | None, arguments: Sequence[str]) -> dict[str, int]:
    """Return the global batches a program speaks of, by the names it gives them."""
    found = dict(_of_arguments(arguments))
    while frame is not None:
        if _is_the_users(frame.f_code.co_filename):
            found |= dict(_of_frame(frame))
        frame = frame.f_back
    return found


def _of_arguments(arguments: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Find ``--global-batch 32`` and ``--global-batch=32``.

    >>> list(_of_arguments(["train.py", "--global-batch", "32", "total_batch=8", "--lr", "1"]))
    [('--global-batch', 32), ('total_batch', 8)]
    """
    for word, following in zip(arguments, [*arguments[1:], ""]):
        name, equals, value = word.partition("=")
        value = value if equals else following
        if (equals or word.startswith("-")) and says_global(name) and value.isdecimal():
            yield name, int(value)


def _of_frame(frame: FrameType) -> Iterator[tuple[str, int]]:
    names = frame.f_locals
    yield from _of_table("", names)
    for name, value in list(islice(names.items(), MOST)):
        if isinstance(value, (Namespace, SimpleNamespace)) or _is_a_record(value):
            yield from _of_table(f"{name}.", vars(value))
        elif type(value) is dict and not name.startswith("__"):
            yield from _of_table(f"{name}.", value)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & OPTIMIZED:
        # The dictionary is a copy that stays with the frame: it would keep tensors alive.
        code = frame.f_code
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            names.pop(name, None)


def _of_table(owner: str, table: Mapping[Any, Any]) -> Iterator[tuple[str, int]]:
    for key, value in islice(table.items(), MOST):
        if isinstance(key, str) and type(value) is int and says_global(key):
            yield owner + key, value


def _is_a_record(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type) and hasattr(value, "__dict__")


def _is_the_users(file: str) -> bool:
    if "site-packages" in file or "dist-packages" in file:
        return False
    return not file.startswith(LIBRARIES)
