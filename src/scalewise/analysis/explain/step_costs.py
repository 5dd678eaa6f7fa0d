"""What the phases of a run's steady steps come to: all that `explain` needs of them."""

from collections.abc import Mapping
from dataclasses import dataclass

from scalewise.analysis.explain.chain import Chain, build_chain
from scalewise.analysis.explain.whatif import Replay, saved_seconds
from scalewise.analysis.measure.cached_value import cached_value
from scalewise.analysis.measure.ledger import steady_ledger
from scalewise.analysis.measure.window import steady_window
from scalewise.record.read import RunRecord
from scalewise.record.schema import STEPS

FUSED_PHASE = "step"
"""The only phase recorded if a framework runs forward, backward and update in one call."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Means over the steady steps of a run, in seconds per step."""

    chain: Chain | None
    exposed: float | None
    """Exposed communication, mean over ranks; None if not measured."""
    hidden: float | None
    """Communication hidden by computation, mean over ranks; None if not measured."""
    even_batches: bool
    """Whether all ranks have the same number of samples in a step."""
    by_rank: Mapping[str, tuple[float, ...] | None]
    """For each rank: compute, input, sync (None if not measured), other, behind."""
    saved: Mapping[str, float]
    """What each change of ``whatif`` saves."""


@cached_value("step costs")
def step_costs(record: RunRecord) -> StepCosts | None:
    """Return what the steps of a run come to; None if no phases were recorded."""
    ledger = steady_ledger(record)
    if ledger is None:
        return None
    matrices = {
        name: getattr(ledger, name) for name in ("compute", "input", "sync", "other", "behind")
    }
    return StepCosts(
        chain=build_chain(ledger, steady_window(record), record.spec.topology.world),
        exposed=ledger.exposed,
        hidden=None if ledger.hidden is None else float(ledger.hidden.mean()),
        even_batches=record.ranks[0].outline.unit == STEPS
        or bool((ledger.samples == ledger.samples[0]).all()),
        by_rank={
            name: None if matrix is None else tuple(matrix.mean(axis=1).tolist())
            for name, matrix in matrices.items()
        },
        saved=saved_seconds(Replay(ledger, loader_workers(record))),
    )


@cached_value("loader workers")
def loader_workers(record: RunRecord) -> int | None:
    """Return the number of loader workers; None for a framework that reads the data itself."""
    if FUSED_PHASE in record.ranks[0].steps.phases:
        return None
    loader = record.ranks[0].notes.loader
    return loader.workers if loader else record.spec.workers
