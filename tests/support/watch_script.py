"""Run a script of ``tests/scripts`` under scalewise, and read what was seen of it."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewise import study
from scalewise.api import _SilentWatcher
from scalewise.errors import RunFailed
from scalewise.record.write import rank_file
from scalewise.spec import StudySpec
from watched_scripts import HERE, Script


@dataclass(frozen=True)
class Seen:
    """What one rank's file tells."""

    lines: list[dict[str, Any]]

    def spans(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("span") == name]

    def column(self, name: str) -> list[Any]:
        return [value for line in self.lines if "each" in line for value in line["each"][name]]

    @property
    def phases(self) -> dict[str, float]:
        total: dict[str, float] = {}
        for line in self.lines:
            for name, seconds in line.get("phases", {}).items():
                total[name] = total.get(name, 0.0) + seconds
        return total

    def find(self, key: str) -> Any:
        return next((line[key] for line in reversed(self.lines) if key in line), None)


def words(script: Script) -> list[str]:
    """Return what a user would type after ``--``."""
    if script.start == "module":
        return ["-m", script.path, *script.args]
    return [str(HERE / script.path), *script.args]


def question(script: Script, devices: int, **fields: Any) -> StudySpec:
    """Return the study of one script on one number of devices."""
    env = {"PYTHONPATH": str(HERE)} if script.start == "module" else {}
    return study.from_program(words(script), str(devices), env=env, **fields)


def run(script: Script, devices: int, folder: Path, **fields: Any) -> tuple[list[Seen], str]:
    """Run it in an empty folder; return what was seen of each rank, and why it failed."""
    place = folder / "place"
    place.mkdir(parents=True)
    here = os.getcwd()
    cause = ""
    os.chdir(HERE if script.start == "module" else place)
    try:
        asked = question(script, devices, **fields)
        try:
            study.run(asked, folder / "study", _SilentWatcher())
        except RunFailed as failed:
            cause = str(failed)
    finally:
        os.chdir(here)
    (one,) = asked.runs()
    return [seen(folder / "study" / one.id, rank) for rank in range(devices)], cause


def seen(home: Path, rank: int) -> Seen:
    """Read one rank's lines."""
    path = rank_file(home, rank)
    text = path.read_text() if path.exists() else ""
    return Seen([json.loads(line) for line in text.splitlines()])
