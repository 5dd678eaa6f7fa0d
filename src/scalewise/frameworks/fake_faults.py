"""Faults of the fake machine: what goes wrong where, so that answers about it have a known truth.

    options.faults = [{kind = "straggler", rank = 17, factor = 1.3}, {kind = "nan loss", step = 20}]

A rank that a run does not have is not affected: a study's small runs stay healthy.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalewise.errors import SpecError, shown
from scalewise.validate import check_choice, check_integer, check_positive, refuse_unknown_keys

KEYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "straggler": (("rank", "factor"), ("step", "until")),
    "slow disk": ((), ("rank", "input", "checkpoint", "step", "until")),
    "nan loss": (("step",), ()),
    "hang": (("rank", "step"), ("attempt",)),
    "lost rank": (("rank", "step"), ("attempt",)),
    "interruptions": (("every",), ()),
}
"""By kind of fault: the keys that it must have, and those that it may have."""
EXAMPLES = {"rank": 17, "step": 40, "factor": 1.3, "every": 43200.0}
EXAMPLE = 'for example faults = [{kind = "straggler", rank = 17, factor = 1.3}]'


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    kind: str
    rank: int | None = None
    """None: all ranks."""
    step: int = 0
    """The first step that is affected, counted from 0; a rank that hangs or is lost has done so
    many steps.
    """
    until: int | None = None
    """The first step that is not affected any more."""
    attempt: int = 1
    """The attempt at the run in which a rank hangs or is lost."""
    factor: float = 1.0
    """A straggler's own work takes so many times as long."""
    input: float = 0.0
    """More seconds for reading a batch from a slow disk."""
    checkpoint: float = 0.0
    """More seconds for writing a checkpoint to it."""
    every: float = math.inf
    """Seconds between two interruptions of one device on average."""

    @classmethod
    def of(cls, values: Any) -> "Fault":
        """Return the fault that a table describes; refuse what it cannot be."""
        if not isinstance(values, Mapping):
            raise SpecError(f"a fault must be a table, got {shown(values)}", hint=EXAMPLE)
        if "kind" not in values:
            raise SpecError(f"a fault needs a kind, got {shown(dict(values))}", hint=EXAMPLE)
        kind = values["kind"]
        check_choice("kind", kind, [*KEYS])
        required, optional = KEYS[kind]
        refuse_unknown_keys(f"the fault {kind!r}", values, ["kind", *required, *optional])
        if missing := next((key for key in required if key not in values), None):
            hint = f"for example {missing} = {EXAMPLES[missing]}"
            raise SpecError(f"the fault {kind!r} needs {missing}", hint=hint)
        for key, minimum in (("rank", 0), ("step", 0), ("attempt", 1)):
            if key in values:
                check_integer(key, values[key], minimum=minimum)
        if "until" in values:
            check_integer("until", values["until"], minimum=values.get("step", 0) + 1)
        for key in ("factor", "input", "checkpoint", "every"):
            if key in values:
                check_positive(key, values[key], example=EXAMPLES.get(key, 0.02), maximum=1e9)
        fault = cls(**values)
        if kind == "straggler" and fault.factor <= 1:
            raise SpecError(
                f"factor must be above 1, got {shown(fault.factor)}", hint="factor = 1.3"
            )
        if kind == "slow disk" and not (fault.input or fault.checkpoint):
            hint = "for example input = 0.02, seconds more for each batch"
            raise SpecError(f"the fault {kind!r} needs input, checkpoint or both", hint=hint)
        return fault

    def is_at(self, step: int) -> bool:
        """Return whether this step is affected."""
        return self.step <= step and (self.until is None or step < self.until)


@dataclass(frozen=True)
class Interruption:
    """A device is taken away at random."""

    seconds: float
    """When, in seconds since the launch of the attempt."""
    rank: int


class Faults:
    """All faults of a run with ``world`` ranks."""

    def __init__(self, tables: Any, world: int) -> None:
        if not isinstance(tables, Sequence) or isinstance(tables, str):
            raise SpecError(f"faults must be a list of tables, got {shown(tables)}", hint=EXAMPLE)
        self.all = [Fault.of(table) for table in tables]
        self._world = world
        present = [fault for fault in self.all if fault.rank is None or fault.rank < world]
        # A single rank has no other to be slower than.
        stragglers = [fault for fault in present if fault.kind == "straggler" and world > 1]
        self._slow = stragglers + [fault for fault in present if fault.kind == "slow disk"]
        self._stops = [fault for fault in present if fault.kind in ("hang", "lost rank")]
        self.nan_step = min((f.step for f in self.all if f.kind == "nan loss"), default=None)
        """The first step whose loss is not a number; None if all losses are numbers."""
        self.checkpoint = max((fault.checkpoint for fault in self._slow), default=0.0)
        """More seconds for a checkpoint, for which every rank waits."""
        self._every = min((fault.every for fault in self.all), default=math.inf)

    @property
    def interrupts(self) -> bool:
        """Whether devices are taken away at random."""
        return self._every < math.inf

    def is_slow(self, rank: int) -> bool:
        """Return whether a rank differs from the others in some step."""
        return any(fault.rank == rank for fault in self._slow)

    def slow_ranks(self) -> list[int]:
        """Return the ranks that differ from the others."""
        return [fault.rank for fault in self._slow if fault.rank is not None]

    def work_factor(self, rank: int, step: int) -> float:
        """Return how many times as long as usual a rank's own work takes."""
        own = (f for f in self._slow if f.rank == rank and f.is_at(step))
        return math.prod(fault.factor for fault in own)

    def more_input(self, rank: int, step: int) -> float:
        """Return how many seconds longer than usual a rank waits for a batch."""
        own = (f for f in self._slow if f.rank in (rank, None) and f.is_at(step))
        return sum(fault.input for fault in own)

    def stop(self, attempt: int, first_step: int) -> Fault | None:
        """Return what stops an attempt that begins with ``first_step``; None if nothing does."""
        stops = (f for f in self._stops if f.attempt == attempt and f.step >= first_step)
        return min(stops, key=lambda fault: fault.step, default=None)

    def interruption(self, run: str, attempt: int) -> Interruption:
        """Return when an attempt at the run with this id is interrupted, if it lasts so long."""
        rng = random.Random(f"{run} interruption {attempt}")
        return Interruption(rng.expovariate(self._world / self._every), rng.randrange(self._world))
