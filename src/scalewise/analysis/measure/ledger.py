"""The ledger of a run: the phases of every rank, in the steady steps that all ranks recorded."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from scalewise.record.read import RunRecord
from scalewise.record.schema import COMMUNICATION, NON_COMPUTE_PHASES

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Ledger:
    """Matrices of seconds by phase: a row per rank, a column per step."""

    compute: Numbers
    input: Numbers
    sync: Numbers | None
    """Exposed communication, including the wait for other ranks; None if not measured."""
    other: Numbers
    samples: NDArray[np.int64]
    hidden: Numbers | None = None
    """Communication overlapped by computation; None if not measured."""

    @property
    def own(self) -> Numbers:
        """A rank's own work: everything except waiting for input and communication."""
        return self.compute + self.other

    @property
    def behind(self) -> Numbers:
        """How much longer a rank's own work takes than the typical rank's."""
        return self.own - self.typical(self.own)

    @property
    def exposed(self) -> float | None:
        """Seconds of exposed communication per step, mean over ranks."""
        return None if self.sync is None else float(self.sync.mean())

    @property
    def transfer(self) -> Numbers:
        """Communication of each step without waiting: that of the last rank, the minimum."""
        if self.sync is None:
            return np.zeros(self.compute.shape[1])
        return np.asarray(self.sync.min(axis=0))

    def typical(self, seconds: Numbers) -> Numbers:
        """Return the typical rank's seconds in each step: the (lower) median, which one slow rank
        does not move, or the mean where ranks have different numbers of samples.
        """
        ranks = len(seconds)
        middle = np.partition(seconds, (ranks - 1) // 2, axis=0)[(ranks - 1) // 2]
        equal_batches = (self.samples == self.samples[0]).all(axis=0)
        return np.asarray(np.where(equal_batches, middle, seconds.mean(axis=0)))


def build_ledger(record: RunRecord, first: int) -> Ledger | None:
    """Return the ledger of the steps from index ``first`` on; None where phases are unknown."""
    ranks = [rank.steps for rank in record.ranks]
    if not all(set(steps.phases) - {"hidden"} for steps in ranks):
        return None
    shared_steps = reduce(np.intersect1d, (steps.index[steps.index >= first] for steps in ranks))
    positions = [np.searchsorted(steps.index, shared_steps) for steps in ranks]
    phases = _phases(record, positions)
    required = [matrix for name, matrix in phases.items() if name != "hidden"]
    is_complete = ~np.any([np.isnan(matrix).any(axis=0) for matrix in required], axis=0)
    if not is_complete.any():
        return None
    phases = {name: matrix[:, is_complete] for name, matrix in phases.items()}
    pairs = list(zip(ranks, positions))
    seconds = np.array([steps.seconds[chosen] for steps, chosen in pairs])[:, is_complete]
    samples = np.array([steps.samples[chosen] for steps, chosen in pairs])[:, is_complete]
    zeros = np.zeros_like(seconds)
    compute = sum((phases[name] for name in phases if name not in NON_COMPUTE_PHASES), zeros)
    input_wait = phases.get("input", zeros)
    hidden = phases["hidden"][:, ~np.isnan(phases["hidden"]).any(axis=0)]
    return Ledger(
        compute=compute,
        input=input_wait,
        sync=phases.get("sync"),
        other=seconds - compute - input_wait - phases.get("sync", zeros),
        samples=samples,
        hidden=hidden if hidden.size else None,
    )


def _phases(record: RunRecord, positions: Sequence[NDArray[np.intp]]) -> dict[str, Numbers]:
    """Return the matrix of each phase, of the steps at each rank's ``positions``; no ``sync`` if
    it is unknown. A phase that a rank never recorded is 0; communication is NaN, which is unknown.
    """
    ranks = [rank.steps for rank in record.ranks]
    names = dict.fromkeys([*(name for steps in ranks for name in steps.phases), *COMMUNICATION])
    phases = {}
    for name in names:
        absent = np.nan if name in COMMUNICATION else 0.0
        phases[name] = np.array([
            steps.phases.get(name, np.full(len(steps.index), absent))[chosen]
            for steps, chosen in zip(ranks, positions)
        ])  # fmt: skip
    if record.spec.topology.world == 1:  # A single device has no communication to wait for.
        phases["sync"] = np.nan_to_num(phases["sync"])
    if np.isnan(phases["sync"]).any(axis=0).all():  # No step has it on all ranks.
        del phases["sync"]
    return phases
