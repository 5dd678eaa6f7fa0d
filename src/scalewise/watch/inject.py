"""Python imports this file as ``sitecustomize`` at the start of every process of a user's program.

It imports no heavy module. When the program imports a framework, it installs the hooks that measure
the program. If that fails, it prints one line, and the program runs without being measured.
"""

import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

HOOKS_BY_IMPORT = {
    "torch": "scalewise.watch.torch.hooks",
    "torch._dynamo.eval_frame": "scalewise.watch.torch.hooks",
    "torch.distributed.checkpoint": "scalewise.watch.torch.hooks",
    "safetensors.torch": "scalewise.watch.torch.hooks",
    "tensorflow": "scalewise.watch.keras_patch",
    "keras": "scalewise.watch.keras_patch",
}
"""Modules that are hooked, and our module whose ``on_import(name, module)`` does so."""


class _NotifyingLoader(Loader):
    """Loads a module with its original loader, then calls ``on_import``."""

    def __init__(self, loader: Any, name: str) -> None:
        self._loader, self._name = loader, name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            # Code that asks the module for its loader must get the original one.
            module.__spec__.loader = module.__loader__ = self._loader
        try:
            hooks = __import__(HOOKS_BY_IMPORT[self._name], fromlist=["on_import"])
            hooks.on_import(self._name, module)
        except Exception as problem:
            print(f"scalewise: not watching {self._name}: {problem!r}", file=sys.stderr)


class _Finder(MetaPathFinder):
    """Finds the modules to hook on ``sys.path`` as usual, but gives them a notifying loader."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in HOOKS_BY_IMPORT:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _NotifyingLoader(spec.loader, name)
        return spec


class _SafePath(MetaPathFinder):
    """Implements PYTHONSAFEPATH (no imports from the current folder) for Python 3.10.

    ``python -m`` puts the current folder first on ``sys.path`` after this file has run, and then
    imports ``runpy``. At that import, this object removes the folder. It never finds a module.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "runpy":
            sys.meta_path.remove(self)
            try:
                current = os.getcwd()
            except OSError:  # The folder was removed.
                current = ""
            if sys.path[0] in ("", current):
                del sys.path[0]


def _run_hidden_sitecustomize() -> None:
    """Run the machine's own ``sitecustomize``, which Python does not import: this file is first."""
    own_folder = os.path.dirname(__file__)
    path = [folder for folder in sys.path if os.path.abspath(folder or ".") != own_folder]
    hidden = PathFinder.find_spec("sitecustomize", path)
    if hidden is not None and hidden.loader is not None and hidden.origin != __file__:
        loader: Any = hidden.loader
        source = str(loader.get_source(hidden.name) or "")
        exec(compile(source, hidden.origin or "sitecustomize", "exec"), globals())


if __name__ == "sitecustomize":
    if "PYTHONSAFEPATH" in os.environ and sys.version_info < (3, 11):
        sys.meta_path.insert(0, _SafePath())
    # SCALEWISE_UNWATCHED marks processes of scalewise itself, which are not to be measured.
    if "SCALEWISE_RUN" in os.environ and "SCALEWISE_UNWATCHED" not in os.environ:
        sys.meta_path.insert(0, _Finder())
    _run_hidden_sitecustomize()
