"""One run with the values from which `explain` computes causes of loss and device-hours."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scalewise.analysis.explain.chain import Chain
from scalewise.analysis.explain.step_costs import StepCosts, step_costs
from scalewise.analysis.measure import Point, ScalingCurve
from scalewise.analysis.measure.window import Window, steady_window
from scalewise.record.read import RunRecord


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with its steady window and what the phases of its steps come to."""

    record: RunRecord
    window: Window
    costs: StepCosts | None
    """None if no phases were recorded."""

    @classmethod
    def of(cls, record: RunRecord) -> "RunView":
        """Compute the window and the costs of a record."""
        return cls(record, steady_window(record), step_costs(record))

    @property
    def chain(self) -> Chain | None:
        """The seconds of a step by cause; None if unknown."""
        return self.costs.chain if self.costs else None

    @property
    def devices(self) -> int:
        """The number of devices of the run."""
        return self.record.spec.topology.world

    @property
    def step(self) -> float:
        """Measured seconds per step."""
        return self.window.seconds / self.window.steps

    @property
    def pace(self) -> float:
        """Device-seconds per sample in the steady window."""
        return self.window.seconds * self.devices / self.window.samples


def runs_by_point(
    curve: ScalingCurve, records: Sequence[RunRecord]
) -> Iterator[tuple[Point, list[RunView]]]:
    """Yield every point of a curve with the runs in which the point was measured."""
    for point in curve.points:
        size = (point.devices, point.nodes)
        pairs = ((record, record.spec.topology) for record in records)
        yield point, [RunView.of(record) for record, t in pairs if (t.world, t.nodes) == size]


def collective_bytes(record: RunRecord) -> Mapping[str, int] | None:
    """Return the bytes of each collective in a step, on the device that sends most, if known."""
    traffics = [traffic for rank in record.ranks if (traffic := rank.notes.traffic)]
    if len(traffics) < len(record.ranks):
        return None
    busiest = max(
        (traffic.exchanged for traffic in traffics),
        key=lambda collectives: sum(collective["sent"] for collective in collectives.values()),
    )
    return {kind: int(collective["bytes"]) for kind, collective in busiest.items()}
