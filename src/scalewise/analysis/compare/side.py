"""One side of a comparison: a curve, the values of each of its runs, and what they ran on."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalewise.analysis.compare.samples import Sample
from scalewise.analysis.explain.chain import Chain
from scalewise.analysis.explain.environment import environment_of
from scalewise.analysis.explain.lost_time import NOT_PART_OF_TRAINING
from scalewise.analysis.explain.receipt import LOSS_OF_SPAN
from scalewise.analysis.explain.run_view import RunView
from scalewise.analysis.measure import Doubt, Estimate, Point, ScalingCurve
from scalewise.analysis.measure.energy import NodeSamples
from scalewise.analysis.measure.run_values import measure_run
from scalewise.record.read import RunRecord
from scalewise.spec import StudySpec

SPEED_METRICS = ("throughput", "time")
"""Metrics that decide the verdict."""
METRICS = (*SPEED_METRICS, "memory", "energy", "accuracy", "loss")
"""What is compared; a table has the first two, and energy."""
Size = tuple[int, int | None]
"""Devices, and nodes if they are known."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What is compared of one run."""

    size: Size
    values: Mapping[str, float]
    """By metric of METRICS; unknown ones are missing."""
    chain: Chain | None
    """Seconds of a step by cause; None if the phases of a step were not recorded."""
    steps: int
    parts: Mapping[str, float]
    """Seconds of the complete job outside training steps by cause: start-up, validation …"""
    launch: float | None = None
    """Seconds from the launcher's start to that of the ranks; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """A curve with the values of its runs. A table has no runs."""

    source: str
    """The folder or file, as the user wrote it."""
    curve: ScalingCurve
    runs: tuple[RunFigures, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the study, by name; empty for a table."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """What the runs ran on, by name; values of several runs are joined."""
    started: float | None = None
    """When the first run started, in seconds of the wall clock."""

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        return self.curve.doubts

    def runs_at(self, point: Point) -> list[RunFigures]:
        """Return the runs in which a point was measured."""
        return [run for run in self.runs if run.size == (point.devices, point.nodes)]

    def estimate(self, metric: str, point: Point) -> Estimate | None:
        """Return the value of a metric at a point."""
        if metric != "loss":
            estimate: Estimate | None = getattr(point, metric)
            return estimate
        losses = [run.values.get("loss") for run in self.runs_at(point)]
        known = [loss for loss in losses if loss is not None]
        return Estimate.of(known) if known and len(known) == len(losses) else None

    def sample(self, metric: str, point: Point) -> Sample | None:
        """Return the repeats of a metric at a point, as logarithms; None if it is unknown."""
        if runs := self.runs_at(point):
            values = [run.values.get(metric) for run in runs]
            known = [value for value in values if value]
            return Sample.of_logarithms(known) if len(known) == len(values) else None
        estimate = self.estimate(metric, point)
        return Sample.of_estimate(estimate) if estimate and estimate.value > 0 else None


def side_of_study(
    source: str,
    study: StudySpec,
    curve: ScalingCurve,
    records: Sequence[RunRecord],
    nodes: NodeSamples,
) -> Side:
    """Return a side from the records of a curve's runs."""
    return Side(
        source=source,
        curve=curve,
        runs=tuple(run_figures(record, nodes) for record in records),
        settings=_settings(study, records),
        environment=_environment(records),
        started=min((record.started for record in records), default=None),
    )


def run_figures(record: RunRecord, nodes: NodeSamples) -> RunFigures:
    """Return what is compared of one run."""
    point, notes = measure_run(record, nodes), record.ranks[0].notes
    estimates = {name: getattr(point, name) for name in METRICS if name != "loss"}
    values = {name: estimate.value for name, estimate in estimates.items() if estimate}
    values["loss"] = notes.validation.loss if notes.validation else notes.loss
    parts: dict[str, float] = {}
    for name, part in point.complete.items():
        cause = LOSS_OF_SPAN.get(name)
        if cause and cause not in NOT_PART_OF_TRAINING:
            parts[cause] = parts.get(cause, 0.0) + part.value
    return RunFigures(
        size=(point.devices, point.nodes),
        values={name: v for name, v in values.items() if v is not None and 0 < v < math.inf},
        chain=RunView.of(record).chain,
        steps=point.steps or 0,
        parts=parts,
        launch=launch.value if (launch := point.complete.get("launch")) else None,
    )


def _settings(study: StudySpec, records: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the settings of the runs, also those by default, and of their study."""
    values: dict[str, list[Any]] = {}
    for record in records:
        run = record.spec.to_dict()
        run["program"] = " ".join(run["program"] or ()) or None
        run["contents of the program"] = run.pop("digest")
        for name in ("topology", "repeat", "launcher"):  # Sizes and repeats are shown elsewhere.
            del run[name]
        for name, value in _flattened(run).items():
            values.setdefault(name, []).append(value)
    settings = {name: joined(items) for name, items in values.items()}
    study_values = {name: getattr(study, name) for name in ("scaling", "full_run", "launcher")}
    return settings | {name: joined([value]) for name, value in _flattened(study_values).items()}


def _flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of tables beside the other values: ``options.KEY``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": item for key, item in value.items()}
        else:
            flat[name] = value
    return flat


def _environment(records: Sequence[RunRecord]) -> dict[str, Any]:
    """Return what runs ran on; several values of one name are joined, in order: it does not matter
    which host has rank 0.
    """
    environment = environment_of(records)
    if environment is None:
        return {}
    variables = {
        name: values
        for name, values in environment.variables.items()
        if not name.startswith("SLURM_JOB")  # Another job always has another number.
    }
    facts = {**environment.facts, **variables}
    return {name: joined(sorted(values)) for name, values in facts.items()}


def joined(values: Iterable[Any]) -> str | None:
    """Return the different values as one text; None if all are unknown.

    >>> joined(["a", None, "a", 2])
    'a; 2'
    """
    known = dict.fromkeys(str(value) for value in values if value is not None)
    return "; ".join(known) or None
