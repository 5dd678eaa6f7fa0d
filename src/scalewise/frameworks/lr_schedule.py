"""The learning rate of each optimizer step; standard library only.

If a run names the batch that ``lr`` was tuned for, ``lr`` is scaled to the global batch by the rule
of Goyal et al. (linear, arXiv:1706.02677) or Krizhevsky (square root, arXiv:1404.5997).
"""

import math
from dataclasses import dataclass

from scalewise.spec import RunSpec


@dataclass(frozen=True, slots=True)
class Rates:
    """The learning rate of every step of a run."""

    start: float
    """The rate at which the warm-up begins."""
    peak: float
    warmup: int
    """Steps of warm-up."""
    total: int
    """Steps of the run."""
    schedule: str

    @classmethod
    def of(cls, spec: RunSpec, epoch_steps: int, total: int) -> "Rates":
        """Return the rates of a run with ``epoch_steps`` steps per epoch and ``total`` in total."""
        factor = spec.lr_factor
        warmup = (
            round(spec.warmup_epochs * epoch_steps) if spec.warmup_epochs else spec.warmup_steps
        )
        start = spec.lr if factor > 1 else 0.0  # Goyal et al. start at the rate before scaling.
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
        progress = (step - self.warmup) / max(1, self.total - self.warmup)
        if self.schedule == "cosine":
            return self.peak * (1 + math.cos(math.pi * progress)) / 2
        return self.peak * (1 - progress) if self.schedule == "linear" else self.peak

    def __str__(self) -> str:
        parts = [f"{self.peak:g}"]
        if self.warmup:
            parts.append(f"after {self.warmup:,} steps of warm-up from {self.start:g}")
        if self.schedule != "constant":
            parts.append(f"then {self.schedule} to 0 at step {self.total:,}")
        return ", ".join(parts)
