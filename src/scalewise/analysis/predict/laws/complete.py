"""The law of the complete time, T(N) = fixed + work / N + growing log2 N: the fixed part (launch,
data, build, compile) saturates a job's time while its throughput still grows.
"""

from collections.abc import Sequence

import numpy as np

from scalewise.analysis.predict.laws import Fit, Parameters, fit_law, nonnegative_least_squares
from scalewise.analysis.predict.series import Floats, Series, require_points
from scalewise.errors import NotEnoughData

TERMS = ("fixed", "work", "growing")
MIN_POINTS_GROWING = 4
"""Points from which the growing part is fitted."""


def fit(points: Series) -> Fit:
    """Return the law by least relative squares; the growing part needs four points."""
    if points.metric != "time":
        raise NotEnoughData(
            "the law of the complete time needs times", hint="add a column named time"
        )
    require_points(points, 2, "the law of the complete time")

    def solve(sample: Series, names: Sequence[str] = TERMS) -> dict[str, float]:
        n = sample.devices
        columns = {"fixed": np.ones_like(n), "work": 1 / n, "growing": np.log2(n)}
        sizes = nonnegative_least_squares(
            np.stack([columns[name] for name in names], axis=1), sample.values
        )
        return dict(zip(names, map(float, sizes)))

    grows = len(points.devices) >= MIN_POINTS_GROWING and solve(points)["growing"] > 0
    names = TERMS if grows else TERMS[:2]

    def cost(parameters: Parameters, at: Floats) -> Floats:
        growing = parameters.get("growing", 0.0) * np.log2(at)
        return np.asarray(at * (parameters["fixed"] + parameters["work"] / at + growing))

    formula = "T(N) = {fixed} + {work}/N" + (" + {growing} log2 N" if grows else "")
    return fit_law("complete", points, lambda sample: solve(sample, names), cost, formula)
