"""What a study will cost, in lines for people."""

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.cost.study_cost import Bill, Item
from scalewise.analysis.measure import Estimate
from scalewise.analysis.number_format import format_count, format_estimate
from scalewise.report.curve_table import number

SAYS = {
    "bought": "bought {}",
    "measured": "{} expected, as others like it took",
    "predicted": "{} predicted",
    "limited": "at most {}, by the time limit",
    "unknown": "not known yet",
}


def lines(found: Bill, rate: Rate | None) -> list[str]:
    """Return a line for each run of which something is known, and one for all."""
    if found.unknown == len(found.items) and not found.bought:
        return ["the bill is not known before the first run; the smallest one tells"]
    told = ["the bill, in device-hours:"]
    told += [f"  {item.run.title}: {_item(item, rate)}" for item in found.items]
    return [*told, _whole(found, rate)]


def _item(item: Item, rate: Rate | None) -> str:
    return SAYS[item.basis].format(_amount(item.hours or Estimate(item.max_hours or 0.0), rate))


def _whole(found: Bill, rate: Rate | None) -> str:
    parts = [f"bought {_amount(Estimate(found.bought), rate)}"]
    if found.expected:
        parts.append(f"{_amount(found.expected, rate)} expected to come")
    limited = [item for item in found.missing if item.basis == "limited"]
    if limited and found.max_hours is not None:
        parts.append(f"at most {_amount(Estimate(found.max_hours), rate)} to come")
    if found.unknown:
        two = "two measured numbers of devices of a curve tell the others"
        parts.append(f"{format_count(found.unknown, 'run')} not known yet ({two})")
    return f"in all: {'; '.join(parts)}"


def _amount(hours: Estimate, rate: Rate | None) -> str:
    """Return device-hours with their interval, and what they cost."""
    told = format_estimate(hours, number)
    if rate is None:
        return told
    cost = format_estimate(hours * rate.per_device_hour, number)
    return f"{told} for {cost} {rate.currency or ''}".rstrip()
