"""The advice on how many devices to use: as a section, and as JSON."""

from typing import Any

from scalewise.analysis.advise import Advice, Scale
from scalewise.analysis.advise.packing import Packing
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit
from scalewise.report.formats import dump_json, full_run_values, pick, read_as_values
from scalewise.report.tables import (
    NONE,
    Section,
    Table,
    interval,
    make_table,
    number,
    percent,
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
from scalewise.report.text.doubts import alert_lines, doubt_values
from scalewise.report.text.measurement import efficiency_basis, full_run_line, two_efficiencies
from scalewise.report.text.read_as import read_as_lines
from scalewise.report.text.spending import cost_heading


def sections(advice: Advice) -> list[Section]:
    """Return one section: the reasons for the advice, and a table of all device counts compared."""
    unit = energy_unit(
        max((scale.energy.value for scale in advice.scales if scale.energy), default=0.0)
    )
    has_target = any(scale.target for scale in advice.scales)
    pareto = {scale.devices for scale in advice.pareto}
    table = make_table("Options compared", advice.scales, [
        ("devices", lambda r: str(r.devices)),
        ("topology", lambda r: str(r.topology or NONE), "all"),
        ("to target s" if has_target else "time s", lambda r: value(r.time)),
        ("90 % interval", lambda r: interval(r.time), "wide"),
        ("queue wait s", lambda r: number(r.wait), "wide"),
        ("interruptions s", lambda r: value(r.interrupted.lost if r.interrupted else None),
         "wide"),
        ("device-hours", lambda r: value(r.device_hours)),
        ("90 % interval", lambda r: interval(r.device_hours), "all"),
        (cost_heading(advice.rate), lambda r: value(r.cost)),
        (unit, lambda r: value(r.energy and r.energy * (1 / JOULES_PER_UNIT[unit]))),
        (advice.curve.rate_unit, lambda r: value(r.throughput),
         "all" if any(scale.time for scale in advice.scales) else "default"),
        ("batch", lambda r: number(_target_value(r, "batch"))),
        ("work", lambda r: value(_target_value(r, "work")), "all"),
        ("device efficiency", lambda r: percent(_target_value(r, "hardware")), "all"),
        ("batch efficiency", lambda r: percent(_target_value(r, "statistical")), "all"),
        ("efficiency", lambda r: percent(r.efficiency)),
        ("chance", lambda r: percent(r.chance)),
        ("Pareto", lambda r: "yes" if r.devices in pareto else NONE, "all"),
        ("", lambda r: _role(advice, r)),  # Measured or predicted, chosen or not.
    ], hide_unknown=True)  # fmt: skip
    sentences = advice_sentences(advice)
    basis = "efficiency is by time to target" if has_target else efficiency_basis(advice.curve)
    heading = f"for {advice.purpose}; {basis}"
    if any("[" in sentence for sentence in sentences):
        heading += "; intervals are 90 %"
        if any(scale.fitted_interval for scale in advice.scales):
            heading += " (of numbers measured once: by a prediction from all points)"
    both = "" if has_target else two_efficiencies(advice.curve)
    lines = [heading, *filter(None, [both, full_run_line(advice.curve)]), *sentences]
    lines += read_as_lines(advice.curve)
    notes = advice_warnings(advice, notes_only=True)
    alerts = tuple(alert_lines(advice.prediction.doubts))
    tables = (table, _packing_table(advice.runs)) if advice.runs else (table,)
    return [Section(advice.curve.name, tuple(lines), tables, notes, alerts)]


def _packing_table(packing: Packing) -> Table:
    """Return the fastest placement of equal runs on each number of devices, and two others."""
    title = f"{packing.count:,} runs, done soonest"
    return make_table(title, map(packing.best, packing.counts), [
        ("devices", lambda best: str(best.devices)),
        ("devices per run", lambda best: str(best.each)),
        ("runs at a time", lambda best: str(best.at_once)),
        ("rounds", lambda best: str(best.rounds)),
        ("time s", lambda best: value(best.time)),
        ("90 % interval", lambda best: interval(best.time), "wide"),
        ("device-hours", lambda best: value(best.device_hours)),
        # For comparison: placements with the fewest and with the most devices per run.
        ("fewest devices s", lambda best: value(packing.on(best.devices)[0].time), "all"),
        ("one by one s", lambda best: value(packing.on(best.devices)[-1].time)),
    ], hide_unknown=True)  # fmt: skip


def _role(advice: Advice, scale: Scale) -> str:
    roles = ["measured" if scale.measured else "predicted"]
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
        **full_run_values(curve),
        "read_as": read_as_values(curve),
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
        "beyond": advice.beyond
        and {
            **(_scale_values(advice.beyond.scale) or {}),
            **pick(advice.beyond, "saved", "added_device_hours"),
        },
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
        "doubts": doubt_values(advice.prediction.doubts),
        "not_correct": curve.not_correct,
    }
    return dump_json(document)


def _scale_values(scale: Scale | None) -> dict[str, Any] | None:
    if scale is None:
        return None
    values = pick(scale, "devices", "nodes", "charged", "measured", "fitted_interval",
                  "throughput", "time", "efficiency", "device_hours", "cost", "energy", "chance",
                  "target", "interrupted", "wait")  # fmt: skip
    return {**values, "topology": str(scale.topology) if scale.topology else None}
