"""Find published curves by words: of their model, data, framework, hardware or source."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache

from scalewise.catalog.curves import PublishedCurve, published
from scalewise.errors import SpecError

FACTS = ("model", "dataset", "framework", "hardware", "interconnect", "precision")
"""What of a curve is searched, beside its names."""


def like(words: str) -> tuple[PublishedCurve, ...]:
    """Return the curves that all these words are said of; refuse a word that none knows.

    Letters and digits count alone, so ``resnet50`` finds ResNet-50.
    """
    wanted = [each for each in map(_bare, words.split()) if each]
    if not wanted:
        raise SpecError(f"--like takes words, got {words!r}", hint="for example --like resnet50")
    for word in wanted:
        if not any(_said(word, curve) for curve in published()):
            raise SpecError(
                f"no published curve is like {word!r}",
                hint=_near(word) or f"there are curves of {', '.join(_families())}",
            )
    found = [curve for curve in published() if all(_said(word, curve) for word in wanted)]
    if not found:
        raise SpecError(
            f"each of {', '.join(wanted)} is said of some published curve, and of none together",
            hint=f"fewer words: --like {wanted[0]}",
        )
    return tuple(found)


def _said(word: str, curve: PublishedCurve) -> bool:
    return any(word in text for text in _texts(curve))


def _texts(curve: PublishedCurve) -> Iterable[str]:
    yield from (_bare(curve.family), _bare(curve.slug))
    yield from (_bare(str(curve.facts[name])) for name in FACTS)


def _near(word: str) -> str:
    """Return what may have been meant, the nearest first."""
    near = get_close_matches(word, _known(), n=3)
    return f"did you mean {' or '.join(near)}?" if near else ""


def _families() -> list[str]:
    return list(dict.fromkeys(curve.family for curve in published()))


@cache
def _known() -> tuple[str, ...]:
    """Return what may have been meant: whole names, and the words in them."""
    found: dict[str, None] = {}
    for curve in published():
        texts = [curve.family, *(str(curve.facts[name]) for name in FACTS)]
        for text in texts:
            found |= dict.fromkeys([_bare(text), *map(_bare, text.split())])
    return tuple(each for each in found if len(each) > 2)


def _bare(text: str) -> str:
    """Return the letters and digits.

    >>> _bare("ResNet-50 v1.5")
    'resnet50v15'
    """
    return re.sub(r"[^a-z0-9]", "", text.lower())
