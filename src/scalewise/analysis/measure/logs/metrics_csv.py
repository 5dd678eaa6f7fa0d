"""CSV logs with a row per step or epoch: Lightning's ``metrics.csv``, Keras' CSVLogger."""

import csv
import io

from scalewise.analysis.measure.logs.log import Log
from scalewise.analysis.measure.logs.tag_names import tag_meaning

COUNTERS = {"epoch", "step", "iteration", "iter", "global_step"}
"""Columns, of which a CSV log has one."""


def is_metrics_csv(text: str) -> bool:
    """Say whether the first line of a text names an epoch or a step beside other columns."""
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    try:
        titles = [title.strip().lower() for title in next(rows, [])]
    except csv.Error:
        return False
    return len(titles) > 1 and bool(COUNTERS & set(titles))


def read_metrics_csv(text: str) -> Log:
    """Return the numbers of the columns that are rates or times."""
    log = Log(format="CSV log")
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    titles = [title.strip() for title in next(rows)]
    meanings = {index: m for index, title in enumerate(titles) if (m := tag_meaning(title))}
    lower = [title.lower() for title in titles]
    epoch_column = lower.index("epoch") if "epoch" in lower else None
    try:
        for row in rows:
            for index, meaning in meanings.items():
                cell = row[index].strip() if index < len(row) else ""
                value = _number(cell)
                if value is None:
                    continue
                epoch = row[epoch_column : epoch_column + 1] if epoch_column is not None else []
                source = f'the column "{titles[index]}"'
                log.add(meaning.observation(value, source, rows.line_num, *epoch))
    except csv.Error:  # A cell that is too long: the rows before it count.
        pass
    return log


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
