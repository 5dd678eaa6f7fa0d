"""The global batch on each number of devices; the critical batch, at which work doubles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scalewise.analysis.advise.quality.work_to_target import critical_from_noise, published_work
from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.errors import NotEnoughData, SpecError, parameter, shown
from scalewise.validate import check_positive

LIKE_FACTOR = 2.0
"""Widens the interval of another model's critical batch (``like:resnet``); set by hand."""
MAX_BATCH = 1e15
"""Samples; a larger batch is refused as a typo."""


@dataclass(frozen=True, slots=True)
class Critical:
    """A critical batch and its source: the user, another model, or the gradient noise."""

    batch: Estimate | float
    like: str = ""
    """The workload of the published tables that it is taken from."""
    noise_devices: int | None = None
    """The number of devices on which the gradient noise was measured."""


def global_batches(
    curve: ScalingCurve, counts: Sequence[int], batch: float | None
) -> Mapping[int, float]:
    """Return the global batch by devices; ``batch``, for CSV files, is per device if weak."""
    if batch is not None:
        _check_batch("batch", batch, lowest=1)
    recorded = {
        point.devices: float(point.global_batch) for point in curve.points if point.global_batch
    }
    if recorded and batch is not None:
        raise SpecError(
            f"the batches of {curve.study} are recorded",
            hint=f"leave out {parameter('batch')}: it is for CSV files",
        )
    if recorded.keys() >= set(counts):
        return recorded
    if curve.scaling not in ("weak", "strong"):
        raise SpecError(
            "time to target depends on how the batch grows with devices, which is unknown",
            hint=f"{parameter('at', [max(recorded)])} considers only what was measured"
            if recorded
            else f"give {parameter('scaling', 'weak')} (each device has its own batch) or "
            f"{parameter('scaling', 'strong')}",
        )
    is_weak = curve.scaling == "weak"
    if recorded:  # All points have the same batch: per device if weak, else global.
        devices, global_batch = next(iter(recorded.items()))
        batch = global_batch / devices if is_weak else global_batch
    if batch is None:
        scope = "of one device" if is_weak else "of all devices together"
        raise SpecError(f"the batch {scope} is not known", hint=f"give {parameter('batch', 256)}")
    return {count: batch * (count if is_weak else 1) for count in counts} | recorded


def critical_batch(
    value: str | float | Estimate | None, curve: ScalingCurve, *, point_count: int
) -> Critical | None:
    """Return the critical batch that the user stated, else that from the gradient noise. None if
    neither exists, or if ``point_count`` points of work to target (2 or more) determine it.
    """
    if value is None:
        return _critical_by_noise(curve) if point_count < 2 else None
    if isinstance(value, str):
        text = value.strip()
        if text == "noise":
            if critical := _critical_by_noise(curve):
                return critical
            raise NotEnoughData(
                f"{curve.study} has no record of gradient noise",
                hint="set noise_every = 10 in the study file, or give a number",
            )
        if text.startswith("like:"):
            name = text.removeprefix("like:").strip()
            published = published_work(name).critical
            low, high = published.low or published.value, published.high or published.value
            wide = Estimate(published.value, low / LIKE_FACTOR, high * LIKE_FACTOR, published.count)
            return Critical(wide, like=name)
        try:
            value = float(text)
        except ValueError:
            raise SpecError(
                f"not a critical batch: {shown(text)}",
                hint="write 8192, noise (of a study with noise_every) or like:resnet",
            ) from None
    _check_batch("critical batch", value.value if isinstance(value, Estimate) else value)
    return Critical(value)


def _check_batch(name: str, value: float, lowest: float = 1e-3) -> None:
    check_positive(name, value, example=8192)
    if not lowest <= value <= MAX_BATCH:
        raise SpecError(
            f"a {name} must be from {lowest:g} to {MAX_BATCH:g} samples, got {value:g}",
            hint="for example 8192",
        )


def _critical_by_noise(curve: ScalingCurve) -> Critical | None:
    """Return the critical batch from the most precise gradient noise of the curve."""

    def high_over_low(noise: Estimate) -> float:
        if noise.low is None or noise.high is None or noise.low <= 0:
            return float("inf")
        return noise.high / noise.low

    noises = [(point.noise, point.devices) for point in curve.points if point.noise]
    if not noises:
        return None
    noise, devices = min(noises, key=lambda pair: high_over_low(pair[0]))
    return Critical(critical_from_noise(noise), noise_devices=devices)
