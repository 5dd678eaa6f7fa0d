"""The fixed cost of a table's jobs: seconds that more devices do not shorten, such as the start-up.
With throughputs it is that of ``measure.table_start``; from times alone, that of the law
``complete``. Predicted times are a curve of their own and may fall below it, which is then said.
"""

import math
from dataclasses import dataclass

from scalewise.analysis.measure.table_start import fit_table_start
from scalewise.analysis.number_format import format_number
from scalewise.analysis.predict.prediction import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCost:
    """A law of the complete time, and its terms in seconds on the most measured devices."""

    formula: str
    fixed: float
    work: float
    growing: float
    has_throughput: bool
    """Whether ``work`` is that of the measured throughput; else it is taken as work / N."""

    @property
    def total(self) -> float:
        """The complete time."""
        return self.fixed + self.work + self.growing


@dataclass(frozen=True, slots=True, kw_only=True)
class BelowFixed:
    """A contradiction: from ``devices`` on, predicted times are below the fixed cost."""

    devices: int
    fixed: float
    formula: str


def fit_fixed_cost(prediction: Prediction) -> FixedCost | None:
    """Return the law of a table's times; None without times, or if nothing is fixed or grows."""
    timed = [point for point in prediction.curve.points if point.time]
    if not timed or timed[-1].complete:
        return None
    last = timed[-1]
    if (start := fit_table_start(prediction.curve.points)) and last.throughput:
        terms = {"": start.fixed, "/X(N)": start.work, " log2 N": start.growing}
        parts = [f"{format_number(size)}{term}" for term, size in terms.items() if size]
        law = FixedCost(
            formula=f"T(N) = {' + '.join(parts)}",
            fixed=start.fixed,
            work=start.work / last.throughput.value,
            growing=start.start(last.devices) - start.fixed,
            has_throughput=True,
        )
    else:
        fit = next((fit for fit in prediction.laws if fit.law == "complete"), None)
        if fit is None:
            return None
        sizes = {name: parameter.value for name, parameter in fit.parameters.items()}
        law = FixedCost(
            formula=fit.formula,
            fixed=sizes["fixed"],
            work=sizes["work"] / last.devices,
            growing=sizes.get("growing", 0.0) * math.log2(last.devices),
            has_throughput=False,
        )
    return law if law.fixed > 0 or law.growing > 0 else None


def below_fixed_cost(prediction: Prediction) -> BelowFixed | None:
    """Return from where on predicted times are shorter than the fixed cost; None if nowhere."""
    law = fit_fixed_cost(prediction)
    if law is None:
        return None
    for point in prediction.points:
        if not point.measured and point.time and point.time.value < law.fixed:
            return BelowFixed(devices=point.devices, fixed=law.fixed, formula=law.formula)
    return None
