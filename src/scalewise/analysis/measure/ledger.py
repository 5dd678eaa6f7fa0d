"""The ledger of a run: the phases of every rank, in the steady steps that all ranks recorded."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from scalewise.analysis.measure.cached_value import cached_value
from scalewise.analysis.measure.window import steady_window
from scalewise.record.read import RunRecord
from scalewise.record.schema import COMMUNICATION, NON_COMPUTE_PHASES

Numbers = NDArray[np.float64]
LEDGER = "ledger"


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
    index: NDArray[np.int64]
    """The number of each step."""
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
        equal_batches = (self.samples == self.samples[0]).all(axis=0)
        return np.asarray(np.where(equal_batches, lower_median(seconds), seconds.mean(axis=0)))


def lower_median(values: Numbers) -> Numbers:
    """Return the median over ranks (rows); of two middle values the lower: one slow rank of two
    does not change it.
    """
    middle = (len(values) - 1) // 2
    return np.asarray(np.partition(values, middle, axis=0)[middle])


def shared_steps(record: RunRecord, first: int) -> tuple[NDArray[np.int64], list[NDArray[np.intp]]]:
    """Return the steps from index ``first`` on that all ranks recorded, and where each has them."""
    ranks = [rank.steps for rank in record.ranks]
    index = ranks[0].index[ranks[0].index >= first]
    if all(np.array_equal(steps.index, ranks[0].index) for steps in ranks):  # As usual.
        return index, [np.searchsorted(ranks[0].index, index)] * len(ranks)
    index = reduce(np.intersect1d, (steps.index[steps.index >= first] for steps in ranks))
    return index, [np.searchsorted(steps.index, index) for steps in ranks]


def build_ledger(record: RunRecord, first: int) -> Ledger | None:
    """Return the ledger of the steps from index ``first`` on; None if phases are unknown."""
    ranks = [rank.steps for rank in record.ranks]
    if not all(set(steps.phases) - {"hidden"} for steps in ranks):
        return None
    index, positions = shared_steps(record, first)
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
        index=index[has_all_phases],
        hidden=hidden if hidden.size else None,
    )


def steady_ledger(record: RunRecord) -> Ledger | None:
    """Return the ledger of the steady steps; kept with the record, but not in its cache file."""
    if LEDGER not in record.values:
        record.values[LEDGER] = build_ledger(record, steady_window(record).first)
    ledger: Ledger | None = record.values[LEDGER]
    return ledger


@cached_value("exposed")
def exposed_seconds(record: RunRecord) -> float | None:
    """Return the seconds of exposed communication per step; None if unknown or on one rank."""
    ledger = steady_ledger(record) if len(record.ranks) > 1 else None
    return ledger.exposed if ledger else None


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
