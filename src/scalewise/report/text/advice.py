"""Sentences that describe an advice: which scale (number of devices), why, and alternatives."""

from collections.abc import Callable, Sequence

from scalewise.analysis.advise import Advice, Beyond, DiminishingReturns, Power, Purpose, Scale
from scalewise.analysis.advise.diminishing_returns import Cause
from scalewise.analysis.advise.interruptions import MAX_SLOWDOWN
from scalewise.analysis.advise.packing import Packing, Placement
from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.number_format import (
    format_count,
    format_duration,
    format_energy,
    format_estimate,
    format_number,
    format_percent,
    format_rounded,
)
from scalewise.errors import parameter
from scalewise.report.text.advice_conditions import condition_sentences, condition_warnings
from scalewise.report.text.break_even import break_even_sentences
from scalewise.report.text.prediction import next_measurement, prediction_notes, prediction_warnings
from scalewise.report.text.spending import describe_rate

LONG_SECONDS = 7200.0
"""A longer time is also written in hours or days."""
MIN_CHANCE, MAX_CHANCE = 0.01, 0.99
"""Chances outside this range are written as below or above it."""
GOAL_TEXT = {
    "device-hours": ("takes", "take", "the fewest device-hours"),
    "time": ("is", "are", "the fastest"),
    "balanced": ("has", "have", "the least device-hours × time (energy is unknown)"),
    "balanced by energy": ("has", "have", "the least energy × time"),
}
"""By objective: verb for one device, verb for several, and what distinguishes the chosen scale."""
CAUSE_TEXT = {
    "fixed": "fixed costs, which devices do not shorten (launch, data, build, compile)",
    "growing": "what grows with devices (a start that takes longer, or an exchange in every step: "
    "times alone do not separate the two)",
    "growing outside steps": "what grows with devices outside the steps (such as the launch)",
}
"""By kind of cause, for causes that are a term of the law fitted to the times."""


def advice_sentences(advice: Advice) -> tuple[str, ...]:
    """Return the reason, what is predicted beyond the measured scales, the neighbours, where
    returns diminish, and what to measure next.
    """
    # The chosen scale; if none meets the purpose, the scale that misses it by the smallest factor.
    closest, conditions = advice.closest, advice.conditions
    beyond = advice.beyond.scale if advice.beyond else None
    sentences = [reason(advice), *beyond_sentences(advice)]
    sentences += condition_sentences(conditions, closest)
    for label, neighbour in (("Fewer", advice.smaller), ("More", advice.larger)):
        if neighbour and neighbour is not beyond:
            sentences.append(_neighbour_sentence(label, neighbour, advice))
    sentences += returns_sentences(advice.returns, advice.curve if conditions.same_job else None)
    if advice.worth:
        sentences += break_even_sentences(advice.worth)
    if packing := advice.runs:
        sentences.append(_packing_sentence(packing, closest.devices))
    if advice.power:
        sentences.append(power_sentence(advice.power))
    if advice.rate and advice.rate.name:
        sentences.append(f"A price of {describe_rate(advice.rate)}.")
    if advice.prediction.next and (beyond or not closest.measured):
        sentences.append(next_measurement(advice.prediction.next))
    return tuple(sentences)


def advice_warnings(advice: Advice, *, notes_only: bool = False) -> tuple[str, ...]:
    """Return what makes an advice less certain; ``notes_only`` leaves out serious doubts."""
    notes = prediction_notes(advice.prediction)
    warnings = [
        *(notes if notes_only else prediction_warnings(advice.prediction)),
        *condition_warnings(advice.conditions),
    ]
    unfinished_counts = {*advice.conditions.counts} - {scale.devices for scale in advice.scales}
    if unfinished_counts and advice.conditions.interruptions:
        warnings.append(
            f"from {format_count(min(unfinished_counts))} on a job is interrupted too often to "
            f"finish: it would take more than {MAX_SLOWDOWN:g} times as long"
        )
    rate, closest = advice.rate, advice.closest
    if rate and rate.devices and closest.charged % rate.devices:
        warnings.append(
            f"{rate.name} is rented whole, with {format_count(rate.devices)}, but the cost of "
            f"{scale_label(closest)} is pro rata"
        )
    return tuple(warnings)


def reason(advice: Advice) -> str:
    """Say why a scale was chosen, or that none meets the purpose and which comes closest."""
    purpose, scales, scale = advice.purpose, advice.choices, advice.closest
    limits = " and ".join(map(str, purpose.limits))
    candidates = f"{scales[0].devices:,} to {scales[-1].devices:,} devices"
    numbers = (
        f"{_quantities(scale, advice.curve, format_estimate)}{_chance_clause(scale, purpose)}."
    )
    if advice.chosen is None:
        scales_text = "measured scale" if all(choice.measured for choice in scales) else "scale"
        closest = f"the closest is {_with_basis(scale)}"
        return f"No {scales_text} of {candidates} meets {limits}; {closest}: {numbers}"
    singular, plural, best = GOAL_TEXT[purpose.objective(advice.scales)]
    verb = singular if scale.devices == 1 else plural
    among = f"those that meet {limits}" if limits else candidates
    return f"{_with_basis(scale)}, {verb} {best} of {among}: {numbers}"


def beyond_sentences(advice: Advice) -> list[str]:
    """Say what is predicted beyond the measured scales or, if nothing was asked, how to ask."""
    largest, last = advice.choices[-1].devices, advice.scales[-1].devices
    limit = advice.batch_limit
    sentences = []
    if advice.beyond:
        sentences.append(_beyond_sentence(advice, advice.beyond))
    elif last > largest:
        worse = "serves the purpose better" if advice.chosen else "meets it either"
        sentences.append(f"Predicted: no number of devices up to {last:,} {worse}.")
    elif advice.closest.devices == largest and (limit is None or limit > largest):
        option = parameter("up_to", 2 * largest)
        sentences.append(
            f"More than {format_count(largest)} were not measured: {option} predicts them."
        )
    if limit is not None and limit in (last, largest):
        sentences.append(
            f"A global batch of {limit:,} can feed at most {format_count(limit)}: larger numbers "
            "are not considered."
        )
    return sentences


def _beyond_sentence(advice: Advice, beyond: Beyond) -> str:
    """Say what a predicted scale would save, or that it would meet limits that no other meets."""
    scale, saved = beyond.scale, beyond.saved
    label, chance = scale_label(scale), _chance_clause(scale, advice.purpose)
    if advice.chosen is None:
        numbers = _quantities(scale, advice.curve, format_estimate)
        return f"Predicted: {label} would meet it: {numbers}{chance}. Measure them first."
    time = saved if saved.value > 0 else saved.through(lambda share: -share)
    change = "save {} of the time{}" if saved.value > 0 else "take {} more time{}"
    interval = ""
    if time.low is not None and time.high is not None:
        # round() avoids −0 %.
        low, high = (f"{round(100 * share)} %".replace("-", "−") for share in (time.low, time.high))
        interval = f" (90 %: {low} to {high})"
    sign = "+" if beyond.added_device_hours > 0 else "−"
    hours = f"{sign}{format_percent(abs(beyond.added_device_hours), 0)} device-hours"
    return (
        f"Predicted: {label} would {change.format(format_percent(time.value, 0), interval)} at "
        f"{hours}{chance}. Measure them first."
    )


def stop_sentence(advice: Advice) -> str:
    """Say why a study stops: what the next scale would take, and which scale is advised instead."""
    largest = max(point.devices for point in advice.curve.points)
    following = next(scale for scale in advice.scales if scale.devices > largest)
    before = next(scale for scale in advice.scales if scale.devices == largest)
    time_change = _relative_change(following.slowness / before.slowness)
    hours_change = _relative_change(following.device_time / before.device_time)
    if following.time:
        seconds = format_estimate(following.time)
        expected = f"take {seconds} s, {time_change}, for {hours_change} device-hours"
    else:
        assert following.throughput is not None  # Every scale has a time or a throughput.
        throughput = f"{format_estimate(following.throughput)} {advice.curve.rate_label}"
        work = f"the same work takes {time_change} time and {hours_change} device-hours"
        expected = f"do {throughput}: {work}"
    if following.efficiency:
        expected += f", at an efficiency of {format_percent(following.efficiency.value)}"
    return (
        f"{advice.curve.name}: stopped after {format_count(largest)}: {following.devices:,} are "
        f"predicted to {expected}{_chance_clause(following, advice.purpose)}. {reason(advice)}"
    )


def scale_label(scale: Scale) -> str:
    """Return the devices of a scale, and its topology where that is known."""
    devices = format_count(scale.devices)
    return f"{devices} ({scale.topology})" if scale.topology else devices


def _with_basis(scale: Scale) -> str:
    """Return the label of a scale, and whether it was measured."""
    return f"{scale_label(scale)}, {'measured' if scale.measured else 'predicted'}"


def _neighbour_sentence(label: str, other: Scale, advice: Advice) -> str:
    """Say what the next smaller or larger scale takes, compared with the advised scale."""
    advised = advice.closest
    time, hours = (
        f"{'+' if ratio >= 1 else '−'}{format_percent(abs(ratio - 1), 0)}"
        for ratio in (other.slowness / advised.slowness, other.device_time / advised.device_time)
    )
    numbers = _quantities(other, advice.curve, lambda estimate: format_number(estimate.value))
    return (
        f"{label}: {_with_basis(other)}: {numbers}; {time} time, {hours} device-hours"
        f"{_chance_clause(other, advice.purpose)}."
    )


def _relative_change(ratio: float) -> str:
    """Return a ratio as a change: ``93 % more`` for 1.93."""
    return f"{format_percent(abs(ratio - 1), 0)} {'less' if ratio < 1 else 'more'}"


def _chance_clause(scale: Scale, purpose: Purpose) -> str:
    """Return the chance that a scale meets the limits, as a clause; empty where unknown."""
    if scale.chance is None:
        return ""
    percent = format_percent(min(max(scale.chance, MIN_CHANCE), MAX_CHANCE), 0)
    bound = "below " if scale.chance < MIN_CHANCE else "above " if scale.chance > MAX_CHANCE else ""
    limits = "limit" if len(purpose.limits) == 1 else "limits"
    return f"; the chance to meet the {limits} is {bound}{percent}"


def _quantities(scale: Scale, curve: ScalingCurve, to_text: Callable[[Estimate], str]) -> str:
    """Return the time, cost, energy and efficiency of a scale; throughput if it has no time."""
    parts = []
    if scale.time:
        parts.append(_time_text(scale, scale.time, to_text))
    elif scale.throughput:
        parts.append(f"{to_text(scale.throughput)} {curve.rate_label}")
    if scale.device_hours:
        parts.append(f"{to_text(scale.device_hours)} device-hours")
    if scale.cost:
        parts.append(f"a cost of {to_text(scale.cost)} {scale.currency or ''}".rstrip())
    if scale.energy:
        parts.append(format_energy(scale.energy, to_text))
    if scale.efficiency:
        parts.append(f"efficiency {format_percent(scale.efficiency.value)}")
        if scale.target:
            hardware = format_percent(scale.target.hardware.value)
            statistical = format_percent(scale.target.statistical.value)
            parts[-1] += f" (device efficiency {hardware} × batch efficiency {statistical})"
    return ", ".join(parts)


def _time_text(scale: Scale, time: Estimate, to_text: Callable[[Estimate], str]) -> str:
    """Return the time, and in brackets its hours if long and what queue and interruptions take."""
    lost = scale.interrupted.lost.value if scale.interrupted else 0.0
    details = [
        format_duration(time.value) if time.value >= LONG_SECONDS else "",
        f"{format_number(scale.wait)} s of it in the queue" if scale.wait else "",
        f"{format_number(lost)} s for interruptions" if lost else "",
    ]
    in_brackets = ", ".join(filter(None, details))
    to_target = " to target" if scale.target else ""
    return f"{to_text(time)} s{to_target}" + (f" ({in_brackets})" if in_brackets else "")


def returns_sentences(returns: DiminishingReturns, curve: ScalingCurve | None) -> list[str]:
    """Say where returns diminish. ``curve`` is None if conditions changed the measured times."""
    sentences = []
    if returns.diminish and returns.before and returns.gain is not None:
        gain = returns.gain
        gained = f"{format_percent(gain, 0)} speed (ideal: 100 %)" if gain > 0 else "no speed"
        sentences.append(
            f"Returns diminish from {format_count(returns.diminish)} on: from {returns.before:,} "
            f"to {returns.diminish:,} a doubling gains {gained}."
        )
    if returns.enough:
        sentences.append(_enough_sentence(returns.enough, returns.saved))
    if curve and curve.turns_at:
        training_counts = [p.devices for p in curve.points if p.regime == "compute"]
        if training_counts:
            training = f"Training dominates up to {format_count(max(training_counts))}"
            sentences.append(f"{training}, overhead from {curve.turns_at:,}.")
        else:
            sentences.append(f"Overhead dominates from {format_count(curve.turns_at)} on.")
    if returns.cause:
        sentences.append(cause_sentence(returns.cause))
    return sentences


def _enough_sentence(enough: int, saved: Sequence[tuple[int, float]]) -> str:
    """Say how little time is ``saved``: for each number of devices, the share of the time."""
    (first_devices, first_share), highest = saved[0], max(share for _, share in saved)
    if highest <= 0:
        return f"Going beyond {format_count(enough)} saves no time."
    first = format_percent(first_share) if first_share > 0 else "none"
    largest = f", and up to {saved[-1][0]:,} no more than {format_percent(highest)}"
    return (
        f"Going beyond {format_count(enough)} saves almost no time: "
        f"{first_devices:,} save {first}{largest if len(saved) > 1 else ''}."
    )


def cause_sentence(cause: Cause) -> str:
    """Say what more devices do not shorten: spans, a term of the fitted law, or parts of steps."""
    if cause.kind == "steps":
        return "Time is lost in the steps themselves; `scalewise explain FOLDER` shows the causes."
    if cause.kind == "spans":
        spans = [f"{name} {format_number(time)} s" for name, time in cause.spans[:3] if time > 0]
        return (
            f"Of the {format_number(cause.total)} s on {format_count(cause.devices)} "
            f"{format_percent(cause.seconds / cause.total, 0)} is not training: "
            f"{', '.join(spans)}."
        )
    devices = format_count(cause.devices)
    return (
        f"The cause is {CAUSE_TEXT[cause.kind]}: about {format_rounded(cause.seconds)} of the "
        f"{format_number(cause.total)} s that {cause.formula} gives for {devices}."
    )


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
    # A short duration is in seconds, too.
    return seconds if duration.endswith(" s") else f"{seconds} ({duration})"


def power_sentence(power: Power) -> str:
    """Say by which power model energy is computed, and the source of its watts."""
    watts = format_number(power.watts)
    if power.device:
        return (
            f"Energy is at most device-hours × {watts} W: the maximum power of "
            f"{power.device.name} ({power.device.source}; {power.device.date}). Waiting devices "
            "draw less, so the chance to meet an energy limit is at least the one shown."
        )
    if not power.measured:
        return f"Energy is device-hours × {watts} W, as given."
    (first, first_watts), (last, last_watts) = power.measured[0], power.measured[-1]
    watts_text = f"{format_number(first_watts)} W per device on {first:,}"
    if first != last:
        watts_text += f", {format_number(last_watts)} W on {last:,}"
    work_term = f"{format_energy(Estimate(power.once))} + " if power.once else ""
    count = format_count(len(power.measured), "measured scale")
    return f"Energy follows E = {work_term}{watts} W × device-hours, from {count} ({watts_text})."
