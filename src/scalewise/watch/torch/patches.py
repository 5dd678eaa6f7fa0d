"""Wrap functions of PyTorch; an error in our code disables the watcher, and training continues."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from scalewise.probe.torch.sync_timer import Patch
from scalewise.probe.watcher import Watcher

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
AfterCall = Callable[[Any], None]
"""Called after a wrapped function, with its result."""


class Patches:
    """Wrapped functions of modules, and methods of classes, that can be restored.

    Instances are never patched, because a patched model might fail to be pickled or copied; the
    ``__call__`` of models' classes is replaced in discovery.py.
    """

    def __init__(self, watcher: Watcher, disable: Callable[[Exception], None]) -> None:
        self.may_compile = False
        """Whether the program compiles; until then ``is_compiling`` is not called, to save time."""
        self._watcher, self._disable = watcher, disable
        self._patches: list[Patch] = []
        self._applied = False

    def safe(self, function: Callable[..., Any]) -> Callable[..., None]:
        """Return ``function`` as a hook that disables the watcher if it fails."""
        watcher, compiling = self._watcher, torch.compiler.is_compiling

        @functools.wraps(function)
        def hook(*args: Any) -> None:
            if watcher.enabled and not (self.may_compile and compiling()):
                try:
                    function(*args)
                except Exception as problem:
                    self._disable(problem)

        return hook

    def add(self, *patches: Patch) -> None:
        """Add patches; if ``apply`` was called already, install the new patches too."""
        self._patches += patches
        if self._applied:
            self._install(patches)

    def wrap(
        self, owner: Any, name: str, before: Callable[[Args, Kwargs], AfterCall | None]
    ) -> None:
        """Add a patch that calls ``before(args, kwargs)``, then the original.

        If ``before`` returned a function, it is called last, with the result. If the original
        failed, it is called with None, because an activity that has begun must also end.
        """
        original = getattr(owner, name)
        watcher, compiling, disable = self._watcher, torch.compiler.is_compiling, self._disable

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if not watcher.enabled or (self.may_compile and compiling()):
                return original(*args, **kwargs)
            after = result = None
            try:
                after = before(args, kwargs)
            except Exception as problem:
                disable(problem)
            try:
                result = original(*args, **kwargs)
                return result
            finally:
                if after is not None and watcher.enabled:
                    try:
                        after(result)
                    except Exception as problem:
                        disable(problem)

        self.add((owner, name, original, watched))

    def apply(self) -> None:
        """Install all patches; patches added later are installed immediately."""
        self._applied = True
        self._install(self._patches)

    def _install(self, patches: Iterable[Patch]) -> None:
        for owner, name, _, watched in patches:
            setattr(owner, name, watched)

    def remove(self) -> None:
        """Restore all functions, but none that others wrapped again."""
        for owner, name, original, watched in self._patches:
            if getattr(owner, name) is watched:
                setattr(owner, name, original)
