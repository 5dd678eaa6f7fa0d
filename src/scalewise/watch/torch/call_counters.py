"""Count calls of a few PyTorch functions by replacing these functions for some steps."""

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
"""Files of PyTorch that call ``BLOCKING_METHODS`` when the program prints or converts a tensor."""


class CallCounters:
    """Counts calls of ``empty_cache`` and of blocking tensor methods; detects use of autocast."""

    def __init__(self) -> None:
        self.emptied_caches = 0  # Calls of ``empty_cache``.
        self.autocast = False
        self.waits: Counter[str] = Counter()
        """How often each line of the program (``train.py:12``) waited for an accelerator."""
        self._original_autocast: Any = None
        self._original_methods: dict[str, Any] = {}

    def install(self) -> None:
        """Start to count emptied caches, and to detect autocast."""
        empty = torch.cuda.empty_cache
        enter: Any = torch.autocast.__enter__
        self._original_autocast = enter

        @functools.wraps(empty)
        def empty_cache() -> None:
            self.emptied_caches += 1
            empty()

        @functools.wraps(enter)
        def enter_and_note(context: Any) -> Any:
            self.autocast = True
            return enter(context)

        torch.cuda.empty_cache = empty_cache
        torch.autocast.__enter__ = enter_and_note  # type: ignore[method-assign]  # On purpose.

    def count_waits(self) -> None:
        """Start to count the waits for an accelerator."""
        if not self._original_methods:
            for name in BLOCKING_METHODS:
                self._original_methods[name] = torch.Tensor.__dict__.get(name)
                setattr(torch.Tensor, name, self._with_counter(getattr(torch.Tensor, name)))

    def restore_waits(self) -> None:
        for name, original in self._original_methods.items():
            if original is None:  # ``Tensor`` inherits this method.
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, original)
        self._original_methods = {}

    def restore(self) -> None:
        """Restore all functions except ``empty_cache``, whose calls are counted until the end."""
        self.restore_waits()
        if self._original_autocast is not None:
            torch.autocast.__enter__ = self._original_autocast  # type: ignore[method-assign]
            self._original_autocast = None

    def _with_counter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def counted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if tensor.device.type != "cpu":
                frame: FrameType | None = sys._getframe(1)
                while frame is not None and frame.f_code.co_filename.startswith(TENSOR_FILES):
                    frame = frame.f_back
                # A wait that PyTorch's own code causes is not counted.
                if frame is not None and not frame.f_code.co_filename.startswith(TORCH_FOLDER):
                    self.waits[f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"] += 1
            return original(tensor, *args, **kwargs)

        return counted
