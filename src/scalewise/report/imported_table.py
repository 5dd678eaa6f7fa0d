"""Imported logs as a CSV table that every verb reads, with comments that say where it is from."""

import csv
import io
from collections import Counter
from collections.abc import Callable

from scalewise.analysis.measure import Estimate
from scalewise.analysis.measure.energy import JOULES_PER_UNIT
from scalewise.analysis.measure.logs import LogRun
from scalewise.analysis.measure.table_reading import IMPORTED
from scalewise.import_logs import ImportedLogs
from scalewise.report.escape import escape_csv, printable
from scalewise.report.text.imported import imported_lines

KWH = 1 / JOULES_PER_UNIT["kWh"]
RELATIVE = "× baseline"
"""The unit of throughputs that are only known relative to the baseline."""
Cell = Callable[[LogRun, bool], str]


def imported_csv(logs: ImportedLogs) -> str:
    """Return the table: one row per run; runs on the same number of devices are repeats."""
    units = list(dict.fromkeys(run.unit for run in logs.runs if run.unit))
    unit = max(units, key=lambda unit: unit != "samples", default=None)
    rate = "throughput" if unit is None else "speedup" if unit == RELATIVE else f"{unit}/s"
    columns: dict[str, Cell] = {
        "devices": lambda run, _: _size(run),
        rate: lambda run, alone: _cell(run.throughput, alone),
        "epoch time (s)": lambda run, alone: _cell(run.epoch_time, alone),
        "time (s)": lambda run, alone: _cell(run.time, alone),
        "samples": lambda run, _: repr(run.samples) if run.samples else "",
        "energy (kWh)": lambda run, alone: _cell(run.energy and run.energy * KWH, alone),
        "global batch": lambda run, _: str(run.global_batch or ""),
        "run": lambda run, _: run.name,
    }
    repeats = Counter((run.devices, run.nodes) for run in logs.runs)
    rows = [
        {title: cell(run, repeats[run.devices, run.nodes] == 1) for title, cell in columns.items()}
        for run in logs.runs
    ]
    titles = [title for title in columns if any(row[title] for row in rows)]
    text = io.StringIO()
    for line in imported_lines(logs):
        text.write(f"{IMPORTED}{printable(line)}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(titles)
    writer.writerows([escape_csv(row[title]) for title in titles] for row in rows)
    return text.getvalue()


def _size(run: LogRun) -> str:
    """Return the number of devices, as ``2x4`` if that of nodes is known."""
    if run.nodes and run.devices % run.nodes == 0:
        return f"{run.nodes}x{run.devices // run.nodes}"
    return str(run.devices)


def _cell(estimate: Estimate | None, alone: bool) -> str:
    """Return a number; with its interval, unless repeats will give one."""
    if estimate is None:
        return ""
    if not alone or estimate.low is None or estimate.high is None:
        return repr(estimate.value)
    return f"{estimate.value!r} [{estimate.low!r}, {estimate.high!r}]"
