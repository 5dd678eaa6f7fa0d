"""What a model is trained for: so much work at a batch, or a quality that runs have reached."""

import re
from dataclasses import dataclass

from scalewise.analysis.advise.purpose import NUMBER
from scalewise.errors import SpecError
from scalewise.validate import nearest

EXAMPLES = {
    "epochs": "epochs=90 at 256",
    "samples": "samples=115e6 at 256",
    "loss": "loss=2.1",
    "accuracy": "accuracy=0.75",
}
"""Every aim, and how it is written."""
WORK = ("epochs", "samples")
"""Aims that say how much work there is; the others say what is to be reached by it."""

SMALLEST, LARGEST = 1e-6, 1e18
"""Of any aim; whoever writes less or more has slipped."""


@dataclass(frozen=True, slots=True)
class Aim:
    """An amount of work that suffices at one global batch, or a quality."""

    name: str
    bound: float
    batch: float | None
    """The global batch at which that work suffices, where it was told."""
    text: str
    """As it was written."""

    @property
    def is_work(self) -> bool:
        """Whether the work is told, and not to be found in the records."""
        return self.name in WORK

    def met(self, quality: float) -> bool:
        """Say whether a loss is low enough, or an accuracy high enough."""
        return quality <= self.bound if self.name == "loss" else quality >= self.bound

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, given: str) -> "Aim":
        """Read ``epochs=90 at 256`` and its like.

        >>> Aim.parse("epochs=90 at 256")
        Aim(name='epochs', bound=90.0, batch=256.0, text='epochs=90 at 256')
        >>> Aim.parse("accuracy=75%").bound
        0.75
        """
        if not isinstance(given, str):
            raise SpecError(f"a target is text, got {given!r}", hint=_examples())
        text = " ".join(given.split())
        name, _, rest = text.partition("=")
        name = name.strip()
        if name not in EXAMPLES:
            hint = nearest(name, EXAMPLES) or _examples()
            raise SpecError(f"not a target: {given!r}", hint=hint)
        found = re.fullmatch(rf"{NUMBER}\s*(%?)(?:\s+at\s+{NUMBER})?", rest.strip())
        if not found or (found[2] and name != "accuracy"):
            raise SpecError(
                f"{name} needs a number, got {given!r}", hint=f"for example {EXAMPLES[name]}"
            )
        bound = float(found[1]) * (0.01 if found[2] else 1)
        batch = float(found[3]) if found[3] else None
        _refuse(name, bound, batch, given)
        return cls(name, bound, batch, text)


def _refuse(name: str, bound: float, batch: float | None, given: str) -> None:
    example = f"for example {EXAMPLES[name]}"
    if not SMALLEST <= bound <= LARGEST:
        raise SpecError(
            f"{name} must lie from {SMALLEST:g} to {LARGEST:g}, got {given!r}", hint=example
        )
    if name == "accuracy" and bound > 1:
        raise SpecError(f"an accuracy is a share from 0 to 1, got {given!r}", hint=example)
    if batch is None:
        return
    if name not in WORK:
        raise SpecError(
            f"{name} is reached at any batch, got {given!r}", hint=f"for example {EXAMPLES[name]}"
        )
    if not 1 <= batch <= LARGEST:
        raise SpecError(f"a global batch is at least 1, got {given!r}", hint=example)


def _examples() -> str:
    return f"one of {'; '.join(EXAMPLES.values())}"
