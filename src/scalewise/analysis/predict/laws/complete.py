"""The law of a job's time from launch to end: T(N) = fixed + work / N + growing log2 N. The fixed
part (launch, data, build, compile) limits the time even while throughput still grows.
"""

from collections.abc import Sequence

import numpy as np

from scalewise.analysis.measure.table_start import nonnegative_least_squares
from scalewise.analysis.predict.laws import Fit, Parameters, fit_law
from scalewise.analysis.predict.series import Floats, Series, require_points
from scalewise.errors import NotEnoughData

TERMS = ("fixed", "work", "growing")
MIN_POINTS_GROWING = 4
"""With fewer points the growing part is not fitted."""


def fit(points: Series) -> Fit:
    """Return the law with the least squared relative errors; ``growing`` needs four points."""
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
