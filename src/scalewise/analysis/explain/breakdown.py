"""The causes of one point, and of a whole curve, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain.receipt import Receipt
from scalewise.analysis.explain.trace_analysis import TraceComparison
from scalewise.analysis.explain.utilisation import HostUtilisation, Utilisation
from scalewise.analysis.explain.watched_facts import Finding
from scalewise.analysis.explain.whatif import WhatIf
from scalewise.analysis.measure import Estimate

COMPUTE_AND_COMMUNICATION = "compute and communication"
"""The share of both, where they were not told apart."""
MIN_EFFICIENCY_LOSS = 0.02
"""Efficiency that is worth a word."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one cause costs."""

    step: float
    """Seconds per step."""
    window: float
    """Seconds over the whole steady window."""
    devices: float
    """Devices that do nothing else."""
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
    """By how much it is slower than the typical rank in what it does by itself."""


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Where the time of a step, and of the whole job, went on one number of devices."""

    devices: int
    nodes: int | None = None
    runs: int = 1
    efficiency: float | None
    step: float
    """Measured seconds per step."""
    ideal: float | None = None
    """Seconds per step at the baseline's compute per sample, and nothing else."""
    factors: Mapping[str, float | None]
    """By cause, relative to the baseline; their product is the efficiency."""
    seconds: Mapping[str, float | None]
    """Added to the ideal step by each cause; with ``unexplained`` they sum to the rest."""
    complete: Mapping[str, float]
    """The complete time by parts of the job's life."""
    grown: Mapping[str, float]
    """How much longer than at the baseline each of them is."""
    shares: Mapping[str, float | None]
    """Of the measured step: compute, waiting, input, communication, other.

    Compute and communication are one share where they were not told apart.
    """
    regime: str | None = None
    """The largest of the shares."""
    compute: float | None = None
    """Seconds of computation per step, on the typical rank."""
    exposed: float | None = None
    """Seconds of communication per step that computation did not hide, mean over ranks."""
    hidden: float | None = None
    """Seconds of communication per step behind computation."""
    ratio: float | None = None
    """Exposed communication over computation."""
    traffic: Mapping[str, int] | None = None
    """Bytes exchanged in a step by kind of collective, on the device that sends most."""
    exchange: str | None = None
    """The same in a sentence, with the strategy and what waits for it."""
    flops_per_second: Estimate | None = None
    """Operations of the model on one device, and which share of its peak they are."""
    mfu: Estimate | None = None
    operations: str | None = None
    """The same in a sentence, or why it is not known."""
    costs: Mapping[str, Cost] = field(default_factory=dict)
    ranks: tuple[RankTime, ...] = ()
    slowest: RankTime | None = None
    what_if: tuple[WhatIf, ...] = ()
    busy: "Usage | None" = None
    """How devices and hosts were used while it trained, where somebody looked."""
    trace: TraceComparison | None = None
    """A few steps as the engine's own profiler saw them, where that was asked for."""
    receipt: Receipt | None = None
    """What its runs have bought, and what of it was useful."""
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
    """Whether more devices are worth it, judged by the largest point."""

    verdict: str
    efficiency: Estimate
    devices: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """The largest scale on one node beside the smallest on several."""

    devices: tuple[int, int]
    nodes: int
    """How many it is on then."""
    efficiency: tuple[float, float]
    cause: str | None = None
    """The one whose factor falls most, where factors are known and efficiency falls."""
    factor: float | None = None
    """That factor after, over before."""

    @property
    def sentence(self) -> str:
        """The same in words."""
        (here, there), (before, after) = self.devices, self.efficiency
        told = (
            f"leaving the node ({here} to {there} devices, on {self.nodes} nodes) "
            f"takes efficiency from {100 * before:.1f} % to {100 * after:.1f} %"
        )
        if before - after < MIN_EFFICIENCY_LOSS:
            return f"{told}: the network between the nodes costs little so far"
        if self.cause is None or self.factor is None:
            return told
        return f"{told}; the largest part of that is {self.cause} (× {self.factor:.2f})"


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
    """Faults that were seen in the training; nothing where nobody looked."""
    tune: tuple[Finding, ...] | None = None
    """What should be tuned on one device first; nothing where nobody looked."""
    price: float | None = None
    """Of one device for one hour."""
    rate: Rate | None = None
    """The same, and where it is from."""
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The study, and what sets this curve apart in it."""
        told = ", ".join(f"{key} {value}" for key, value in self.where.items())
        return f"{self.study} ({told})" if told else self.study

    @property
    def left_compute_at(self) -> int | None:
        """The first number of devices at which computation is not the largest share."""
        left = [
            each.devices
            for each in self.points
            if each.regime not in (None, "compute", COMPUTE_AND_COMMUNICATION)
        ]
        return left[0] if left else None
