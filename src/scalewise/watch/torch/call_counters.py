"""Count a few calls of PyTorch for a while, then leave everything as it was."""

import functools
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

WAITING = ("item", "tolist", "cpu", "numpy", "__float__", "__bool__", "__int__")
"""What makes the host wait for an accelerator."""
HOME = str(Path(torch.__file__).parent)
INSIDE = (f"{HOME}/_tensor.py", f"{HOME}/_tensor_str.py")
"""Where PyTorch prints and converts a tensor for whoever asked."""


class Calls:
    """Counts calls of ``empty_cache``, of autocast, and waits for an accelerator."""

    def __init__(self) -> None:
        self.emptied = 0
        self.autocast = False
        self.waits = 0
        self._where: Counter[str] = Counter()
        self._autocast: Any = None
        self._waiting: dict[str, Any] = {}

    def install(self) -> None:
        """Count how often the allocator's cache is emptied, and see whether autocast is used."""
        empty = torch.cuda.empty_cache

        @functools.wraps(empty)
        def empty_cache() -> None:
            self.emptied += 1
            empty()

        torch.cuda.empty_cache = empty_cache
        enter: Any = torch.autocast.__enter__
        self._autocast = enter

        @functools.wraps(enter)
        def entered(context: Any) -> Any:
            self.autocast = True
            return enter(context)

        torch.autocast.__enter__ = entered  # type: ignore[method-assign]  # On purpose.

    def count_waits(self) -> None:
        """Count the waits for an accelerator from here on."""
        if self._waiting:
            return
        for name in WAITING:
            self._waiting[name] = torch.Tensor.__dict__.get(name)
            setattr(torch.Tensor, name, self._counted(getattr(torch.Tensor, name)))

    def restore_waits(self) -> None:
        """Count waits no more."""
        for name, original in self._waiting.items():
            if original is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, original)
        self._waiting = {}

    def restore(self) -> None:
        """Leave PyTorch as it was, but for the counter of emptied caches."""
        self.restore_waits()
        if self._autocast is not None:
            torch.autocast.__enter__ = self._autocast  # type: ignore[method-assign]  # On purpose.
            self._autocast = None

    def busiest(self) -> str | None:
        """Return the line that waited most often, as ``train.py:12``."""
        return self._where.most_common(1)[0][0] if self._where else None

    def _counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wait(tensor: Any, *words: Any, **named: Any) -> Any:
            if tensor.device.type != "cpu":
                place = _asked_by(sys._getframe(1))
                if place is not None:
                    self.waits += 1
                    self._where[place] += 1
            return original(tensor, *words, **named)

        return wait


def _asked_by(frame: FrameType | None) -> str | None:
    """Return the line that wants a number, or nothing where PyTorch itself does."""
    while frame is not None and frame.f_code.co_filename.startswith(INSIDE):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(HOME):
        return None
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
