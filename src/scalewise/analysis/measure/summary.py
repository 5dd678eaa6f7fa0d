"""From records to curves: repeats folded into points, each measured on its own."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import inf, isfinite
from typing import Any

import numpy as np

from scalewise.analysis.measure.acceleration import compare_device_kinds, compare_to_other_devices
from scalewise.analysis.measure.curve import Point, ScalingCurve, compare, describe_differences
from scalewise.analysis.measure.energy import NodeSamples, point_energy
from scalewise.analysis.measure.estimate import Estimate, estimate_from_steps
from scalewise.analysis.measure.host_load import overload_warnings
from scalewise.analysis.measure.ledger import build_ledger
from scalewise.analysis.measure.mfu import device_name, point_flops
from scalewise.analysis.measure.window import (
    MIN_STEADY_STEPS,
    Window,
    epoch_seconds,
    last_validation,
    lifetime_parts,
    resumed_after_step,
    steady_window,
)
from scalewise.errors import NotEnoughData
from scalewise.record.read import RunRecord
from scalewise.record.skipped_files import sentence
from scalewise.record.spans import EARLIER
from scalewise.spec import StudySpec

SAME_BATCH = 0.05
"""How far an observed batch may be from a rule: the last one of an epoch is often smaller."""


def scaling_curves(
    study: StudySpec, records: Iterable[RunRecord], nodes: NodeSamples | None = None
) -> list[ScalingCurve]:
    """Return the study's curves, repeats folded into their points.

    ``nodes`` is what the samplers saw, by the runs' folders: without it no energy is known.
    """
    by_curve: dict[str, list[RunRecord]] = {}
    for record in records:
        by_curve.setdefault(repr(study.where(record.spec)), []).append(record)
    if not by_curve:
        raise NotEnoughData(
            f"{study.name} has no finished run", hint="`scalewise run` starts what is missing"
        )
    return compare_device_kinds(
        study, [_curve(study, found, nodes or {}) for found in by_curve.values()]
    )


def _curve(study: StudySpec, records: Sequence[RunRecord], nodes: NodeSamples) -> ScalingCurve:
    def place(record: RunRecord) -> tuple[int, int]:
        return record.spec.topology.world, record.spec.topology.nodes

    ordered = sorted(records, key=place)
    points = [_point(list(repeats), nodes) for _, repeats in groupby(ordered, key=place)]
    smallest = min(run.topology.world for run in study.runs())
    missing = points[0].devices > smallest
    first = ordered[0]
    outline = first.ranks[0].find("outline")
    return compare_to_other_devices(compare(
        ScalingCurve(
            study=study.name,
            points=tuple(points),
            where=study.where(first.spec),
            scaling=study.scaling or _observed_scaling(points),
            work=_work(ordered),
            conditions=_conditions(study, first),
            unit=outline["unit"],
            devices_per_node=_per_node(ordered),
            warnings=(
                *_unlike(records),
                *([f"the run on {smallest} is missing: compared with {points[0].devices} devices"]
                  if missing else []),
            ),
        )
    ))  # fmt: skip


def _per_node(records: Sequence[RunRecord]) -> int | None:
    """Return the devices of a full node, where several nodes were used."""
    several = [record.spec.topology for record in records if record.spec.topology.nodes > 1]
    return max(topology.devices for topology in several) if several else None


def _work(records: Sequence[RunRecord]) -> str:
    """Say what the runs of a curve have done in total."""
    spec = records[0].spec
    if spec.program:
        ended = [r.ranks[0].find("outline")["steps"] < (spec.stop_after or inf) for r in records]
        if all(ended):  # By itself, before the last step that was asked for.
            return "the whole program"
        most = "at most " if any(ended) else ""
        return f"{most}{spec.stop_after} steps of the program"
    if spec.epochs:
        times = "epoch" if spec.epochs == 1 else "epochs"
        return f"{spec.epochs} {times} over the same data"
    if spec.samples:
        return f"{spec.samples:,} samples per device"
    return f"{spec.steps} steps"


def _conditions(study: StudySpec, record: RunRecord) -> dict[str, Any]:
    """Return what must be alike for two curves to be compared."""
    spec = record.spec
    if spec.program:
        return {
            "program": " ".join(spec.program),
            "threads": spec.threads,
            "device": record.ranks[0].find("device"),
        }
    fixed = "batch" if study.scaling == "weak" else "global_batch"
    names = ("workload", "data", "precision", "compile", "accumulate", "threads", "workers")
    return {
        fixed: getattr(spec, fixed),
        **{name: getattr(spec, name) for name in names},
        "device": record.ranks[0].find("device"),
    }


def _usual_batch(record: RunRecord, first: int) -> int:
    """Return the samples of all ranks in a usual step: an epoch's last one is often smaller."""
    return sum(
        int(np.median(rank.steps.samples[rank.steps.index >= first])) for rank in record.ranks
    )


def _observed_scaling(points: Sequence[Point]) -> str | None:
    """Say how a program's batch grew with devices, if by one of the two rules."""
    sizes = [(p.devices / points[0].devices, p.global_batch or 0) for p in points]
    if len(points) < 2 or not all(size for _, size in sizes):
        return None
    for rule, power in (("weak", 1), ("strong", 0)):
        if all(abs(size / sizes[0][1] / growth**power - 1) <= SAME_BATCH for growth, size in sizes):
            return rule
    return None


def _point(repeats: list[RunRecord], nodes: NodeSamples) -> Point:
    """Summarize the repeats of one topology."""
    spec = repeats[0].spec
    windows = [steady_window(record) for record in repeats]
    if not all(window.samples > 0 for window in windows):
        if not spec.program:
            raise NotEnoughData(
                f"no sample of {spec.data} counts: their files cannot be read",
                hint="`scalewise data check` names every one, and what is wrong with it",
            )
        raise NotEnoughData(
            f"the batch of {spec.program[0]} cannot be seen",
            hint="say how many samples one rank takes per step: --samples-per-step 64",
        )
    rates = [window.throughput for window in windows]
    rate = Estimate.of(rates)
    if len(repeats) == 1:
        rate = estimate_from_steps(rates[0], windows[0].step_seconds)
    per_device = rate * (1 / spec.topology.world)
    outline = repeats[0].ranks[0].find("outline")
    passes = outline["epochs"] or 1
    lives = [lifetime_parts(record) for record in repeats]
    times = [record.ended - record.started for record in repeats]
    time = Estimate.of(times)
    whole = time.value / float(np.mean(times))  # Parts are averaged, and then sum to the whole.
    memory = [_peak(record) for record in repeats]
    held = [_most_held(record) for record in repeats]
    sent = [_most_sent(record) for record in repeats]
    exposed = [_exposed(each, window) for each, window in zip(repeats, windows)]
    checks = [last_validation(record) for record in repeats]
    epochs = [epoch_seconds(record) for record in repeats]
    steps_left = min(window.steps for window in windows)
    hosts = max(len({rank.host for rank in record.ranks}) for record in repeats)
    trained = np.mean([parts.get("train", 0.0) for parts in lives])
    return Point(
        devices=spec.topology.world,
        nodes=spec.topology.nodes,
        throughput=rate,
        throughput_per_device=per_device,
        device_name=device_name(repeats),
        **point_flops(repeats, per_device),
        time=time,
        epoch_time=_mean_of(epochs, slice(1, None)),
        first_epoch_time=_mean_of(epochs, slice(0, 1)),
        complete={
            name: Estimate.of_shares([parts.get(name, 0.0) for parts in lives]) * whole
            for name in dict.fromkeys(name for parts in lives for name in parts)
        },
        **point_energy(repeats, nodes),
        memory=Estimate.of([peak for peak in memory if peak]) if all(memory) else None,
        held=Estimate.of([most for most in held if most]) if all(held) else None,
        compression=_compression(repeats),
        noise=_noise(repeats),
        sent=Estimate.of([most for most in sent if most]) if all(sent) else None,
        exposed=Estimate.of_shares([each for each in exposed if each is not None])
        if None not in exposed
        else None,
        global_batch=_usual_batch(repeats[0], windows[0].first)
        if spec.program
        else spec.global_batch,
        batches_per_rank=None if spec.program else outline["steps"] * spec.accumulate,
        samples_per_rank=outline["seen"],
        steps=outline["steps"] * passes,
        samples=sum(rank.find("outline")["seen"] for rank in repeats[0].ranks) * passes,
        accuracy=Estimate.of_shares([found["accuracy"] for found in checks if found])
        if all(checks)
        else None,
        validation_samples=checks[0]["samples"] if checks[0] else None,
        hosts=hosts,
        left_out=windows[0].left_out,
        overhead=float(1 - trained / np.mean(times)),
        warnings=(
            *_point_warnings(steps_left, outline["steps"], spec.topology.nodes, hosts),
            *_resumed(repeats),
            *_unread(repeats),
            *_astray(repeats),
            *overload_warnings(repeats, nodes),
        ),
    )


def _point_warnings(left: int, per_epoch: int, nodes: int, hosts: int) -> tuple[str, ...]:
    found = []
    if left < MIN_STEADY_STEPS:
        found.append(f"only {left} steady {_plural(left, 'step')}: the rate is rough")
    elif per_epoch < MIN_STEADY_STEPS:
        found.append(f"only {per_epoch} {_plural(per_epoch, 'batch', 'es')} per rank and epoch")
    if hosts < nodes:
        found.append(f"{nodes} nodes rehearsed on {hosts} {_plural(hosts, 'host')}")
    return tuple(found)


def _resumed(repeats: list[RunRecord]) -> list[str]:
    found = []
    for record in repeats:
        if step := resumed_after_step(record):
            whole = EARLIER in lifetime_parts(record)
            times = "its rate is of the last attempt" if whole else "times are of the last attempt"
            found.append(f"resumed after step {step:,}: {times} alone")
    return found


def _astray(repeats: list[RunRecord]) -> list[str]:
    """Say where a training ended without a loss that is a number."""
    losses = [record.ranks[0].find("loss") for record in repeats]
    if all(loss is None or isfinite(loss) for loss in losses):
        return []
    return ["the loss is no number in the end: its accuracy says nothing"]


def _unread(repeats: list[RunRecord]) -> list[str]:
    """Say which files could not be read: those of the repeats are the same."""
    told = [rank.find("left_out") for record in repeats for rank in record.ranks]
    return [words] if (words := sentence(told)) else []


def _plural(count: int, word: str, ending: str = "s") -> str:
    return word if count == 1 else word + ending


def _peak(record: RunRecord) -> float | None:
    peaks = [rank.find("memory") for rank in record.ranks]
    return None if None in peaks else float(max(peaks))


def _most_held(record: RunRecord) -> float | None:
    held = [rank.find("held") for rank in record.ranks]
    return None if None in held else float(max(sum(each.values()) for each in held))


def _compression(repeats: Sequence[RunRecord]) -> dict[str, Estimate] | None:
    """Return what compression left of the gradients' bytes, and its error, over all ranks."""
    told = [[rank.find("compression") for rank in record.ranks] for record in repeats]
    if not all(each for ranks in told for each in ranks):
        return None
    sums = [(sum(r["sent"] for r in ranks), sum(r["whole"] for r in ranks)) for ranks in told]
    found = {"ratio": Estimate.of([sent / whole for sent, whole in sums])}
    errors = [[each["error"] for each in ranks] for ranks in told]
    if not any(None in ranks for ranks in errors):
        found["error"] = Estimate.of_shares([float(np.mean(ranks)) for ranks in errors])
    return found


def _noise(repeats: Sequence[RunRecord]) -> Estimate | None:
    """Return the gradient noise scale; one run has the interval of its own estimates."""
    told = [record.ranks[0].find("noise") or {} for record in repeats]
    scales = [each["scale"] for each in told if each.get("scale") is not None]
    if len(scales) < len(repeats):
        return None
    if len(repeats) == 1:
        return Estimate(scales[0], told[0]["low"], told[0]["high"])
    return Estimate.of(scales)


def _most_sent(record: RunRecord) -> float | None:
    found = [rank.find("traffic") for rank in record.ranks]
    if not all(found):
        return None
    kinds = [each["exchanged"].values() for each in found]
    return float(max(sum(one["sent"] for one in each) for each in kinds))


def _exposed(record: RunRecord, window: Window) -> float | None:
    """Return the share of a step that waits for communication; alone, nobody does."""
    found = build_ledger(record, window.first) if len(record.ranks) > 1 else None
    if found is None or found.exposed is None:
        return None
    return found.exposed * window.steps / window.seconds


def _mean_of(epochs: list[list[float]], which: slice) -> Estimate | None:
    chosen = [float(np.mean(each[which])) for each in epochs if each[which]]
    return Estimate.of(chosen) if chosen and len(chosen) == len(epochs) else None


def _unlike(records: Sequence[RunRecord]) -> list[str]:
    """Say what differs between the runs of a curve that should not."""

    def facts(record: RunRecord) -> dict[str, Any]:
        environment = record.environment
        engine = environment.get("engine", {})
        kinds = {rank.find("device") for rank in record.ranks}
        return {
            "engine version": engine.get("version"),
            "device": "/".join(sorted(str(kind) for kind in kinds)),
            "processor": environment.get("processor"),
            "Python": environment.get("python"),
            "commit": environment.get("commit"),
            "threads": record.ranks[0].find("threads"),
            "OMP_NUM_THREADS": environment.get("variables", {}).get("OMP_NUM_THREADS"),
        }

    return describe_differences([facts(record) for record in records], "runs of this curve")
