"""The law of the complete time: what is fixed, what devices share, and what grows.

    T(N) = fixed + work / N + growing log2 N

Fixed parts (launch, data, build, compile) are what saturates the time of a job
while its throughput still grows.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from scalewise.analysis.predict.laws import Fit, fitted, nonnegative
from scalewise.analysis.predict.series import Floats, Series, need
from scalewise.errors import NotEnoughData

TERMS = ("fixed", "work", "growing")


def fit(points: Series) -> Fit:
    """Return the law by least relative squares; the part that grows needs four points."""
    if points.metric != "time":
        raise NotEnoughData("the law of the complete time needs times", hint="give a column time")
    need(points, 2, "the law of the complete time")

    def solve(some: Series, names: Sequence[str] = TERMS) -> dict[str, float]:
        n = some.devices
        parts = {"fixed": np.ones_like(n), "work": 1 / n, "growing": np.log2(n)}
        found = nonnegative(np.stack([parts[name] for name in names], axis=1), some.values)
        return dict(zip(names, map(float, found)))

    grows = len(points.devices) >= 4 and solve(points)["growing"] > 0
    names = TERMS if grows else TERMS[:2]

    def cost(found: Mapping[str, float], at: Floats) -> Floats:
        grown = found.get("growing", 0.0) * np.log2(at)
        return np.asarray(at * (found["fixed"] + found["work"] / at + grown))

    formula = "T(N) = {fixed} + {work}/N" + " + {growing} log2 N" * grows
    return fitted("complete", points, lambda some: solve(some, names), cost, formula)
