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
    """Matrices with a row per rank and a column per step: seconds of each phase, and samples."""

    compute: Numbers
    input: Numbers
    sync: Numbers | None
    """Exposed communication, including the wait for other ranks; None if not measured."""
    other: Numbers
    """What remains of the step's seconds."""
    samples: NDArray[np.int64]
    hidden: Numbers | None = None
    """Communication hidden by computation, in those steps that measured it; None if no step did."""

    @property
    def own(self) -> Numbers:
        """A rank's own work: everything except waiting for input and communication."""
        return self.compute + self.other

    @property
    def behind(self) -> Numbers:
        """Seconds by which a rank's own work is longer than the typical rank's."""
        return self.own - self.typical(self.own)

    @property
    def exposed(self) -> float | None:
        """Seconds of exposed communication per step, mean over ranks."""
        return None if self.sync is None else float(self.sync.mean())

    @property
    def transfer(self) -> Numbers:
        """Each step's communication without waiting: the minimum, as the last rank never waits."""
        if self.sync is None:
            return np.zeros(self.compute.shape[1])
        return np.asarray(self.sync.min(axis=0))

    def typical(self, seconds: Numbers) -> Numbers:
        """Return the typical rank's seconds in each step: the lower median, which a slow rank does
        not change. In steps where ranks have different numbers of samples, it is the mean.
        """
        ranks = len(seconds)
        middle = np.partition(seconds, (ranks - 1) // 2, axis=0)[(ranks - 1) // 2]
        equal_batches = (self.samples == self.samples[0]).all(axis=0)
        return np.asarray(np.where(equal_batches, middle, seconds.mean(axis=0)))


def build_ledger(record: RunRecord, first: int) -> Ledger | None:
    """Return the ledger of the steps from index ``first`` on; None if phases are unknown."""
    ranks = [rank.steps for rank in record.ranks]
    if not all(set(steps.phases) - {"hidden"} for steps in ranks):
        return None
    shared_steps = reduce(np.intersect1d, (steps.index[steps.index >= first] for steps in ranks))
    positions = [np.searchsorted(steps.index, shared_steps) for steps in ranks]
    phases = _phases(record, positions)
    required = [matrix for name, matrix in phases.items() if name != "hidden"]
    has_all_phases = ~np.any([np.isnan(matrix).any(axis=0) for matrix in required], axis=0)
    if not has_all_phases.any():
        return None
    phases = {name: matrix[:, has_all_phases] for name, matrix in phases.items()}
    pairs = list(zip(ranks, positions))
    seconds = np.array([steps.seconds[rows] for steps, rows in pairs])[:, has_all_phases]
    samples = np.array([steps.samples[rows] for steps, rows in pairs])[:, has_all_phases]
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
    """Return the matrix of each phase, with the steps at each rank's ``positions``. A phase that a
    rank never recorded is 0, or NaN (unknown) if it is communication. Unknown ``sync`` is omitted.
    """
    ranks = [rank.steps for rank in record.ranks]
    names = dict.fromkeys([*(name for steps in ranks for name in steps.phases), *COMMUNICATION])
    phases = {}
    for name in names:
        absent = np.nan if name in COMMUNICATION else 0.0
        phases[name] = np.array([
            steps.phases.get(name, np.full(len(steps.index), absent))[rows]
            for steps, rows in zip(ranks, positions)
        ])  # fmt: skip
    if record.spec.topology.world == 1:  # A single device has no communication to wait for.
        phases["sync"] = np.nan_to_num(phases["sync"])
    if np.isnan(phases["sync"]).any(axis=0).all():  # In every step, some rank has no number.
        del phases["sync"]
    return phases
