"""From the ideal step to the measured one, cause by cause.

    T0  compute per sample on the baseline, times the samples of a device and step
    T1  the typical rank's compute                       computation   = T0/T1
    T2  + how much longer the slowest rank took          balance       = T1/T2
    T3  + how much later its input made it               input         = T2/T3
    T4  + communication without any waiting              transfer      = T3/T4
    T5  the measured step                                orchestration = T4/T5

Each factor is the ratio of two neighbouring lines, so their product is T0/T5; divided by
their values at the baseline they give the measured efficiency, exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

import numpy as np

from scalewise.analysis.measure.ledger import Ledger
from scalewise.analysis.measure.window import Window

CAUSES = ("computation", "balance", "input", "transfer", "orchestration")
ByCause = dict[str, float | None]
UNKNOWN_CAUSES: ByCause = dict.fromkeys((*CAUSES, "unexplained"))


@dataclass(frozen=True, slots=True)
class Chain:
    """The lines T1 to T5 of one run, in seconds per step."""

    compute: float
    with_imbalance: float
    with_input: float
    with_transfer: float
    measured: float
    samples: float
    """Of one device in one step; a rank may have several devices."""
    transfer_known: bool = True
    """If not, communication is part of computation and balance."""
    balance_known: bool = True
    """If not, one process had several devices, and their imbalance is part of computation."""

    def lines(self, per_sample: float) -> tuple[float, ...]:
        """Return T0 to T5, with T0 at this computation per sample."""
        return (
            per_sample * self.samples,
            self.compute,
            self.with_imbalance,
            self.with_input,
            self.with_transfer,
            self.measured,
        )


def build_chain(ledger: Ledger, window: Window, devices: int) -> Chain | None:
    """Return the lines of a run on so many devices; None where no computation was recorded."""
    typical = ledger.typical
    own = ledger.own
    longest, latest = own.max(axis=0), (own + ledger.input).max(axis=0)
    compute = float(typical(ledger.compute).mean())
    with_imbalance = compute + float((longest - typical(own)).mean())
    with_input = with_imbalance + float((latest - longest).mean())
    with_transfer = with_input + float(ledger.transfer.mean())
    if min(compute, with_imbalance, with_input, with_transfer) <= 0 or not window.samples:
        return None
    return Chain(
        compute=compute,
        with_imbalance=with_imbalance,
        with_input=with_input,
        with_transfer=with_transfer,
        measured=window.seconds / window.steps,
        samples=window.samples / (window.steps * devices),
        transfer_known=ledger.sync is not None,
        balance_known=len(own) > 1 or devices == 1,
    )


def comparable_chains(chains: Sequence[Chain]) -> list[Chain]:
    """Return chains that can be averaged: if transfer is unknown in one, it is part of
    orchestration in all, so that the lines still sum to the measured step.
    """
    if all(chain.transfer_known for chain in chains):
        return list(chains)
    return [
        replace(chain, with_transfer=chain.with_input, transfer_known=False) for chain in chains
    ]


def mean_per_sample(chains: Sequence[Chain]) -> float:
    """Return the compute per sample of a point's repeats, as their geometric mean."""
    return geometric_mean([chain.compute / chain.samples for chain in chains])


def factors_by_cause(chains: Sequence[Chain], per_sample: float) -> ByCause:
    """Return each cause's factor, before the baseline; a geometric mean keeps the product exact."""
    chains = comparable_chains(chains)
    logs = np.log([chain.lines(per_sample) for chain in chains])
    factors = np.exp(-np.diff(logs).mean(axis=0))
    return _without_unknown(dict(zip(CAUSES, factors.tolist())), chains)


def relative_factors(factors: ByCause, base: ByCause) -> ByCause:
    """Return factors divided by the baseline's."""
    pairs = {cause: (factors[cause], base[cause]) for cause in CAUSES}
    return {
        cause: None if upper is None or lower is None else upper / lower
        for cause, (upper, lower) in pairs.items()
    }


def seconds_by_cause(chains: Sequence[Chain], per_sample: float) -> ByCause:
    """Return the mean seconds that each cause adds to the ideal step; they sum to T5 − T0 with
    ``unexplained``, which is negative where T4 is longer than the measured step.
    """
    chains = comparable_chains(chains)
    added = np.diff([chain.lines(per_sample) for chain in chains])
    above, below = np.maximum(added[:, -1], 0.0), np.minimum(added[:, -1], 0.0)
    means = np.column_stack([added[:, :-1], above, below]).mean(axis=0).tolist()
    return _without_unknown(dict(zip((*CAUSES, "unexplained"), means)), chains)


def _without_unknown(values: ByCause, chains: Sequence[Chain]) -> ByCause:
    """Return the values with None for causes that are part of computation in some run."""
    separate = {
        "balance": all(chain.balance_known for chain in chains),
        "transfer": all(chain.transfer_known for chain in chains),
    }
    return {cause: value if separate.get(cause, True) else None for cause, value in values.items()}
