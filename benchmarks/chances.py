"""Whether the chance to meet a limit deserves its name, on all published curves.

    python benchmarks/chances.py

The largest counts of each curve are hidden and predicted, with what is learned
anew without the family (source) that is predicted. Limits are set from 0.7 to 1.3
times each prediction; of those that were given about the same chance, the share
that was really met should be that chance.
"""

from itertools import pairwise

import numpy as np
from learn import as_series, learn
from prediction import by_default

from scalewise.analysis.advise.choice import chance
from scalewise.analysis.measure import Estimate
from scalewise.catalog.curves import load_published_curves

LIMITS = (0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3)
EDGES = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)


def main() -> None:
    """Print, for each range of chances, how many were given and how many came true."""
    curves = [
        (curve.family, as_series(curve)) for curve in load_published_curves() if not curve.suspect
    ]
    families = dict.fromkeys(family for family, _ in curves)
    known = {each: learn([c for family, c in curves if family != each]) for each in families}
    given, met = [], []
    for told in by_default(curves, known, "largest"):
        value = Estimate(*map(float, np.exp([told.middle, told.low, told.high])))
        for share in LIMITS:
            bound = share * value.value
            found = chance(value, bound, floor=False)
            assert found is not None
            given.append(found)
            met.append(np.exp(told.truth) <= bound)
    place = np.digitize(given, EDGES[1:-1])
    print("chance          limits   mean chance   met")
    for index, (low, high) in enumerate(pairwise(EDGES)):
        here = place == index
        print(
            f"{low:4.0%} to {high:4.0%} {here.sum():8} {np.array(given)[here].mean():12.0%} "
            f"{np.array(met)[here].mean():6.0%}"
        )


if __name__ == "__main__":
    main()
