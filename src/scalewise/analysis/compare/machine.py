"""Was the machine itself slower? The start of the processes (launcher, interpreter, imports) does
not depend on what is trained. If it took longer too, by more than noise, as much of a difference in
speed may be the machine's. The repeats of a study follow each other, so their noise does not show
how the machine's speed changes from one study to the next.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalewise.analysis.compare.samples import (
    MIN_NOISE,
    Change,
    Pair,
    Sample,
    change_of,
    holm,
    noise_of_pairs,
)
from scalewise.analysis.compare.settings import SettingDifference
from scalewise.analysis.compare.side import RunFigures, Side
from scalewise.analysis.measure import Estimate, Point

CHANCE_SHIFT = 0.1
"""The chance that any shift is seen on a machine whose speed did not change. A false one only makes
a comparison careful; a missed one lets it blame the wrong side."""
UNEQUAL_SLOWING = 0.25
"""The standard error of a shift, as a share of it: a machine does not slow all work alike."""
LAUNCH_SETTINGS = ("framework", "launcher", "env.", "start")
"""Beginnings of the settings on which the start of the processes depends."""
PROGRAM_FACTS = ("commit",)
"""Facts of the environment that are about what is trained."""


@dataclass(frozen=True, slots=True)
class MachineShift:
    """How much longer the start of the processes took on one number of devices."""

    devices: int
    launch: Change
    """The difference of the logarithms of its seconds."""
    steps: float | None
    """That of the seconds of a step; None if unknown."""

    @property
    def ratio(self) -> Estimate:
        """After / before, with its 90 % interval."""
        return self.launch.estimate(math.exp)

    @property
    def error(self) -> float:
        """The standard error of what a step or a job shares of the shift."""
        return math.hypot(self.launch.error, UNEQUAL_SLOWING * self.launch.value)

    def shared(self, slowing: float) -> float:
        """Return how much of a slowing (a difference of logarithms) may be the machine's: what it
        has in common with the slowing of steps and of the start of the processes.
        """
        shifts = [self.launch.value, slowing, *([] if self.steps is None else [self.steps])]
        if min(shifts) > 0:
            return min(shifts)
        return max(shifts) if max(shifts) < 0 else 0.0


def machine_shifts(
    a: Side, b: Side, points: Sequence[tuple[Point, Point]]
) -> dict[int, MachineShift]:
    """Return the shifts that are more than noise, by number of devices: its own, or else that of
    all of them together.
    """
    pairs: dict[int, Pair] = {}
    steps: dict[int, float | None] = {}
    for before, after in points:
        samples = _launch(a.runs_at(before)), _launch(b.runs_at(after))
        if samples[0] and samples[1]:
            pairs[before.devices] = samples[0], samples[1]
            rates = a.sample("throughput", before), b.sample("throughput", after)
            same_unit = a.curve.unit == b.curve.unit
            steps[before.devices] = (
                rates[0].mean - rates[1].mean if same_unit and rates[0] and rates[1] else None
            )
    noises = noise_of_pairs([*pairs.values()], [MIN_NOISE**2] * len(pairs))
    if noises is None:
        return {}
    own = [change_of(pair, noise) for pair, noise in zip(pairs.values(), noises, strict=True)]
    together = _weighted_mean(own)
    *own_shown, together_shown = holm([change.p for change in (*own, together)], CHANCE_SHIFT)
    return {
        devices: MachineShift(devices, change if is_shown else together, steps[devices])
        for devices, change, is_shown in zip(pairs, own, own_shown, strict=True)
        if is_shown or together_shown
    }


def _weighted_mean(changes: Sequence[Change]) -> Change:
    """Return the mean of independent changes, weighted by what is known about each."""
    weights = [change.error**-2 for change in changes]
    mean = math.fsum(w * change.value for w, change in zip(weights, changes)) / math.fsum(weights)
    freedom = min(change.freedom for change in changes)
    return Change(mean, math.fsum(weights) ** -0.5, freedom)


def _launch(runs: Sequence[RunFigures]) -> Sample | None:
    known = [run.launch for run in runs if run.launch]
    return Sample.of_logarithms(known) if known and len(known) == len(runs) else None


def is_same_machine(differences: Sequence[SettingDifference]) -> bool:
    """Say whether the start of the processes should take as long on both sides: the same hosts,
    hardware and software. A shift on other machines is a part of what is compared.
    """
    return not any(
        item.name not in PROGRAM_FACTS
        if item.kind == "environment"
        else item.name.startswith(LAUNCH_SETTINGS)
        for item in differences
    )
