"""From the ideal step to the measured one, cause by cause.

    T0  compute per sample on the baseline, times the samples of a device and step
    T1  the typical rank's compute                       computation   = T0/T1
    T2  + how much longer the slowest rank took          balance       = T1/T2
    T3  + how much later its input made it               input         = T2/T3
    T4  + communication that waits for nobody            transfer      = T3/T4
    T5  the measured step                                orchestration = T4/T5

Each factor is the ratio of two neighbours, so their product is T0/T5; divided
by their values at the baseline they give the measured efficiency, exactly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scalewise.analysis.measure.ledger import Ledger
from scalewise.analysis.measure.window import Window

CAUSES = ("computation", "balance", "input", "transfer", "orchestration")
ByCause = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Chain:
    """The lines T1 to T5 of one run, in seconds per step."""

    computed: float
    balanced: float
    fed: float
    moved: float
    measured: float
    samples: float
    """Of one device in one step; a rank may have several devices."""
    transfer_known: bool = True
    """If not, communication is somewhere in computation and balance."""
    balance_known: bool = True
    """If not, one process had several devices, and how even they were is in computation."""

    @property
    def per_sample(self) -> float:
        """Seconds of computation for one sample."""
        return self.computed / self.samples

    def lines(self, per_sample: float) -> tuple[float, ...]:
        """Return T0 to T5, ideal at this computation per sample."""
        ideal = per_sample * self.samples
        return (ideal, self.computed, self.balanced, self.fed, self.moved, self.measured)


def build_chain(ledger: Ledger, window: Window, devices: int) -> Chain | None:
    """Return the lines of a run on so many devices; nothing where no computation was recorded."""
    typical = ledger.typical
    own = ledger.own
    longest, latest = own.max(axis=0), (own + ledger.input).max(axis=0)
    computed = float(typical(ledger.compute).mean())
    balanced = computed + float((longest - typical(own)).mean())
    fed = balanced + float((latest - longest).mean())
    moved = fed + float(ledger.transfer.mean())
    if min(computed, balanced, fed, moved) <= 0 or not window.samples:
        return None
    return Chain(
        computed=computed,
        balanced=balanced,
        fed=fed,
        moved=moved,
        measured=window.seconds / window.steps,
        samples=window.samples / (window.steps * devices),
        transfer_known=ledger.sync is not None,
        balance_known=len(own) > 1 or devices == 1,
    )


def comparable_chains(chains: Sequence[Chain]) -> list[Chain]:
    """Return chains that can be averaged: where one does not know its transfer, none does.

    What the others know of it then stays in orchestration, and the lines still
    sum to the whole.
    """
    if all(each.transfer_known for each in chains):
        return list(chains)
    return [replace(each, moved=each.fed, transfer_known=False) for each in chains]


def mean_per_sample(chains: Sequence[Chain]) -> float:
    """Return the compute per sample of a point's repeats, as their geometric mean."""
    return math.exp(_mean([math.log(each.per_sample) for each in chains]))


def factors_by_cause(chains: Sequence[Chain], per_sample: float) -> ByCause:
    """Return each cause's factor over a point's repeats, not yet compared with the baseline.

    A geometric mean, as throughput's is, so that the product stays exact.
    """
    chains = comparable_chains(chains)
    logs = [[math.log(line) for line in each.lines(per_sample)] for each in chains]
    found: ByCause = {
        cause: math.exp(_mean([line[place] - line[place + 1] for line in logs]))
        for place, cause in enumerate(CAUSES)
    }
    return _known(found, chains)


def relative_factors(found: ByCause, base: ByCause) -> ByCause:
    """Return factors divided by the baseline's."""
    ratios: ByCause = {}
    for cause in CAUSES:
        upper, lower = found[cause], base[cause]
        ratios[cause] = None if upper is None or lower is None else upper / lower
    return ratios


def seconds_by_cause(chains: Sequence[Chain], per_sample: float) -> ByCause:
    """Return the seconds each cause adds to the ideal step, and what they exceed it by.

    They sum to T5 − T0. Where the parts are longer than the measured step, the
    excess is ``unexplained``, below 0; repeats are averaged.
    """
    chains = comparable_chains(chains)
    lines = [each.lines(per_sample) for each in chains]
    found: ByCause = {
        cause: _mean([line[place + 1] - line[place] for line in lines])
        for place, cause in enumerate(CAUSES)
    }
    rest = [line[5] - line[4] for line in lines]
    found["orchestration"] = _mean([max(0.0, each) for each in rest])
    found["unexplained"] = _mean([min(0.0, each) for each in rest])
    return _known(found, chains)


def _known(found: ByCause, chains: Sequence[Chain]) -> ByCause:
    """Return causes without those that some run could not tell apart from computation."""
    hidden = {
        "balance": not all(each.balance_known for each in chains),
        "transfer": not all(each.transfer_known for each in chains),
    }
    return {cause: None if hidden.get(cause) else value for cause, value in found.items()}


def unknown_causes(*more: str) -> ByCause:
    """Return every cause as unknown."""
    return dict.fromkeys((*CAUSES, *more))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
