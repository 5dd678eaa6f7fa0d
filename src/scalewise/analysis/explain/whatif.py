"""What-if: the recorded steps are replayed with one change, such as a faster link. In the replay,
a step ends for all ranks when the last rank is ready to exchange gradients, plus the transfer time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.measure import Point
from scalewise.analysis.measure.ledger import Ledger, Numbers

MIN_GAIN_SHARE = 0.01
"""A change is shown if it adds this share of throughput or saves this share of complete time."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A point as it would be with one change."""

    change: str
    step: float
    """Seconds of a step with the change."""
    throughput: float
    complete: float
    """Seconds of the complete job with the change."""
    gain: float
    """Added throughput, as a share of the measured throughput."""
    saved: float
    """Seconds of the complete job saved."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One run's recorded steps, and the number of its loader workers."""

    ledger: Ledger
    workers: int | None
    """None where the framework reads the data itself."""

    def recorded(self) -> Numbers:
        """Return the replayed seconds of each step without any change."""
        return _synchronised(self.ledger.own + self.ledger.input, self.ledger.transfer)

    def balanced(self) -> Numbers:
        """Return the seconds of each step if no rank were slower than the typical rank."""
        own = self.ledger.typical(self.ledger.own)
        balanced = _synchronised(own + self.ledger.input, self.ledger.transfer)
        return np.minimum(self.recorded(), balanced)  # Balancing makes no step longer.

    def with_double_link(self) -> Numbers:
        """Return the seconds of each step with a link of twice the bandwidth."""
        return _synchronised(self.ledger.own + self.ledger.input, self.ledger.transfer / 2)

    def with_double_loaders(self) -> Numbers:
        """Return the seconds of each step with twice the loader workers. Workers prepare a batch
        during the previous step: if a rank had to wait, preparing took about as long as a step.
        """
        ledger = self.ledger
        if not self.workers:  # The rank loads its data itself; two loaders halve the wait.
            return _synchronised(ledger.own + ledger.input / 2, ledger.transfer)
        overlapped = ledger.own + ledger.transfer  # Time in which preparing delays nothing.
        sync = ledger.transfer if ledger.sync is None else ledger.sync
        preparing = ledger.own + ledger.input + sync
        waiting = np.clip(preparing / 2 - overlapped, 0, ledger.input)
        return _synchronised(ledger.own + waiting, ledger.transfer)


MORE_LOADERS = "twice the loaders"
STEP_CHANGES = {
    "perfect balance": Replay.balanced,
    "twice the link": Replay.with_double_link,
    MORE_LOADERS: Replay.with_double_loaders,
}
REMOVABLE_PARTS = {"no validation": "validate", "no checkpoint": "checkpoint"}
"""Changes that remove a part of the complete job, with the name of that part."""


def saved_seconds(run: Replay) -> dict[str, float]:
    """Return the seconds of a step that each change saves in a run; negative if it adds some."""
    recorded = run.recorded()
    changes = [
        change for change in STEP_CHANGES if change != MORE_LOADERS or run.workers is not None
    ]
    return {c: float((recorded - STEP_CHANGES[c](run)).mean()) for c in changes}


def what_if(
    point: Point, step: float, saved_by_run: Sequence[Mapping[str, float]]
) -> tuple[WhatIf, ...]:
    """Return the effect of each change on a point, those that save most time first.
    ``saved_by_run`` has the ``saved_seconds`` of each run of the point.
    """
    if not point.throughput or not point.time or not point.steps:
        return ()
    throughput, time = point.throughput.value, point.time.value
    effects = []
    for change in STEP_CHANGES:
        savings = [saved[change] for saved in saved_by_run if change in saved]
        if not savings or len(savings) < len(saved_by_run):
            continue
        # A step cannot become longer, or take no time.
        saved_per_step = min(max(0.0, sum(savings) / len(savings)), 0.999 * step)
        new_step = step - saved_per_step
        speedup = step / new_step
        saved = saved_per_step * point.steps
        effect = WhatIf(change, new_step, throughput * speedup, time - saved, speedup - 1, saved)
        effects.append(effect)
    for change, part in REMOVABLE_PARTS.items():
        saved = point.complete[part].value if part in point.complete else 0.0
        effects.append(WhatIf(change, step, throughput, time - saved, 0.0, saved))
    shown = [e for e in effects if e.gain >= MIN_GAIN_SHARE or e.saved >= MIN_GAIN_SHARE * time]
    return tuple(sorted(shown, key=lambda effect: -effect.saved))


def _synchronised(before_exchange: Numbers, transfer: Numbers) -> Numbers:
    """Return the seconds of each step: the slowest rank's up to the exchange, and the transfer."""
    return np.asarray(before_exchange.max(axis=0) + transfer)
