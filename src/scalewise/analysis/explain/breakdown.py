"""Result classes of `explain`: the causes of lost efficiency, for each point and for a curve."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain.environment import Environment
from scalewise.analysis.explain.guards.guard import Finding
from scalewise.analysis.explain.rank_times import RankTimes
from scalewise.analysis.explain.receipt import Receipt
from scalewise.analysis.explain.trace_analysis import TraceComparison
from scalewise.analysis.explain.utilisation import Usage
from scalewise.analysis.explain.whatif import WhatIf
from scalewise.analysis.measure import Doubt, Estimate, Point, ScalingCurve
from scalewise.spec import RunSpec

COMPUTE_AND_COMMUNICATION = "compute and communication"
"""The share of a step that is compute plus communication, if only their sum was measured."""
MIN_EFFICIENCY_LOSS = 0.02
"""If efficiency falls by less from one node to several nodes, no cause of the fall is named."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one cause of lost efficiency costs."""

    step: float
    """Seconds lost per step."""
    window: float
    """Seconds lost over the steady window (training without warm-up)."""
    devices: float
    """The same loss as a number of devices that would be idle all the time."""
    money: float | None = None
    """The price of ``devices`` per hour; None without a price."""


@dataclass(frozen=True, slots=True)
class RankTime:
    """Where one rank's time went, in seconds per step."""

    rank: int
    host: str
    """The rank's host; several, separated by commas, if repeats ran on different hosts."""
    compute: float
    input: float
    sync: float | None
    """Exposed communication, including the wait for other ranks; None if not measured."""
    other: float
    behind: float
    """Seconds by which its own work (compute and other) is longer than the typical rank's."""


@dataclass(frozen=True, slots=True)
class LoaderRates:
    """Samples per second of all data loaders together."""

    delivered: float
    """Measured while nothing was trained."""
    needed: float
    """What training would take if no rank waited for input."""
    workers: int

    @property
    def needed_workers(self) -> int:
        """Workers per loader that would deliver the needed rate."""
        per_worker = self.delivered / max(self.workers, 1)
        return max(1, math.ceil(self.needed / per_worker))


@dataclass(frozen=True, slots=True, kw_only=True)
class PointFacts:
    """Facts by which the report chooses what to do about the largest cause of a point."""

    point: Point
    spec: RunSpec
    """The spec of the point's first run."""
    step_at_baseline_pace: float
    """Seconds that a step would take at the baseline's measured device-seconds per sample."""
    baseline_devices: int
    baseline_seconds: Mapping[str, float | None]
    """Seconds that each cause adds to the ideal step at the baseline."""
    batch: float
    """Samples per device and step."""
    baseline_batch: float
    transfer_known: bool = True
    """Whether communication was timed; if not, its time is part of computation and balance."""
    even_batches: bool = True
    """Whether all ranks have the same number of samples in a step."""
    has_workers: bool = True
    """Whether workers load the samples; if not, the framework reads them itself."""
    loaders: LoaderRates | None = None


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Where the time of a step and of the complete job went, at one point of a curve."""

    devices: int
    nodes: int | None = None
    runs: int = 1
    efficiency: float | None
    step: float
    """Measured seconds per step."""
    ideal: float | None = None
    """Seconds of a step that only computes, with the baseline's compute seconds per sample."""
    factors: Mapping[str, float | None]
    """Factors of efficiency by cause, relative to the baseline; their product is the efficiency."""
    seconds: Mapping[str, float | None]
    """Seconds each cause adds to the ideal step; with ``unexplained`` they sum to step − ideal."""
    complete: Mapping[str, float]
    """Seconds of the complete job, from launch to end, by part: ``launch``, ``train`` and so on."""
    grown: Mapping[str, float]
    """Seconds by which each part in ``complete`` is longer than at the baseline."""
    shares: Mapping[str, float | None]
    """Shares of the measured step: compute, waiting, input, communication, other."""
    regime: str | None = None
    """The name of the largest of ``shares``."""
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
    flops_per_second: Estimate | None = None
    """Operations of the model per second, on one device."""
    mfu: Estimate | None = None
    """Model FLOP utilization: ``flops_per_second`` as a share of the device's peak."""
    costs: Mapping[str, Cost] = field(default_factory=dict)
    ranks: tuple[RankTime, ...] = ()
    slowest: RankTime | None = None
    """The rank furthest behind; None with a single rank."""
    heat: RankTimes | None = None
    """Rank × time: whether all ranks are equally fast; None with a single rank."""
    what_if: tuple[WhatIf, ...] = ()
    busy: Usage | None = None
    """How devices and hosts were used during training; None without node samples."""
    trace: TraceComparison | None = None
    """Timers compared with a profiler's trace of a few steps; None if no trace was recorded."""
    receipt: Receipt | None = None
    """Device-hours of the point's runs: bought, useful, lost."""
    cause: str | None = None
    """The cause that adds the most seconds; None if they are a negligible share of a step."""
    facts: PointFacts
    warnings: tuple[str | Doubt, ...] = ()


@dataclass(frozen=True, slots=True)
class ScalingVerdict:
    """Whether the curve scales, judged by its largest point."""

    grades: tuple[str, ...]
    """``badly``, ``partly``, ``well``: every grade that the interval of the efficiency reaches."""
    efficiency: Estimate
    devices: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """The largest point on one node, compared with the smallest on several nodes."""

    devices: tuple[int, int]
    """Of the point on one node, then of the point on several nodes; ``efficiency`` likewise."""
    nodes: int
    """The number of nodes of the point on several nodes."""
    efficiency: tuple[float, float]
    cause: str | None = None
    """The cause whose factor falls most; None if efficiency hardly falls or factors are unknown."""
    factor: float | None = None
    """The factor of ``cause`` on several nodes, divided by its factor on one node."""


def find_node_boundary(points: Sequence[Breakdown]) -> Boundary | None:
    """Compare one node with several nodes; None unless points of both kinds were measured."""
    # Rehearsed points (several nodes simulated on fewer hosts) did not use the network.
    points = [point for point in points if point.facts.point.hosts in (None, point.nodes)]
    on_one_node = [point for point in points if point.nodes == 1]
    on_several = [point for point in points if point.nodes and point.nodes > 1]
    if not on_one_node or not on_several:
        return None
    single = max(on_one_node, key=lambda point: point.devices)
    multi = min(on_several, key=lambda point: (point.nodes, point.devices))
    if single.efficiency is None or multi.efficiency is None:
        return None
    ratios = {
        cause: factor / single_factor
        for cause, factor in multi.factors.items()
        if factor is not None and (single_factor := single.factors.get(cause))
    }
    cause = min(ratios, key=lambda name: ratios[name], default=None)
    lost = single.efficiency - multi.efficiency
    if lost < MIN_EFFICIENCY_LOSS or (cause and ratios[cause] >= 1):  # No factor falls.
        cause = None
    return Boundary(
        devices=(single.devices, multi.devices),
        nodes=multi.nodes or 1,
        efficiency=(single.efficiency, multi.efficiency),
        cause=cause,
        factor=ratios[cause] if cause else None,
    )


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Where the time of one curve went, and why its efficiency was lost."""

    study: str
    where: Mapping[str, Any] = field(default_factory=dict)
    """The varied settings that distinguish this curve from others of the study."""
    points: tuple[Breakdown, ...]
    scales: ScalingVerdict | None = None
    """How well the curve scales; None with a single point or without an efficiency."""
    boundary: Boundary | None = None
    """One node compared with several nodes; None unless points of both kinds were measured."""
    correct: tuple[Finding, ...] | None = None
    """Faults that make training incorrect. Empty: no fault found. None: no facts were recorded."""
    tune: tuple[Finding, ...] | None = None
    """What to tune on one device before using more devices; None: no facts were recorded."""
    price: float | None = None
    """The price of one device-hour."""
    rate: Rate | None = None
    """The price with its currency and source."""
    warnings: tuple[str | Doubt, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    """The doubts about the explained curve, the most severe first."""
    curve: ScalingCurve = field(repr=False)
    """The curve that is explained; it says for which training the complete times are."""
    environment: Environment | None = field(default=None, repr=False)
    """Where the runs of the curve were measured."""

    @property
    def name(self) -> str:
        """The study with this curve's varied settings."""
        settings = ", ".join(f"{key} {value}" for key, value in self.where.items())
        return f"{self.study} ({settings})" if settings else self.study

    @property
    def left_compute_at(self) -> int | None:
        """The smallest number of devices at which computation is not a step's largest share."""
        compute = (None, "compute", COMPUTE_AND_COMMUNICATION)  # None: the regime is unknown.
        return next((point.devices for point in self.points if point.regime not in compute), None)
