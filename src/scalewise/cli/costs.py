"""Say what a study costs: when it ends, and before it begins."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import typer


@contextmanager
def receipt_at_end(folder: Path, price: float | None) -> Iterator[None]:
    """Tell on stderr what a study has bought, however it ends; of nothing new, nothing.

    A receipt is an extra: whatever is wrong with it, the study's own end is what counts.
    """
    from scalewise.record.spent import bought

    before = bought(folder)
    try:
        yield
    finally:
        with suppress(Exception):
            if bought(folder) > before:
                for line in _receipt(folder, price):
                    typer.echo(line, err=True)


def _receipt(folder: Path, price: float | None) -> list[str]:
    from scalewise import collect
    from scalewise.errors import ScalewiseError
    from scalewise.report import receipt

    try:
        return receipt.lines(collect.receipt(folder, price=price))
    except ScalewiseError as unreadable:
        return [f"what was bought cannot be told: {unreadable}"]
