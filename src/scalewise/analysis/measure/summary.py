"""Scaling curves from the records of a study: the repeats of one topology become a point."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import inf, isfinite
from typing import Any

from scalewise.analysis.measure.acceleration import compare_device_kinds, compare_to_other_devices
from scalewise.analysis.measure.curve import (
    Rehearsal,
    ScalingCurve,
    compare,
    find_differences,
    observed_scaling,
)
from scalewise.analysis.measure.doubt import UNKNOWN_ERROR, Doubt
from scalewise.analysis.measure.energy import NodeSamples
from scalewise.analysis.measure.host_load import host_trouble, overload_doubts
from scalewise.analysis.measure.metrics import Repeats, host_count
from scalewise.analysis.measure.point import Point, measure_point
from scalewise.analysis.measure.window import MAX_DRIFT, MIN_STEADY_STEPS, lifetime_parts
from scalewise.errors import NotEnoughData
from scalewise.record.batch_sharing import identifying_digests
from scalewise.record.read import RunRecord
from scalewise.record.schema import EARLIER
from scalewise.spec import StudySpec

MAX_START_SHARE = 0.25
"""With a larger share of start-up in the time of the baseline, the runs are rehearsals."""
WHOLE_PROGRAM = "the whole program"


def scaling_curves(
    study: StudySpec, records: Iterable[RunRecord], nodes: NodeSamples | None = None
) -> list[ScalingCurve]:
    """Return the study's curves; ``nodes`` are node samples by run folder, needed for energy."""
    by_curve: dict[str, list[RunRecord]] = {}
    for record in records:  # As text, because 1 == True == 1.0 would mix curves.
        by_curve.setdefault(repr(study.where(record.spec)), []).append(record)
    if not by_curve:
        raise NotEnoughData(
            f"{study.name} has no finished run", hint="`scalewise run` starts what is missing"
        )
    curves = [_curve(study, runs, nodes or {}) for runs in by_curve.values()]
    return compare_device_kinds(study, curves)


def _curve(study: StudySpec, records: Sequence[RunRecord], nodes: NodeSamples) -> ScalingCurve:
    def size(record: RunRecord) -> tuple[int, int]:
        return record.spec.topology.world, record.spec.topology.nodes

    ordered = sorted(records, key=size)
    points = [_point(Repeats(list(runs), nodes)) for _, runs in groupby(ordered, key=size)]
    first = ordered[0]
    doubts = _environment_doubts(records)
    smallest = min(run.topology.world for run in study.runs())
    if points[0].devices > smallest:
        doubts.append(Doubt("baseline missing", {"missing": smallest, "used": points[0].devices}))
    # How many devices a full node has is known only if several nodes were used.
    node_sizes = [run.spec.topology.devices for run in ordered if run.spec.topology.nodes > 1]
    curve = ScalingCurve(
        study=study.name,
        points=tuple(points),
        where=study.where(first.spec),
        scaling=study.scaling or observed_scaling(points),
        work=_work_text(ordered),
        samples_per_epoch=samples_per_epoch(first),
        rehearsal=_find_rehearsal(ordered, points),
        conditions=_conditions(study, first),
        unit=first.ranks[0].outline.unit,
        devices_per_node=max(node_sizes, default=None),
        warnings=tuple(doubts),
    )
    return compare_to_other_devices(compare(curve))


def _work_text(records: Sequence[RunRecord]) -> str:
    """Return a text about the total work of each run, such as ``3 epochs over the same data``."""
    spec = records[0].spec
    if spec.program:
        limit = spec.stop_after or inf
        ended_early = [record.ranks[0].outline.steps < limit for record in records]
        if all(ended_early):  # Each program ended before it would have been stopped.
            return WHOLE_PROGRAM
        at_most = "at most " if any(ended_early) else ""
        return f"{at_most}{spec.stop_after} steps of the program"
    if spec.epochs:
        return f"{spec.epochs} epoch{'s' if spec.epochs > 1 else ''} over the same data"
    if spec.samples:
        return f"{spec.samples:,} samples per device"
    return f"{spec.steps} steps"


def _find_rehearsal(records: Sequence[RunRecord], points: Sequence[Point]) -> Rehearsal | None:
    """Return what the runs did, if programs were stopped early or the baseline mostly started."""
    work, share = _work_text(records), points[0].start_share
    stopped = bool(records[0].spec.program) and work != WHOLE_PROGRAM
    return Rehearsal(work, share) if stopped or (share or 0.0) > MAX_START_SHARE else None


def samples_per_epoch(record: RunRecord) -> int | None:
    """Return the samples of all ranks in an epoch; None if unknown."""
    if record.spec.program:
        return program_epoch_samples(record)
    outline = record.ranks[0].outline
    if outline.epochs is None:
        return outline.samples
    return sum(rank.outline.seen for rank in record.ranks)


def program_epoch_samples(record: RunRecord) -> int | None:
    """Return the samples of an epoch of all ranks' loaders; samples that ranks share count once."""
    facts = [rank.notes.facts for rank in record.ranks]
    digests = [identifying_digests(rank_facts) for rank_facts in facts]
    total = 0.0
    for rank_facts, rank_digests in zip(facts, digests):
        if rank_facts.epoch_samples is None or record.spec.samples_per_step:
            return None  # Samples that the user states need not be those that a loader counts.
        readers = 1 if rank_digests is None else digests.count(rank_digests)
        total += rank_facts.epoch_samples / readers
    return round(total) or None


def _conditions(study: StudySpec, record: RunRecord) -> dict[str, Any]:
    """Return the settings that must be equal in two comparable curves."""
    spec, device = record.spec, record.ranks[0].notes.device
    if spec.program:
        return {"program": " ".join(spec.program), "threads": spec.threads, "device": device}
    batch = "batch" if study.scaling == "weak" else "global_batch"  # The setting that is constant.
    names = (batch, "workload", "data", "precision", "compile", "accumulate", "threads", "workers")
    return {**{name: getattr(spec, name) for name in names}, "device": device}


def _point(repeats: Repeats) -> Point:
    spec = repeats.spec
    if not all(window.samples > 0 for window in repeats.windows):
        if not spec.program:
            raise NotEnoughData(
                f"no file of {spec.data} can be read, so no sample was counted",
                hint="`scalewise data check` names each file and what is wrong with it",
            )
        raise NotEnoughData(
            f"the batch size of {spec.program[0]} could not be observed",
            hint="give `samples_per_step`, the samples that one rank takes per step",
        )
    return measure_point(repeats, tuple(_doubts(repeats)))


def _doubts(repeats: Repeats) -> Iterator[Doubt]:
    records = repeats.records
    steady_steps = min(window.steps for window in repeats.windows)
    if steady_steps < MIN_STEADY_STEPS:
        yield Doubt("few steps", {"count": steady_steps}, error=UNKNOWN_ERROR)
    elif repeats.outline.steps < MIN_STEADY_STEPS:
        yield Doubt("few batches", {"count": repeats.outline.steps})
    drift = max((window.drift for window in repeats.windows), key=abs)
    if abs(drift) > MAX_DRIFT:
        yield Doubt("not steady", {"drift": drift}, error=abs(drift))
    nodes, hosts = repeats.spec.topology.nodes, host_count(repeats)
    if hosts < nodes:
        yield Doubt("rehearsed", {"nodes": nodes, "hosts": hosts}, error=UNKNOWN_ERROR)
    for record in records:
        if step := record.ranks[0].notes.resumed:
            # The throughput never includes earlier attempts; times do if their span was recorded.
            rate_only = EARLIER in lifetime_parts(record)
            yield Doubt("resumed", {"step": step, "rate_only": rate_only})
    # One doubt for all repeats, because they read the same files.
    skipped = [f for record in records for rank in record.ranks if (f := rank.notes.skipped_files)]
    if any(files.paths for files in skipped):
        yield Doubt("skipped files", {"by_rank": skipped})
    yield from host_trouble([rank for record in records for rank in record.ranks])
    losses = [record.ranks[0].notes.loss for record in records]
    if not all(loss is None or isfinite(loss) for loss in losses):
        yield Doubt("loss not finite", error=UNKNOWN_ERROR)
    yield from overload_doubts(records, repeats.nodes)


def _environment_doubts(records: Sequence[RunRecord]) -> list[Doubt]:
    """Return a doubt for each part of the environment in which a curve's runs differ."""

    def facts(record: RunRecord) -> dict[str, Any]:
        environment = record.environment
        engine = environment.get("engine", {})
        kinds = {rank.notes.device for rank in record.ranks}
        return {
            "engine version": engine.get("version"),
            "device": "/".join(sorted(str(kind) for kind in kinds)),
            "processor": environment.get("processor"),
            "Python": environment.get("python"),
            "commit": environment.get("commit"),
            "threads": record.ranks[0].notes.threads,
            "OMP_NUM_THREADS": environment.get("variables", {}).get("OMP_NUM_THREADS"),
        }

    return find_differences("runs differ", [facts(record) for record in records])
