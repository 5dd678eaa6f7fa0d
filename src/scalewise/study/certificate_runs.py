"""Plan and run the short runs of a certificate: references on one device, and candidates."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalewise.errors import SpecError, parameter, shown
from scalewise.record.certificate_files import FOLDER, PlannedComparison, write_comparisons
from scalewise.spec import RunSpec, StudySpec, Topology
from scalewise.spec.run import Precision
from scalewise.spec.strategy_traits import default_strategy
from scalewise.spec.topology import Parallelism
from scalewise.study.notices import Watcher
from scalewise.study.run_study import run

DEFAULT_STEPS = 24
"""Steps of each short run: sketches are made in the first three and in a few later ones."""
FRAMEWORK = "torch"
"""The framework whose workers can sketch gradients."""
BATCH_PLACEHOLDER = "{batch}"
SPLIT_FIELDS = (
    "topology", "batch", "strategy", "parallelism", "pipeline_schedule", "micro_batches",
    "accumulate", "precision", "compile", "recompute", "threads", "workers", "device", "backend",
    "start", "optimizer_step", "sync_batchnorm", "options", "repeat",
)  # fmt: skip
"""Settings that must not change what is learned: runs that differ only in these are compared."""


@dataclass(frozen=True)
class CertificatePlan:
    """The short runs of a certificate, and which of them are compared."""

    study: StudySpec
    comparisons: tuple[PlannedComparison, ...]


def plan_certificate(
    study: StudySpec, *, steps: int = DEFAULT_STEPS, global_batch: int | None = None
) -> CertificatePlan:
    """Return the short runs that compare each run of a study with one device, at equal global
    batch. ``global_batch`` is for programs: ``{batch}`` in their arguments becomes the batch of one
    device.
    """
    runs = [run for run in study.runs() if run.repeat == 0 and run.framework == FRAMEWORK]
    if not runs:
        raise SpecError(
            f"a certificate needs a run with framework {shown(FRAMEWORK)}, and this study has none",
            hint="sketches of gradients are made in PyTorch only",
        )
    _check_placeholder(runs, global_batch)
    short_runs: dict[str, RunSpec] = {}
    comparisons: dict[str, PlannedComparison] = {}
    for group in _groups(study, runs):
        size = global_batch if group[0].program else _common_batch(group)
        first_precision = group[0].precision
        for candidate in group:
            reference = _reference(group, candidate.precision)
            first = _short(_reference(group, first_precision), size, steps)
            short, usual = _short(candidate, size, steps), _short(reference, size, steps)
            where = study.where(candidate)
            pairs = [(short, usual, where)]
            if candidate.precision != first_precision:
                pairs.append((usual, first, {"precision": candidate.precision}))
            for compared, base, settings in pairs:
                backwards = replace(base, certify_order="reversed")
                for spec in (base, backwards, compared):
                    short_runs.setdefault(spec.id, spec)
                if compared.id != base.id:
                    planned = PlannedComparison(compared.id, base.id, backwards.id, settings)
                    comparisons.setdefault(compared.id, planned)
    if not comparisons:
        hint = f"give more devices, for example {parameter('on', '1,2')}"
        raise SpecError("there is nothing to compare with one device", hint=hint)
    return CertificatePlan(_as_study(study, [*short_runs.values()]), tuple(comparisons.values()))


def run_certificate(
    plan: CertificatePlan, folder: Path, watcher: Watcher, *, again: bool = False
) -> Path:
    """Start the missing short runs in ``folder/certificate``; return that folder."""
    home = folder / FOLDER
    write_comparisons(home, plan.comparisons)
    run(plan.study, home, watcher, again=again)
    return home


def _check_placeholder(runs: Sequence[RunSpec], global_batch: int | None) -> None:
    """Refuse a global batch without a place for it, and the place without a global batch."""
    programs = [run.program for run in runs if run.program]
    has_place = any(BATCH_PLACEHOLDER in arg for program in programs for arg in program)
    if has_place == (global_batch is not None):
        return
    example = f"-- train.py --batch-size {BATCH_PLACEHOLDER}"
    problem = f"{BATCH_PLACEHOLDER} needs {parameter('global_batch')}"
    if not has_place:
        problem = f"{parameter('global_batch')} needs {BATCH_PLACEHOLDER} in the arguments"
    raise SpecError(problem, hint=f"for example {parameter('global_batch', 64)} {example}")


def _groups(study: StudySpec, runs: Sequence[RunSpec]) -> list[list[RunSpec]]:
    """Return runs that train the same, in groups; the smallest first."""
    varies_options = any(axis.partition(".")[0] == "options" for axis in study.vary)
    groups: dict[str, list[RunSpec]] = {}
    for spec in runs:
        values = spec.changed_values()
        kept = {key: values[key] for key in values if key not in SPLIT_FIELDS}
        if varies_options:
            kept["options"] = dict(spec.options)
        if "global_batch" in study.vary:
            kept["global_batch"] = spec.global_batch
        groups.setdefault(json.dumps(kept, sort_keys=True), []).append(spec)
    return list(groups.values())


def _common_batch(runs: Sequence[RunSpec]) -> int:
    """Return a global batch that all runs can divide: the smallest of theirs, or a little more."""
    parts = math.lcm(*(run.replicas * run.accumulate for run in runs))
    smallest = min(run.global_batch for run in runs)
    return math.ceil(smallest / parts) * parts


def _reference(group: Sequence[RunSpec], precision: Precision) -> RunSpec:
    """Return the run of a group on one device, without anything that splits the work."""
    first = min(group, key=lambda run: run.strategy != default_strategy(run.framework))
    topology = Topology(1, 1)
    if first.program:
        return replace(first, topology=topology)
    return replace(
        first, topology=topology, precision=precision, parallelism=Parallelism(),
        pipeline_schedule="1f1b", micro_batches=None, accumulate=1, compile=False,
        recompute="none", sync_batchnorm=False,
    )  # fmt: skip


def _short(spec: RunSpec, global_batch: int | None, steps: int) -> RunSpec:
    """Return a run in certificate mode, of so many steps and this global batch."""
    changes: dict[str, Any] = {"certify": True}
    if spec.program:
        program = spec.program
        if global_batch:
            program = _with_batch(program, global_batch, spec.topology.world)
        changes |= {"stop_after": steps, "trace": 0, "loaders_alone": False, "program": program}
    else:
        assert global_batch is not None
        changes |= {
            "steps": steps, "epochs": None, "samples": None, "save": False,
            "batch": global_batch // (spec.replicas * spec.accumulate), "checkpoint_every": None,
            "resume": None, "noise_every": 0,
        }  # fmt: skip
    return replace(spec, **changes)


def _with_batch(program: Sequence[str], global_batch: int, devices: int) -> tuple[str, ...]:
    batch, remainder = divmod(global_batch, devices)
    if remainder or not batch:
        hint = f"for example {parameter('global_batch', max(batch, 1) * devices)}"
        raise SpecError(
            f"a global batch of {global_batch} does not divide over {devices} devices", hint=hint
        )
    return tuple(arg.replace(BATCH_PLACEHOLDER, str(batch)) for arg in program)


def _as_study(study: StudySpec, runs: Sequence[RunSpec]) -> StudySpec:
    """Return a study of exactly these runs, with the name and the launcher of ``study``."""
    cases = []
    for spec in runs:
        case = spec.changed_values()
        for name in ("launcher", "repeat"):  # The study sets these.
            case.pop(name, None)
        if spec.program:
            case["program"] = list(spec.program)
        else:
            case["global_batch"] = spec.global_batch
            del case["batch"]
        cases.append(case)
    return StudySpec.from_dict(
        {
            "name": study.name, "run": {}, "cases": cases, "launcher": study.launcher,
            "engines": study.engines,
        }
    )  # fmt: skip
