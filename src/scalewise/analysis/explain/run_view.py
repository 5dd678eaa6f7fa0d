"""One run, looked at once: what its causes and its receipt are made from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scalewise.analysis.explain.chain import Chain, build_chain
from scalewise.analysis.measure import Point, ScalingCurve
from scalewise.analysis.measure.ledger import Ledger, build_ledger
from scalewise.analysis.measure.window import Window, steady_window
from scalewise.record.read import RunRecord


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with its steady part, what every rank did in it, and the chain of causes."""

    record: RunRecord
    window: Window
    ledger: Ledger | None
    chain: Chain | None

    @classmethod
    def of(cls, record: RunRecord) -> "RunView":
        """Look at a record."""
        window = steady_window(record)
        found = build_ledger(record, window.first)
        world = record.spec.topology.world
        return cls(record, window, found, build_chain(found, window, world) if found else None)

    @property
    def step(self) -> float:
        """Measured seconds per step."""
        return self.window.seconds / self.window.steps

    @property
    def pace(self) -> float:
        """Seconds of a step per sample of a device."""
        return self.window.seconds * self.record.spec.topology.world / self.window.samples


def runs_by_point(
    curve: ScalingCurve, records: Sequence[RunRecord]
) -> Iterator[tuple[Point, list[RunView]]]:
    """Yield every point of a curve with the runs that it was measured from."""
    for point in curve.points:
        yield (
            point,
            [
                RunView.of(record)
                for record in records
                if (record.spec.topology.world, record.spec.topology.nodes)
                == (point.devices, point.nodes)
            ],
        )
