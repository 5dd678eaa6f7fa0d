"""The bill of a study, spent and expected, from what its folder holds so far."""

from collections.abc import Collection
from pathlib import Path

from scalewise.analysis.cost.study_cost import Bill, bill_items
from scalewise.record.attempts import attempts, bought
from scalewise.record.study_files import finished
from scalewise.results import measured_curves
from scalewise.spec import RunSpec, StudySpec
from scalewise.study.jobs import make_launcher


def load_bill(
    study: StudySpec, folder: Path, absent: Collection[RunSpec] = (), *, again: bool = False
) -> Bill:
    """Return the bill of a study, without the runs whose framework is missing.

    ``again``: finished runs will be repeated, so every run is still to be paid.
    """
    launcher = make_launcher(study)
    runs = [run for run in study.runs() if run not in absent]
    paid = {
        run.id: sum(attempt.device_hours for attempt in attempts(folder / run.id))
        for run in runs
        if finished(folder / run.id) and not again
    }
    missing = [run for run in runs if run.id not in paid]
    items = bill_items(
        study,
        runs,
        measured_curves(study, folder),
        paid,
        lambda run: launcher.max_device_hours([run]),
        lambda run: launcher.billed_devices(run, missing),
    )
    bounds = [item.max_hours for item in items if item.max_hours is not None]
    total = [sum(bounds)] if len(bounds) == len(missing) else []
    limit = launcher.max_device_hours(missing)
    return Bill(
        items=tuple(items),
        bought=bought(folder),
        max_hours=min([*total, *([] if limit is None else [limit])], default=None),
    )
