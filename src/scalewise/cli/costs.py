"""Say what a study costs: when it ends, and before it begins."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer


@contextmanager
def receipt_at_end(folder: Path, price: float | None) -> Iterator[None]:
    """Tell on stderr what a study has bought, however it ends; of nothing new, nothing.

    A receipt is an extra: whatever is wrong with it, the study's own end is what counts.
    """
    from scalewise.record.spent import bought

    before = math.inf
    with suppress(OSError):
        before = bought(folder)
    try:
        yield
    finally:
        with suppress(Exception):
            hours = bought(folder)
            for line in _receipt(folder, hours, price) if hours > before else ():
                typer.echo(line, err=True)


def _receipt(folder: Path, hours: float, price: float | None) -> list[str]:
    from scalewise import collect
    from scalewise.errors import ScalewiseError
    from scalewise.report import receipt

    try:
        return receipt.lines(collect.receipt(folder, price=price))
    except ScalewiseError as problem:
        return [receipt.of_the_unreadable(hours, price, problem)]


def quote(question: Any, folder: Path, price: float | None) -> None:
    """Print the bill of a study, from what is known of it."""
    from scalewise.report import bill
    from scalewise.study.bill import bill_of

    for line in bill.lines(bill_of(question, folder), price):
        typer.echo(line)


def means(
    question: Any,
    folder: Path,
    purposes: list[str] | None,
    max_cost: float | None,
    max_device_hours: float | None,
    price: float | None,
    *,
    again: bool,
) -> dict[str, Any]:
    """Return who bounds a study: by what it may cost, and by what it is for."""
    if not purposes and max_cost is None and max_device_hours is None:
        return {}
    from scalewise.analysis.advise import Purpose
    from scalewise.study.paying import Paying
    from scalewise.study.purse import Limit, Purse

    limit = Limit.of(max_cost, max_device_hours, price)
    purpose = Purpose.parse(purposes) if purposes else None
    home = folder.absolute()
    return {
        "payer": Purse(question, home, limit, again) if limit else None,
        "paying": Paying(question, home, purpose, price) if purpose else None,
    }
