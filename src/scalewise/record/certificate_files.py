"""The folder of a certificate's short runs; its ``certificate.json`` says what is compared."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scalewise.record.json_files import read_json
from scalewise.record.schema import from_json
from scalewise.record.write import write_json

FOLDER = "certificate"
"""The folder inside a study's folder."""


@dataclass(frozen=True, slots=True)
class PlannedComparison:
    """Ids of the runs to compare."""

    candidate: str
    reference: str
    reversed_reference: str
    """The reference with the samples of each global batch in reversed order."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """The candidate's settings that its study varies."""


def certificate_folder(folder: Path) -> Path | None:
    """Return the folder with the certificate of a study, which may be named itself; else None."""
    candidates = (folder / FOLDER, folder)
    return next((path for path in candidates if (path / "certificate.json").exists()), None)


def write_comparisons(folder: Path, comparisons: Sequence[PlannedComparison]) -> None:
    """Write ``certificate.json``."""
    values = {"comparisons": [asdict(comparison) for comparison in comparisons]}
    write_json(folder / "certificate.json", values)


def read_comparisons(folder: Path) -> list[PlannedComparison]:
    """Return what ``certificate.json`` says."""
    values = read_json(folder / "certificate.json")
    return [from_json(PlannedComparison, item) for item in values.get("comparisons", [])]
