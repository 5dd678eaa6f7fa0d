"""How fast a run learns, step by step; standard library only.

A larger global batch takes fewer steps, and so larger ones: the rules of
Goyal et al. (linear, arXiv:1706.02677) and Krizhevsky (square root,
arXiv:1404.5997) say by how much, from the batch that ``lr`` was found for.
Steps are those of the optimizer, whatever the number of ranks.
"""

import math
from dataclasses import dataclass

from scalewise.spec import RunSpec


@dataclass(frozen=True, slots=True)
class Rates:
    """The learning rate of every step of a run."""

    start: float
    """Where the warm-up begins."""
    peak: float
    warmup: int
    """Steps until the peak."""
    total: int
    schedule: str

    @classmethod
    def of(cls, spec: RunSpec, epoch: int, total: int) -> "Rates":
        """Return the rates of a run that has ``epoch`` steps in a pass and ``total`` in all."""
        factor = spec.lr_factor
        warmup = round(spec.warmup_epochs * epoch) if spec.warmup_epochs else spec.warmup_steps
        start = spec.lr if factor > 1 else 0.0
        return cls(start, spec.lr * factor, min(warmup, total), total, spec.schedule)

    @property
    def constant(self) -> bool:
        """Whether every step has the same rate."""
        return self.schedule == "constant" and not self.warmup

    def at(self, step: int) -> float:
        """Return the rate of a step, counted from 0.

        >>> rates = Rates(0.0, 0.4, 4, 12, "cosine")
        >>> [round(rates.at(step), 3) for step in (0, 3, 4, 8, 11)]
        [0.1, 0.4, 0.4, 0.2, 0.015]
        """
        if step < self.warmup:
            return self.start + (self.peak - self.start) * (step + 1) / self.warmup
        gone = (step - self.warmup) / max(1, self.total - self.warmup)
        if self.schedule == "cosine":
            return self.peak * (1 + math.cos(math.pi * gone)) / 2
        return self.peak * (1 - gone) if self.schedule == "linear" else self.peak

    def __str__(self) -> str:
        words = [f"{self.peak:g}"]
        if self.warmup:
            words.append(f"after {self.warmup:,} steps of warm-up from {self.start:g}")
        if self.schedule != "constant":
            words.append(f"then {self.schedule} to 0 at step {self.total:,}")
        return ", ".join(words)
