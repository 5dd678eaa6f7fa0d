"""The cost estimate of a study, as lines of text."""

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.cost.study_cost import Bill, Item
from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import format_count, format_estimate
from scalewise.report.tables import number

ITEM_TEXT = {
    "bought": "bought {}",
    "measured": "{} expected, as similar runs took",
    "predicted": "{} predicted",
    "limited": "at most {}, by the time limit",
    "unknown": "not known yet",
}


def lines(bill: Bill, rate: Rate | None) -> list[str]:
    """Return a line for each run, and one for the whole study."""
    if bill.unknown == len(bill.items) and not bill.bought:
        return ["no cost estimate yet: run the smallest configuration first"]
    items = [f"  {item.run.title}: {_item(item, rate)}" for item in bill.items]
    return ["estimated cost, in device-hours:", *items, _sum(bill, rate)]


def _item(item: Item, rate: Rate | None) -> str:
    return ITEM_TEXT[item.basis].format(
        _amount(item.hours or Estimate(item.max_hours or 0.0), rate)
    )


def _sum(bill: Bill, rate: Rate | None) -> str:
    parts = [f"bought {_amount(Estimate(bill.bought), rate)}"]
    if bill.expected:
        parts.append(f"{_amount(bill.expected, rate)} expected to come")
    limited = [item for item in bill.missing if item.basis == "limited"]
    if limited and bill.max_hours is not None:
        parts.append(f"at most {_amount(Estimate(bill.max_hours), rate)} to come")
    if bill.unknown:
        hint = "measure two numbers of devices of a curve to predict the others"
        parts.append(f"{format_count(bill.unknown, 'run')} not known yet ({hint})")
    return f"total: {'; '.join(parts)}"


def _amount(hours: Estimate, rate: Rate | None) -> str:
    """Return device-hours with their interval, and what they cost."""
    amount = format_estimate(hours, number)
    if rate is None:
        return amount
    cost = format_estimate(hours * rate.per_device_hour, number)
    return f"{amount} for {cost} {rate.currency or ''}".rstrip()
