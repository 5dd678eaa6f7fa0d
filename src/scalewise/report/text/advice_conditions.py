"""Sentences on conditions that the measured job did not have: a target, interruptions, a queue."""

import math
from collections.abc import Iterable

from scalewise.analysis.advise import Scale, WorkToTarget
from scalewise.analysis.advise.conditions import ResolvedConditions
from scalewise.analysis.advise.interruptions import Interruptions, young_interval
from scalewise.analysis.advise.quality.time_to_target import TimeToTarget
from scalewise.analysis.advise.quality.work_to_target import MIN_SAVED_SHARE, VAGUE_FACTOR
from scalewise.analysis.number_format import (
    format_count,
    format_duration,
    format_number,
    format_percent,
    format_rounded,
    format_rounded_estimate,
    join_with_and,
)

ALTERNATIVES = (
    "instead, give further devices to other runs, to a larger model, or to splitting the same "
    "batch (tensor, pipeline)"
)
"""What to do with more devices where a larger batch no longer pays."""


def condition_sentences(conditions: ResolvedConditions, closest: Scale) -> list[str]:
    """Say what the conditions mean for the scale ``closest`` (see ``Advice.closest``)."""
    sentences = []
    if conditions.target:
        sentences += _target_sentences(conditions.target, closest)
    if conditions.interruptions:
        sentences += _interruption_sentences(conditions.interruptions, closest)
    if conditions.wait and not conditions.wait.same_for_all:
        waits = conditions.wait.by_devices
        inside = range(min(waits), max(waits))
        if interpolated := [n for n in conditions.counts if n in inside and n not in waits]:
            sentences.append(
                f"The wait on {_list_counts(interpolated)} devices is interpolated between those "
                f"given for {_list_counts(waits)}."
            )
    return sentences


def condition_warnings(conditions: ResolvedConditions) -> list[str]:
    """Return what makes an advice under these conditions less certain."""
    target, wait = conditions.target, conditions.wait
    warnings = []
    if target:
        for entry in target.missed:
            where = join_with_and([*map(str, entry.worlds[:-1]), format_count(entry.worlds[-1])])
            warnings.append(
                f"{entry.missed} of {entry.runs} runs on {where} (global batch "
                f"{entry.batch:,}) never reached {target.target}: the work at that batch is "
                "unknown"
            )
        if not target.job.starts:
            warnings.append(
                "the time to start is unknown and not counted: add a `time` column to the CSV"
            )
        if target.job.assumed_law:
            warnings.append(
                "times alone do not separate the speed of training from the start: "
                f"{target.job.assumed_law} assumes an efficiency of 100 % in training"
            )
    if wait and not wait.same_for_all:
        fewest, largest = min(wait.by_devices), max(wait.by_devices)
        if outside := [n for n in conditions.counts if not fewest <= n <= largest]:
            warnings.append(
                f"the wait on {_list_counts(outside)} devices is only extrapolated from "
                + (
                    f"that of {largest:,} alone"
                    if fewest == largest
                    else f"those of {_list_counts(wait.by_devices)}"
                )
            )
    return warnings


def _list_counts(counts: Iterable[int]) -> str:
    return join_with_and([f"{count:,}" for count in counts])


def _target_sentences(to_target: TimeToTarget, closest: Scale) -> list[str]:
    """Say how much work the target takes, and what more devices gain."""
    law, critical = to_target.law, to_target.critical
    points = [
        f"{format_number(work)} samples at a global batch of {format_number(batch)}"
        for batch, work, _ in to_target.points
    ]
    # The work of a single point may be stated by the user; that of several was measured.
    verb = "takes" if len(points) == 1 else "took"
    work_sentence = f"The target {to_target.target} {verb} {', '.join(points)}"
    if law is None:
        return [f"{work_sentence}, the same on all scales."]
    if critical is None:
        source = "fitted to these points"
    elif critical.like:
        source = f"like that of {critical.like} in public tables"
    elif critical.noise_devices:
        source = f"from the gradient noise on {format_count(critical.noise_devices)}"
    else:
        source = "as given"
    batch = to_target.batches[closest.devices]
    work_sentence += f"; {law}, with the critical batch {source}."
    sentences = [work_sentence, batch_verdict(law, batch)]
    # Beyond the critical batch, batch_verdict() already says what to do instead.
    if batch <= law.critical.value:
        per_device = to_target.batches[to_target.base_devices] / to_target.base_devices
        sentences.append(batch_limit(law, round(per_device) if to_target.batch_grows else None))
    return sentences


def batch_limit(law: WorkToTarget, per_device: int | None = None) -> str:
    """Say from which global batch on more devices do not pay, and what to do instead."""
    batch_text = format_rounded_estimate(law.enough)
    if per_device:
        devices = math.ceil(law.enough.value / per_device)
        batch_text += f" ({format_number(devices)} devices with {format_number(per_device)} each)"
    low, high = law.critical.low, law.critical.high
    vague_hint = (
        f" The critical batch is known to a factor of {high / low:.0f} only: measure a batch of "
        f"{format_number(4 * law.largest)} too."
        if low and high and high >= VAGUE_FACTOR * low
        else ""
    )
    return (
        f"From a global batch of {batch_text} on, twice the devices save less than "
        f"{format_percent(MIN_SAVED_SHARE, 0)} of the steps: the critical batch is "
        f"{format_rounded_estimate(law.critical)}{_fewest_steps(law)}; {ALTERNATIVES}.{vague_hint}"
    )


def batch_verdict(law: WorkToTarget, batch: float) -> str:
    """Say what doubling this batch, with twice the devices, would gain."""
    multiple = batch / law.critical.value
    sentence = (
        f"A global batch of {format_number(batch)} is {multiple:.2g} times the critical "
        f"{format_rounded_estimate(law.critical)}: doubling it with twice the devices saves "
        f"{format_percent(law.saved(batch).value, 0)} of the steps "
        f"for {format_percent(multiple / (1 + multiple), 0)} more work"
    )
    if multiple <= 1:
        return f"{sentence}."
    gain = "almost nothing" if batch >= law.enough.value else "little"
    return (
        f"{sentence}{_fewest_steps(law)}, so more devices buy {gain}; {ALTERNATIVES}, and keep "
        f"the global batch near {format_rounded(law.critical.value)}."
    )


def _fewest_steps(law: WorkToTarget) -> str:
    if law.least_steps is None:
        return ""
    steps = format_rounded_estimate(law.least_steps)
    return f", and no number of devices needs fewer than {steps} steps"


def _interruption_sentences(interruptions: Interruptions, scale: Scale) -> tuple[str, ...]:
    """Say how often to save, by which formula, and how much time is lost nevertheless."""
    interrupted, every = scale.interrupted, interruptions.every
    if interrupted is None:
        return ()
    save, mean = interruptions.save, interrupted.mean
    restart = interruptions.restarts[scale.devices]
    first_order = (
        f"√(2 × {format_number(save)} × {format_number(mean)}) = "
        f"{format_number(young_interval(save, mean))} s"
    )
    advised = (
        f"save every {format_number(interrupted.interval)} s, by Daly's correction of Young's "
        f"{first_order}"
        if interrupted.interval
        else f"the job is too short for a save to pay; a long job would save every {first_order}"
    )
    measured = ["the save"] if interruptions.save_measured else []
    measured += ["the restart"] if interruptions.restart_measured else []
    source = f" ({join_with_and(measured)} as measured)" if measured else ""
    lost_per_hour = interrupted.lost.value / scale.busy_time * 3600
    return (
        f"With an interruption of each {every.per} every {format_duration(every.seconds)}, a job "
        f"on {format_count(scale.devices)} has one every {format_number(mean)} s; a save takes "
        f"{format_number(save)} s and a restart {format_number(restart)} s{source}: {advised}.",
        f"Expect {format_number(interrupted.count)} interruptions, and "
        f"{format_number(interrupted.lost.value)} s of saves, lost work and restarts: "
        f"{format_number(lost_per_hour)} s of every hour.",
    )
