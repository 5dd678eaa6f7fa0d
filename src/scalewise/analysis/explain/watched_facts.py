"""What was noted of one run beside its times, and what a guard says of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from scalewise.analysis.measure.window import steady_window
from scalewise.analysis.number_format import format_count
from scalewise.record import batch_sharing
from scalewise.record.read import RunRecord

GuardKind = Literal["correct", "tune"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that silently ruins scaling, and was seen."""

    name: str
    kind: GuardKind
    """``correct``: is the training right? ``tune``: better mended before more devices are paid."""
    says: str
    """What was seen, with the number in it."""
    hint: str
    """What to type or to change."""
    devices: int | None = None
    """The smallest number of devices on which it was seen."""
    question: bool = False
    """Whether it may well be meant so."""

    @property
    def sentence(self) -> str:
        """What was seen, and on how many devices."""
        where = f" (on {format_count(self.devices)})" if self.devices else ""
        return f"{self.says.rstrip('.')}{where}."


@dataclass(frozen=True)
class WatchedRun:
    """One run of a user's program, of which facts were noted."""

    record: RunRecord
    facts: tuple[Mapping[str, Any], ...]
    """Of each rank."""

    @classmethod
    def of(cls, record: RunRecord) -> "WatchedRun | None":
        """Return a run with its facts, or nothing where a rank has none."""
        found = tuple(rank.notes.facts for rank in record.ranks)
        return cls(record, found) if found and all(found) else None

    @property
    def first(self) -> Mapping[str, Any]:
        """The facts of rank 0."""
        return self.facts[0]

    @property
    def devices(self) -> int:
        """The devices that were asked for."""
        return self.record.spec.topology.world

    @property
    def ranks(self) -> int:
        """How many processes trained."""
        return len(self.facts)

    @property
    def accelerated(self) -> bool:
        """Whether the model lay on an accelerator."""
        return self.first.get("accelerator") is not None

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of each rank."""
        return tuple(rank.outline.steps for rank in self.record.ranks)

    @property
    def global_batch(self) -> int:
        """Samples of all ranks in a step, as most steps have them."""
        samples = [rank.steps.samples for rank in self.record.ranks]
        return sum(int(np.median(each)) for each in samples if each.size)

    @property
    def split(self) -> bool:
        """Whether ranks hold parts of one model, and so read the same samples by design."""
        return any(each.get("split") for each in self.facts)

    @property
    def counted(self) -> bool:
        """Whether samples that several ranks may share are known to be counted once."""
        return bool(self.record.spec.samples_per_step) or not batch_sharing.unclear(self.facts)

    @cached_property
    def step_seconds(self) -> float:
        """Seconds of a steady step."""
        window = steady_window(self.record)
        return window.seconds / window.steps

    @cached_property
    def input_share(self) -> float:
        """The share of the steady steps that ranks wait for input."""
        first = steady_window(self.record).first
        waited, whole = 0.0, 0.0
        for rank in self.record.ranks:
            later = rank.steps.index >= first
            whole += float(rank.steps.seconds[later].sum())
            if "input" in rank.steps.phases:
                waited += float(rank.steps.phases["input"][later].sum())
        return waited / whole if whole else 0.0

    def everywhere(self, key: str) -> Sequence[Any]:
        """Return a fact of every rank, or nothing where one does not know it."""
        found = [each.get(key) for each in self.facts]
        return [] if any(each is None for each in found) else found
