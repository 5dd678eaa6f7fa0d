"""How well more devices are predicted, on all published curves.

    python benchmarks/prediction.py [--seeds 3] [--families]

Protocols: ``largest`` hides the largest one of four counts, or two of more;
``node`` shows one node alone, and ``two nodes`` one point more; ``three`` shows
the three smallest. Whatever is learned is learned anew without the family
(source) that is predicted. A law has no band of its own: it gets the 5 % and 95 %
quantiles of its errors in the other families. The score of an interval is
Winkler's, on logarithms: its width, and 20 times what it missed by. Exits with 1
when a claim does not hold.
"""

import argparse
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from learn import as_series, hidden, learn

from scalewise import plugins
from scalewise.analysis.predict.forecast import forecast
from scalewise.analysis.predict.learned import Learned
from scalewise.analysis.predict.next_measurement import best_next_measurement
from scalewise.analysis.predict.series import Kind, Series
from scalewise.catalog.curves import load_published_curves
from scalewise.errors import NotEnoughData

PROTOCOLS = ("largest", "node", "two nodes", "three")
CLAIMS = {
    "largest": {"median": 3.0, "p90": 17.0, "score": 0.50, "least": 84.0, "most": 96.0},
    "node": {"score": 0.90, "least": 85.0},
    "two nodes": {"least": 85.0},
}
"""In percent, but for the score."""
Curve = tuple[str, Series]
"""The family, and the curve."""


@dataclass(frozen=True)
class Told:
    """One prediction of one hidden point, in logarithms of cost."""

    family: str
    curve: int
    devices: float
    truth: float
    middle: float
    low: float = math.nan
    high: float = math.nan
    sign: float = 1.0
    """Of cost in the metric: time grows with it, throughput falls."""

    @property
    def error(self) -> float:
        return 100 * abs(math.expm1(self.sign * (self.middle - self.truth)))

    @property
    def inside(self) -> bool:
        return self.low <= self.truth <= self.high

    @property
    def score(self) -> float:
        missed = max(self.low - self.truth, 0) + max(self.truth - self.high, 0)
        return self.high - self.low + 20 * missed


def by_default(
    curves: list[Curve], known: dict[str, dict[Kind, Learned]], protocol: str, seed: int = 0
) -> list[Told]:
    """Return every prediction of the default under a protocol."""
    found = []
    for number, (family, points) in enumerate(curves):
        shown = hidden(points, protocol)
        if shown is None:
            continue
        at = points.devices[~shown]
        made = forecast(points.select(shown), at, known[family][points.kind], seed=seed)
        rows = zip(at, np.log(points.cost[~shown]), made.middle, made.low, made.high)
        sign = 1.0 if points.metric == "time" else -1.0
        found += [Told(family, number, *map(float, row), sign) for row in rows]
    return found


def by_law(curves: list[Curve], name: str, protocol: str) -> list[Told]:
    """Return every prediction of a law, with the band its errors elsewhere give it."""
    fit = plugins.load("laws", name)
    found = []
    for number, (family, points) in enumerate(curves):
        shown = hidden(points, protocol)
        if shown is None:
            continue
        try:
            made = fit(points.select(shown)).cost(points.devices[~shown])
        except NotEnoughData:
            continue
        sign = 1.0 if points.metric == "time" else -1.0
        rows = zip(points.devices[~shown], np.log(points.cost[~shown]), np.log(made))
        found += [Told(family, number, *map(float, row), sign=sign) for row in rows]
    return list(_with_band(found))


def _with_band(found: list[Told]) -> Iterable[Told]:
    for each in found:
        others = [other.truth - other.middle for other in found if other.family != each.family]
        low, high = np.quantile(others or [0.0], (0.05, 0.95))
        yield Told(
            each.family, each.curve, each.devices, each.truth, each.middle,
            each.middle + float(low), each.middle + float(high), each.sign,
        )  # fmt: skip


def summary(found: list[Told]) -> dict[str, float]:
    """Return what a list of predictions comes to."""
    errors = np.array([each.error for each in found])
    return {
        "median": float(np.median(errors)),
        "mean": float(errors.mean()),
        "p90": float(np.percentile(errors, 90)),
        "covers": 100 * float(np.mean([each.inside for each in found])),
        "width": float(np.mean([each.high - each.low for each in found])),
        "score": float(np.mean([each.score for each in found])),
    }


def line(name: str, found: list[Told]) -> str:
    """Return one row of the table."""
    told = summary(found)
    return (
        f"  {name:<16} median {told['median']:6.2f} %  mean {told['mean']:6.1f} %  "
        f"p90 {told['p90']:6.1f} %  covers {told['covers']:4.0f} %  "
        f"width {told['width']:.3f}  score {told['score']:.3f}  n={len(found)}"
    )


def broken(protocol: str, told: dict[str, float]) -> list[str]:
    """Return the claims about a protocol that do not hold."""
    claims = CLAIMS.get(protocol, {})
    wrong = [name for name in ("median", "p90", "score") if told[name] > claims.get(name, np.inf)]
    if not claims.get("least", 0) <= told["covers"] <= claims.get("most", 100):
        wrong.append("coverage")
    return [f"{protocol}: {name}" for name in wrong]


def two_nodes(curves: list[Curve], known: dict[str, dict[Kind, Learned]]) -> list[str]:
    """Tell what one point on two nodes gives, and whether as much as was announced."""
    before = {(t.curve, t.devices): t for t in by_default(curves, known, "node")}
    after = by_default(curves, known, "two nodes")
    old = [before[each.curve, each.devices] for each in after]
    errors = [float(np.median([each.error for each in some])) for some in (old, after)]
    ratios = []
    for number, (family, points) in enumerate(curves):
        shown = hidden(points, "two nodes")
        if shown is None:
            continue
        one_node, target = hidden(points, "node"), float(points.devices[-1])
        assert one_node is not None
        made = best_next_measurement(points.select(one_node), target, known[family][points.kind])
        assert made is not None
        then = next(t for t in after if (t.curve, t.devices) == (number, target))
        now = before[number, target]
        ratios.append(made.shrinks / ((then.high - then.low) / (now.high - now.low)))
    announced = float(np.median(ratios))
    print(
        f"one point on two nodes: median error {errors[0]:.2f} % before, {errors[1]:.2f} % after; "
        f"the interval announced is {announced:.2f} times the one it became "
        f"(median of {len(ratios)} curves)"
    )
    wrong = ["two nodes: the error does not halve"] * (errors[1] > errors[0] / 2)
    return wrong + ["two nodes: announced"] * (not 0.5 <= announced <= 2)


def main() -> None:
    """Score every law and the default; tell which claims do not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="shifts of the drawn machines")
    parser.add_argument("--families", action="store_true", help="also by source")
    asked = parser.parse_args()
    curves = [
        (each.family, as_series(each)) for each in load_published_curves() if not each.suspect
    ]
    families = sorted({family for family, _ in curves})
    known = {
        family: learn([points for other, points in curves if other != family])
        for family in families
    }
    wrong: list[str] = []
    for protocol in PROTOCOLS:
        print(protocol)
        for name in plugins.available("laws"):
            if name != "complete":  # For times alone.
                print(line(name, by_law(curves, name, protocol)))
        for seed in range(asked.seeds):
            found = by_default(curves, known, protocol, seed)
            print(line(f"default, seed {seed}", found))
            wrong += broken(protocol, summary(found))
        if asked.families:
            for family in families:
                if some := [each for each in found if each.family == family]:
                    print(line(f"  {family}", some))
    wrong += two_nodes(curves, known)
    sys.exit("a claim does not hold: " + "; ".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
