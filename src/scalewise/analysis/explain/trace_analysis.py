"""A few steps as the engine's own profiler saw them, and whether the light measurement agrees.

Every moment of a traced step is computation, communication that nothing hides,
waiting for input, or idle. Communication lasts from the moment it is asked for
to its end; what is copied out of DDP's bundles after it belongs to it, as in
DDP's own timers. On a device computation is its kernels, on a CPU the
operators of the training's threads, asking for a collective among them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalewise.analysis.explain.intervals import (
    Interval,
    intersect,
    subtract,
    total_length,
    union,
    union_over_gaps,
)
from scalewise.record.read import RankRecord, RunRecord
from scalewise.record.trace import Event, Trace

MIN_COMPARED_SHARE = 0.1
"""The smallest share of a step at which the two are held against each other."""
MAX_RELATIVE_GAP = 0.1
"""How far they may be apart, relative to the trace."""
HOST_COLLECTIVE_PREFIXES = ("gloo:", "mpi:")
"""Ranges of collectives that the host carries out, on threads of their own."""
COLLECTIVE_CALL_PREFIX = "c10d::"
"""Operators of the training's threads that ask for a collective."""
UNPACK_OPERATOR = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
FETCH_OPERATOR = "enumerate(DataLoader)"


@dataclass(frozen=True, slots=True)
class TracedStepTimes:
    """Where one rank's traced steps went, in seconds per step."""

    rank: int
    steps: int
    step: float
    compute: float
    communication: float
    """Its whole length, hidden or not."""
    overlap: float
    """Communication behind computation."""
    exposed: float
    """Communication that computation does not hide."""
    unpacking: float
    """The part of it that is copying gradients out of DDP's bundles."""
    input: float
    idle: float


@dataclass(frozen=True, slots=True)
class QuantityCheck:
    """One quantity of one rank in the traced steps, measured in two ways."""

    rank: int
    quantity: str
    light: float
    """Seconds per step, as the light measurement saw it."""
    traced: float
    """Seconds per step, as the trace shows it."""
    ratio: float | None
    """Light over traced, in the typical step."""
    share: float
    """The larger one's share of a step."""
    agrees: bool | None
    """Nothing where its share is too small to matter."""


@dataclass(frozen=True, slots=True)
class TraceComparison:
    """What the traces of one run show, and whether the light measurement agrees with them."""

    ranks: tuple[TracedStepTimes, ...]
    checks: tuple[QuantityCheck, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing that matters is contradicted."""
        return all(each.agrees is not False for each in self.checks)


def compare_with_trace(record: RunRecord, traces: Sequence[Trace]) -> TraceComparison | None:
    """Compare the traces of a run with what was measured in the same steps."""
    found = [classify_trace(each) for each in traces if each.laps and each.events]
    checks = [one for each in found for one in _checks(record.ranks[each.rank], each)]
    return TraceComparison(tuple(map(traced_step_times, found)), tuple(checks)) if found else None


def _checks(rank: RankRecord, seen: "TraceIntervals") -> list[QuantityCheck]:
    if rank.traced is None:
        return []
    steps = np.isin(rank.traced.index, [*seen.steps])
    found = []
    for quantity, phase, parts in (
        ("exposed communication", "sync", seen.exposed),
        ("input", "input", seen.fetch),
    ):
        light = rank.traced.phases.get(phase, np.zeros(len(steps)))[steps]
        traced = np.array([total_length(intersect(parts, [each])) for each in seen.steps.values()])
        if seen.on_device:  # It works behind the host: where its steps begin is not in a trace.
            light, traced = light.mean(), np.array(total_length(parts) / len(traced))
        if not np.isnan(light).any() and light.shape == traced.shape:
            step = float(np.median(rank.traced.seconds[steps]))
            found.append(compare_quantity(seen.rank, quantity, light, traced, step))
    return found


def compare_quantity(
    rank: int, quantity: str, light: Any, traced: Any, step: float
) -> QuantityCheck:
    """Hold one quantity against the trace: seconds of each step, in both ways.

    Step is compared with step, and the typical one counts (the median): one in
    which a thread had to wait for a core says little.

    >>> compare_quantity(0, "input", [0.0105, 0.021], [0.01, 0.02], 0.05).agrees
    True
    >>> compare_quantity(0, "input", [1e-6], [1e-4], 0.05).agrees is None
    True
    """
    mine, theirs = np.atleast_1d(light), np.atleast_1d(traced)
    there = theirs > 0
    ratio = float(np.median(mine[there] / theirs[there])) if there.any() else None
    typical, shown = float(np.median(mine)), float(np.median(theirs))
    share = max(typical, shown) / step if step else 0.0
    near = ratio is not None and abs(ratio - 1) <= MAX_RELATIVE_GAP
    return QuantityCheck(
        rank, quantity, typical, shown, ratio, share, near if share >= MIN_COMPARED_SHARE else None
    )


@dataclass(frozen=True, slots=True)
class TraceIntervals:
    """What one rank's traced steps consist of; only ``moved`` lies beside the others."""

    rank: int
    on_device: bool
    window: Interval
    steps: Mapping[int, Interval]
    """When each step was, by the host."""
    compute: Sequence[Interval]
    moved: Sequence[Interval]
    """Communication, hidden or not."""
    exposed: Sequence[Interval]
    unpacked: Sequence[Interval]
    fetch: Sequence[Interval]


def classify_trace(trace: Trace) -> TraceIntervals:
    """Return when a rank computed, communicated and waited for input in its traced steps."""
    events, laps = trace.events, trace.laps
    on_device = any(each.kind == "kernel" for each in events)
    begin, end = laps[0].start, laps[-1].end
    if on_device:  # Its work may end after the host's last step.
        end = max(end, *(each.end for each in events if _of_device(each)))
    window = [(begin, end)]
    working = _kernels(events) if on_device else _operators(events)
    unpacked = [] if on_device else [_span(each) for each in events if each.name == UNPACK_OPERATOR]
    fetched = union(_span(each) for each in events if each.name.startswith(FETCH_OPERATOR))
    # A loader without workers computes too; on a device, waiting is what leaves it idle.
    fetch = intersect(subtract(fetched, working) if on_device else fetched, window)
    compute = intersect(subtract(working, fetch), window)
    flying = _on_device(events) if on_device else _on_host(events)
    moved = intersect([*flying, *unpacked], window)
    exposed = subtract(moved, [*compute, *fetch])
    by_step: dict[int, list[float]] = defaultdict(list)
    for lap in laps:
        by_step[lap.step] += [lap.start, lap.end]
    return TraceIntervals(
        rank=trace.rank,
        on_device=on_device,
        window=(begin, end),
        steps={step: (min(each), max(each)) for step, each in by_step.items()},
        compute=compute,
        moved=moved,
        exposed=exposed,
        unpacked=intersect(exposed, unpacked),
        fetch=fetch,
    )


def traced_step_times(seen: TraceIntervals) -> TracedStepTimes:
    """Return where the traced steps of one rank went, in seconds per step."""
    steps = len(seen.steps)
    left = subtract([seen.window], [*seen.compute, *seen.exposed, *seen.fetch])
    return TracedStepTimes(
        rank=seen.rank,
        steps=steps,
        step=total_length([seen.window]) / steps,
        compute=total_length(seen.compute) / steps,
        communication=total_length(seen.moved) / steps,
        overlap=total_length(intersect(seen.moved, seen.compute)) / steps,
        exposed=total_length(seen.exposed) / steps,
        unpacking=total_length(seen.unpacked) / steps,
        input=total_length(seen.fetch) / steps,
        idle=total_length(left) / steps,
    )


# What counts as computation and as communication.


def _of_device(event: Event) -> bool:
    return event.kind in ("kernel", "gpu_memcpy", "gpu_memset")


def _collective(name: str) -> bool:
    return name.startswith(("nccl", "ncclDev", "rccl"))


def _kernels(events: Iterable[Event]) -> list[Interval]:
    """Return when a device computed: kernels that are no collective, copies inside it."""
    return union_over_gaps(
        _span(each)
        for each in events
        if _of_device(each)
        and not _collective(each.name)
        and (each.kind != "gpu_memcpy" or "DtoD" in each.name)
    )


def _operators(events: Iterable[Event]) -> list[Interval]:
    """Return when the host worked: operators on the threads that carry out no collective.

    To ask for a collective is work, for it waits for nobody; to unpack what
    came is not. An operator around one of these may wait between its parts, so
    it counts by them.
    """
    by_thread: dict[str, list[Event]] = defaultdict(list)
    for each in events:
        by_thread[each.thread].append(each)
    found: list[Interval] = []
    for own in by_thread.values():
        if not any(each.name.startswith(HOST_COLLECTIVE_PREFIXES) for each in own):
            unpacking = [_span(each) for each in own if each.name == UNPACK_OPERATOR]
            found += subtract(union_over_gaps(_without_waiting(own)), unpacking)
    return union(found)


def _without_waiting(events: Iterable[Event]) -> list[Interval]:
    """Return when one thread was in operators that cannot wait inside."""
    operators = sorted(
        (each for each in events if each.kind == "cpu_op"), key=lambda e: (e.start, -e.end)
    )
    around: list[Event] = []
    may_wait: set[int] = set()
    for each in operators:
        while around and around[-1].end <= each.start:
            around.pop()
        if each.name.startswith(COLLECTIVE_CALL_PREFIX) or each.name == UNPACK_OPERATOR:
            may_wait.update(id(outer) for outer in around)
        around.append(each)
    return [_span(each) for each in operators if id(each) not in may_wait]


def _on_host(events: Sequence[Event]) -> list[Interval]:
    """Return when collectives of the host were under way, from asking for them to their end."""
    runs = sorted(_span(each) for each in events if each.name.startswith(HOST_COLLECTIVE_PREFIXES))
    asks = sorted(
        _span(each)
        for each in events
        if each.kind == "cpu_op" and each.name.startswith(COLLECTIVE_CALL_PREFIX)
    )
    if len(runs) == len(asks):  # Carried out in the order in which they were asked for.
        runs = [(min(ask[0], run[0]), run[1]) for ask, run in zip(asks, runs)]
    return union([*runs, *asks])


def _on_device(events: Sequence[Event]) -> list[Interval]:
    """Return when collectives were under way: as kernels, or on the host and copied there."""
    kernels = [_span(each) for each in events if each.kind == "kernel" and _collective(each.name)]
    if not any(each.name.startswith(HOST_COLLECTIVE_PREFIXES) for each in events):
        return union(kernels)
    computing = {each.thread for each in events if each.kind == "kernel"}
    copies = [
        _span(each) for each in events if each.kind == "gpu_memcpy" and each.thread not in computing
    ]
    return union([*kernels, *copies, *_on_host(events)])


def _span(event: Event) -> Interval:
    return event.start, event.end
