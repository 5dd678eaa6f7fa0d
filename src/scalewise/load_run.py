"""Load a finished run with all that was computed from its steps; from its cache, if it has one."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewise.analysis.explain import rank_times, receipt, step_costs, utilisation
from scalewise.analysis.explain.guards import guard
from scalewise.analysis.measure import (
    cached_value,
    energy,
    host_load,
    ledger,
    metrics,
    run_values,
    window,
)
from scalewise.record.node_samples import node_problem
from scalewise.record.read import RunRecord, read_run
from scalewise.record.run_cache import (
    RunCache,
    read_cache,
    read_made_from,
    without_steps,
    write_cache,
)
from scalewise.record.study_files import finished, read_study
from scalewise.spec import RunSpec

CACHED_FROM = (
    window, ledger, metrics, energy, host_load, run_values,
    step_costs, rank_times, receipt, utilisation, guard,
)  # fmt: skip
"""The modules with cached values: imported here, so that every cache has all of them."""


NODE_PROBLEM = "node problem"
"""The name of a record's value that says why the samples of its machines cannot be read."""


def load_run(folder: Path, spec: RunSpec) -> RunRecord:
    """Return the record of a finished run, without its steps: they are read again when they are
    first used, and then stay in memory with the record.
    """
    if (cached := read_cache(folder, spec)) and (values := _values(cached)):
        record = cached.record
    else:
        complete = read_run(folder, spec)
        record, values = without_steps(complete), cached_value.compute_values(complete)
        if problem := node_problem(complete):
            values[NODE_PROBLEM] = problem
    record.values.update(values)
    return record


def cache_runs(folder: Path) -> None:
    """Write ``cache.json`` for each finished run of a study that has none that fits. It only saves
    time, so nothing fails if it cannot be written.
    """
    # A study that ran well must not end in a traceback because of a cache, whatever is wrong: the
    # verb that needs the values computes them again, and shows the error.
    with suppress(Exception):
        for run in read_study(folder).runs():
            with suppress(Exception):
                _cache_run(folder / run.id, run)


def _cache_run(folder: Path, spec: RunSpec) -> None:
    if finished(folder) and not read_cache(folder, spec):
        made_from = read_made_from(folder, spec)
        record = read_run(folder, spec)
        if node_problem(record):
            return  # Answers that have no cache say so.
        values = cached_value.to_json(cached_value.compute_values(record))
        write_cache(record, values, made_from)


def _values(cached: RunCache) -> dict[str, Any]:
    """Return the values of a cache; empty if they are damaged."""
    try:
        return cached_value.from_json(cached.values)
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
