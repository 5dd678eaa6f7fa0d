"""Which Python runs which engine: they rarely share an environment.

A study's ``[engines]`` table, or a user's own ``engines.toml``, names a Python for a framework.
Where it is another than this one, the worker's half travels there as a parcel.
"""

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
    """The Pythons of engines, by framework."""

    named: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, said: Mapping[str, str]) -> "Interpreters":
        """Return what a study says, over what its user says of all studies."""
        named = {**load_user_config(user_config_path(CONFIG_FILE)), **said}
        return cls({name: _absolute(python) for name, python in named.items()})

    def python(self, framework: str, usual: str = sys.executable) -> str:
        """Return the Python that runs a framework."""
        return self.named.get(framework, usual)

    def paths(self, framework: str, folder: Path) -> list[str]:
        """Return what must be on that Python's path, if anything: the parcel in ``folder``."""
        return [str(folder / worker_zip.FILE_NAME)] if framework in self.named else []

    def ask(self, framework: str, verb: str, argument: str) -> Any:
        """Have a framework's own Python answer one of the worker's verbs."""
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


def _absolute(python: str) -> str:
    """Return a path that means the same elsewhere; a link stays one, for it is an environment."""
    return os.path.abspath(os.path.expanduser(python)) if os.sep in python else python
