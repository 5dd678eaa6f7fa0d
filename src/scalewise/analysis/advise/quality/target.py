"""What a model is trained for: an amount of work at one batch, or a loss or accuracy."""

import re
from dataclasses import dataclass

from scalewise.analysis.advise.durations import NUMBER
from scalewise.errors import SpecError
from scalewise.validate import suggest_name

EXAMPLES = {
    "epochs": "epochs=90 at 256",
    "samples": "samples=115e6 at 256",
    "loss": "loss=2.1",
    "accuracy": "accuracy=0.75",
}
"""Every kind of target, and how it is written."""
WORK_TARGETS = ("epochs", "samples")
"""Targets that state the amount of work; the others state the quality to reach."""
MIN_BOUND, MAX_BOUND = 1e-6, 1e18
"""Bounds outside this range are refused as typing errors."""


@dataclass(frozen=True, slots=True)
class Target:
    """An amount of work that suffices at one global batch, or a quality."""

    name: str
    bound: float
    batch: float | None
    """The global batch at which that work suffices, if stated."""
    text: str
    """As the user wrote it."""

    @property
    def is_work(self) -> bool:
        """Whether the work is stated, instead of read from the records."""
        return self.name in WORK_TARGETS

    def reached_by(self, quality: float) -> bool:
        """Return whether a loss is low enough, or an accuracy high enough."""
        return quality <= self.bound if self.name == "loss" else quality >= self.bound

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, value: str) -> "Target":
        """Parse ``epochs=90 at 256``, ``samples=115e6 at 256``, ``loss=2.1`` or ``accuracy=75%``.

        >>> Target.parse("epochs=90 at 256")
        Target(name='epochs', bound=90.0, batch=256.0, text='epochs=90 at 256')
        >>> Target.parse("accuracy=75%").bound
        0.75
        """
        every_example = f"one of {'; '.join(EXAMPLES.values())}"
        if not isinstance(value, str):
            raise SpecError(f"a target is text, got {value!r}", hint=every_example)
        text = " ".join(value.split())
        name, _, amount = (part.strip() for part in text.partition("="))
        if name not in EXAMPLES:
            hint = suggest_name(name, EXAMPLES) or every_example
            raise SpecError(f"not a target: {value!r}", hint=hint)
        match = re.fullmatch(rf"{NUMBER}\s*(%?)(?:\s+at\s+{NUMBER})?", amount)
        if not match or (match[2] and name != "accuracy"):
            raise SpecError(
                f"{name} needs a number, got {value!r}", hint=f"for example {EXAMPLES[name]}"
            )
        bound = float(match[1]) * (0.01 if match[2] else 1)
        batch = float(match[3]) if match[3] else None
        if problem := _range_problem(name, bound, batch):
            raise SpecError(f"{problem}, got {value!r}", hint=f"for example {EXAMPLES[name]}")
        return cls(name, bound, batch, text)


def _range_problem(name: str, bound: float, batch: float | None) -> str:
    if not MIN_BOUND <= bound <= MAX_BOUND:
        return f"{name} must lie from {MIN_BOUND:g} to {MAX_BOUND:g}"
    if name == "accuracy" and bound > 1:
        return "an accuracy is a share from 0 to 1"
    if batch is not None and name not in WORK_TARGETS:
        return f"{name} is reached at any batch"
    if batch is not None and not 1 <= batch <= MAX_BOUND:
        return "a global batch is at least 1"
    return ""
