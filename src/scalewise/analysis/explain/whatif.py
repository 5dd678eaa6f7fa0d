"""The recorded steps once more, with one thing changed.

A synchronising step ends for all ranks when the last one has arrived and the
transfer is over. So a step with a change in it can be played again from what
every rank did, rather than guessed from averages.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalewise.analysis.measure import Point
from scalewise.analysis.measure.ledger import Ledger, Numbers

MIN_GAIN_SHARE = 0.01
"""The smallest share of throughput or complete time that is worth a line."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What one change would give."""

    change: str
    step: float
    """Seconds of a step."""
    throughput: float
    complete: float
    """Seconds of the complete job."""
    gain: float
    """Share of throughput added."""
    saved: float
    """Seconds of the complete job saved."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One run's steps, and whether its loaders work beside them."""

    ledger: Ledger
    workers: int | None
    """Nothing where there are none, because the engine reads by itself."""

    def now(self) -> Numbers:
        """Return the steps as they were."""
        return _together(self.ledger.own + self.ledger.input, self.ledger.transfer)

    def balanced(self) -> Numbers:
        """Return the steps with every rank as quick as the typical one, where that helps."""
        own = self.ledger.typical(self.ledger.own)
        return np.minimum(self.now(), _together(own + self.ledger.input, self.ledger.transfer))

    def linked(self) -> Numbers:
        """Return the steps with a link of twice the speed."""
        return _together(self.ledger.own + self.ledger.input, self.ledger.transfer / 2)

    def fed(self) -> Numbers:
        """Return the steps with twice the loaders.

        With workers a batch is made beside the step before it: where a rank had
        to wait for one, making it took about the whole step.
        """
        ledger = self.ledger
        waited = ledger.input
        if not self.workers:
            return _together(ledger.own + waited / 2, ledger.transfer)
        beside = ledger.own + ledger.transfer
        whole = ledger.own + waited + (ledger.transfer if ledger.sync is None else ledger.sync)
        left = np.clip(whole / 2 - beside, 0, waited)
        return _together(ledger.own + left, ledger.transfer)


STEP_CHANGES = {
    "perfect balance": Replay.balanced,
    "twice the link": Replay.linked,
    "twice the loaders": Replay.fed,
}
REMOVABLE_PARTS = {"no validation": "validate", "no checkpoint": "checkpoint"}


def what_if(point: Point, step: float, replays: Sequence[Replay]) -> tuple[WhatIf, ...]:
    """Return what each change would give a point, those that give most first."""
    if not point.throughput or not point.time or not point.steps:
        return ()
    rate, time = point.throughput.value, point.time.value
    found = []
    loads = all(each.workers is not None for each in replays)
    changes = {name: each for name, each in STEP_CHANGES.items() if loads or each is not Replay.fed}
    for change, played in changes.items() if replays else ():
        gains = [float((each.now() - played(each)).mean()) for each in replays]
        gain = min(max(0.0, sum(gains) / len(gains)), 0.999 * step)
        share = step / (step - gain)
        saved = gain * point.steps
        found.append(WhatIf(change, step - gain, rate * share, time - saved, share - 1, saved))
    for change, name in REMOVABLE_PARTS.items():
        saved = point.complete[name].value if name in point.complete else 0.0
        found.append(WhatIf(change, step, rate, time - saved, 0.0, saved))
    worth = [
        each for each in found if each.gain >= MIN_GAIN_SHARE or each.saved >= MIN_GAIN_SHARE * time
    ]
    return tuple(sorted(worth, key=lambda each: -each.saved))


def _together(arrival: Numbers, transfer: Numbers) -> Numbers:
    return np.asarray(arrival.max(axis=0) + transfer)
