"""The global batch on each number of devices, and the critical one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scalewise.analysis.advise.quality.target import by_noise, published
from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.errors import NotEnoughData, SpecError
from scalewise.validate import positive

LIKE = 2.0
"""A public critical batch is another model's: it tells ours within this factor more; by hand."""
LARGEST = 1e15
"""Samples; whoever writes a larger batch has slipped."""
WAYS = "--critical-batch 8192, noise (of a study with noise_every) or like:resnet"


@dataclass(frozen=True, slots=True)
class Critical:
    """A critical batch, and where it is from."""

    batch: Estimate | float
    source: str


def global_batches(
    curve: ScalingCurve, counts: Iterable[int], given: float | None
) -> Mapping[int, float]:
    """Return the global batch at each count: the records', or by the rule of the scaling.

    ``given`` is the batch of one device under weak scaling, the global one under strong.
    """
    if given is not None:
        _in_range("batch", given, least=1)
    known = {
        point.devices: float(point.global_batch) for point in curve.points if point.global_batch
    }
    if known and given is not None:
        raise SpecError(
            f"the records of {curve.study} know their batch", hint="--batch is for CSV files"
        )
    wanted = list(counts)
    if set(wanted) <= known.keys():
        return {count: known[count] for count in wanted}
    if curve.scaling not in ("weak", "strong"):
        raise SpecError(
            "how the batch grows with devices is not known, and time to target depends on it",
            hint=f"--at {max(known)} weighs only what was measured"
            if known
            else "--scaling weak (each device has its own batch) or --scaling strong",
        )
    weak = curve.scaling == "weak"
    if not known and given is None:
        whose = "of one device" if weak else "of all devices together"
        raise SpecError(f"the batch {whose} is not known", hint="for example --batch 256")
    devices, batch = next(iter(known.items())) if known else (1, given or 0.0)
    each = batch / devices if weak else batch
    return {count: known.get(count) or (each * count if weak else each) for count in wanted}


def critical_batch(
    given: str | float | Estimate | None, curve: ScalingCurve, *, points: int
) -> Critical | None:
    """Return the critical batch: as it was given, or else by the points, or else by the noise.

    Nothing means that the ``points`` of work to target, at least two, are to tell it, or that
    nobody does.
    """
    if isinstance(given, str):
        return _named(given.strip(), curve)
    if given is not None:
        _in_range("critical batch", given.value if isinstance(given, Estimate) else given)
        return Critical(given, "as given")
    return _noise(curve) if points < 2 else None


def _named(given: str, curve: ScalingCurve) -> Critical:
    if given == "noise":
        found = _noise(curve)
        if found is None:
            raise NotEnoughData(
                f"{curve.study} holds no gradient noise",
                hint="set noise_every = 10 in the study file, or give a number",
            )
        return found
    if given.startswith("like:"):
        name = given.removeprefix("like:").strip()
        theirs = published(name).critical
        low, high = theirs.low or theirs.value, theirs.high or theirs.value
        wide = Estimate(theirs.value, low / LIKE, high * LIKE, theirs.count)
        return Critical(wide, f"like that of {name} in public tables")
    try:
        number = float(given)
    except ValueError:
        raise SpecError(f"not a critical batch: {given!r}", hint=WAYS) from None
    _in_range("critical batch", number)
    return Critical(number, "as given")


def _in_range(name: str, value: float, least: float = 1e-3) -> None:
    """Refuse what is no batch, or none that anybody trains with."""
    positive(name, value, example=8192)
    if not least <= value <= LARGEST:
        raise SpecError(
            f"a {name} lies from {least:g} to {LARGEST:g} samples, got {value:g}",
            hint="for example 8192",
        )


def _noise(curve: ScalingCurve) -> Critical | None:
    """Return what the gradient noise tells, from the point that knows it best."""
    known = [point for point in curve.points if point.noise]
    if not known:
        return None
    best = min(known, key=lambda point: _width(point.noise))
    assert best.noise is not None
    return Critical(by_noise(best.noise), f"by the gradient noise on {best.devices} devices")


def _width(noise: Estimate | None) -> float:
    if noise is None or noise.low is None or noise.high is None or noise.low <= 0:
        return float("inf")
    return noise.high / noise.low
