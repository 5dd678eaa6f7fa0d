"""Scaling curves that others have published, each with its source."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "curves"


@dataclass(frozen=True, slots=True)
class PublishedCurve:
    """One curve: ``[devices, value]`` points, and all that its source says about them."""

    family: str
    """The file it is kept in: one per source."""
    slug: str
    metric: str
    """``throughput`` or ``time``."""
    scaling: str | None
    """``weak``, ``strong``, or unknown."""
    devices_per_node: int | None
    points: tuple[tuple[int, float], ...]
    facts: Mapping[str, Any]
    """Model, data, hardware, unit, source, notes … as they are in the file."""

    @property
    def suspect(self) -> bool:
        """Whether its source contradicts itself."""
        return "suspect" in self.facts["flags"]


@cache
def published() -> tuple[PublishedCurve, ...]:
    """Return every published curve, by family."""
    return tuple(
        _curve(path.stem, facts)
        for path in sorted(FOLDER.glob("*.json"))
        for facts in json.loads(path.read_text(encoding="utf-8"))
    )


def _curve(family: str, facts: Mapping[str, Any]) -> PublishedCurve:
    points = sorted((int(devices), float(value)) for devices, value in facts["points"])
    return PublishedCurve(
        family=family,
        slug=facts["slug"],
        metric=facts["metric"],
        scaling=facts["scaling"] if facts["scaling"] in ("weak", "strong") else None,
        devices_per_node=facts["devices_per_node"],
        points=tuple(points),
        facts=facts,
    )
