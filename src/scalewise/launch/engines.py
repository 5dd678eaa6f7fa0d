"""Which Python runs which engine: they rarely share an environment.

A study's ``[engines]`` table, or a user's own ``engines.toml``, names a Python for a framework.
Where it is another than this one, the worker's half travels there as a parcel.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scalewise.launch import parcel
from scalewise.own import own_file, own_table

FILE = "engines.toml"


@dataclass(frozen=True, slots=True)
class Engines:
    """The Pythons of engines, by framework."""

    named: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, said: Mapping[str, str]) -> "Engines":
        """Return what a study says, over what its user says of all studies."""
        named = {**own_table(own_file(FILE)), **said}
        return cls({name: _absolute(python) for name, python in named.items()})

    def python(self, framework: str, usual: str = sys.executable) -> str:
        """Return the Python that runs a framework."""
        return self.named.get(framework, usual)

    def paths(self, framework: str, folder: Path) -> list[str]:
        """Return what must be on that Python's path, if anything: the parcel in ``folder``."""
        return [str(folder / parcel.NAME)] if framework in self.named else []


def _absolute(python: str) -> str:
    """Return a path that means the same elsewhere; a link stays one, for it is an environment."""
    return os.path.abspath(os.path.expanduser(python)) if os.sep in python else python
