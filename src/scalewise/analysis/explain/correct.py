"""Is the training right? What makes many devices learn something else than one."""

from collections import Counter
from math import isclose

from scalewise.analysis.explain.watched_facts import Finding, WatchedRun
from scalewise.record import batch_sharing, replicas

MIN_BATCH_GROWTH = 1.5
"""How much larger a global batch is when it has grown."""
SAME_RATE_TOLERANCE = 0.1
"""How far two rates may be apart that are meant to be the same; rules make them differ by more."""
SQUARE_ROOT_OPTIMIZERS = ("adam", "lamb", "rmsprop", "adagrad", "adafactor")
"""Optimizers whose learning rate goes with the square root of the batch."""

WRAP_HINT = (
    "Wrap the model in DistributedDataParallel: it sends rank 0's weights to all ranks and "
    "averages their gradients. By hand, broadcast the weights and average every gradient."
)


def same_samples(run: WatchedRun) -> Finding | None:
    """Ranks whose first training batches are equal."""
    if run.ranks < 2 or run.split or replicas.alone(run.facts):
        return None
    telling = [each for each in map(batch_sharing.batches, run.facts) if each]
    if not telling:
        return None
    batches, count = Counter(telling).most_common(1)[0]
    if count < 2:
        return None
    return Finding(
        "same samples",
        "correct",
        f"{count} of {run.ranks} ranks read the same samples: "
        f"their first {len(batches)} training batches are equal.",
        "Give the loader `sampler=DistributedSampler(dataset)`, or share the data out by rank.",
        run.devices,
    )


def set_epoch(run: WatchedRun) -> Finding | None:
    """A shuffled order that comes again in every epoch."""
    passes = run.first.get("passes")
    if not passes or passes["count"] < 2 or passes["epochs"] > 1:
        return None
    return Finding(
        "set_epoch",
        "correct",
        f"All {passes['count']} passes over the data had the same order: "
        "`set_epoch` of the DistributedSampler was never called.",
        "Call `loader.sampler.set_epoch(epoch)` at the start of every epoch.",
        run.devices,
    )


def no_exchange(run: WatchedRun) -> Finding | None:
    """Ranks that train each alone, though they know each other."""
    if not replicas.alone(run.facts):
        return None
    found = replicas.drift(run.facts)
    seen = _apart(found) if found else f"all {run.ranks} ranks train on the same samples."
    return Finding(
        "no exchange",
        "correct",
        f"{replicas.ALONE.capitalize()}; {seen}",
        f"{WRAP_HINT} With Accelerate on a CPU: `Accelerator(cpu=True)`.",
        run.devices,
    )


def drift(run: WatchedRun) -> Finding | None:
    """Replicas that are not equal after a step."""
    found = replicas.drift(run.facts)
    if not found or replicas.alone(run.facts):
        return None
    says = f"The replicas are not equal: {_apart(found)}"
    return Finding("drift", "correct", says, WRAP_HINT, run.devices)


def _apart(found: replicas.Drift) -> str:
    return (
        f"after step {found.step} the weights of rank {found.rank} differ "
        f"from those of rank 0 by {100 * found.share:.2g} %."
    )


def step_counts(run: WatchedRun) -> Finding | None:
    """Ranks that take different numbers of steps."""
    steps = run.steps
    fewest, most = min(steps), max(steps)
    if fewest == most:
        return None
    return Finding(
        "step counts",
        "correct",
        f"The ranks take different numbers of steps: rank {steps.index(fewest)} took {fewest}, "
        f"rank {steps.index(most)} took {most}.",
        "Give all ranks equally many batches, with a DistributedSampler or `drop_last=True`.",
        run.devices,
    )


def learning_rate(runs: list[WatchedRun]) -> Finding | None:
    """A learning rate that stays while the global batch grows."""
    known = [run for run in runs if run.first.get("rate") is not None and run.counted]
    for before, now in ((known[0], each) for each in known[1:]):
        # A schedule that falls in every step is a little lower when it is first looked at.
        highest = [run.first.get("highest_rate") or run.first["rate"] for run in (before, now)]
        alike = before.first["rate"] == now.first["rate"] and isclose(
            *highest, rel_tol=SAME_RATE_TOLERANCE
        )
        if (
            alike
            and before.global_batch
            and now.global_batch >= MIN_BATCH_GROWTH * before.global_batch
        ):
            rate, growth = now.first["rate"], now.global_batch / before.global_batch
            root = any(
                part in now.first.get("optimizer", "").lower() for part in SQUARE_ROOT_OPTIMIZERS
            )
            scaled = rate * (growth**0.5 if root else growth)
            how = "with the square root of it" if root else "in proportion"
            return Finding(
                "learning rate",
                "correct",
                f"The learning rate is {rate:g} on {before.devices} and on {now.devices} devices, "
                f"while the global batch grew from {before.global_batch} to {now.global_batch}.",
                f"Is that your recipe? With {now.first.get('optimizer')} it often grows {how}, "
                f"here to {scaled:.3g}, after a warm-up; or keep the global batch.",
                now.devices,
                question=True,
            )
    return None
