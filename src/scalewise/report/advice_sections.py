"""The advice on how many devices to use: as a section, and as JSON."""

from typing import Any

from scalewise.analysis.advise import Advice, Scale
from scalewise.analysis.advise.packing import Packing
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit
from scalewise.report.formats import dump_json, pick
from scalewise.report.tables import NONE, Section, Table, bound, make_table, number, percent, value
from scalewise.report.text.advice import (
    advice_sentences,
    advice_warnings,
    cause_sentence,
    power_sentence,
    reason,
)
from scalewise.report.text.break_even import break_even_sentences


def sections(advice: Advice) -> list[Section]:
    """Return one section: the reasons for the advice, and a table of all device counts compared."""
    unit = energy_unit(
        max((scale.energy.value for scale in advice.scales if scale.energy), default=0.0)
    )
    has_target = any(scale.target for scale in advice.scales)
    table = make_table("Options compared", advice.scales, [
        ("devices", lambda r: str(r.devices)),
        ("topology", lambda r: str(r.topology or NONE)),
        ("to target s" if has_target else "time s", lambda r: value(r.time)),
        ("low", lambda r: bound(r.time, "low")),
        ("high", lambda r: bound(r.time, "high")),
        ("queue wait s", lambda r: number(r.wait)),
        ("interruptions s", lambda r: value(r.interrupted.lost if r.interrupted else None)),
        ("device-hours", lambda r: value(r.device_hours)),
        ("low", lambda r: bound(r.device_hours, "low")),
        ("high", lambda r: bound(r.device_hours, "high")),
        (f"cost {advice.rate.currency}" if advice.rate and advice.rate.currency else "cost",
         lambda r: value(r.cost)),
        (unit, lambda r: value(r.energy and r.energy * (1 / JOULES_PER_UNIT[unit]))),
        (f"{advice.curve.unit}/s", lambda r: value(r.throughput)),
        ("batch", lambda r: number(_target_value(r, "batch"))),
        ("work", lambda r: value(_target_value(r, "work"))),
        ("device efficiency", lambda r: percent(_target_value(r, "hardware"))),
        ("batch efficiency", lambda r: percent(_target_value(r, "statistical"))),
        ("efficiency", lambda r: percent(r.efficiency)),
        ("chance", lambda r: percent(r.chance)),
        ("", lambda r: _role(advice, r)),  # Measured or predicted, chosen or not.
    ], hide_unknown=True)  # fmt: skip
    lines = (f"for {advice.purpose}; intervals are 90 %", *advice_sentences(advice))
    tables = (table, _packing_table(advice.runs)) if advice.runs else (table,)
    return [Section(advice.curve.name, lines, tables, advice_warnings(advice))]


def _packing_table(packing: Packing) -> Table:
    """Return the fastest placement of equal runs on each number of devices, and two others."""
    title = f"{packing.count:,} runs, done soonest"
    return make_table(title, map(packing.best, packing.counts), [
        ("devices", lambda best: str(best.devices)),
        ("devices per run", lambda best: str(best.each)),
        ("runs at a time", lambda best: str(best.at_once)),
        ("rounds", lambda best: str(best.rounds)),
        ("time s", lambda best: value(best.time)),
        ("low", lambda best: bound(best.time, "low")),
        ("high", lambda best: bound(best.time, "high")),
        ("device-hours", lambda best: value(best.device_hours)),
        # For comparison: placements with the fewest and with the most devices per run.
        ("fewest devices s", lambda best: value(packing.on(best.devices)[0].time)),
        ("one by one s", lambda best: value(packing.on(best.devices)[-1].time)),
    ], hide_unknown=True)  # fmt: skip


def _role(advice: Advice, scale: Scale) -> str:
    roles = ["measured" if scale.measured else "predicted"]
    if scale in advice.pareto:
        roles.append("Pareto")
    if scale is advice.closest:
        # If no scale meets the limits, none is chosen; the closest one is marked.
        roles.append("chosen" if advice.chosen else "closest")
    return ", ".join(roles)


def _target_value(scale: Scale, name: str) -> Any:
    """Return a field of the scale's target; None if it has no target."""
    return getattr(scale.target, name) if scale.target else None


def as_json(advice: Advice) -> str:
    """Return the advice as JSON (docs/reference/json.md)."""
    curve, chosen, worth, power = advice.curve, advice.chosen, advice.worth, advice.power
    cause = advice.returns.cause
    document = {
        **pick(curve, "study", "where"),
        "purpose": str(advice.purpose),
        **pick(advice, "price", "rate"),
        "power": power
        and {
            **pick(power, "once", "watts", "spread"),
            "says": power_sentence(power),
            "bound": power.device is not None,  # The catalog's rated watts are an upper bound.
        },
        "devices": chosen.devices if chosen else None,
        "topology": str(chosen.topology) if chosen and chosen.topology else None,
        "reason": reason(advice),
        "chosen": _scale_values(chosen),
        "closest": _scale_values(advice.closest),
        "alternatives": [_scale_values(s) for s in (advice.smaller, advice.larger) if s],
        "pareto": [scale.devices for scale in advice.pareto],
        "scales": [_scale_values(scale) for scale in advice.scales],
        "returns": {
            **pick(advice.returns, "diminish", "gain", "enough"),
            "cause": cause_sentence(cause) if cause else "",
        },
        "worth": worth
        and {
            **pick(
                worth, "devices", "floor", "efficiency", "data", "batch", "batch_of_steps", "model"
            ),
            "sentences": break_even_sentences(worth),
        },
        "runs": advice.runs,
        "sentences": advice_sentences(advice),
        "warnings": advice_warnings(advice),
        "not_correct": curve.not_correct,
    }
    return dump_json(document)


def _scale_values(scale: Scale | None) -> dict[str, Any] | None:
    if scale is None:
        return None
    values = pick(scale, "devices", "nodes", "charged", "measured", "throughput", "time",
                  "efficiency", "device_hours", "cost", "energy", "chance", "target",
                  "interrupted", "wait")  # fmt: skip
    return {**values, "topology": str(scale.topology) if scale.topology else None}
