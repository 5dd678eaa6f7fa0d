"""What a study will cost, in lines for people."""

from scalewise.analysis.advise.bill import Bill, Item
from scalewise.analysis.measure import Estimate
from scalewise.report.table import counted, number

SAYS = {
    "bought": "bought {}",
    "measured": "{} expected, as others like it took",
    "predicted": "{} predicted",
    "limited": "at most {}, by the time limit",
    "unknown": "not known yet",
}


def lines(found: Bill, price: float | None) -> list[str]:
    """Return a line for each run of which something is known, and one for all."""
    if found.unknown == len(found.items) and not found.bought:
        return ["the bill is not known before the first run; the smallest one tells"]
    told = ["the bill, in device-hours:"]
    told += [f"  {item.run.title}: {_item(item, price)}" for item in found.items]
    return [*told, _whole(found, price)]


def _item(item: Item, price: float | None) -> str:
    return SAYS[item.how].format(_amount(item.hours or Estimate(item.most or 0.0), price))


def _whole(found: Bill, price: float | None) -> str:
    parts = [f"bought {_amount(Estimate(found.bought), price)}"]
    if found.expected:
        parts.append(f"{_amount(found.expected, price)} expected to come")
    limited = [item for item in found.missing if item.how == "limited"]
    if limited and found.most is not None:
        parts.append(f"at most {_amount(Estimate(found.most), price)} to come")
    if found.unknown:
        two = "two measured numbers of devices of a curve tell the others"
        parts.append(f"{counted(found.unknown, 'run')} not known yet ({two})")
    return f"in all: {'; '.join(parts)}"


def _amount(hours: Estimate, price: float | None) -> str:
    """Return device-hours with their interval, and what they cost."""
    told = _range(hours)
    return told if price is None else f"{told} for {_range(hours * price)}"


def _range(found: Estimate) -> str:
    if found.low is None or found.high is None or found.low == found.high:
        return number(found.value)
    return f"{number(found.value)} [{number(found.low)}, {number(found.high)}]"
