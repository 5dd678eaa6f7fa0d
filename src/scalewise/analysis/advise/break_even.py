"""What would make a number of devices worthwhile: more data, a larger batch, a larger model.

The complete time of the job that was measured is taken apart,

    T(N) = start(N) + training(N)        efficiency(N) = N₀ T(N₀) / (N T(N))

and each part grows by what it depends on. k times the data lengthens the training alone:

    efficiency = N₀ (start₀ + k training₀) / (N (start + k training))

m times the batch of a device leaves 1/m of the steps, and of what is lost in each of them:

    training = computation + lost / m
"""

from dataclasses import dataclass

from scalewise.analysis.advise.advice_text import percent
from scalewise.analysis.advise.job_time import job
from scalewise.analysis.advise.purpose import Purpose
from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.number_format import format_count, format_number, format_rounded
from scalewise.analysis.predict import predict
from scalewise.errors import SpecError
from scalewise.validate import HUGE

FLOOR = 0.8
"""The efficiency that is worthwhile, where the purpose names none."""
ASSUMED = (
    ", if all that devices do not shorten is the start: times do not tell it from what grows with "
    "every step"
)
VAST = 1e6
"""A factor beyond this is no answer."""


@dataclass(frozen=True, kw_only=True)
class Worthwhile:
    """What it takes for a number of devices to be used well; nothing: it cannot be done so."""

    devices: int
    floor: float
    """The efficiency to be met."""
    efficiency: float
    """That of the job as it is, by its complete time."""
    data: float | None
    """How many times the data or the epochs it takes; 1 where it is worthwhile as it is."""
    batch: float | None
    """How many times the batch of each device, with the same data."""
    batch_of_steps: float | None
    """The same for the training alone, without the start."""
    model: float | None
    """How many times the model, if the start does not grow with it."""
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Parts:
    """Seconds of the start and of the training, on few devices and on many."""

    few: int
    many: int
    start_few: float
    start: float
    train_few: float
    train: float
    lost: float | None
    """The share of the training on many that a larger batch would hide, if that is known."""
    timed: bool
    """Whether the start and the training are in seconds; or else only their ratio is known."""

    @property
    def efficiency(self) -> float:
        return self._share(self.start_few + self.train_few, self.start + self.train)

    @property
    def of_steps(self) -> float:
        """The efficiency of the training alone: what any amount of data comes close to."""
        return self._share(self.train_few, self.train)

    @property
    def at_best(self) -> float:
        """The efficiency if a batch without end hid all that is lost in steps."""
        kept = self.train * (1 - (self.lost or 0.0))
        return self._share(self.start_few + self.train_few, self.start + kept)

    def _share(self, few: float, many: float) -> float:
        return self.few * few / (self.many * many)

    def data(self, floor: float) -> float | None:
        gained = self.few * self.train_few - floor * self.many * self.train
        owed = floor * self.many * self.start - self.few * self.start_few
        return _factor(owed, gained)

    def batch(self, floor: float, *, start: bool) -> float | None:
        if self.lost is None:
            return None
        few = self.train_few + (self.start_few if start else 0.0)
        room = self.few * few / (floor * self.many) - self.train * (1 - self.lost)
        return _factor(self.train * self.lost, room - (self.start if start else 0.0))


def worthwhile(curve: ScalingCurve, devices: int, purpose: Purpose) -> Worthwhile:
    """Return what would make so many devices worthwhile, for a purpose's efficiency or 0.8."""
    floor = next((each.bound for each in purpose.limits if each.name == "efficiency"), FLOOR)
    parts = _parts(curve, devices)
    data = parts.data(floor)
    batch, of_steps = parts.batch(floor, start=True), parts.batch(floor, start=False)
    told = [_now(parts, floor)]
    if parts.efficiency < floor:
        told += [_more_data(parts, floor, data), _more_batch(parts, floor, batch, of_steps)]
        told.append(_more_model(parts, data))
    return Worthwhile(
        devices=devices,
        floor=floor,
        efficiency=parts.efficiency,
        data=data,
        batch=batch,
        batch_of_steps=of_steps,
        model=data,
        sentences=tuple(told),
    )


def _parts(curve: ScalingCurve, devices: int) -> _Parts:
    few = curve.baseline.devices
    whole = isinstance(devices, int) and not isinstance(devices, bool)
    if not whole or not few < devices <= HUGE:
        raise SpecError(
            f"worth asks about more devices than the baseline's {few}, got {devices!r}",
            hint=f"for example --worth {8 * few}",
        )
    found = predict(curve, [few, devices])
    split = job(found)
    if not {few, devices} <= split.rates.keys():
        raise SpecError(
            f"what {format_count(devices)} would take cannot be told",
            hint="complete the column throughput",
        )
    work = split.work or 1.0
    train_few, train = (work / split.rates[count].value for count in (few, devices))
    lost = max(0.0, 1 - few * train_few / (devices * train))
    seen = next((point.exposed for point in curve.points if point.devices == devices), None)
    return _Parts(
        few=few,
        many=devices,
        start_few=split.start(few) if split.work else 0.0,
        start=split.start(devices) if split.work else 0.0,
        train_few=train_few,
        train=train,
        lost=None if split.assumed else min(lost, seen.value) if seen else lost,
        timed=split.work is not None,
    )


def _factor(owed: float, gained: float) -> float | None:
    """Return by how much something has to grow: at least 1, nothing where no growth helps."""
    if gained <= 0 or owed / gained > VAST:
        return None
    return max(1.0, owed / gained)


def _now(parts: _Parts, floor: float) -> str:
    met = "worthwhile as it is" if parts.efficiency >= floor else f"below {percent(floor, 0)}"
    if not parts.timed:
        return (
            f"On {format_count(parts.many)} this job has an efficiency of "
            f"{percent(parts.efficiency)} "
            f"by its throughput, {met}; its start is not known."
        )
    return (
        f"On {format_count(parts.many)} this job has, by the law of its complete time, an "
        "efficiency of "
        f"{percent(parts.efficiency)}, {met}: {parts.few} × "
        f"({_sum(parts.start_few, parts.train_few)}) / "
        f"({parts.many} × ({_sum(parts.start, parts.train)})), start + training in seconds."
    )


def _more_data(parts: _Parts, floor: float, data: float | None) -> str:
    if data is None:
        return (
            f"Not with any amount of data: the training itself has an efficiency of "
            f"{percent(parts.of_steps)} on them, which more data comes close to and never passes."
        )
    return (
        f"With {format_rounded(data)} times the data or the epochs it would be "
        f"{percent(floor, 0)}: "
        f"{_sum(parts.start, data * parts.train)} s on {parts.many:,} against "
        f"{_sum(parts.start_few, data * parts.train_few)} s on {parts.few:,}"
        f"{ASSUMED if parts.lost is None else ''}."
    )


def _more_batch(parts: _Parts, floor: float, batch: float | None, of_steps: float | None) -> str:
    if parts.lost is None:
        return "What a larger batch would do is not known: times do not tell what steps lose."
    if parts.lost <= 0:
        return "A larger batch does not help: the steps lose nothing that it would hide."
    how = (
        f"if the {percent(parts.lost)} of the training that is lost in each step stays as it is, "
        "memory holds the batch and the critical batch is not passed"
    )
    if batch is not None:
        return (
            f"With {format_rounded(batch)} times the batch on each device it would be "
            f"{percent(floor, 0)}, {how}."
        )
    most = f"No batch is large enough alone: it would stay below {percent(parts.at_best)}, for the "
    if of_steps is None:
        return f"{most}computation itself is slower there."
    if parts.of_steps >= floor:
        return f"{most}start weighs too much."
    return (
        f"{most}start weighs too much; the training alone would reach {percent(floor, 0)} with "
        f"{format_rounded(of_steps)} times the batch on each device, {how}."
    )


def _more_model(parts: _Parts, data: float | None) -> str:
    told = (
        "A larger model has more computation and more to exchange, both in proportion: its steps "
    )
    kept = "stay as they are" if parts.lost is None else f"keep their {percent(parts.of_steps)}"
    if data is None:
        return f"{told}{kept}, so by that alone it is not worthwhile at any size."
    return (
        f"{told}{kept}, and the start weighs less, as with more data: {format_rounded(data)} times "
        "the "
        "model, if the start does not grow with it. What it does to the exchange inside a step "
        "cannot be told from these numbers."
    )


def _sum(start: float, train: float) -> str:
    return f"{format_number(start)} + {format_number(train)}" if start else format_number(train)
