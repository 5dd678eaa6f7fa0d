"""The sentences of an advice, each with its numbers.

All text of this package is here and in ``break_even_text``.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from scalewise.analysis.advise.interruptions import MAX_SLOWDOWN, Interruptions, young_interval
from scalewise.analysis.advise.packing import Packing, Placement
from scalewise.analysis.advise.purpose import Purpose
from scalewise.analysis.advise.quality.time_to_target import TimeToTarget
from scalewise.analysis.advise.quantities import (
    QUANTITIES,
    EstimateFormat,
    format_duration,
    format_percent,
)
from scalewise.analysis.advise.queue_wait import QueueWait
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.measure import Point, ScalingCurve
from scalewise.analysis.number_format import (
    format_count,
    format_estimate,
    format_number,
    format_rounded,
    join_with_and,
)
from scalewise.analysis.predict import Prediction
from scalewise.analysis.predict.laws import Fit
from scalewise.analysis.predict.prediction_text import next_measurement

if TYPE_CHECKING:  # The modules below call this one.
    from scalewise.analysis.advise.choice import Advice
    from scalewise.analysis.advise.conditions import ResolvedConditions

MIN_CHANCE, MAX_CHANCE = 0.01, 0.99
"""Chances outside this range are written as below or above it."""
FIXED_CAUSE = "fixed costs, which devices do not shorten (launch, data, build, compile)"
GROWING_CAUSE = (
    "what grows with devices (a start that takes longer, or an exchange in every step: times "
    "alone do not separate the two)"
)


def advice_sentences(advice: "Advice") -> tuple[str, ...]:
    """Return the reason, the neighbours, where returns diminish, and what to measure next."""
    closest = advice.closest
    sentences = [advice.reason, *condition_sentences(advice.conditions, closest)]
    if advice.smaller:
        sentences.append(_neighbour_sentence("Fewer", advice.smaller, closest))
    if advice.larger:
        sentences.append(_neighbour_sentence("More", advice.larger, closest))
    sentences += advice.returns.sentences
    if advice.worth:
        sentences += advice.worth.sentences
    if advice.runs:
        sentences.append(_packing_sentence(advice.runs, closest.devices))
    if advice.power:
        sentences.append(advice.power.says)
    if advice.rate and advice.rate.name:
        sentences.append(f"A price of {advice.rate}.")
    if advice.prediction.next and not closest.measured:
        sentences.append(next_measurement(advice.prediction.next))
    return tuple(sentences)


def advice_warnings(advice: "Advice") -> tuple[str, ...]:
    """Return what limits the trust in an advice."""
    warnings = [
        *advice.prediction.warnings,
        *advice.returns.warnings,
        *advice.conditions.warnings,
    ]
    unfinished = {*advice.conditions.counts} - {scale.devices for scale in advice.scales}
    if unfinished and advice.conditions.interruptions:
        warnings.append(
            f"from {format_count(min(unfinished))} on a job is interrupted too often to finish: "
            f"it would take more than {MAX_SLOWDOWN:g} times as long"
        )
    rate, closest = advice.rate, advice.closest
    if rate and rate.devices and closest.charged % rate.devices:
        warnings.append(
            f"{rate.name} is rented whole, with {format_count(rate.devices)}: {closest} are "
            "charged as a part of it"
        )
    return tuple(warnings)


# The chosen scale and its neighbours.


def reason(chosen: Scale, purpose: Purpose, scales: Sequence[Scale]) -> str:
    """Say why this scale was chosen: what it is best in, among which, and its numbers."""
    goal = purpose.objective(scales)
    verb = goal.verb[0 if chosen.devices == 1 else 1]
    among = (
        f"of those that meet {_list_limits(purpose)}"
        if purpose.limits
        else f"of {_device_range(scales)}"
    )
    return (
        f"{chosen}, {_basis(chosen)}, {verb} {goal.phrase} {among}: "
        f"{_quantities(chosen, format_estimate)}{chance_clause(chosen)}."
    )


def no_scale_sentence(closest: Scale, purpose: Purpose, scales: Sequence[Scale]) -> str:
    """Say that no scale meets the purpose, and which comes closest."""
    return (
        f"No scale of {_device_range(scales)} meets {_list_limits(purpose)}; the closest is "
        f"{closest}, {_basis(closest)}: {_quantities(closest, format_estimate)}"
        f"{chance_clause(closest)}."
    )


def _neighbour_sentence(label: str, other: Scale, chosen: Scale) -> str:
    """Say what the next smaller or larger scale takes, compared with the chosen one."""
    time = _signed_change(other.slowness / chosen.slowness)
    hours = _signed_change(other.device_time / chosen.device_time)
    numbers = _quantities(other, lambda estimate: format_number(estimate.value))
    return (
        f"{label}: {other}, {_basis(other)}: {numbers}; {time} time, {hours} device-hours"
        f"{chance_clause(other)}."
    )


def stop_sentence(advice: "Advice", largest: int) -> str:
    """Say why a study stops: what the next scale would take, and what serves instead."""
    following = next(scale for scale in advice.scales if scale.devices > largest)
    before = next(scale for scale in advice.scales if scale.devices == largest)
    time = _relative_change(following.slowness / before.slowness)
    hours = _relative_change(following.device_time / before.device_time)
    if following.time:
        expected = f"take {format_estimate(following.time)} s, {time}, for {hours} device-hours"
    else:
        assert following.throughput is not None  # Every scale has a time or a throughput.
        rate = f"{format_estimate(following.throughput)} {advice.curve.unit} per second"
        expected = f"do {rate}, in {time} time for {hours} device-hours of the same work"
    if following.efficiency:
        expected += f", at an efficiency of {format_percent(following.efficiency.value)}"
    return (
        f"{advice.curve.name}: stopped after {format_count(largest)}: {following.devices:,} are "
        f"predicted to {expected}{chance_clause(following)}. {advice.reason}"
    )


def chance_clause(scale: Scale) -> str:
    """Return how likely a scale meets its limits; empty where unknown."""
    if scale.chance is None:
        return ""
    percent = format_percent(min(max(scale.chance, MIN_CHANCE), MAX_CHANCE), 0)
    edge = "below " if scale.chance < MIN_CHANCE else "above " if scale.chance > MAX_CHANCE else ""
    return f"; the chance to meet it is {edge}{percent}"


def _quantities(scale: Scale, estimate: EstimateFormat) -> str:
    parts = [quantity.describe(scale, estimate) for quantity in QUANTITIES]
    return ", ".join(filter(None, parts))


def _list_limits(purpose: Purpose) -> str:
    return " and ".join(map(str, purpose.limits))


def _basis(scale: Scale) -> str:
    return "measured" if scale.measured else "predicted"


def _device_range(scales: Sequence[Scale]) -> str:
    return f"{scales[0].devices:,} to {scales[-1].devices:,} devices"


def _signed_change(ratio: float) -> str:
    return f"{'+' if ratio >= 1 else '−'}{format_percent(abs(ratio - 1), 0)}"


def _relative_change(ratio: float) -> str:
    """Return a ratio as a change.

    >>> _relative_change(0.97), _relative_change(1.93)
    ('3 % less', '93 % more')
    """
    return f"{format_percent(abs(ratio - 1), 0)} {'less' if ratio < 1 else 'more'}"


# Conditions: a target, interruptions, a queue.


def condition_sentences(conditions: "ResolvedConditions", closest: Scale) -> tuple[str, ...]:
    """Say what the conditions mean for a scale."""
    target, interruptions, wait = conditions.target, conditions.interruptions, conditions.wait
    return (
        *(_target_sentences(target, closest) if target else ()),
        *(_interruption_sentences(interruptions, closest) if interruptions else ()),
        *(_wait_sentences(wait, conditions.counts) if wait else ()),
    )


def _target_sentences(to_target: TimeToTarget, closest: Scale) -> tuple[str, ...]:
    """Say what the target takes, and what more devices gain."""
    target, law = to_target.target, to_target.law
    points = [
        f"{format_number(work)} samples at a global batch of {format_number(batch)}"
        for batch, work, _ in to_target.points
    ]
    verb = "is" if len(points) == 1 else "took"
    work = f"The target {target} {verb} {', '.join(points)}"
    if law is None:
        return (f"{work}, the same on all scales.",)
    source = to_target.critical.source if to_target.critical else "by these points"
    per_device = to_target.batches[to_target.base] / to_target.base
    batch = to_target.batches[closest.devices]
    # Past the critical batch the verdict itself says what to do instead.
    limit = (
        (law.limit(round(per_device) if to_target.weak else None),)
        if batch <= law.critical.value
        else ()
    )
    return f"{work}; {law}, its critical batch {source}.", law.verdict(batch), *limit


def _interruption_sentences(interruptions: Interruptions, scale: Scale) -> tuple[str, ...]:
    """Say how often to save, by the formula, and what is lost nevertheless."""
    at_scale, every = scale.interrupted, interruptions.every
    if at_scale is None or scale.time is None:
        return ()
    save, mean = interruptions.save, at_scale.mean
    first_order = (
        f"√(2 × {format_number(save)} × {format_number(mean)}) = "
        f"{format_number(young_interval(save, mean))} s"
    )
    advised = (
        f"save every {format_number(at_scale.interval)} s, by Daly's correction of Young's "
        f"{first_order}"
        if at_scale.interval
        else f"the job is too short for a save to pay; a long one would save every {first_order}"
    )
    per_hour = at_scale.lost.value / scale.busy_time * 3600
    return (
        f"With an interruption of each {every.per} every {format_duration(every.seconds)}, a job "
        f"on {format_count(scale.devices)} has one every {format_number(mean)} s; a save takes "
        f"{format_number(save)} s and a restart "
        f"{format_number(interruptions.restarts[scale.devices])} s{interruptions.source}: "
        f"{advised}.",
        f"Expected are {format_number(at_scale.count)} interruptions, and "
        f"{format_number(at_scale.lost.value)} s of saves, lost work and restarts: "
        f"{format_number(per_hour)} s of every hour.",
    )


def _wait_sentences(wait: QueueWait, counts: Iterable[int]) -> tuple[str, ...]:
    """Say which waits are interpolated."""
    fewest, largest = min(wait.by_devices), max(wait.by_devices)
    between = [n for n in counts if n not in wait.by_devices and fewest < n < largest]
    if wait.same_for_all or not between:
        return ()
    return (
        f"The wait on {_list_counts(between)} devices is interpolated between those given for "
        f"{_list_counts(wait.by_devices)}.",
    )


def wait_warnings(wait: QueueWait, counts: Iterable[int]) -> tuple[str, ...]:
    """Warn of waits that are extrapolated."""
    fewest, largest = min(wait.by_devices), max(wait.by_devices)
    outside = [n for n in counts if not fewest <= n <= largest]
    if wait.same_for_all or not outside:
        return ()
    source = (
        f"that of {largest:,} alone"
        if fewest == largest
        else f"those of {_list_counts(wait.by_devices)}"
    )
    return (f"the wait on {_list_counts(outside)} devices is only extrapolated from {source}",)


def _list_counts(counts: Iterable[int]) -> str:
    return join_with_and([f"{count:,}" for count in counts])


# Where returns diminish, and why.


def returns_sentences(
    diminishing: tuple[Scale, Scale, float] | None,
    enough: Scale,
    beyond: Sequence[Scale],
    curve: ScalingCurve | None,
) -> list[str]:
    """Say where returns diminish, where more devices are useless, and where overhead dominates.

    ``curve`` is that of the measured job, if the scales are of this job.
    """
    sentences = [_diminishing_sentence(*diminishing)] if diminishing else []
    if beyond:
        sentences.append(_enough_sentence(enough, beyond))
    if curve and curve.turns_at:
        sentences.append(_overhead_sentence(curve, curve.turns_at))
    return sentences


def _diminishing_sentence(few: Scale, many: Scale, gain: float) -> str:
    """Say from which scale on returns diminish."""
    gained = f"{format_percent(gain, 0)} speed (ideal: 100 %)" if gain > 0 else "no speed"
    return (
        f"Returns diminish from {format_count(many.devices)} on: from {few.devices:,} to "
        f"{many.devices:,} a doubling gains {gained}."
    )


def _enough_sentence(enough: Scale, beyond: Sequence[Scale]) -> str:
    """Say how little time more devices save."""
    saved = [1 - scale.slowness / enough.slowness for scale in beyond]
    if max(saved) <= 0:
        return f"Going beyond {format_count(enough.devices)} saves no time."
    first = format_percent(saved[0]) if saved[0] > 0 else "none"
    largest = f", and up to {beyond[-1].devices:,} no more than {format_percent(max(saved))}"
    return (
        f"Going beyond {format_count(enough.devices)} saves almost no time: "
        f"{beyond[0].devices:,} save {first}{largest if len(beyond) > 1 else ''}."
    )


def _overhead_sentence(curve: ScalingCurve, turns_at: int) -> str:
    """Say from where on most of the time is not training."""
    before = [point.devices for point in curve.points if point.regime == "compute"]
    sentence = f"Overhead dominates from {format_count(turns_at)} on"
    return f"{sentence}, training up to {max(before):,}." if before else f"{sentence}."


def cause_sentence(prediction: Prediction, law: Fit | None) -> str:
    """Say which part of the job does not shrink: by its spans, its law, or in its steps."""
    timed = [point for point in prediction.curve.points if point.time]
    if not timed or not prediction.points[-1].time:
        return "The loss is in the steps themselves; `scalewise explain FOLDER` shows its causes."
    last = timed[-1]
    if sentence := _spans_sentence(last):
        return sentence
    if law is None:
        return ""
    fixed = law.parameters["fixed"].value
    growing = law.parameters["growing"].value if "growing" in law.parameters else 0.0
    seconds, cause = max((fixed, FIXED_CAUSE), (growing * math.log2(last.devices), GROWING_CAUSE))
    return (
        f"The cause is {cause}: about {format_rounded(seconds)} of the "
        f"{format_number(law.value(last.devices))} s that {law.formula} gives "
        f"{format_count(last.devices)}."
    )


def _spans_sentence(point: Point) -> str:
    """Say which spans of a job are not training, the largest three."""
    if "train" not in point.complete or point.time is None:
        return ""
    overhead = {name: span.value for name, span in point.complete.items() if name != "train"}
    largest = sorted(overhead, key=lambda name: -overhead[name])[:3]
    spans = [f"{name} {format_number(overhead[name])} s" for name in largest if overhead[name] > 0]
    share = sum(overhead.values()) / point.time.value
    return (
        f"Of the {format_number(point.time.value)} s on {format_count(point.devices)} "
        f"{format_percent(share, 0)} is not training: {', '.join(spans)}."
    )


def below_fixed_warnings(law: Fit, scales: Sequence[Scale]) -> tuple[str, ...]:
    """Warn of predicted times that are shorter than the fixed part of the law."""
    fixed = law.parameters["fixed"].value
    below = [scale for scale in scales if not scale.measured and scale.slowness < fixed]
    if not below:
        return ()
    return (
        f"from {format_count(below[0].devices)} on the predicted time is below the "
        f"{format_rounded(fixed)} s that {law.formula} takes as fixed: measure before you count "
        "on it",
    )


# Many equal runs.


def _packing_sentence(packing: Packing, devices: int) -> str:
    """Say which placement is the fastest, and what the two extremes take."""
    best, ways = packing.best(devices), packing.on(devices)
    extremes = {
        "one after another on all": ways[-1],
        f"on {format_count(ways[0].each)} each": ways[0],
    }
    slower = [
        f"{how} in {_placement_time(way)} "
        f"(+{format_percent(way.time.value / best.time.value - 1, 0)})"
        for how, way in extremes.items()
        if way != best
    ]
    comparison = f"; {' and '.join(slower)}" if slower else ""
    verb = "finishes" if packing.count == 1 else "finish"
    return (
        f"{format_count(packing.count, 'equal run')} on {format_count(devices)} {verb} soonest on "
        f"{format_count(best.each)} each, {best.at_once:,} at a time, in {_placement_time(best)} "
        f"and {format_number(best.device_hours.value)} device-hours{comparison}."
    )


def _placement_time(way: Placement) -> str:
    seconds = f"{format_number(way.time.value)} s"
    duration = format_duration(way.time.value)
    return seconds if duration.endswith(" s") else f"{seconds} ({duration})"
