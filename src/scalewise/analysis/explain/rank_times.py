"""Rank × time: how much longer each rank works than the typical rank, over the training of a run.

With collectives that synchronise, all ranks' steps take equally long, because the fast ranks wait
for the slow one. So a rank's own work is compared: its step without the exchange of gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewise.analysis.explain.run_view import RunView
from scalewise.analysis.measure.cached_value import cached_value
from scalewise.analysis.measure.ledger import (
    Numbers,
    build_ledger,
    lower_median,
    shared_steps,
    steady_ledger,
)
from scalewise.analysis.measure.window import steady_window
from scalewise.record.read import RunRecord, Steps

MAX_ROWS, MAX_COLUMNS = 64, 60
MAX_WARMUP = 0.1
"""The warm-up is left out, but at most this share of the steps: a rank may be slow early on."""
MIN_LAG = 0.03
"""A rank that works less than this share longer than the typical rank counts as equally fast."""
MIN_SCORE = 6.0
"""Standard errors by which a rank's lag must exceed 0; high, as every rank and time is tried."""


@dataclass(frozen=True, slots=True)
class RankRow:
    """A row of the matrix: one rank, or neighbouring ranks if there are more than 64."""

    first: int
    last: int
    """The last rank of the row; equal to ``first`` if the row is one rank."""
    hosts: tuple[str, ...]
    lag: tuple[float | None, ...]
    """In each column, the share by which the rank's work is longer than the typical rank's (0.31:
    31 % longer); of several ranks, that of the slowest. None where no step was recorded.
    """


@dataclass(frozen=True, slots=True)
class SlowRank:
    """The rank that is furthest behind."""

    rank: int
    host: str
    lag: float
    """The share by which its work is longer than the typical rank's, in its slow time."""
    since: float | None = None
    """Seconds of training after which it is slow; None: from the start."""
    until: float | None = None
    """Seconds of training after which it is as fast as the others again; None: to the end."""


@dataclass(frozen=True, slots=True)
class RankTimes:
    """How equally fast the ranks of one run are, as a matrix of rank × time."""

    rows: tuple[RankRow, ...]
    times: tuple[float, ...]
    """Seconds of training (without pauses) at which the columns begin, and the last one ends."""
    slowest: SlowRank
    is_straggler: bool
    """Whether the slowest rank is slower than chance explains, and by 3 % or more."""
    without_waiting: bool
    """Whether waiting for other ranks is left out; if not, all ranks seem equally fast."""
    ranks: int
    repeat: int = 1
    """The run of the point that is shown: the one with the slowest rank."""

    @property
    def ranks_per_row(self) -> int:
        """How many ranks a row has; from 2 on, a cell is that of its slowest rank."""
        return self.rows[0].last - self.rows[0].first + 1


def rank_times(runs: Sequence[RunView]) -> RankTimes | None:
    """Return rank × time of the run in which a rank is furthest behind; None with one rank."""
    matrices = [matrix for run in runs if (matrix := _run_rank_times(run.record))]
    return max(matrices, key=lambda m: (m.is_straggler, m.slowest.lag), default=None)


@cached_value("rank times")
def _run_rank_times(record: RunRecord) -> RankTimes | None:
    if len(record.ranks) < 2:
        return None
    first_steady = steady_window(record).first
    first = min(first_steady, int(record.ranks[0].steps.index[-1] * MAX_WARMUP))
    ledger = steady_ledger(record) if first == first_steady else build_ledger(record, first)
    if ledger:
        index, work = ledger.index, ledger.own + ledger.input
    else:
        index, positions = shared_steps(record, first)
        pairs = zip(record.ranks, positions)
        work = np.array([rank.steps.seconds[rows] for rank, rows in pairs])
    if not index.size:
        return None
    starts, end = _step_starts(record.ranks[0].steps, index)
    edges, sums, counts = _columns(work, starts, end)
    if not lower_median(sums.sum(axis=1)):  # Nothing was measured of the typical rank.
        return None
    slowest, is_straggler = _slowest(record, sums, counts, edges)
    return RankTimes(
        rows=_rows(record, sums, counts),
        times=tuple(np.round(edges, 3).tolist()),
        slowest=slowest,
        is_straggler=is_straggler,
        without_waiting=ledger is not None and ledger.sync is not None,
        ranks=len(record.ranks),
        repeat=record.spec.repeat,
    )


def _step_starts(steps: Steps, index: NDArray[np.int64]) -> tuple[Numbers, float]:
    """Return when each step of ``index`` began, in seconds of training, and when the last ended.
    A recorded step stands for those up to the next one: of a long run, only some are recorded.
    """
    stands_for = np.diff(steps.index, append=steps.index[-1] + 1)
    ends = np.cumsum(steps.seconds * stands_for)
    rows = np.searchsorted(steps.index, index)
    starts = np.asarray((ends - steps.seconds * stands_for)[rows])
    return starts, float(ends[rows[-1]])


def _columns(
    work: Numbers, starts: Numbers, end: float
) -> tuple[Numbers, Numbers, NDArray[np.int64]]:
    """Return the edges of the columns, each rank's seconds of work in them, and their steps."""
    steps = len(starts)
    edges = np.append(starts, end)  # With few steps, each one is a column.
    if steps > MAX_COLUMNS:
        edges = np.linspace(starts[0], end, MAX_COLUMNS + 1)
    columns = len(edges) - 1
    column = np.clip(np.searchsorted(edges, starts, side="right") - 1, 0, columns - 1)
    totals = np.concatenate([np.zeros((len(work), 1)), np.cumsum(work, axis=1)], axis=1)
    bounds = np.searchsorted(column, np.arange(columns + 1))  # The first step of each column.
    return edges, np.diff(totals[:, bounds], axis=1), np.diff(bounds)


def _rows(record: RunRecord, sums: Numbers, counts: NDArray[np.int64]) -> tuple[RankRow, ...]:
    typical = lower_median(sums)
    known = (counts > 0) & (typical > 0)
    lag = np.divide(sums, typical, out=np.ones_like(sums), where=known) - 1
    size = -(-len(sums) // MAX_ROWS)
    rows = []
    for first in range(0, len(sums), size):
        values = lag[first : first + size].max(axis=0)
        hosts = dict.fromkeys(rank.host for rank in record.ranks[first : first + size])
        shown = tuple(
            round(value, 4) if is_known else None
            for value, is_known in zip(values.tolist(), known.tolist())
        )
        rows.append(RankRow(first, min(first + size, len(sums)) - 1, tuple(hosts), shown))
    return tuple(rows)


def _slowest(
    record: RunRecord, sums: Numbers, counts: NDArray[np.int64], edges: Numbers
) -> tuple[SlowRank, bool]:
    """Return the slowest rank with the time in which it is slow, and whether it clearly is.

    Every rank and every time from one column to another is tried: a lag that lasts n columns
    exceeds its noise by √n, so the largest sum of lags divided by √n is the clearest one.
    """
    middle = np.median(sums, axis=0)
    known = (counts > 0) & (middle > 0)
    lag = np.divide(sums, middle, out=np.ones_like(sums), where=known) - 1
    total = sums.sum(axis=1)
    overall = int(total.argmax())
    slowest = SlowRank(
        overall, record.ranks[overall].host, float(total[overall] / lower_median(total)) - 1
    )
    columns = int(known.sum())
    if columns < 2:
        return slowest, False
    lag_sums = np.pad(np.cumsum(lag, axis=1), ((0, 0), (1, 0)))
    steps = np.append(0, np.cumsum(known))
    starts, ends = np.triu_indices(len(steps), k=1)
    lengths = np.maximum(steps[ends] - steps[starts], 1)
    scores = (lag_sums[:, ends] - lag_sums[:, starts]) / np.sqrt(lengths)
    rank, segment = (int(i) for i in np.unravel_index(scores.argmax(), scores.shape))
    first, last = int(starts[segment]), int(ends[segment])
    residuals = (lag - lag[:, known].mean(axis=1, keepdims=True))[:, known]
    noise = np.sqrt((residuals**2).sum() / (len(lag) * (columns - 1)))
    in_segment = sums[:, first:last].sum(axis=1)
    typical = float(lower_median(in_segment))
    segment_lag = float(in_segment[rank]) / typical - 1 if typical else 0.0
    if segment_lag < MIN_LAG or scores[rank, segment] < MIN_SCORE * noise:
        return slowest, False
    since = float(edges[first]) if known[:first].any() else None
    until = float(edges[last]) if known[last:].any() else None
    return SlowRank(rank, record.ranks[rank].host, segment_lag, since, until), True
