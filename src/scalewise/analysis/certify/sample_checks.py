"""Compare the samples of a step: over ranks, and with those of the reference."""

from collections import Counter

from scalewise.analysis.certify.certificate import Finding
from scalewise.analysis.certify.sketched_run import SketchedRun


def shared_samples_finding(run: SketchedRun, step: int) -> Finding | None:
    """Find replicas that train on the same samples in one step."""
    by_replica = run.replica_samples(step)
    if not by_replica or len(by_replica) < 2:
        return None
    sets = Counter(frozenset(samples.items()) for samples in by_replica.values() if samples)
    shared, count = sets.most_common(1)[0]
    if count < 2 or len(shared) == 0:
        return None
    figures = {"ranks": count, "of": len(by_replica), "samples": sum(n for _, n in shared)}
    return Finding(cause="same samples", step=step, figures=figures)


def sample_finding(
    run: SketchedRun, reference: SketchedRun, step: int
) -> tuple[Finding | None, bool]:
    """Return what is wrong with the samples of a step, and whether they are those of the reference,
    so that its gradients can be compared. Unknown samples count as equal: the gradients show it.
    """
    first = step == run.steps[0]
    changed = _first_other_count(run, reference, step)
    if changed is not None:
        return _count_finding(run, reference, changed, first=changed == run.steps[0]), False
    samples, expected = run.samples_at(step), reference.samples_at(step)
    if samples is None or expected is None or samples == expected:
        return None, True
    earlier = _repeated_step(run, reference, step)
    if earlier is not None:
        return Finding(cause="order repeats", step=step, figures={"earlier": earlier}), False
    common, total = (samples & expected).total(), expected.total()
    figures = {"common": common, "total": total}
    if first:
        return Finding(cause="other samples", verdict="cannot tell", figures=figures), False
    return Finding(cause="lost samples", step=step, figures={"kind": "others", **figures}), False


def _first_other_count(run: SketchedRun, reference: SketchedRun, until: int) -> int | None:
    """Return the first step up to ``until`` with another number of samples than the reference's."""
    for step in range(until + 1):
        count, expected = run.sample_count(step), reference.sample_count(step)
        if count is not None and expected is not None and count != expected:
            return step
    return None


def _count_finding(
    run: SketchedRun, reference: SketchedRun, step: int, *, first: bool
) -> Finding | None:
    count, expected = run.sample_count(step), reference.sample_count(step)
    assert count is not None
    assert expected is not None  # They were compared.
    figures = {"count": count, "expected": expected, "devices": run.devices}
    if first and not _is_equal_later(run, reference, step):
        return Finding(cause="global batch", verdict="cannot tell", step=step, figures=figures)
    # DistributedSampler repeats a few samples so that all ranks have equally many.
    if 0 < count - expected < run.replicas:
        return None
    usual = reference.sample_count(0)
    kind = "short batch dropped" if usual and expected < usual <= count else "count"
    return Finding(cause="lost samples", step=step, figures={"kind": kind, **figures})


def _is_equal_later(run: SketchedRun, reference: SketchedRun, first: int) -> bool:
    """Return whether all later sketched steps have as many samples as the reference's."""
    later = [step for step in run.steps if step > first and step in reference.steps]
    counts = [(run.sample_count(step), reference.sample_count(step)) for step in later]
    return bool(counts) and all(count and count == expected for count, expected in counts)


def _repeated_step(run: SketchedRun, reference: SketchedRun, step: int) -> int | None:
    """Return an earlier step with the same samples, if the reference has others in these steps."""
    samples = run.samples_at(step)
    for earlier in run.steps:
        if earlier >= step:
            break
        is_same = run.samples_at(earlier) == samples
        if is_same and reference.samples_at(earlier) != reference.samples_at(step):
            return earlier
    return None
