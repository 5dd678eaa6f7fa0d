"""What a study will cost, from what is known before its runs start; nothing is made up.

A run that has finished was bought. One like it that has finished tells what it
takes; runs on other numbers of devices are predicted from two or more that were
measured. Where neither is there, the launcher's time limit bounds it, or it is
not known.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.predict import predict
from scalewise.errors import NotEnoughData, SpecError
from scalewise.spec import RunSpec, StudySpec

How = Literal["bought", "measured", "predicted", "limited", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Item:
    """One run on the bill."""

    run: RunSpec
    devices: int
    """That are paid for while it goes: more than its own, where runs share an allocation."""
    how: How
    """Where the number comes from."""
    hours: Estimate | None = None
    """Device-hours that were bought, or are expected."""
    most: float | None = None
    """Device-hours that it takes at most, as far as that is known."""

    @property
    def expected(self) -> float | None:
        """The number to reckon with: the expected one, or the limit if that is all there is."""
        return self.hours.value if self.hours else self.most


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Every run of a study, and what it has cost so far."""

    items: tuple[Item, ...]
    bought: float
    """Device-hours, with all that failed or sat idle."""
    most: float | None
    """What is missing takes at most so many device-hours; nothing where that is not known."""

    @property
    def missing(self) -> tuple[Item, ...]:
        """What is still to be bought."""
        return tuple(item for item in self.items if item.how != "bought")

    @property
    def expected(self) -> Estimate | None:
        """What the missing runs of which something is expected take, all together.

        Their errors are taken to be alike: ends are added to ends.
        """
        known = [item.hours for item in self.missing if item.hours]
        if not known:
            return None
        return Estimate(
            sum(each.value for each in known),
            sum(each.value if each.low is None else each.low for each in known),
            sum(each.value if each.high is None else each.high for each in known),
            min(each.count for each in known),
        )

    @property
    def unknown(self) -> int:
        """How many runs nothing is known of."""
        return sum(item.how == "unknown" for item in self.items)


def bill(
    study: StudySpec,
    runs: Sequence[RunSpec],
    curves: Sequence[ScalingCurve],
    paid: Mapping[str, float],
    bound: Callable[[RunSpec], float | None],
    charged: Callable[[RunSpec], int],
) -> list[Item]:
    """Return the item of each run; ``paid`` are the device-hours of finished ones, by id.

    Of a run that is missing, ``bound`` says the device-hours that it can take at most,
    where there is a limit, and ``charged`` for how many devices it is paid.
    """
    todo = [run for run in runs if run.id not in paid]
    ahead = {key: hours for curve in curves for key, hours in _ahead(study, curve, todo).items()}
    items = []
    for run in runs:
        if run.id in paid:
            hours = Estimate(paid[run.id])
            items.append(Item(run=run, devices=run.topology.world, how="bought", hours=hours))
            continue
        limit, devices = bound(run), charged(run)
        if found := ahead.get(run.id):
            how, hours = found[0], found[1] * (devices / 3600)
            ends = [end for end in (hours.high or hours.value, limit) if end is not None]
            items.append(Item(run=run, devices=devices, how=how, hours=hours, most=min(ends)))
        else:
            how = "unknown" if limit is None else "limited"
            items.append(Item(run=run, devices=devices, how=how, most=limit))
    return items


def _ahead(
    study: StudySpec, curve: ScalingCurve, todo: Sequence[RunSpec]
) -> dict[str, tuple[How, Estimate]]:
    """Return the seconds that a curve tells of its missing runs, and how, by id."""
    mine = [run for run in todo if repr(study.where(run)) == repr(curve.where)]
    measured = {(point.devices, point.nodes): point.time for point in curve.points if point.time}
    largest = max(point.devices for point in curve.points)
    beyond = sorted({run.topology.world for run in mine if run.topology.world > largest})
    expected: dict[int, Estimate] = {}
    if beyond and len({point.devices for point in curve.points}) > 1:
        try:
            told = predict(curve, beyond).points
        except (NotEnoughData, SpecError):
            told = ()
        expected = {point.devices: point.time for point in told if point.time}
    found: dict[str, tuple[How, Estimate]] = {}
    for run in mine:
        world = run.topology.world
        if time := measured.get((world, run.topology.nodes)):
            found[run.id] = "measured", time
        elif time := expected.get(world):
            found[run.id] = "predicted", time
    return found
