"""The receipt of a study: a table of device-hours for `explain`, lines of text for `run`."""

from collections.abc import Sequence

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain import CAUSES, LOSSES, Explanation, Receipt
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit
from scalewise.report.tables import NONE, Section, Table, number, percent

MIN_NAMED_SHARE = 0.005
"""Causes of a smaller share are not named in the text."""
MIN_SHOWN_SHARE = 0.0005
"""Causes of a smaller share in all rows have no column."""


def section(explained: Sequence[Explanation], study: Receipt) -> Section:
    """Return a row for each point of each curve, and one for the study with its failed runs."""
    rows = [
        (f"{_where(curve)}{point.devices}", point.receipt)
        for curve in explained
        for point in curve.points
        if point.receipt
    ]
    rows.append(("study", study))
    causes = [
        cause
        for cause in LOSSES
        if any(abs(row.share(row.lost.get(cause, 0.0))) >= MIN_SHOWN_SHARE for _, row in rows)
    ]
    priced = study.cost is not None
    money = f"cost {study.currency or ''}".rstrip()
    header = ("devices", "runs", "bought", "useful", "share", *causes, *[money] * priced)
    table = Table(
        "Device-hours: bought, useful, and what the others were lost to",
        header,
        tuple(_row(name, receipt, causes, priced=priced) for name, receipt in rows),
    )
    return Section(f"{explained[0].study}: receipt", tuple(lines(study)), (table,), ())


def _where(curve: Explanation) -> str:
    return "".join(f"{key} {value}: " for key, value in curve.where.items())


def _row(name: str, receipt: Receipt, causes: Sequence[str], *, priced: bool) -> tuple[str, ...]:
    lost = [receipt.lost.get(cause, 0.0) for cause in causes]
    cells = [
        number(hours) if abs(receipt.share(hours)) >= MIN_SHOWN_SHARE else NONE for hours in lost
    ]
    totals = (
        number(receipt.bought),
        number(receipt.useful),
        percent(receipt.share(receipt.useful)),
    )
    return (name, str(receipt.runs), *totals, *cells, *[number(receipt.cost)] * priced)


def unreadable_receipt(hours: float, rate: Rate | None, problem: Exception) -> str:
    """Return the line for a study whose records cannot be read: its hours and cost only."""
    receipt = Receipt(bought=hours).priced(rate)
    return f"{_bought(receipt)}; the useful share is unknown: {problem}"


def _bought(receipt: Receipt) -> str:
    text = f"bought {number(receipt.bought)} device-hours"
    if receipt.energy is not None:
        unit = energy_unit(receipt.energy)
        text += f" and {number(receipt.energy / JOULES_PER_UNIT[unit])} {unit} or more"
    if receipt.cost is None:
        return text
    return f"{text} for {number(receipt.cost)} {receipt.currency or ''}".rstrip()


def lines(receipt: Receipt) -> list[str]:
    """Return a receipt in one to four sentences."""
    if not receipt.bought:
        return ["no device-hours used yet"]
    text = [f"{_bought(receipt)}, {percent(receipt.share(receipt.useful))} useful"]
    shares = {cause: receipt.share(hours) for cause, hours in receipt.lost.items()}
    named = sorted((c for c in shares if shares[c] >= MIN_NAMED_SHARE), key=lambda c: -shares[c])
    if named:
        text.append("lost: " + ", ".join(f"{cause} {percent(shares[cause])}" for cause in named))
    below = [cause for cause in shares if shares[cause] <= -MIN_NAMED_SHARE]
    if gained := [cause for cause in below if cause in CAUSES]:
        better = ", ".join(f"{cause} {percent(-shares[cause])}" for cause in gained)
        text.append(f"gained over the baseline: {better}")
    if other := [cause for cause in below if cause not in CAUSES]:
        less = ", ".join(f"{cause} {percent(shares[cause])}" for cause in other)
        text.append(f"negative losses: {less}")
    return text
