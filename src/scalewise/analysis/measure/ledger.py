"""What every rank did in each steady step, side by side.

Only steps that all ranks kept one by one are in it, because causes are told
apart by comparing ranks within a step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from scalewise.record.read import RankRecord, RunRecord

Numbers = NDArray[np.float64]
NON_COMPUTE_PHASES = ("input", "sync", "other", "hidden")
"""Phases that are no computation; ``hidden`` runs beside it and takes no time of its own."""


@dataclass(frozen=True)
class Ledger:
    """Seconds by what they were spent on: a row per rank, a column per step."""

    compute: Numbers
    input: Numbers
    sync: Numbers | None
    """Communication that computation did not hide, with the wait for other ranks."""
    other: Numbers
    samples: NDArray[np.int64]
    hidden: Numbers | None = None
    """Communication behind computation, where it is known."""

    @property
    def own(self) -> Numbers:
        """What a rank does by itself, wherever in the loop; without waiting for input."""
        return self.compute + self.other

    @property
    def exposed(self) -> float | None:
        """Seconds per step that a rank only waits for communication, mean over ranks."""
        return None if self.sync is None else float(self.sync.mean())

    @property
    def transfer(self) -> Numbers:
        """The communication of each step that waits for nobody: the least of all ranks."""
        if self.sync is None:
            return np.zeros(self.compute.shape[1])
        return np.asarray(self.sync.min(axis=0))

    def typical(self, seconds: Numbers) -> Numbers:
        """Return the seconds of the typical rank in each step.

        The median (the lower one of two), so that a single slow rank does not
        move it. Where ranks have unlike numbers of samples it is the mean: the
        time of the mean batch.
        """
        ranks = len(seconds)
        middle = np.partition(seconds, (ranks - 1) // 2, axis=0)[(ranks - 1) // 2]
        alike = (self.samples == self.samples[0]).all(axis=0)
        return np.asarray(np.where(alike, middle, seconds.mean(axis=0)))


def build_ledger(record: RunRecord, first: int) -> Ledger | None:
    """Return the steps from index ``first`` on, or nothing where phases are not known."""
    steps = [rank.steps for rank in record.ranks]
    if not all(set(each.phases) - {"hidden"} for each in steps):
        return None
    shared = reduce(np.intersect1d, (each.index[each.index >= first] for each in steps))
    places = [np.searchsorted(each.index, shared) for each in steps]
    names = dict.fromkeys(name for each in steps for name in each.phases)
    columns = {
        name: np.array([_phase(rank, name)[at] for rank, at in zip(record.ranks, places)])
        for name in names
    }
    absent = np.full((len(steps), len(shared)), np.nan)
    columns = {"sync": absent, "hidden": absent, **columns}
    if record.spec.topology.world == 1:  # Alone, a device waits for nobody.
        columns["sync"] = np.nan_to_num(columns["sync"])
    sync_known = not np.isnan(columns["sync"]).any(axis=0).all()
    needed = [name for name in columns if name != "hidden" and (sync_known or name != "sync")]
    known = ~np.any([np.isnan(columns[name]).any(axis=0) for name in needed], axis=0)
    if not known.any():
        return None
    seconds = np.array([each.seconds[at] for each, at in zip(steps, places)])
    samples = np.array([each.samples[at] for each, at in zip(steps, places)])
    return _ledger(
        {name: column[:, known] for name, column in columns.items()},
        seconds[:, known],
        samples[:, known],
        sync_known=sync_known,
    )


def _phase(rank: RankRecord, name: str) -> Numbers:
    """Return a phase of a rank: where it never occurred 0, but unknown communication stays so."""
    absent = np.nan if name in ("sync", "hidden") else 0.0
    return rank.steps.phases.get(name, np.full(len(rank.steps.index), absent))


def _ledger(
    columns: Mapping[str, Numbers],
    seconds: Numbers,
    samples: NDArray[np.int64],
    *,
    sync_known: bool,
) -> Ledger:
    nothing = np.zeros_like(seconds)
    compute = sum((columns[name] for name in columns if name not in NON_COMPUTE_PHASES), nothing)
    waited = columns.get("input", nothing)
    sync = columns["sync"] if sync_known else None
    hidden = columns["hidden"][:, ~np.isnan(columns["hidden"]).any(axis=0)]
    return Ledger(
        compute=compute,
        input=waited,
        sync=sync,
        other=seconds - compute - waited - (nothing if sync is None else sync),
        samples=samples,
        hidden=hidden if hidden.size else None,
    )
