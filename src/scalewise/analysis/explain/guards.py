"""Notice what silently ruins scaling, and say it: one guard for each habit.

A guard looks at one run; only the learning rate needs several. Each is told
once, of the fewest devices on which it was seen.
"""

from collections.abc import Callable, Sequence

from scalewise.analysis.explain import correct, tune
from scalewise.analysis.explain.watched_facts import Finding, WatchedRun
from scalewise.record.read import RunRecord

Looks = Callable[[WatchedRun], Finding | None]
CORRECT: tuple[Looks, ...] = (
    correct.no_exchange,
    correct.same_samples,
    correct.drift,
    correct.step_counts,
    correct.set_epoch,
)
TUNE: tuple[Looks, ...] = (
    tune.data_parallel,
    tune.shared_device,
    tune.threads,
    tune.loader_workers,
    tune.pinned_memory,
    tune.host_waits,
    tune.empty_cache,
    tune.unused_parameters,
    tune.precision,
    tune.compiling,
)


def run_guards(records: Sequence[RunRecord]) -> tuple[Finding, ...] | None:
    """Return what the guards see in the runs of a curve; nothing where no facts were noted."""
    runs = _watched(records)
    if not runs:
        return None
    rate = correct.learning_rate(runs)
    return (*_seen_by(CORRECT, runs), *([rate] if rate else []), *_seen_by(TUNE, runs))


def correctness_faults(records: Sequence[RunRecord]) -> tuple[Finding, ...]:
    """Return the guards that call the training of these runs not correct.

    A guard that only asks whether something is meant so is not among them.
    """
    return tuple(guard for guard in _seen_by(CORRECT, _watched(records)) if not guard.question)


def _watched(records: Sequence[RunRecord]) -> list[WatchedRun]:
    """Return the runs of which facts were noted, fewest devices first."""
    runs = [WatchedRun.of(record) for record in records]
    return sorted((run for run in runs if run), key=lambda run: run.devices)


def _seen_by(looks: Sequence[Looks], runs: Sequence[WatchedRun]) -> list[Finding]:
    """Return what each of the guards sees in the first run that it sees anything in."""
    seen = (next(filter(None, map(look, runs)), None) for look in looks)
    return [guard for guard in seen if guard]
