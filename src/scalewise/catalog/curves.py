"""Published scaling curves, each with its source, and a search over them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from scalewise.errors import SpecError, parameter, shown

CURVES_FOLDER = Path(__file__).parent / "curves"
SEARCHED_FACTS = ("model", "dataset", "framework", "hardware", "interconnect", "precision")
"""Facts of a curve that are searched, besides its family and slug."""


@dataclass(frozen=True, slots=True)
class PublishedCurve:
    """One curve: points of (devices, value), and facts that its source states about them."""

    family: str
    """The source: the name of the JSON file that has its curves."""
    slug: str  # The name of the curve.
    metric: str
    """``throughput`` or ``time``."""
    scaling: str | None
    """``weak``, ``strong``, or None if unknown."""
    devices_per_node: int | None
    points: tuple[tuple[int, float], ...]
    facts: Mapping[str, Any]
    """Model, data, hardware, unit, source, notes … as they are in the file."""

    @property
    def suspect(self) -> bool:
        """Whether the source of this curve contradicts itself."""
        return "suspect" in self.facts["flags"]


@cache
def load_published_curves() -> tuple[PublishedCurve, ...]:
    """Return all published curves, sorted by family."""
    curves = []
    for path in sorted(CURVES_FOLDER.glob("*.json")):
        for facts in json.loads(path.read_text(encoding="utf-8")):
            points = sorted((int(devices), float(value)) for devices, value in facts["points"])
            curve = PublishedCurve(
                family=path.stem,
                slug=facts["slug"],
                metric=facts["metric"],
                scaling=facts["scaling"] if facts["scaling"] in ("weak", "strong") else None,
                devices_per_node=facts["devices_per_node"],
                points=tuple(points),
                facts=facts,
            )
            curves.append(curve)
    return tuple(curves)


def find_curves(query: str) -> tuple[PublishedCurve, ...]:
    """Return the curves whose texts contain every word of the query; raise if there are none."""
    terms = [term for term in map(_normalize, query.split()) if term]
    if not terms:
        raise SpecError(
            f"{parameter('like')} takes words, got {shown(query)}",
            hint=f"for example {parameter('like', 'resnet50')}",
        )
    curves = load_published_curves()
    for term in terms:
        if not any(_matches(term, curve) for curve in curves):
            raise SpecError(
                f"no published curve matches {shown(term)}", hint=_suggest(term, curves)
            )
    matching = [curve for curve in curves if all(_matches(term, curve) for term in terms)]
    if not matching:
        raise SpecError(
            f"no published curve matches all of {', '.join(terms)}",
            hint=f"fewer words: {parameter('like', terms[0])}",
        )
    return tuple(matching)


def _suggest(term: str, curves: Sequence[PublishedCurve]) -> str:
    """Return a hint with similar searched texts or words of them; else with all families."""
    texts = (text for curve in curves for text in (curve.family, *_searched_facts(curve)))
    names = {_normalize(name): None for text in texts for name in (text, *text.split())}
    if close := get_close_matches(term, [name for name in names if len(name) > 2], n=3):
        return f"did you mean {' or '.join(close)}?"
    return f"there are curves of {', '.join(dict.fromkeys(curve.family for curve in curves))}"


def _matches(term: str, curve: PublishedCurve) -> bool:
    texts = (curve.family, curve.slug, *_searched_facts(curve))
    return any(term in _normalize(text) for text in texts)


def _searched_facts(curve: PublishedCurve) -> list[str]:
    return [str(curve.facts[name]) for name in SEARCHED_FACTS]


def _normalize(text: str) -> str:
    """Return the letters and digits, in lower case.

    >>> _normalize("ResNet-50 v1.5")
    'resnet50v15'
    """
    return re.sub(r"[^a-z0-9]", "", text.lower())
