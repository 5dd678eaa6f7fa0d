"""Limit what a study costs, and print its receipt (device-hours and cost) when it ends."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewise.cli.output import say
from scalewise.errors import ScalewiseError

if TYPE_CHECKING:
    from scalewise.analysis.cost.rates import Rate
    from scalewise.spec import StudySpec


@contextmanager
def receipt_at_end(folder: Path, rate: "Rate | None") -> Iterator[None]:
    """On exit, print a receipt to stderr if device-hours were used; ignore errors in printing."""
    from scalewise.record.attempts import bought

    device_hours_before = math.inf  # If the folder cannot be read, print no receipt.
    with suppress(OSError):
        device_hours_before = bought(folder)
    try:
        yield
    finally:
        with suppress(Exception):
            device_hours = bought(folder)
            if device_hours > device_hours_before:
                from scalewise import results
                from scalewise.report.text import spending

                try:
                    lines = spending.receipt_lines(results.receipt(folder, price=rate))
                except ScalewiseError as problem:
                    lines = [spending.unreadable_receipt(device_hours, rate, problem)]
                say("\n".join(lines), err=True)


def parse_price(price: str | None) -> "Rate | None":
    """Return the rate per device-hour that ``--price`` sets; None if it is not set."""
    from scalewise.analysis.cost.rates import price_of

    return None if price is None else price_of(price)


def full_run_cost(spec: "StudySpec", folder: Path, rate: "Rate | None") -> list[str]:
    """Return lines about the cost of the study's full run; empty if it has none."""
    if spec.full_run is None:
        return []
    from scalewise.report.text.spending import full_run_lines
    from scalewise.results import for_full_run, measured_curves

    curves = [for_full_run(curve, spec) for curve in measured_curves(spec, folder)]
    return full_run_lines(curves, rate)


def stopping_rules(
    spec: "StudySpec",
    folder: Path,
    purposes: list[str] | None,
    max_cost: float | None,
    max_device_hours: float | None,
    rate: "Rate | None",
    *,
    again: bool,
) -> dict[str, Any]:
    """Return keyword arguments for ``study.run`` that limit the spending or the device count."""
    if not purposes and max_cost is None and max_device_hours is None:
        return {}
    from scalewise.analysis.advise import Purpose
    from scalewise.study.budget import SpendingLimit, StudyBudget
    from scalewise.study.stop_rule import PurposeRule

    limit = SpendingLimit.of(max_cost, max_device_hours, rate)
    purpose = Purpose.parse(purposes) if purposes else None
    study_folder = folder.absolute()
    return {
        "budget": StudyBudget(spec, study_folder, limit, again) if limit else None,
        "stop_rule": PurposeRule(spec, study_folder, purpose, rate) if purpose else None,
    }
