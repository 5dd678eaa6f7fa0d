"""Runs first in every Python process of a program, as its ``sitecustomize``.

It imports nothing heavy and changes nothing until the program itself imports
an engine that can be watched; then it puts the hooks in. Whatever goes wrong
here is told in one line, and the program goes on as if we were not there.
"""

import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

WATCHED = {
    "torch": "scalewise.watch.torch",
    "torch._dynamo.eval_frame": "scalewise.watch.torch",
    "torch.distributed.checkpoint": "scalewise.watch.torch",
    "safetensors.torch": "scalewise.watch.torch",
    "tensorflow": "scalewise.watch.keras.patch",
    "keras": "scalewise.watch.keras.patch",
}
"""Modules whose import is noticed, and who is told of it (``imported(name, module)``)."""


class _Notice(Loader):
    """Loads a module as its own loader would, and then tells of it."""

    def __init__(self, loader: Any, name: str) -> None:
        self._loader, self._name = loader, name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        try:
            watcher = __import__(WATCHED[self._name], fromlist=["imported"])
            watcher.imported(self._name, module)
        except Exception as problem:
            print(f"scalewise: not watching {self._name}: {problem!r}", file=sys.stderr)


class _Finder(MetaPathFinder):
    """Finds what everyone finds, and puts itself between for the watched modules."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in WATCHED:
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is not None and found.loader is not None:
            found.loader = _Notice(found.loader, name)
        return found


class _SafePath(MetaPathFinder):
    """Does in Python 3.10 what later ones do where PYTHONSAFEPATH is set.

    ``python -m`` puts the current folder first on the path after this file has run, and then
    imports ``runpy``: that import is the first one that must not see the folder.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "runpy":
            sys.meta_path.remove(self)
            try:
                here = os.getcwd()
            except OSError:  # Somebody has removed the folder.
                here = ""
            if sys.path[0] in ("", here):
                del sys.path[0]


def _begin() -> None:
    if "PYTHONSAFEPATH" in os.environ and sys.version_info < (3, 11):
        sys.meta_path.insert(0, _SafePath())
    if "SCALEWISE_RUN" in os.environ and "SCALEWISE_UNWATCHED" not in os.environ:
        sys.meta_path.insert(0, _Finder())


def _chain() -> None:
    """Run the ``sitecustomize`` that this one hides, if there is another."""
    here = os.path.dirname(__file__)
    others = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    hidden = PathFinder.find_spec("sitecustomize", others)
    if hidden is not None and hidden.loader is not None and hidden.origin != __file__:
        exec(compile(_source(hidden), hidden.origin or "sitecustomize", "exec"), globals())


def _source(spec: ModuleSpec) -> str:
    loader: Any = spec.loader
    return str(loader.get_source(spec.name) or "")


if __name__ == "sitecustomize":
    _begin()
    _chain()
