"""The Python of each framework: from ``[engines]`` of the study, or the user's engines.toml."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalewise.errors import FrameworkMissing
from scalewise.launch import worker_zip
from scalewise.launch.processes import ask_worker
from scalewise.plugins import install_hint
from scalewise.user_config import load_user_config, user_config_path

CONFIG_FILE = "engines.toml"


@dataclass(frozen=True, slots=True)
class Interpreters:
    """Paths of Pythons, by framework."""

    named: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, study_engines: Mapping[str, str]) -> "Interpreters":
        """Return the Pythons of the user's configuration, overridden by the study's."""
        named = {**load_user_config(user_config_path(CONFIG_FILE)), **study_engines}
        for name, python in named.items():
            if os.sep in python:  # Links are kept: the Python of an environment is one.
                named[name] = os.path.abspath(os.path.expanduser(python))
        return cls(named)

    def python(self, framework: str) -> str:
        """Return the Python that runs a framework."""
        return self.named.get(framework, sys.executable)

    def paths(self, framework: str, folder: Path) -> list[str]:
        """Return what that Python needs on its path: the worker zip in ``folder``, if any."""
        return [str(folder / worker_zip.FILE_NAME)] if framework in self.named else []

    def ask(self, framework: str, verb: str, argument: str) -> Any:
        """Return the answer of a framework's Python to one of the worker's verbs."""
        python = self.python(framework)
        if shutil.which(python) is None:
            raise FrameworkMissing(
                f"framework {framework!r} has no Python {python}",
                hint=f"{install_hint(framework)} in an environment of its own: name the Python "
                f'there, [engines] {framework} = "…"',
            )
        with tempfile.TemporaryDirectory(prefix="scalewise-") as home:
            paths = self.paths(framework, Path(home))
            if paths:
                worker_zip.pack(Path(home))
            return ask_worker(verb, argument, python=python, paths=paths)
