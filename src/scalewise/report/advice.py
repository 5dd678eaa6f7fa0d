"""How many devices to use: as a section for people, and as JSON for programs."""

import json
from dataclasses import dataclass
from typing import Any

from scalewise.analysis.advise import Advice, Scale
from scalewise.analysis.advise.packing import Packing, Placement
from scalewise.analysis.measure import Estimate
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit
from scalewise.report.curve_table import NONE, Section, Table, by_devices, number, percent, value
from scalewise.report.formats import SCHEMA, plain


@dataclass(frozen=True)
class _Row:
    """A scale that was weighed, and what the advice says of it."""

    scale: Scale
    what: str
    warnings: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        return self.scale.devices


def sections(found: Advice) -> list[Section]:
    """Return the advice: the reason, the neighbours, and everything it was chosen from."""
    rows = [_Row(scale, _what(found, scale)) for scale in found.scales]
    unit = energy_unit(
        max((each.energy.value for each in found.scales if each.energy), default=0.0)
    )
    table = by_devices(rows, "What was weighed", [
        ("topology", lambda r: str(r.scale.topology or NONE)),
        ("to target s" if _targeted(found) else "time s", lambda r: value(r.scale.time)),
        ("low", lambda r: _end(r.scale.time, "low")),
        ("high", lambda r: _end(r.scale.time, "high")),
        ("of it waiting", lambda r: number(r.scale.wait)),
        ("of it lost", lambda r: value(_lost(r.scale))),
        ("device-hours", lambda r: value(r.scale.device_hours)),
        ("low", lambda r: _end(r.scale.device_hours, "low")),
        ("high", lambda r: _end(r.scale.device_hours, "high")),
        (f"cost {found.rate.currency}" if found.rate and found.rate.currency else "cost",
         lambda r: value(r.scale.cost)),
        (unit, lambda r: value(r.scale.energy and r.scale.energy * (1 / JOULES_PER_UNIT[unit]))),
        (f"{found.curve.unit}/s", lambda r: value(r.scale.throughput)),
        ("batch", lambda r: number(_at(r.scale, "batch"))),
        ("work", lambda r: value(_at(r.scale, "work"))),
        ("of devices", lambda r: percent(_at(r.scale, "hardware"))),
        ("of batch", lambda r: percent(_at(r.scale, "statistical"))),
        ("efficiency", lambda r: percent(r.scale.efficiency)),
        ("chance", lambda r: percent(r.scale.chance)),
        ("", lambda r: r.what),
    ])  # fmt: skip
    lines = (f"for {found.purpose}; intervals are 90 %", *found.sentences)
    tables = (table, _runs(found.runs)) if found.runs else (table,)
    return [Section(found.curve.name, lines, tables, found.warnings)]


@dataclass(frozen=True)
class _Placed:
    """The best way to place many runs on some devices, and the two extremes."""

    best: Placement
    first: Placement
    last: Placement
    warnings: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        return self.best.devices


def _runs(runs: Packing) -> Table:
    """Return the best way to place many runs, for each number of devices."""
    rows = []
    for count in runs.counts:
        first, *_, last = (*runs.on(count), runs.on(count)[-1])
        rows.append(_Placed(runs.best(count), first, last))
    return by_devices(rows, f"{runs.count:,} runs, done soonest", [
        ("on each", lambda r: str(r.best.each)),
        ("at a time", lambda r: str(r.best.at_once)),
        ("rounds", lambda r: str(r.best.rounds)),
        ("time s", lambda r: value(r.best.time)),
        ("low", lambda r: _end(r.best.time, "low")),
        ("high", lambda r: _end(r.best.time, "high")),
        ("device-hours", lambda r: value(r.best.device_hours)),
        ("fewest each s", lambda r: value(r.first.time)),
        ("one by one s", lambda r: value(r.last.time)),
    ])  # fmt: skip


def _what(found: Advice, scale: Scale) -> str:
    told = ["measured" if scale.measured else "predicted"]
    if scale in found.pareto:
        told.append("Pareto")
    if scale is found.closest:
        told.append("chosen" if found.chosen else "closest")
    return ", ".join(told)


def _targeted(found: Advice) -> bool:
    return any(scale.target for scale in found.scales)


def _at(scale: Scale, name: str) -> Any:
    """Return what a target takes at a scale, or nothing where there is none."""
    return getattr(scale.target, name) if scale.target else None


def _lost(scale: Scale) -> Estimate | None:
    return scale.interrupted.lost if scale.interrupted else None


def _end(estimate: Estimate | None, name: str) -> str:
    return number(getattr(estimate, name) if estimate else None)


def as_json(found: Advice) -> str:
    """Return the documented JSON shape."""
    curve, chosen = found.curve, found.chosen
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "study": curve.study,
        "where": dict(curve.where),
        "purpose": str(found.purpose),
        "price": found.price,
        "rate": plain(found.rate),
        "power": plain(found.power),
        "devices": chosen.devices if chosen else None,
        "topology": str(chosen.topology) if chosen and chosen.topology else None,
        "reason": found.reason,
        "chosen": _scale(chosen),
        "closest": _scale(found.closest),
        "alternatives": [_scale(each) for each in (found.smaller, found.larger) if each],
        "pareto": [scale.devices for scale in found.pareto],
        "scales": [_scale(scale) for scale in found.scales],
        "returns": {
            name: plain(getattr(found.returns, name))
            for name in ("diminish", "gain", "enough", "cause")
        },
        "worth": plain(found.worth),
        "runs": plain(found.runs),
        "sentences": list(found.sentences),
        "warnings": list(found.warnings),
        "not_correct": list(found.curve.not_correct),
    }
    return json.dumps(told, indent=1)


def _scale(scale: Scale | None) -> dict[str, Any] | None:
    if scale is None:
        return None
    names = ("devices", "nodes", "charged", "measured", "throughput", "time", "efficiency",
             "device_hours", "cost", "energy", "chance", "target", "interrupted",
             "wait")  # fmt: skip
    told = {name: plain(getattr(scale, name)) for name in names}
    return {**told, "topology": str(scale.topology) if scale.topology else None}
