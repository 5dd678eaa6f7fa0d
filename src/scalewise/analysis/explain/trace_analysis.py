"""A profiler's trace of a few steps, compared with our timers ("light") in the same steps.

Every moment of a traced step is computation, exposed communication, waiting for input, or idle.
Communication lasts from the launch of a collective until it has ended and its gradients are copied
out of DDP's bucket, as in DDP's own timers. Computation on an accelerator ("device") is its
kernels; on a CPU, the operators of the training threads, with those that launch a collective.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalewise.analysis.measure.intervals import Interval, intersect, subtract, total_length, union
from scalewise.record.read import RankRecord, RunRecord
from scalewise.record.trace import Event, Trace

MIN_COMPARED_SHARE = 0.1
"""Trace and timers are compared only for what takes at least this share of a step."""
MAX_RELATIVE_GAP = 0.1
"""Trace and timers agree if they differ by at most this share of the traced time."""
MAX_OPERATOR_GAP_SECONDS = 1e-4
"""Shorter gaps between operators are overhead of the framework and count as computation."""
HOST_COLLECTIVE_PREFIXES = ("gloo:", "mpi:")
"""Prefixes of the names of collectives that run on the host, on separate threads."""
COLLECTIVE_CALL_PREFIX = "c10d::"
"""The prefix of operators that launch a collective; they run on the training threads."""
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
    """All communication: ``overlap``, ``exposed``, and communication while input is fetched."""
    overlap: float
    """Communication that computation hides."""
    exposed: float
    """Communication that computation does not hide."""
    unpacking: float
    """The part of ``exposed`` in which gradients are copied out of DDP's buckets."""
    input: float
    idle: float


@dataclass(frozen=True, slots=True)
class QuantityCheck:
    """One quantity of one rank in the traced steps, measured in two ways."""

    rank: int
    quantity: str
    light: float
    """Seconds per step, by the light measurement."""
    traced: float
    """Seconds per step, by the trace."""
    ratio: float | None
    """The median over steps of light / traced; None if the trace shows nothing."""
    share: float
    """The larger of ``light`` and ``traced``, as a share of a step."""
    agrees: bool | None
    """None where ``share`` is too small to matter."""


@dataclass(frozen=True, slots=True)
class TraceComparison:
    """The traced steps of one run, and whether the light measurement agrees with them."""

    ranks: tuple[TracedStepTimes, ...]
    checks: tuple[QuantityCheck, ...]


def compare_with_trace(record: RunRecord, traces: Sequence[Trace]) -> TraceComparison | None:
    """Compare the traces of a run with the timers of the same steps; None if there is no trace."""
    ranks = [classify_trace(trace) for trace in traces if trace.laps and trace.events]
    checks = [check for rank in ranks for check in _check_rank(record.ranks[rank.rank], rank)]
    return TraceComparison(tuple(map(traced_step_times, ranks)), tuple(checks)) if ranks else None


def _check_rank(rank: RankRecord, intervals: "TraceIntervals") -> list[QuantityCheck]:
    if rank.traced is None:
        return []
    in_trace = np.isin(rank.traced.index, [*intervals.steps])
    checks = []
    for quantity, phase, parts in (
        ("exposed communication", "sync", intervals.exposed),
        ("input", "input", intervals.fetch),
    ):
        light = rank.traced.phases.get(phase, np.zeros(len(in_trace)))[in_trace]
        traced = np.array(
            [total_length(intersect(parts, [step])) for step in intervals.steps.values()]
        )
        if intervals.on_device:  # Kernels run later than the host's step: compare only means.
            light, traced = light.mean(), np.array(total_length(parts) / len(traced))
        if not np.isnan(light).any() and light.shape == traced.shape:  # All steps were timed.
            step = float(np.median(rank.traced.seconds[in_trace]))
            checks.append(compare_quantity(intervals.rank, quantity, light, traced, step))
    return checks


def compare_quantity(
    rank: int, quantity: str, light: Any, traced: Any, step: float
) -> QuantityCheck:
    """Compare two measurements of the same steps, in seconds, by the median of their ratios.

    >>> compare_quantity(0, "input", [0.0105, 0.021], [0.01, 0.02], 0.05).agrees
    True
    >>> compare_quantity(0, "input", [1e-6], [1e-4], 0.05).agrees is None
    True
    """
    light, traced = np.atleast_1d(light), np.atleast_1d(traced)
    positive = traced > 0
    ratio = float(np.median(light[positive] / traced[positive])) if positive.any() else None
    typical_light, typical_traced = float(np.median(light)), float(np.median(traced))
    share = max(typical_light, typical_traced) / step if step else 0.0
    agrees = None
    if share >= MIN_COMPARED_SHARE:
        agrees = ratio is not None and abs(ratio - 1) <= MAX_RELATIVE_GAP
    return QuantityCheck(rank, quantity, typical_light, typical_traced, ratio, share, agrees)


@dataclass(frozen=True, slots=True)
class TraceIntervals:
    """One rank's traced steps by activity; ``communication`` includes ``exposed``."""

    rank: int
    on_device: bool
    window: Interval
    steps: Mapping[int, Interval]
    """Start and end of each step on the host, by step index."""
    compute: Sequence[Interval]
    communication: Sequence[Interval]
    """All communication, hidden or exposed."""
    exposed: Sequence[Interval]
    unpacking: Sequence[Interval]
    fetch: Sequence[Interval]
    """When the rank waited for input."""


def classify_trace(trace: Trace) -> TraceIntervals:
    """Return when a rank computed, communicated and waited for input in its traced steps."""
    events, laps = trace.events, trace.laps
    on_device = any(event.kind == "kernel" for event in events)
    begin, end = laps[0].start, laps[-1].end
    if on_device:  # Kernels may end after the host's last step.
        end = max(end, *(event.end for event in events if _is_device_event(event)))
    window = [(begin, end)]
    working = _device_compute(events) if on_device else _host_compute(events)
    unpacking = [] if on_device else [_span(e) for e in events if e.name == UNPACK_OPERATOR]
    fetch_calls = union(_span(event) for event in events if event.name.startswith(FETCH_OPERATOR))
    # On a CPU, a loader without workers runs operators: they count as fetching, not as computation.
    # On a device, fetching counts only while the device is idle.
    fetch = intersect(subtract(fetch_calls, working) if on_device else fetch_calls, window)
    compute = intersect(subtract(working, fetch), window)
    collectives = _device_collectives(events) if on_device else _host_collectives(events)
    communication = intersect([*collectives, *unpacking], window)
    exposed = subtract(communication, [*compute, *fetch])
    lap_times: dict[int, list[float]] = defaultdict(list)  # A lap is a timed part of a step.
    for lap in laps:
        lap_times[lap.step] += [lap.start, lap.end]
    return TraceIntervals(
        rank=trace.rank,
        on_device=on_device,
        window=(begin, end),
        steps={step: (min(times), max(times)) for step, times in lap_times.items()},
        compute=compute,
        communication=communication,
        exposed=exposed,
        unpacking=intersect(exposed, unpacking),
        fetch=fetch,
    )


def traced_step_times(trace: TraceIntervals) -> TracedStepTimes:
    """Return where the traced steps of one rank went, in seconds per step."""
    steps = len(trace.steps)
    idle = subtract([trace.window], [*trace.compute, *trace.exposed, *trace.fetch])
    return TracedStepTimes(
        rank=trace.rank,
        steps=steps,
        step=total_length([trace.window]) / steps,
        compute=total_length(trace.compute) / steps,
        communication=total_length(trace.communication) / steps,
        overlap=total_length(intersect(trace.communication, trace.compute)) / steps,
        exposed=total_length(trace.exposed) / steps,
        unpacking=total_length(trace.unpacking) / steps,
        input=total_length(trace.fetch) / steps,
        idle=total_length(idle) / steps,
    )


# What counts as computation and as communication.


def _is_device_event(event: Event) -> bool:
    return event.kind in ("kernel", "gpu_memcpy", "gpu_memset")


def _is_device_collective(event: Event) -> bool:
    return event.name.startswith(("nccl", "rccl"))


def _is_host_collective(event: Event) -> bool:
    return event.name.startswith(HOST_COLLECTIVE_PREFIXES)


def _device_compute(events: Iterable[Event]) -> list[Interval]:
    """Return when a device computed: memsets, copies inside it, kernels other than collectives."""
    working = (
        _span(event)
        for event in events
        if _is_device_event(event)
        and not _is_device_collective(event)
        and (event.kind != "gpu_memcpy" or "DtoD" in event.name)
    )
    return union(working, MAX_OPERATOR_GAP_SECONDS)


def _host_compute(events: Iterable[Event]) -> list[Interval]:
    """Return when the host computed, on threads that run no collective. Counted: operators, and
    launches of collectives, which return at once. Not counted: unpacking, and operators that
    enclose a launch or unpacking, because they may wait in it.
    """
    by_thread: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_thread[event.thread].append(event)
    working: list[Interval] = []
    for thread in by_thread.values():
        if not any(_is_host_collective(event) for event in thread):
            unpacking = [_span(event) for event in thread if event.name == UNPACK_OPERATOR]
            operators = union(_operators_without_waiting(thread), MAX_OPERATOR_GAP_SECONDS)
            working += subtract(operators, unpacking)
    return union(working)


def _operators_without_waiting(events: Iterable[Event]) -> list[Interval]:
    """Return when one thread was in operators that enclose no launch or unpacking."""
    operators = sorted(
        (event for event in events if event.kind == "cpu_op"), key=lambda e: (e.start, -e.end)
    )
    enclosing: list[Event] = []  # From the outermost operator to the innermost.
    may_wait: set[int] = set()
    for operator in operators:
        while enclosing and enclosing[-1].end <= operator.start:
            enclosing.pop()
        if operator.name.startswith(COLLECTIVE_CALL_PREFIX) or operator.name == UNPACK_OPERATOR:
            may_wait.update(id(outer) for outer in enclosing)
        enclosing.append(operator)
    return [_span(operator) for operator in operators if id(operator) not in may_wait]


def _host_collectives(events: Sequence[Event]) -> list[Interval]:
    """Return when collectives of the host were in progress, from their launch to their end."""
    active = sorted(_span(event) for event in events if _is_host_collective(event))
    launches = sorted(
        _span(event)
        for event in events
        if event.kind == "cpu_op" and event.name.startswith(COLLECTIVE_CALL_PREFIX)
    )
    if len(active) == len(launches):  # Collectives run in the order of their launches.
        active = [(min(launch[0], run[0]), run[1]) for launch, run in zip(launches, active)]
    return union([*active, *launches])


def _device_collectives(events: Sequence[Event]) -> list[Interval]:
    """Return when collectives were in progress: on the device, or on the host with copies."""
    kernels = [_span(e) for e in events if e.kind == "kernel" and _is_device_collective(e)]
    if not any(_is_host_collective(event) for event in events):
        return union(kernels)
    # Copies on a stream without kernels belong to collectives that run on the host.
    streams_with_kernels = {event.thread for event in events if event.kind == "kernel"}
    copies = [
        _span(event)
        for event in events
        if event.kind == "gpu_memcpy" and event.thread not in streams_with_kernels
    ]
    return union([*kernels, *copies, *_host_collectives(events)])


def _span(event: Event) -> Interval:
    return event.start, event.end
