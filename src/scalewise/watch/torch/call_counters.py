"""Count a few calls of PyTorch for some steps, then restore the originals."""

import functools
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

BLOCKING_METHODS = ("item", "tolist", "cpu", "numpy", "__float__", "__bool__", "__int__")
"""Methods of a tensor that make the host wait for an accelerator."""
TORCH_FOLDER = str(Path(torch.__file__).parent)
TENSOR_FILES = (f"{TORCH_FOLDER}/_tensor.py", f"{TORCH_FOLDER}/_tensor_str.py")
"""Where PyTorch prints and converts a tensor for its caller."""


class CallCounters:
    """Counts calls of ``empty_cache``, and waits for an accelerator; detects autocast."""

    def __init__(self) -> None:
        self.emptied = 0
        self.autocast = False
        self.waits: Counter[str] = Counter()
        """By the line of the program that waited, as ``train.py:12``."""
        self._original_autocast: Any = None
        self._original_methods: dict[str, Any] = {}

    def install(self) -> None:
        """Start to count emptied caches, and to detect autocast."""
        empty = torch.cuda.empty_cache
        enter: Any = torch.autocast.__enter__
        self._original_autocast = enter

        @functools.wraps(empty)
        def empty_cache() -> None:
            self.emptied += 1
            empty()

        @functools.wraps(enter)
        def entered(context: Any) -> Any:
            self.autocast = True
            return enter(context)

        torch.cuda.empty_cache = empty_cache
        torch.autocast.__enter__ = entered  # type: ignore[method-assign]  # On purpose.

    def count_waits(self) -> None:
        """Start to count the waits for an accelerator."""
        if not self._original_methods:
            for name in BLOCKING_METHODS:
                self._original_methods[name] = torch.Tensor.__dict__.get(name)
                setattr(torch.Tensor, name, self._counted(getattr(torch.Tensor, name)))

    def restore_waits(self) -> None:
        for name, original in self._original_methods.items():
            if original is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, original)
        self._original_methods = {}

    def restore(self) -> None:
        """Restore PyTorch, except for the counter of emptied caches."""
        self.restore_waits()
        if self._original_autocast is not None:
            torch.autocast.__enter__ = self._original_autocast  # type: ignore[method-assign]
            self._original_autocast = None

    def _counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wait(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if tensor.device.type != "cpu":
                frame: FrameType | None = sys._getframe(1)
                while frame is not None and frame.f_code.co_filename.startswith(TENSOR_FILES):
                    frame = frame.f_back
                # PyTorch's own waits do not count.
                if frame is not None and not frame.f_code.co_filename.startswith(TORCH_FOLDER):
                    self.waits[f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"] += 1
            return original(tensor, *args, **kwargs)

        return wait
