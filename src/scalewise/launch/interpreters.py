"""The Python that runs each framework: from the study's ``[engines]``, else ``engines.toml``."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalewise.errors import FrameworkMissing, cut, shown
from scalewise.launch import worker_zip
from scalewise.launch.processes import ask_worker
from scalewise.plugins import install_hint
from scalewise.user_config import load_user_config, user_config_path
from scalewise.validate import check_type

CONFIG_FILE = "engines.toml"


@dataclass(frozen=True, slots=True)
class Interpreters:
    """The Pythons of frameworks that are not installed in the Python of scalewise."""

    by_framework: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, study_engines: Mapping[str, str]) -> "Interpreters":
        """Return the Pythons of the user's configuration, overridden by the study's."""
        path = user_config_path(CONFIG_FILE)
        configured = load_user_config(path)
        for name, python in configured.items():
            check_type(f"{path}: {cut(name)}", python, str, "the path of a Python")
        pythons = {**configured, **study_engines}
        for name, python in pythons.items():
            if os.sep in python:  # Keep links: a virtual environment's Python is a link.
                pythons[name] = os.path.abspath(os.path.expanduser(python))
        return cls(pythons)

    def python(self, framework: str) -> str:
        """Return the Python that runs a framework."""
        return self.by_framework.get(framework, sys.executable)

    def paths(self, framework: str, folder: Path) -> list[str]:
        """Return what to add to PYTHONPATH: for a separate Python, the worker zip in ``folder``."""
        return [str(folder / worker_zip.FILE_NAME)] if framework in self.by_framework else []

    def ask(self, framework: str, verb: str, argument: str) -> Any:
        """Return the answer of ``python -m scalewise.frameworks VERB`` in a framework's Python."""
        python = self.python(framework)
        if shutil.which(python) is None:
            raise FrameworkMissing(
                f"framework {shown(framework)} has no Python {python}",
                hint=f"{install_hint(framework)} in a separate environment, and give its Python: "
                f'[engines] {framework} = "…"',
            )
        with tempfile.TemporaryDirectory(prefix="scalewise-") as home:
            paths = self.paths(framework, Path(home))
            if paths:
                worker_zip.pack(Path(home))
            return ask_worker(verb, argument, python=python, paths=paths)
