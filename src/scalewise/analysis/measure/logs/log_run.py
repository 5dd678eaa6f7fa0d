"""One measured run from the numbers of its log: what is used, what is left out, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scalewise.analysis.measure.estimate import Estimate, estimate_from_steps
from scalewise.analysis.measure.logs.log import DeviceCount, Log, Observation, Quantity

MIN_VALUES = 3
"""Of fewer epochs or values, a first one that is a little slower is kept: it may be chance."""
MIN_WARM_UP = 1.05
"""The first of two values is left out if it is this much slower than the other."""
STEP_QUANTITIES: tuple[Quantity, ...] = ("steps_per_second", "step_time")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What the user says about logs."""

    samples_per_epoch: int | None = None
    batch: int | None = None
    """Samples per step of all devices."""
    batch_per_device: int | None = None
    per_device: bool = False
    """Whether rates that do not say whose they are are those of one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Which numbers of a log gave a quantity."""

    source: str
    count: int
    lines: tuple[int, int] | None
    """The first and the last line."""
    left_out: str | None = None
    """``first epoch`` or ``first value``, if it was slower than the others."""
    derived: str | None = None
    """How it was computed: ``batch``, ``samples per epoch`` or ``per device``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRun:
    """A run as its log shows it."""

    name: str
    devices: int
    nodes: int | None = None
    devices_from: str
    format: str
    throughput: Estimate | None = None
    unit: str | None = None
    epoch_time: Estimate | None = None
    time: Estimate | None = None
    samples: float | None = None
    energy: Estimate | None = None
    """Joules."""
    global_batch: int | None = None
    steps: int | None = None
    """Steps of an epoch, where a progress bar shows them."""
    evidence: dict[str, Evidence] = field(default_factory=dict)
    """By quantity."""
    unused: tuple[str, ...] = ()
    """Formats of lines that were found and not used; ``rate line (tokens/s)``, if lines of that
    format with another unit were used.
    """
    bad_values: int = 0
    printers: int = 1
    """The ranks that print lines; those of the first one are used."""
    exported: bool = False
    """Whether scalewise wrote the file: its values are exact, and a folder of them is one study."""
    origin: str = ""
    """The file or folder that was imported."""
    cut: bool = False
    """Whether only the beginning and the end of a very large file were read."""


def summarize_log(name: str, log: Log, count: DeviceCount, options: LogOptions) -> LogRun | None:
    """Return the run of a log; None if it gives neither a throughput nor a time."""
    observations, printers = _first_printer(log.observations)
    if options.per_device:
        observations = [
            replace(o, per_device=True) if o.quantity == "throughput" and not o.is_total else o
            for o in observations
        ]
    known = _add_facts(options, log, count.devices)
    rates, derived = _rates(observations, known, count.devices)
    evidence: dict[str, Evidence] = {}
    throughput = _estimate(rates, evidence, "throughput", derived) if rates else None
    epoch_time, time = _times(observations, evidence, has_rates=bool(rates))
    if not evidence:
        return None
    energy, samples = (_best(observations, q)[-1:] for q in ("energy", "samples"))
    used = [*rates, *energy, *samples]
    return LogRun(
        name=name,
        devices=count.devices,
        nodes=count.nodes,
        devices_from=count.where,
        format=log.format,
        throughput=throughput,
        unit=next((o.unit for o in rates if o.unit), None),
        epoch_time=epoch_time,
        time=time,
        samples=samples[0].value if samples else None,
        energy=Estimate(energy[0].value, energy[0].low, energy[0].high) if energy else None,
        global_batch=known.batch or next((o.batch for o in rates if o.batch), None),
        steps=next((o.steps for o in observations if o.steps), None),
        evidence=evidence,
        unused=_unused(observations, used, evidence),
        bad_values=log.bad_values,
        printers=printers,
        exported=log.curve is not None,
    )


def _add_facts(options: LogOptions, log: Log, devices: int) -> LogOptions:
    """Return the options; what the user does not say is as the log has it."""
    return replace(
        options,
        batch=options.batch or (options.batch_per_device or 0) * devices or log.global_batch,
        samples_per_epoch=options.samples_per_epoch or log.samples_per_epoch,
    )


def _first_printer(observations: Sequence[Observation]) -> tuple[list[Observation], int]:
    """Return what the first of several ranks prints, and how many ranks print."""
    printers = dict.fromkeys(o.printer for o in observations)
    if len(printers) < 2 or None in printers:
        return list(observations), 1
    first = next(iter(printers))
    return [o for o in observations if o.printer == first], len(printers)


def _best(observations: Sequence[Observation], quantity: Quantity) -> list[Observation]:
    """Return the observations of a quantity in the best format that there is, of one unit, and
    either of all devices or of one.
    """
    candidates = [o for o in observations if o.quantity == quantity]
    if not candidates:
        return []
    best = min(candidates, key=lambda o: o.rank)
    chosen = [o for o in candidates if _kind(o) == _kind(best)]
    return chosen[-1:] if best.whole_run else chosen


def _kind(observation: Observation) -> tuple[str, bool, str | None]:
    """Return what observations have in common that may be averaged."""
    return observation.source, observation.per_device, observation.unit


def _unused(
    observations: Sequence[Observation],
    used: Sequence[Observation],
    evidence: Mapping[str, Evidence],
) -> tuple[str, ...]:
    """Return the formats, and the units of rates, that were found and not used."""
    sources = {o.source for o in used} | {entry.source for entry in evidence.values()}
    kinds = {_kind(o) for o in used}
    names: list[str] = []
    for o in observations:
        if o.source not in sources:
            names.append(o.source)
        elif o.quantity == "throughput" and _kind(o) not in kinds:
            device = " per device" if o.per_device else ""
            names.append(f"{o.source} ({o.unit or 'samples'}/s{device})")
    return tuple(dict.fromkeys(names))


def _rates(
    observations: Sequence[Observation], known: LogOptions, devices: int
) -> tuple[list[Observation], str | None]:
    """Return the samples per second of all devices, and how they were computed."""
    rates = _best(observations, "throughput")
    if rates and rates[0].per_device:
        return [_scaled(o, devices) for o in rates], "per device"
    if rates:
        return rates, None
    for quantity in STEP_QUANTITIES:
        steps = _best(observations, quantity)
        if steps and all(o.batch or known.batch for o in steps):
            return [_rate_of_steps(o, o.batch or known.batch or 0) for o in steps], "batch"
    epochs = _best(observations, "epoch_time")
    if known.samples_per_epoch:
        return [_rate_of_time(o, known.samples_per_epoch) for o in epochs], "samples per epoch"
    return _rates_of_bars(epochs, known.batch), "batch"


def _rates_of_bars(epochs: Sequence[Observation], batch: int | None) -> list[Observation]:
    """Return the samples per second of epochs by their steps; none if a number is unknown."""
    if not batch or not all(o.steps for o in epochs):
        return []
    return [_rate_of_time(o, batch * (o.steps or 0)) for o in epochs]


def _times(
    observations: Sequence[Observation], evidence: dict[str, Evidence], *, has_rates: bool
) -> tuple[Estimate | None, Estimate | None]:
    """Return the times of an epoch and of the complete run."""
    epoch_time = time = None
    if epochs := _best(observations, "epoch_time"):
        epoch_time = _estimate(epochs, evidence, "epoch_time")
    elif not has_rates:
        epoch_time = _bar_time(observations, evidence)
    if times := _best(observations, "time"):
        time = Estimate(times[-1].value, times[-1].low, times[-1].high)
        evidence["time"] = _evidence(times[-1:])
    return epoch_time, time


def _scaled(observation: Observation, factor: float) -> Observation:
    low, high = (
        None if end is None else end * factor for end in (observation.low, observation.high)
    )
    rounding = observation.rounding * factor
    return replace(
        observation, value=observation.value * factor, low=low, high=high, rounding=rounding
    )


def _rate_of_steps(observation: Observation, batch: int) -> Observation:
    if observation.quantity == "steps_per_second":
        return _scaled(replace(observation, quantity="throughput"), batch)
    return _rate_of_time(observation, batch)


def _rate_of_time(observation: Observation, samples: int) -> Observation:
    rate = samples / observation.value
    rounding = rate * observation.rounding / observation.value
    return replace(
        observation, quantity="throughput", value=rate, low=None, high=None, rounding=rounding
    )


def _bar_time(
    observations: Sequence[Observation], evidence: dict[str, Evidence]
) -> Estimate | None:
    """Return the time of an epoch by its steps and their rate, where no batch is known."""
    for quantity in STEP_QUANTITIES:
        bars = [o for o in _best(observations, quantity) if o.steps]
        if bars:
            seconds = [
                o.value * (o.steps or 0) if quantity == "step_time" else (o.steps or 0) / o.value
                for o in bars
            ]
            times = [replace(o, quantity="epoch_time", value=s, rounding=s * o.rounding / o.value)
                     for o, s in zip(bars, seconds)]  # fmt: skip
            return _estimate(times, evidence, "epoch_time")
    return None


def _estimate(
    observations: Sequence[Observation],
    evidence: dict[str, Evidence],
    key: str,
    derived: str | None = None,
) -> Estimate:
    """Return the mean of the steady observations, with an interval from their spread."""
    steady, left_out = steady_observations(observations)
    evidence[key] = replace(_evidence(steady), left_out=left_out, derived=derived)
    is_rate = steady[0].quantity == "throughput"
    seconds = np.array([1 / o.value if is_rate else o.value for o in steady])
    mean = float(seconds.mean())
    value = 1 / mean if is_rate else mean
    if len(steady) == 1:
        return Estimate(steady[0].value, steady[0].low, steady[0].high)
    estimate = estimate_from_steps(value, seconds)
    rounding = max(o.rounding for o in steady)
    low, high = estimate.low or value, estimate.high or value
    low = min(low, max(value - rounding, low / 2))  # A positive quantity.
    return Estimate(value, low, max(high, value + rounding))


def steady_observations(
    observations: Sequence[Observation],
) -> tuple[list[Observation], str | None]:
    """Return the observations without the first epoch, or without the first value if there is but
    one epoch, where that is slower than the others; and what was left out. The first of two epochs
    must be slower than every value of the second; if only one value follows, ``MIN_WARM_UP`` times
    as slow as that.
    """
    if observations[0].warmed_up:
        return list(observations), None
    epochs = list(dict.fromkeys(o.epoch for o in observations))
    by_epoch = len(epochs) > 1 and None not in epochs
    if by_epoch:
        first = [o for o in observations if o.epoch == epochs[0]]
        later = [o for o in observations if o.epoch != epochs[0]]
    else:
        first, later = list(observations[:1]), list(observations[1:])
    if not later:
        return list(observations), None
    is_rate = later[0].quantity == "throughput"
    first_seconds, seconds = (
        [1 / o.value if is_rate else o.value for o in part] for part in (first, later)
    )
    limit = float(np.mean(seconds))
    if (len(epochs) if by_epoch else len(observations)) < MIN_VALUES:
        limit = max(seconds) if len(seconds) > 1 else MIN_WARM_UP * limit
    if float(np.mean(first_seconds)) <= limit:
        return list(observations), None
    return later, "first epoch" if by_epoch else "first value"


def _evidence(observations: Sequence[Observation]) -> Evidence:
    numbers = [o.line for o in observations if o.line is not None]
    return Evidence(
        source=observations[0].source,
        count=len(observations),
        lines=(min(numbers), max(numbers)) if numbers else None,
    )
