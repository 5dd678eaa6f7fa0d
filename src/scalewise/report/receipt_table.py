"""What a study has bought: a table for those who explain it, two lines for those who ran it."""

from collections.abc import Sequence

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain import CAUSES, LOSSES, Explanation, Receipt
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit
from scalewise.report.curve_table import NONE, Section, Table, number, percent

LEAST = 0.005
"""A cause that took a smaller share of what was bought is not named."""
SHOWN = 0.0005
"""A cause that took a smaller share everywhere has no column."""


def section(found: Sequence[Explanation], whole: Receipt) -> Section:
    """Return a row for each scale of each curve, and one for the study with all that failed."""
    rows = [
        (f"{_where(curve)}{point.devices}", point.receipt)
        for curve in found
        for point in curve.points
        if point.receipt
    ]
    rows.append(("study", whole))
    causes = [
        cause
        for cause in LOSSES
        if any(abs(each.share(each.lost.get(cause, 0.0))) >= SHOWN for _, each in rows)
    ]
    priced = whole.cost is not None
    money = f"cost {whole.currency or ''}".rstrip()
    header = ("devices", "runs", "bought", "useful", "share", *causes, *[money] * priced)
    table = Table(
        "Device-hours: bought, useful, and what the others were lost to",
        header,
        tuple(_row(name, each, causes, priced=priced) for name, each in rows),
    )
    return Section(f"{found[0].study}: receipt", tuple(lines(whole)), (table,), ())


def _where(curve: Explanation) -> str:
    return "".join(f"{key} {value}: " for key, value in curve.where.items())


def _row(name: str, found: Receipt, causes: Sequence[str], *, priced: bool) -> tuple[str, ...]:
    lost = [found.lost.get(cause, 0.0) for cause in causes]
    told = [number(each) if abs(found.share(each)) >= SHOWN else NONE for each in lost]
    whole = (number(found.bought), number(found.useful), percent(found.share(found.useful)))
    return (name, str(found.runs), *whole, *told, *[number(found.cost)] * priced)


def of_the_unreadable(hours: float, rate: Rate | None, problem: Exception) -> str:
    """Return what can be said of a study whose records tell nothing but their time."""
    found = Receipt(bought=hours).priced(rate)
    return f"{_bought(found)}; what of it was useful cannot be told: {problem}"


def _bought(found: Receipt) -> str:
    told = f"bought {number(found.bought)} device-hours"
    if found.energy is not None:
        unit = energy_unit(found.energy)
        told += f" and {number(found.energy / JOULES_PER_UNIT[unit])} {unit} or more"
    if found.cost is None:
        return told
    return f"{told} for {number(found.cost)} {found.currency or ''}".rstrip()


def lines(found: Receipt) -> list[str]:
    """Return a receipt in one to four sentences."""
    if not found.bought:
        return ["bought nothing yet"]
    told = [f"{_bought(found)}, {percent(found.share(found.useful))} useful"]
    shares = {cause: found.share(hours) for cause, hours in found.lost.items()}
    named = sorted((c for c in shares if shares[c] >= LEAST), key=lambda c: -shares[c])
    if named:
        told.append("lost: " + ", ".join(f"{cause} {percent(shares[cause])}" for cause in named))
    below = [cause for cause in shares if shares[cause] <= -LEAST]
    if gained := [cause for cause in below if cause in CAUSES]:
        better = ", ".join(f"{cause} {percent(-shares[cause])}" for cause in gained)
        told.append(f"gained over the baseline: {better}")
    if other := [cause for cause in below if cause not in CAUSES]:
        less = ", ".join(f"{cause} {percent(shares[cause])}" for cause in other)
        told.append(f"less than nothing lost: {less}")
    return told
