"""The advice on how many devices to use: as a section, and as JSON."""

import json
from dataclasses import dataclass
from typing import Any

from scalewise.analysis.advise import Advice, Scale
from scalewise.analysis.advise.packing import Packing, Placement
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit
from scalewise.report.formats import SCHEMA, plain
from scalewise.report.tables import (
    NONE,
    Section,
    Table,
    bound,
    number,
    percent,
    table_by_devices,
    value,
)
from scalewise.report.text.advice import (
    advice_sentences,
    advice_warnings,
    cause_sentence,
    power_sentence,
    reason,
)
from scalewise.report.text.break_even import break_even_sentences

SCALE_FIELDS = ("devices", "nodes", "charged", "measured", "throughput", "time", "efficiency",
                "device_hours", "cost", "energy", "chance", "target", "interrupted",
                "wait")  # fmt: skip
WORTH_FIELDS = ("devices", "floor", "efficiency", "data", "batch", "batch_of_steps", "model")


@dataclass(frozen=True)
class _ScaleRow:
    """A candidate scale, and its role in the advice."""

    scale: Scale
    role: str
    warnings: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        return self.scale.devices


def sections(advice: Advice) -> list[Section]:
    """Return the advice: the reason, and a table of all candidates."""
    rows = [_ScaleRow(scale, _role(advice, scale)) for scale in advice.scales]
    unit = energy_unit(
        max((scale.energy.value for scale in advice.scales if scale.energy), default=0.0)
    )
    has_target = any(scale.target for scale in advice.scales)
    table = table_by_devices(rows, "What was weighed", [
        ("topology", lambda r: str(r.scale.topology or NONE)),
        ("to target s" if has_target else "time s", lambda r: value(r.scale.time)),
        ("low", lambda r: bound(r.scale.time, "low")),
        ("high", lambda r: bound(r.scale.time, "high")),
        ("of it waiting", lambda r: number(r.scale.wait)),
        ("of it lost", lambda r: value(r.scale.interrupted.lost if r.scale.interrupted else None)),
        ("device-hours", lambda r: value(r.scale.device_hours)),
        ("low", lambda r: bound(r.scale.device_hours, "low")),
        ("high", lambda r: bound(r.scale.device_hours, "high")),
        (f"cost {advice.rate.currency}" if advice.rate and advice.rate.currency else "cost",
         lambda r: value(r.scale.cost)),
        (unit, lambda r: value(r.scale.energy and r.scale.energy * (1 / JOULES_PER_UNIT[unit]))),
        (f"{advice.curve.unit}/s", lambda r: value(r.scale.throughput)),
        ("batch", lambda r: number(_target_value(r.scale, "batch"))),
        ("work", lambda r: value(_target_value(r.scale, "work"))),
        ("of devices", lambda r: percent(_target_value(r.scale, "hardware"))),
        ("of batch", lambda r: percent(_target_value(r.scale, "statistical"))),
        ("efficiency", lambda r: percent(r.scale.efficiency)),
        ("chance", lambda r: percent(r.scale.chance)),
        ("", lambda r: r.role),
    ])  # fmt: skip
    lines = (f"for {advice.purpose}; intervals are 90 %", *advice_sentences(advice))
    tables = (table, _packing_table(advice.runs)) if advice.runs else (table,)
    return [Section(advice.curve.name, lines, tables, advice_warnings(advice))]


@dataclass(frozen=True)
class _PackingRow:
    """The best way to place many runs on some devices, and the two extremes."""

    best: Placement
    first: Placement
    last: Placement
    warnings: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        return self.best.devices


def _packing_table(runs: Packing) -> Table:
    """Return the best way to place many runs, for each number of devices."""
    rows = []
    for count in runs.counts:
        first, *_, last = (*runs.on(count), runs.on(count)[-1])
        rows.append(_PackingRow(runs.best(count), first, last))
    return table_by_devices(rows, f"{runs.count:,} runs, done soonest", [
        ("on each", lambda r: str(r.best.each)),
        ("at a time", lambda r: str(r.best.at_once)),
        ("rounds", lambda r: str(r.best.rounds)),
        ("time s", lambda r: value(r.best.time)),
        ("low", lambda r: bound(r.best.time, "low")),
        ("high", lambda r: bound(r.best.time, "high")),
        ("device-hours", lambda r: value(r.best.device_hours)),
        ("fewest each s", lambda r: value(r.first.time)),
        ("one by one s", lambda r: value(r.last.time)),
    ])  # fmt: skip


def _role(advice: Advice, scale: Scale) -> str:
    roles = ["measured" if scale.measured else "predicted"]
    if scale in advice.pareto:
        roles.append("Pareto")
    if scale is advice.closest:
        roles.append("chosen" if advice.chosen else "closest")
    return ", ".join(roles)


def _target_value(scale: Scale, name: str) -> Any:
    """Return a field of the scale's target, None without a target."""
    return getattr(scale.target, name) if scale.target else None


def as_json(advice: Advice) -> str:
    """Return the documented JSON shape."""
    curve, chosen, worth, power = advice.curve, advice.chosen, advice.worth, advice.power
    returns = advice.returns
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "study": curve.study,
        "where": dict(curve.where),
        "purpose": str(advice.purpose),
        "price": advice.price,
        "rate": plain(advice.rate),
        "power": power
        and {
            **{name: plain(getattr(power, name)) for name in ("once", "watts", "spread")},
            "says": power_sentence(power),
            "bound": power.device is not None,
        },
        "devices": chosen.devices if chosen else None,
        "topology": str(chosen.topology) if chosen and chosen.topology else None,
        "reason": reason(advice),
        "chosen": _scale(chosen),
        "closest": _scale(advice.closest),
        "alternatives": [_scale(scale) for scale in (advice.smaller, advice.larger) if scale],
        "pareto": [scale.devices for scale in advice.pareto],
        "scales": [_scale(scale) for scale in advice.scales],
        "returns": {
            **{name: plain(getattr(returns, name)) for name in ("diminish", "gain", "enough")},
            "cause": cause_sentence(returns.cause) if returns.cause else "",
        },
        "worth": worth
        and {
            **{name: plain(getattr(worth, name)) for name in WORTH_FIELDS},
            "sentences": list(break_even_sentences(worth)),
        },
        "runs": plain(advice.runs),
        "sentences": list(advice_sentences(advice)),
        "warnings": list(advice_warnings(advice)),
        "not_correct": list(advice.curve.not_correct),
    }
    return json.dumps(document, indent=1)


def _scale(scale: Scale | None) -> dict[str, Any] | None:
    if scale is None:
        return None
    values = {name: plain(getattr(scale, name)) for name in SCALE_FIELDS}
    return {**values, "topology": str(scale.topology) if scale.topology else None}
