"""The Pareto front: the time of a job against what it costs, and the choice for each purpose."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from scalewise.analysis.advise import Advice, Scale
from scalewise.analysis.advise.best_scale import best_by_purpose, pareto_front
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit
from scalewise.analysis.number_format import format_count
from scalewise.analysis.summary import DEFAULT_PURPOSE
from scalewise.report.figures import Axis, Figure, Line, Mark, Role
from scalewise.report.figures.series import TIME_UNITS, Reports, choose_unit, curve_names
from scalewise.report.figures.times import job_label


@dataclass(frozen=True, slots=True)
class _Quantity:
    """What a job costs: the label of its axis, and the function from a scale to its value."""

    label: str
    of: Callable[[Scale], float]


def pareto(reports: Reports) -> Figure | None:
    """Return time against device-hours; per sample where only throughputs are known."""
    named = _named_advice(reports)
    if not named:
        return None
    if all(scale.time for _, advice in named for scale in advice.choices):
        works = {advice.curve.unit_of_work for _, advice in named} - {None}
        label = "device-hours" + (f" per {works.pop()}" if len(works) == 1 else "")
        hours = _Quantity(label, lambda scale: scale.device_time / 3600)
        return _figure("pareto", "Time against device-hours", named, hours)
    per_sample = _Quantity("device-seconds per sample", lambda scale: scale.device_time)
    return _figure("pareto", "Time against device time", named, per_sample)


def pareto_energy(reports: Reports) -> Figure | None:
    """Return time against energy; None unless the energy of all scales is known."""
    named = _named_advice(reports)
    joules = [s.energy.value for _, advice in named for s in advice.choices if s.energy and s.time]
    if not joules or len(joules) < sum(len(advice.choices) for _, advice in named):
        return None
    unit = energy_unit(max(joules))
    size = JOULES_PER_UNIT[unit]
    quantity = _Quantity(unit, lambda scale: scale.energy.value / size if scale.energy else 0.0)
    return _figure("pareto-energy", "Time against energy", named, quantity)


def _named_advice(reports: Reports) -> list[tuple[str, Advice]]:
    names = curve_names(reports)
    return [
        (n, report.summary.advice) for n, report in zip(names, reports) if report.summary.advice
    ]


def _figure(
    name: str, title: str, named: Sequence[tuple[str, Advice]], quantity: _Quantity
) -> Figure:
    scales = [scale for _, advice in named for scale in advice.choices]
    unit, size = "seconds", 1.0
    label = "seconds per sample"
    if all(scale.time for scale in scales):
        unit, size = choose_unit((scale.slowness for scale in scales), TIME_UNITS)
        label = job_label(unit, [advice.curve for _, advice in named])
    lines: list[Line] = []
    marks: list[Mark] = []
    for color, (curve_name, advice) in enumerate(named):
        front = pareto_front(advice.choices, quantity.of)
        best = {scale.devices for scale in front}
        beaten = [scale for scale in advice.choices if scale.devices not in best]
        lines.append(_line(curve_name, front, quantity, size, color, "front"))
        if beaten:
            lines.append(_line(curve_name, beaten, quantity, size, color, "beaten"))
        marks += _marks(advice, front, quantity, size, color if len(named) > 1 else None)
    x, y = Axis(label, log=True), Axis(quantity.label, log=True)
    return Figure(name, title, x, y, lines=tuple(lines), marks=tuple(marks))


def _marks(
    advice: Advice, front: Sequence[Scale], quantity: _Quantity, size: float, color: int | None
) -> Iterator[Mark]:
    """Yield the choices on the front, by purpose; of several curves, only the balanced one."""
    purposes = defaultdict(list)
    for purpose, scale in best_by_purpose(advice.choices, among=front).items():
        if color is None or purpose == DEFAULT_PURPOSE:
            purposes[scale.devices].append(purpose)
    for scale in front:
        if scale.devices in purposes:
            text = ", ".join(purposes[scale.devices])
            yield Mark(scale.slowness / size, quantity.of(scale), text, color)


def _line(
    curve: str,
    scales: Sequence[Scale],
    quantity: _Quantity,
    size: float,
    color: int,
    role: Role,
) -> Line:
    ordered = sorted(scales, key=lambda scale: (scale.slowness, quantity.of(scale)))
    what = {"front": "best choices", "beaten": "another choice is faster and cheaper"}[role]
    return Line(
        name=f"{curve}: {what}",
        x=tuple(scale.slowness / size for scale in ordered),
        y=tuple(map(quantity.of, ordered)),
        role=role,
        color=color,
        labels=tuple(format_count(scale.devices) for scale in ordered),
        curve=curve,
        what=what,
    )
