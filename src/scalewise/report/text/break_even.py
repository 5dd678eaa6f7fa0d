"""The sentences on what would make a number of devices worthwhile."""

from scalewise.analysis.advise.break_even import BreakEven
from scalewise.analysis.number_format import (
    format_count,
    format_number,
    format_percent,
    format_rounded,
)

START_ASSUMED = (
    ", if all time that more devices do not shorten is the start: times alone do not separate it "
    "from overhead in every step"
)
"""Follows the factor for the data if only times were measured."""


def break_even_sentences(worth: BreakEven) -> tuple[str, ...]:
    """Say whether devices are worthwhile, and if not, which data, batch or model makes them so."""
    if worth.efficiency >= worth.floor:
        return (_efficiency_sentence(worth, "worthwhile as it is"),)
    return (
        _efficiency_sentence(worth, f"below {format_percent(worth.floor, 0)}"),
        _more_data_sentence(worth),
        _larger_batch_sentence(worth),
        _larger_model_sentence(worth),
    )


def _efficiency_sentence(worth: BreakEven, verdict: str) -> str:
    efficiency = format_percent(worth.efficiency)
    if not worth.in_seconds:
        return (
            f"On {format_count(worth.devices)} this job has an efficiency of {efficiency} by its "
            f"throughput, {verdict}; its start is not known."
        )
    return (
        f"On {format_count(worth.devices)} this job has, by its fitted start and training, an "
        f"efficiency of {efficiency}, {verdict}: {worth.base_devices} × "
        f"({_sum_of_parts(worth.base_start, worth.base_training)}) / "
        f"({worth.devices} × ({_sum_of_parts(worth.start, worth.training)})), start + training in "
        "seconds."
    )


def _more_data_sentence(worth: BreakEven) -> str:
    data = worth.data
    if data is None:
        return (
            "No amount of data is enough: the training itself has an efficiency of "
            f"{format_percent(worth.training_efficiency)} on {format_count(worth.devices)}, and "
            "more data cannot raise it."
        )
    return (
        f"With {format_rounded(data)} times the data or the epochs, efficiency would be "
        f"{format_percent(worth.floor, 0)}: {_sum_of_parts(worth.start, data * worth.training)} s "
        f"on {worth.devices:,} against "
        f"{_sum_of_parts(worth.base_start, data * worth.base_training)} s on "
        f"{worth.base_devices:,}{START_ASSUMED if worth.overhead is None else ''}."
    )


def _larger_batch_sentence(worth: BreakEven) -> str:
    floor = format_percent(worth.floor, 0)
    if worth.overhead is None:
        return (
            "What a larger batch would do is not known: times alone do not show the overhead of "
            "steps."
        )
    if worth.overhead <= 0:
        return "A larger batch does not help: the steps have no overhead that could be hidden."
    condition = (
        f"if the {format_percent(worth.overhead)} of the training that is overhead of each step "
        "stays as it is, memory holds the batch and the critical batch is not exceeded"
    )
    if worth.batch is not None:
        return (
            f"With {format_rounded(worth.batch)} times the batch on each device, efficiency would "
            f"be {floor}, {condition}."
        )
    best = format_percent(worth.best_batch_efficiency)
    too_low = f"No batch is large enough alone: efficiency would stay below {best}, because the "
    if worth.batch_of_steps is None:
        return f"{too_low}computation itself is slower on more devices."
    if worth.training_efficiency >= worth.floor:
        return f"{too_low}start takes too long."
    return (
        f"{too_low}start takes too long; the training alone would reach {floor} with "
        f"{format_rounded(worth.batch_of_steps)} times the batch on each device, {condition}."
    )


def _larger_model_sentence(worth: BreakEven) -> str:
    efficiency = (
        "stays as it is"
        if worth.overhead is None
        else f"stays at {format_percent(worth.training_efficiency)}"
    )
    sentence = (
        "A larger model has more computation and more to exchange, both in proportion: the "
        f"efficiency of its steps {efficiency}"
    )
    if worth.model is None:
        return f"{sentence}, so a larger model alone is not worthwhile at any size."
    return (
        f"{sentence}, and the start takes a smaller share, as with more data: "
        f"{format_rounded(worth.model)} times the model, if the start does not grow with it. Its "
        "effect on the exchange inside a step cannot be derived from these numbers."
    )


def _sum_of_parts(start: float, training: float) -> str:
    return " + ".join(format_number(seconds) for seconds in (start, training) if seconds)
