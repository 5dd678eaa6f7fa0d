"""The results of `explain`: the causes of one point, and of a curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain.guards.guard import Finding
from scalewise.analysis.explain.receipt import Receipt
from scalewise.analysis.explain.trace_analysis import TraceComparison
from scalewise.analysis.explain.utilisation import HostUtilisation, Utilisation
from scalewise.analysis.explain.whatif import WhatIf
from scalewise.analysis.measure import Estimate

COMPUTE_AND_COMMUNICATION = "compute and communication"
"""The name of their common share, where they were not measured separately."""
MIN_EFFICIENCY_LOSS = 0.02
"""The smallest loss of efficiency that is explained."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one cause."""

    step: float
    """Seconds per step."""
    window: float
    """Seconds over the steady window."""
    devices: float
    """The cause's share of all device time, as a number of devices."""
    money: float | None = None
    """Per hour, where a price is given."""


@dataclass(frozen=True, slots=True)
class RankTime:
    """Where one rank's time went, in seconds per step."""

    rank: int
    host: str
    compute: float
    input: float
    sync: float | None
    other: float
    behind: float
    """How much longer its own work takes than the typical rank's."""


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Where the time of a step, and of the complete job, went on one number of devices."""

    devices: int
    nodes: int | None = None
    runs: int = 1
    efficiency: float | None
    step: float
    """Measured seconds per step."""
    ideal: float | None = None
    """Seconds per step of computation alone, at the baseline's compute per sample."""
    factors: Mapping[str, float | None]
    """By cause, relative to the baseline; their product is the efficiency."""
    seconds: Mapping[str, float | None]
    """Added to the ideal step by each cause; with ``unexplained`` they sum to step − ideal."""
    complete: Mapping[str, float]
    """The complete time by parts of the lifetime."""
    grown: Mapping[str, float]
    """How much longer than at the baseline each of them is."""
    shares: Mapping[str, float | None]
    """Of the measured step: compute, waiting, input, communication, other.

    Compute and communication are one share where they were not measured separately.
    """
    regime: str | None = None
    """The largest of the shares."""
    compute: float | None = None
    """Seconds of computation per step, on the typical rank."""
    exposed: float | None = None
    """Seconds of exposed communication per step, mean over ranks."""
    hidden: float | None = None
    """Seconds of communication per step that computation hides."""
    ratio: float | None = None
    """Exposed communication over computation."""
    traffic: Mapping[str, int] | None = None
    """Bytes exchanged in a step by kind of collective, on the device that sends most."""
    exchange: str | None = None
    """The traffic in a sentence, with the strategy and the share that is exposed."""
    flops_per_second: Estimate | None = None
    """Operations of the model per second, on one device."""
    mfu: Estimate | None = None
    """The share of the device's peak that they reach."""
    operations: str | None = None
    """Operations and MFU in a sentence, or why they are unknown."""
    costs: Mapping[str, Cost] = field(default_factory=dict)
    ranks: tuple[RankTime, ...] = ()
    slowest: RankTime | None = None
    what_if: tuple[WhatIf, ...] = ()
    busy: "Usage | None" = None
    """How devices and hosts were used during training; None without node samples."""
    trace: TraceComparison | None = None
    """The comparison with a profiler's trace of a few steps, where one was recorded."""
    receipt: Receipt | None = None
    """Device-hours of its runs: bought, useful, lost."""
    cause: str | None = None
    """The largest cause, if one matters."""
    sentence: str
    action: str | None = None
    """Something to try."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """How devices and hosts were used during the training."""

    devices: tuple[Utilisation, ...]
    hosts: tuple[HostUtilisation, ...]


@dataclass(frozen=True, slots=True)
class ScalingVerdict:
    """Whether the curve scales, judged by its largest point."""

    verdict: str
    efficiency: Estimate
    devices: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """The largest scale on one node beside the smallest on several."""

    devices: tuple[int, int]
    nodes: int
    """Nodes of the second one."""
    efficiency: tuple[float, float]
    cause: str | None = None
    """The cause whose factor falls most; None if efficiency hardly falls or factors are unknown."""
    factor: float | None = None
    """That factor beyond the node over the one inside it."""

    @property
    def sentence(self) -> str:
        """What leaving the node costs."""
        (inside, beyond), (before, after) = self.devices, self.efficiency
        change = (
            f"leaving the node ({inside} to {beyond} devices, on {self.nodes} nodes) "
            f"takes efficiency from {100 * before:.1f} % to {100 * after:.1f} %"
        )
        if before - after < MIN_EFFICIENCY_LOSS:
            return f"{change}: the network between the nodes costs little so far"
        if self.cause is None or self.factor is None:
            return change
        return f"{change}; the largest part of that is {self.cause} (× {self.factor:.2f})"


def find_node_boundary(points: Sequence[Breakdown]) -> Boundary | None:
    """Return where a curve leaves the node; None if only one side was measured."""
    inside = [point for point in points if point.nodes == 1]
    beyond = [point for point in points if point.nodes and point.nodes > 1]
    if not inside or not beyond:
        return None
    last = max(inside, key=lambda point: point.devices)
    first = min(beyond, key=lambda point: (point.nodes, point.devices))
    if last.efficiency is None or first.efficiency is None:
        return None
    cause = factor = None
    if last.efficiency - first.efficiency >= MIN_EFFICIENCY_LOSS:
        cause, factor = _worst_cause(last.factors, first.factors)
    return Boundary(
        devices=(last.devices, first.devices),
        nodes=first.nodes or 1,
        efficiency=(last.efficiency, first.efficiency),
        cause=cause,
        factor=factor,
    )


def _worst_cause(
    before: Mapping[str, float | None], after: Mapping[str, float | None]
) -> tuple[str | None, float | None]:
    """Return the cause whose factor falls most, with the ratio of its factors."""
    ratios = {
        cause: factor / before_factor
        for cause, factor in after.items()
        if factor is not None and (before_factor := before.get(cause))
    }
    cause = min(ratios, key=lambda name: ratios[name], default=None)
    return (cause, ratios[cause]) if cause and ratios[cause] < 1 else (None, None)


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Where the time and the efficiency of one curve went."""

    study: str
    where: Mapping[str, Any] = field(default_factory=dict)
    points: tuple[Breakdown, ...]
    scales: ScalingVerdict | None = None
    boundary: Boundary | None = None
    """What leaving the node costs, where both sides were measured."""
    correct: tuple[Finding, ...] | None = None
    """Faults that guards found in the training; None where no facts were recorded."""
    tune: tuple[Finding, ...] | None = None
    """What to tune on one device first; None where no facts were recorded."""
    price: float | None = None
    """Of one device for one hour."""
    rate: Rate | None = None
    """The price with its currency and source."""
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The study with this curve's varied settings."""
        settings = ", ".join(f"{key} {value}" for key, value in self.where.items())
        return f"{self.study} ({settings})" if settings else self.study

    @property
    def left_compute_at(self) -> int | None:
        """The first number of devices at which computation is not the largest share."""
        compute = (None, "compute", COMPUTE_AND_COMMUNICATION)
        return next((point.devices for point in self.points if point.regime not in compute), None)
