"""Sentences of `explain`; those of guards (checks of the training) are in ``analysis.explain``."""

from collections.abc import Mapping

from scalewise.analysis.explain import Boundary, Breakdown, RankTimes, ScalingVerdict, SlowRank
from scalewise.analysis.explain.breakdown import MIN_EFFICIENCY_LOSS
from scalewise.analysis.explain.rank_times import MIN_LAG
from scalewise.analysis.measure import Point, ScalingCurve
from scalewise.analysis.measure.mfu import flops_unit
from scalewise.analysis.number_format import (
    format_count,
    format_duration,
    format_percent,
    format_rounded,
    format_seconds,
    join_with_and,
)
from scalewise.record.schema import TRAIN, UNEXPLAINED, recurring
from scalewise.report.text.doubts import NO_PHASES, warning_text
from scalewise.spec import RunSpec, StrategyTraits
from scalewise.spec.strategy_traits import traits_of

CAUSE_TEXT = {
    "computation": "computation that takes longer than on the baseline",
    "balance": "waiting for the slowest rank",
    "input": "waiting for input",
    "transfer": "moving gradients between devices",
    "orchestration": "other work in the loop, outside computation, input and communication",
}
"""By cause of lost time: what the time is spent on."""
COLLECTIVE_VERBS = {
    "all-reduce": "all-reduced",
    "all-gather": "all-gathered",
    "reduce-scatter": "reduce-scattered",
    "broadcast": "broadcast",
    "all-to-all": "exchanged all-to-all",
    "point-to-point": "sent point to point",
}


def point_sentence(point: Breakdown) -> str:
    """Return how long a step takes on a number of devices, and the largest cause of lost time."""
    takes = f"On {format_count(point.devices)} a step takes {format_seconds(point.step)}"
    if point.ideal is None:
        return (
            f"{takes}, and at the baseline's pace it would take "
            f"{format_seconds(point.facts.step_at_baseline_pace)}. "
            f"Where the time goes cannot be known: {NO_PHASES}."
        )
    ideal = format_seconds(point.ideal)
    if point.cause is None:
        return f"{takes}, and computation alone needs {ideal} of it: nothing else costs much."
    cause = CAUSE_TEXT[point.cause]
    if point.cause == "transfer":
        cause = _traits_of_dominant_split(point.facts.spec).transfer or cause
    elif _includes_transfer(point):
        cause = "computation and communication, which were not measured separately"
    seconds, lost = point.seconds[point.cause] or 0.0, point.step - point.ideal
    if lost <= 0:  # Another cause gained as much as this one lost.
        return f"{takes}, {format_seconds(seconds)} of it {cause}{_baseline_clause(point)}."
    part = "most" if seconds > lost / 2 else "the largest part"
    return (
        f"{takes}, and computation alone would take {ideal}: "
        f"{part} of the rest ({format_seconds(seconds)}) is {cause}{_baseline_clause(point)}."
    )


def complete_time_sentence(point: Breakdown, curve: ScalingCurve) -> str | None:
    """Return what the complete time is spent on: start-up, training, other parts; None if unknown.
    Times of a rehearsal are those of the measured run.
    """
    total = sum(point.complete.values())
    if TRAIN not in point.complete or total <= 0:
        return None
    once = (*recurring("once"), UNEXPLAINED)
    parts = {
        "start-up and shutdown": sum(point.complete.get(name, 0.0) for name in once),
        "training": point.complete[TRAIN],
        **{name: point.complete[name] for name in point.complete if name not in (*once, TRAIN)},
    }
    shares = sorted(((name, part / total) for name, part in parts.items()), key=lambda s: -s[1])
    named = [f"{name} {format_percent(share, 0)}" for name, share in shares if share >= 0.005]
    takes = "the full run takes" if curve.full_run else "the whole run took"
    return (
        f"On {format_count(point.devices)} {takes} {format_duration(total)}: "
        f"{join_with_and(named)}."
    )


def _traits_of_dominant_split(spec: RunSpec) -> StrategyTraits:
    """Return the traits of the split that steps wait for: pipeline, tensor, else the strategy."""
    if spec.degrees.pipeline > 1:
        return traits_of(spec.framework, "pipeline")
    return traits_of(spec.framework, "tensor") if spec.degrees.tensor > 1 else spec.traits


def _includes_transfer(point: Breakdown) -> bool:
    """Return whether the cause's seconds include communication that was not timed separately."""
    return not point.facts.transfer_known and point.cause in ("computation", "balance")


def _baseline_clause(point: Breakdown) -> str:
    """Return a clause if the baseline already lost at least half as much to the same cause."""
    cause, baseline_devices = point.cause or "", point.facts.baseline_devices
    before, now = point.facts.baseline_seconds.get(cause) or 0.0, point.seconds[cause] or 0.0
    if point.devices == baseline_devices or before < now / 2:
        return ""
    return (
        f"; on {format_count(baseline_devices)} it was {format_seconds(before)} already, "
        "so without it the baseline would be faster too, and speed would rise more than efficiency"
    )


def point_action(point: Breakdown) -> str | None:
    """Return what to try against the largest cause of lost time; None if none costs much."""
    facts = point.facts
    if point.ideal is None:
        return "Use a strategy that records its phases; a fused step has none."
    if point.cause is None:
        return None
    if _includes_transfer(point):
        return (
            "Try a larger batch per device; to see which of the two it is, "
            "use a strategy that measures communication separately."
        )
    if point.cause == "input":
        return _input_action(point)
    if point.cause == "balance":
        return _balance_action(point)
    if point.cause == "transfer":
        if advice := _traits_of_dominant_split(facts.spec).advice:
            return advice
        batch = "Try a larger batch per device, or several micro-batches per step (accumulate)"
        return f"{batch}." if point.nodes == 1 else f"{batch}; or use fewer, larger nodes."
    if point.cause == "orchestration":
        return (
            "Look for work between the phases: logging, reading the loss of every step, "
            "saving; do it less often, or take a larger batch per device."
        )
    # Now the cause is computation: it is slower because of small batches, or of a shared host.
    is_batch_known = facts.point.global_batch is not None
    if is_batch_known and facts.batch < 0.9 * facts.baseline_batch:
        return (
            f"A device gets {facts.batch:.3g} samples per step, and {facts.baseline_batch:.3g} "
            "on the baseline: try a larger global batch, because small batches use a device poorly."
        )
    return (
        "Look at what the devices of a host share: processor cores, memory bandwidth, power; "
        "try fewer threads per rank, or fewer ranks per host."
    )


def _input_action(point: Breakdown) -> str:
    loaders = point.facts.loaders
    if not point.facts.has_workers:
        return (
            "The framework reads its data itself, without workers: look at the size of the "
            "samples, and at the cores that are left for reading them."
        )
    if loaders is None:
        return (
            "Try more loader workers; --loaders-alone (`loaders_alone = true` in a study file) "
            "measures what the loaders can deliver, and so how many workers are needed."
        )
    rates = f"deliver {loaders.delivered:,.0f} samples/s and you need {loaders.needed:,.0f}"
    if loaders.needed_workers <= loaders.workers:
        return (
            f"Alone the loaders {rates}: during training they are slower. "
            "Look at the processor cores and the storage that the ranks share."
        )
    return f"The loaders {rates}: raise workers from {loaders.workers} to {loaders.needed_workers}."


def _balance_action(point: Breakdown) -> str | None:
    """Return what to try against uneven ranks; None if chance explains that one seems slower."""
    slowest = point.slowest
    if slowest and not point.facts.even_batches:
        return (
            "The ranks have different numbers of samples in a step: give all of them the same, "
            "for example with batches of equal length."
        )
    if slowest and slowest.behind > (point.seconds["balance"] or 0.0) / 2:
        if point.heat is not None and not point.heat.is_straggler:
            return None
        return (
            f"Look at rank {slowest.rank} on {slowest.host}: in every step its own work takes "
            f"{format_seconds(slowest.behind)} longer than a typical rank's. Does the script do "
            "something on that rank alone? If not, compare its clocks, its temperature and the "
            "other load of its host."
        )
    return (
        "The ranks take turns at being slow: look for other work on their hosts, "
        "and for samples whose cost differs."
    )


def rank_speed_sentence(heat: RankTimes | None) -> str | None:
    """Return whether all ranks are equally fast, or which one is slower; None with one rank."""
    if heat is None:
        return None
    slowest = heat.slowest
    name = f"ank {slowest.rank} on {slowest.host}" if slowest.host else f"ank {slowest.rank}"
    lag = format_percent(slowest.lag, 0 if slowest.lag >= 0.1 else 1)
    if heat.is_straggler:
        is_slower = f"is {lag} slower than"
        if slowest.lag >= 1:
            is_slower = f"works {1 + slowest.lag:.1f} times as long as"
        return f"R{name} {is_slower} the typical rank{_slow_period(slowest)}."
    if not heat.without_waiting:
        return (
            f"Steps take about as long on all ranks (the slowest is {lag} behind), but with the "
            "wait for each other: whether one rank is slower was not measured."
        )
    if slowest.lag < MIN_LAG:
        return f"All ranks are equally fast: the slowest is {lag} behind."
    return f"No rank is clearly slower than the others: on average r{name} is {lag} behind."


def _slow_period(slowest: SlowRank) -> str:
    since, until = slowest.since, slowest.until
    if since is None:
        return "" if until is None else f" in the first {format_duration(until)} of training"
    if until is None:
        return f" after the first {format_duration(since)} of training"
    return f" between {format_duration(since)} and {format_duration(until)} of training"


def exchange_sentence(point: Breakdown) -> str | None:
    """Return what a step on this number of devices exchanges; None if that is unknown."""
    exposed_share = None if point.exposed is None else point.exposed / point.step
    return communication_sentence(point.facts.spec, point.traffic, exposed_share)


def communication_sentence(
    spec: RunSpec, payload_bytes: Mapping[str, int] | None, exposed: float | None
) -> str | None:
    """Return what a step exchanges and the share of it that waits, ``exposed``; None if unknown."""
    if not payload_bytes:
        return None
    splits = {"tensor": spec.degrees.tensor, "pipeline": spec.degrees.pipeline}
    # The strategy's own split is not repeated: its name says it.
    used = [f"{name} {n}" for name, n in splits.items() if n > 1 and name != spec.traits.degree]
    moved = [f"{_bytes(size)} {COLLECTIVE_VERBS[kind]}" for kind, size in payload_bytes.items()]
    parts = [f"{' x '.join([spec.strategy, *used])}: {join_with_and(moved)} per step and device"]
    if exposed is not None:
        parts.append(f"{100 * exposed:.0f} % of the step waits for communication")
    if spec.bubble is not None:
        parts.append(
            f"the bubble of {spec.degrees.pipeline} stages and "
            f"{spec.pipeline_micro_batches} micro-batches "
            f"is {100 * spec.bubble:.0f} % of the step (computed)"
        )
    return "; ".join(parts)


def _bytes(count: int) -> str:
    """Return a number of bytes in binary units, such as ``1.5 MiB``."""
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def mfu_sentence(point: Point) -> str | None:
    """Return a device's operations per second and its MFU, or why the MFU is unknown."""
    reason = warning_text(point.mfu_unknown) if point.mfu_unknown else None
    if point.flops_per_second is None:
        return reason
    rate = _flops_text(point.flops_per_second.value)
    subject = "a device" if point.devices == 1 else f"each of {point.devices:,} devices"
    reached = f"{subject} does {rate} of the model's own operations"
    if point.mfu is None or point.peak is None:
        return f"{reached}; MFU is not known: {reason}"
    share = f"{100 * point.mfu.value:.1f} % of its {_flops_text(point.peak)}"
    return f"{reached}, {share} (MFU; {point.peak_source})"


def _flops_text(rate: float) -> str:
    size, unit = flops_unit(rate)
    return f"{format_rounded(rate / size)} {unit}"


def verdict_text(verdict: ScalingVerdict) -> str:
    """Return how well a curve scales: several grades if its interval is wide."""
    uncertain = " (the interval is too wide to say which)" if len(verdict.grades) > 1 else ""
    return f"scales {' or '.join(verdict.grades)}{uncertain}"


def boundary_sentence(boundary: Boundary) -> str:
    """Return the efficiency lost from one node to several, and the largest cause of that loss."""
    (inside, beyond), (before, after) = boundary.devices, boundary.efficiency
    change = (
        f"leaving the node ({inside} to {beyond} devices, on {boundary.nodes} nodes) "
        f"changes efficiency from {100 * before:.1f} % to {100 * after:.1f} %"
    )
    if before - after < MIN_EFFICIENCY_LOSS:
        return f"{change}: the network between the nodes costs little so far"
    if boundary.cause is None or boundary.factor is None:
        return change
    return f"{change}; the largest part of that is {boundary.cause} (× {boundary.factor:.2f})"
