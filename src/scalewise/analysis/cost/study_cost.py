"""The device-hours of a study: recorded for finished runs, expected for missing runs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.predict import predict
from scalewise.errors import NotEnoughData, SpecError
from scalewise.spec import RunSpec, StudySpec

Basis = Literal["bought", "measured", "predicted", "limited", "unknown"]
"""Source of a run's device-hours. bought: its own record; measured: finished runs of the same
configuration; predicted: smaller scales; limited: its time limit, an upper bound; unknown: none.
"""


@dataclass(frozen=True, kw_only=True)
class Item:
    """The cost of one run."""

    run: RunSpec
    devices: int
    """Devices that are charged: more than the run uses, if its allocation is larger."""
    basis: Basis
    hours: Estimate | None = None
    """Device-hours that a finished run used, or that a missing run is expected to use."""
    max_hours: float | None = None
    """Upper bound in device-hours; None where unknown."""

    @property
    def expected(self) -> float | None:
        """Expected device-hours; the upper bound where there is no expectation."""
        return self.hours.value if self.hours else self.max_hours


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Every run of a study with its cost, and the device-hours of the study so far."""

    items: tuple[Item, ...]
    bought: float
    """Device-hours so far, including failed attempts and idle devices."""
    max_hours: float | None
    """Upper bound of the missing runs in device-hours; None where unknown."""

    @property
    def missing(self) -> tuple[Item, ...]:
        """Items of runs that are not finished."""
        return tuple(item for item in self.items if item.basis != "bought")

    @property
    def expected(self) -> Estimate | None:
        """Expected device-hours of missing runs; errors are assumed to be fully correlated."""
        hours = [item.hours for item in self.missing if item.hours]
        if not hours:
            return None
        return Estimate(
            sum(estimate.value for estimate in hours),
            sum(estimate.value if estimate.low is None else estimate.low for estimate in hours),
            sum(estimate.value if estimate.high is None else estimate.high for estimate in hours),
            min(estimate.count for estimate in hours),
        )

    @property
    def unknown(self) -> int:
        """The number of runs whose device-hours have neither an expectation nor an upper bound."""
        return sum(item.basis == "unknown" for item in self.items)


def bill_items(
    study: StudySpec,
    runs: Sequence[RunSpec],
    curves: Sequence[ScalingCurve],
    bought: Mapping[str, float],
    max_hours: Callable[[RunSpec], float | None],
    billed_devices: Callable[[RunSpec], int],
) -> list[Item]:
    """Return the cost of each run. ``bought`` has the device-hours of finished runs, by run id;
    ``max_hours`` returns the upper bound of a missing run in device-hours, None without a limit.
    """
    missing = [run for run in runs if run.id not in bought]
    expected_seconds: dict[str, tuple[Basis, Estimate]] = {}
    for curve in curves:
        expected_seconds |= _expected_seconds(study, curve, missing)
    items = []
    for run in runs:
        if run.id in bought:
            recorded = Estimate(bought[run.id])
            items.append(Item(run=run, devices=run.topology.world, basis="bought", hours=recorded))
            continue
        upper, devices, hours = max_hours(run), billed_devices(run), None
        if expected := expected_seconds.get(run.id):
            basis, seconds = expected
            hours = seconds * (devices / 3600)
            high = hours.high or hours.value  # The end of the interval is an upper bound, too.
            upper = high if upper is None else min(high, upper)
        else:
            basis = "unknown" if upper is None else "limited"
        items.append(Item(run=run, devices=devices, basis=basis, hours=hours, max_hours=upper))
    return items


def _expected_seconds(
    study: StudySpec, curve: ScalingCurve, missing: Sequence[RunSpec]
) -> dict[str, tuple[Basis, Estimate]]:
    """Return the seconds of the missing runs of a curve and their basis, by run id."""
    # repr() distinguishes values that compare equal, such as 1 and True.
    on_curve = [run for run in missing if repr(study.where(run)) == repr(curve.where)]
    timed = {(point.devices, point.nodes): point.time for point in curve.points if point.time}
    largest = max(point.devices for point in curve.points)
    larger_counts = {run.topology.world for run in on_curve if run.topology.world > largest}
    predicted_times: dict[int, Estimate] = {}
    if larger_counts:
        with suppress(NotEnoughData, SpecError):  # Then no larger run is predicted.
            points = predict(curve, larger_counts).points
            predicted_times = {point.devices: point.time for point in points if point.time}
    expected: dict[str, tuple[Basis, Estimate]] = {}
    for run in on_curve:
        world = run.topology.world
        if seconds := timed.get((world, run.topology.nodes)):
            expected[run.id] = "measured", seconds
        elif seconds := predicted_times.get(world):
            expected[run.id] = "predicted", seconds
    return expected
