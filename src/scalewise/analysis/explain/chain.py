"""The chain of a run leads from the ideal step to the measured step, one cause at a time.

    T0  the baseline's compute per sample × samples per device and step (the ideal step)
    T1  the typical rank's compute                       computation   = T0/T1
    T2  + how much longer the slowest rank works         balance       = T1/T2
    T3  + how much waiting for input delays that rank    input         = T2/T3
    T4  + communication without waiting for other ranks  transfer      = T3/T4
    T5  the measured step                                orchestration = T4/T5

Each factor is the ratio of two neighbouring lines, so the product of the factors is T0/T5. This
product, divided by the same product at the baseline, is exactly the measured efficiency.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

import numpy as np

from scalewise.analysis.measure.ledger import Ledger
from scalewise.analysis.measure.window import Window

CAUSES = ("computation", "balance", "input", "transfer", "orchestration")
ByCause = dict[str, float | None]
"""Factors, or seconds, by cause; None for a cause that is unknown."""
UNKNOWN_CAUSES: ByCause = dict.fromkeys((*CAUSES, "unexplained"))


@dataclass(frozen=True, slots=True)
class Chain:
    """T1 to T5 of one run (see the top of this file), in seconds per step."""

    compute: float
    with_imbalance: float
    with_input: float
    with_transfer: float
    measured: float
    samples: float
    """Samples per device and step; a rank may have several devices."""
    transfer_known: bool = True
    """Whether communication was timed; if not, its time is part of computation and balance."""
    balance_known: bool = True
    """False if one process had several devices: their imbalance is part of computation."""

    def lines(self, per_sample: float) -> tuple[float, ...]:
        """Return T0 to T5; ``per_sample`` is the baseline's compute seconds per sample."""
        return (
            per_sample * self.samples,
            self.compute,
            self.with_imbalance,
            self.with_input,
            self.with_transfer,
            self.measured,
        )


def build_chain(ledger: Ledger, window: Window, devices: int) -> Chain | None:
    """Return the chain of a run on ``devices`` devices; None where no computation was recorded."""
    own = ledger.own
    # The longest own work of any rank in each step, without and with waiting for input.
    longest, longest_with_input = own.max(axis=0), (own + ledger.input).max(axis=0)
    compute = float(ledger.typical(ledger.compute).mean())
    with_imbalance = compute + float((longest - ledger.typical(own)).mean())
    with_input = with_imbalance + float((longest_with_input - longest).mean())
    with_transfer = with_input + float(ledger.transfer.mean())
    # Every factor divides by one of these numbers, so all must be positive.
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
    """Return the chains in a form that can be averaged. If any run did not time communication, T4
    becomes T3 in all chains, so that the transfer of the other runs counts as orchestration.
    """
    if all(chain.transfer_known for chain in chains):
        return list(chains)
    return [
        replace(chain, with_transfer=chain.with_input, transfer_known=False) for chain in chains
    ]


def mean_compute_per_sample(chains: Sequence[Chain]) -> float:
    """Return the geometric mean over repeats of the compute seconds per sample."""
    return geometric_mean([chain.compute / chain.samples for chain in chains])


def factors_by_cause(chains: Sequence[Chain], per_sample: float) -> ByCause:
    """Return each cause's factor (geometric mean over runs), not yet divided by the baseline's."""
    chains = comparable_chains(chains)
    logs = np.log([chain.lines(per_sample) for chain in chains])
    factors = np.exp(-np.diff(logs).mean(axis=0))
    return _without_unknown(dict(zip(CAUSES, factors.tolist())), chains)


def relative_factors(factors: ByCause, base: ByCause) -> ByCause:
    """Return factors divided by the baseline's."""
    pairs = {cause: (factors[cause], base[cause]) for cause in CAUSES}
    return {
        cause: None if factor is None or base_factor is None else factor / base_factor
        for cause, (factor, base_factor) in pairs.items()
    }


def seconds_by_cause(chains: Sequence[Chain], per_sample: float) -> ByCause:
    """Return the mean seconds that each cause adds to the ideal step. All values sum to T5 − T0,
    including ``unexplained``, which is negative if T4 is longer than the measured step.
    """
    chains = comparable_chains(chains)
    added = np.diff([chain.lines(per_sample) for chain in chains])
    # The last difference is orchestration; where it is negative, it counts as unexplained.
    orchestration, unexplained = np.maximum(added[:, -1], 0.0), np.minimum(added[:, -1], 0.0)
    means = np.column_stack([added[:, :-1], orchestration, unexplained]).mean(axis=0).tolist()
    return _without_unknown(dict(zip((*CAUSES, "unexplained"), means)), chains)


def _without_unknown(values: ByCause, chains: Sequence[Chain]) -> ByCause:
    """Return the values, with None for causes that some run did not measure separately."""
    is_known = {
        "balance": all(chain.balance_known for chain in chains),
        "transfer": all(chain.transfer_known for chain in chains),
    }
    return {cause: value if is_known.get(cause, True) else None for cause, value in values.items()}
