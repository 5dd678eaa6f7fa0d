"""What a study costs: an estimate before it runs, and a receipt (the use of device-hours) after."""

from collections.abc import Sequence

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.cost.study_cost import Bill
from scalewise.analysis.explain import CAUSES, Receipt
from scalewise.analysis.measure import Estimate, ScalingCurve
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit
from scalewise.analysis.number_format import format_count, format_duration, format_estimate
from scalewise.report.tables import number, percent

ITEM_TEXT = {
    "bought": "bought {}",
    "measured": "{} expected, as similar runs took",
    "predicted": "{} predicted",
    "limited": "at most {}, by the time limit",
    "unknown": "not known yet",
}
"""By ``Item.basis``: how its cost is known. The amount replaces the braces."""
MIN_NAMED_SHARE = 0.005
"""Causes with a smaller share of the device-hours are not named."""


def estimate_lines(bill: Bill, rate: Rate | None) -> list[str]:
    """Return a line for each run, and one for the whole study; one line if nothing is known."""
    if bill.unknown == len(bill.items) and not bill.bought:
        return ["no cost estimate yet: run the smallest configuration first"]

    def amount(hours: Estimate) -> str:
        """Return device-hours with their interval, and what they cost."""
        text = format_estimate(hours, number)
        if rate is None:
            return text
        cost = format_estimate(rate.cost(hours), number)
        return f"{text} for {cost} {rate.currency or ''}".rstrip()

    lines = ["estimated cost, in device-hours:"]
    for item in bill.items:
        hours = item.hours or Estimate(item.max_hours or 0.0)
        lines.append(f"  {item.run.title}: {ITEM_TEXT[item.basis].format(amount(hours))}")
    parts = [f"bought {amount(Estimate(bill.bought))}"]
    if bill.expected:
        parts.append(f"{amount(bill.expected)} expected to come")
    has_limited = any(item.basis == "limited" for item in bill.missing)
    if has_limited and bill.max_hours is not None:
        parts.append(f"at most {amount(Estimate(bill.max_hours))} to come")
    if bill.unknown:
        hint = "measure two numbers of devices of a curve to predict the others"
        parts.append(f"{format_count(bill.unknown, 'run')} not known yet ({hint})")
    return [*lines, f"total: {'; '.join(parts)}"]


def full_run_lines(curves: Sequence[ScalingCurve], rate: Rate | None) -> list[str]:
    """Return what the full run would take on each number of devices that was measured."""
    lines = []
    for curve in curves:
        assert curve.full_run is not None  # Only called for a full run.
        lines.append(f"{curve.name}: the full run of {curve.full_run.text}, in device-hours:")
        for point in curve.points:
            if point.time:
                hours = point.time * (point.devices / 3600)
                took = f"{format_duration(point.time.value)}, {format_estimate(hours, number)}"
                if rate:
                    cost = format_estimate(rate.cost(hours), number)
                    took = f"{took} for {cost} {rate.currency or ''}".rstrip()
                lines.append(f"  {format_count(point.devices)}: {took}")
    return lines or ["no estimate of the full run yet: run the smallest configuration first"]


def receipt_lines(receipt: Receipt) -> list[str]:
    """Return how the device-hours of a study were used, in one to four sentences."""
    if not receipt.bought:
        return ["no device-hours used yet"]
    lines = [f"{_bought_text(receipt)}, {percent(receipt.share(receipt.useful))} useful"]
    shares = {cause: receipt.share(hours) for cause, hours in receipt.lost.items()}
    named = sorted((c for c in shares if shares[c] >= MIN_NAMED_SHARE), key=lambda c: -shares[c])
    if named:
        lines.append("lost: " + ", ".join(f"{cause} {percent(shares[cause])}" for cause in named))
    negative = [cause for cause in shares if shares[cause] <= -MIN_NAMED_SHARE]
    if gained := [cause for cause in negative if cause in CAUSES]:
        better = ", ".join(f"{cause} {percent(-shares[cause])}" for cause in gained)
        lines.append(f"gained over the baseline: {better}")
    # Other losses are not relative to the baseline, so a negative loss is not a gain over it.
    if not_gained := [cause for cause in negative if cause not in CAUSES]:
        negative_losses = ", ".join(f"{cause} {percent(shares[cause])}" for cause in not_gained)
        lines.append(f"negative losses: {negative_losses}")
    return lines


def unreadable_receipt(hours: float, rate: Rate | None, problem: Exception) -> str:
    """Return a receipt without useful and lost shares, for a study whose records cannot be read."""
    receipt = Receipt(bought=hours).priced(rate)
    return f"{_bought_text(receipt)}; the useful share is unknown: {problem}"


def _bought_text(receipt: Receipt) -> str:
    text = f"bought {number(receipt.bought)} device-hours"
    if receipt.energy is not None:  # A lower bound: some runs' energy may be unknown.
        unit = energy_unit(receipt.energy)
        text += f" and {number(receipt.energy / JOULES_PER_UNIT[unit])} {unit} or more"
    if receipt.cost is None:
        return text
    return f"{text} for {number(receipt.cost)} {receipt.currency or ''}".rstrip()


def cost_heading(rate: Rate | None) -> str:
    """Return the heading of a column of costs, with the currency if it is known."""
    return f"cost {rate.currency or ''}".rstrip() if rate else "cost"


def describe_rate(rate: Rate) -> str:
    """Return a price per device-hour with its source."""
    money = f"{rate.per_device_hour:,.4g} {rate.currency or ''}".rstrip()
    source = f" is that of {rate.name} ({rate.source}; {rate.date})" if rate.name else ", as given"
    return f"{money} per device-hour{source}"
