"""Small values for tests, complete as they are; each argument changes one thing."""

from dataclasses import fields
from typing import Any

from scalewise.spec import RunSpec, StudySpec

RIVALS = {"epochs": "steps", "samples": "steps", "global_batch": "batch"}
"""A default that has to go when the other one is given."""
STUDY = {each.name for each in fields(StudySpec)} - {"run"}


def run_values(**changes: Any) -> dict[str, Any]:
    """Return the plain values of a run on the fake machine: 1x1, batch 8, 20 steps."""
    values: dict[str, Any] = {"framework": "fake", "topology": "1x1", "batch": 8, "steps": 20}
    for rival in changes.keys() & RIVALS.keys():
        del values[RIVALS[rival]]
    return values | changes


def a_run(**changes: Any) -> RunSpec:
    """Return a run on the fake machine: 1x1, batch 8, 20 steps, and these changes."""
    return RunSpec.from_dict(run_values(**changes))


def a_study(**changes: Any) -> StudySpec:
    """Return a fake study of 1x1, 1x2, 1x4; what is no field of a study changes its runs."""
    topologies = list(changes.pop("topologies", ["1x1", "1x2", "1x4"]))
    whole = {name: changes.pop(name) for name in STUDY & changes.keys()}
    run = run_values(**changes)
    del run["topology"]
    vary = {"topology": topologies, **whole.pop("vary", {})}
    return StudySpec.from_dict({"name": "a study", "run": run, "vary": vary, **whole})
