"""Say what a study costs: when it ends, and before it begins."""

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewise.cli.output import say

if TYPE_CHECKING:
    from scalewise.analysis.cost.rates import Rate
    from scalewise.spec import RunSpec


@contextmanager
def receipt_at_end(folder: Path, rate: "Rate | None") -> Iterator[None]:
    """Tell on stderr what a study has bought, however it ends; of nothing new, nothing.

    A receipt is an extra: whatever is wrong with it, the study's own end is what counts.
    """
    from scalewise.record.attempts import bought

    before = math.inf
    with suppress(OSError):
        before = bought(folder)
    try:
        yield
    finally:
        with suppress(Exception):
            hours = bought(folder)
            for line in _receipt(folder, hours, rate) if hours > before else ():
                say(line, err=True)


def _receipt(folder: Path, hours: float, rate: "Rate | None") -> list[str]:
    from scalewise import results
    from scalewise.errors import ScalewiseError
    from scalewise.report import receipt_table

    try:
        return receipt_table.lines(results.receipt(folder, price=rate))
    except ScalewiseError as problem:
        return [receipt_table.of_the_unreadable(hours, rate, problem)]


def rate_of(price: str | None) -> "Rate | None":
    """Read a price, where one is given."""
    from scalewise.analysis.cost.rates import price_of

    return None if price is None else price_of(price)


def quote(question: Any, folder: Path, absent: "Collection[RunSpec]", rate: "Rate | None") -> None:
    """Print the bill of a study, from what is known of it."""
    from scalewise.report import cost_estimate
    from scalewise.study.cost_estimate import bill_of

    for line in cost_estimate.lines(bill_of(question, folder, absent), rate):
        say(line)


def means(
    question: Any,
    folder: Path,
    purposes: list[str] | None,
    max_cost: float | None,
    max_device_hours: float | None,
    rate: "Rate | None",
    *,
    again: bool,
) -> dict[str, Any]:
    """Return who bounds a study: by what it may cost, and by what it is for."""
    if not purposes and max_cost is None and max_device_hours is None:
        return {}
    from scalewise.analysis.advise import Purpose
    from scalewise.study.spending_limit import Limit, Purse
    from scalewise.study.stop_rule import Paying

    limit = Limit.of(max_cost, max_device_hours, rate)
    purpose = Purpose.parse(purposes) if purposes else None
    home = folder.absolute()
    return {
        "payer": Purse(question, home, limit, again) if limit else None,
        "paying": Paying(question, home, purpose, rate) if purpose else None,
    }
