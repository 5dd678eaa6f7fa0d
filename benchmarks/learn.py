"""Learn what the default predictor knows beforehand, from the published curves.

    python benchmarks/learn.py            print it
    python benchmarks/learn.py --write    also into the package

Few numbers, and each by a plain rule:

typical_loss, own_weight, leave_node_loss
                  least absolute deviations of the loss per doubling that follows any prefix
                  of a curve, on the loss per doubling of that prefix
priors            five rounds of expectation and maximization over whole curves; two
                  imagined curves hold each term at its start
interval_factor   factor on the interval of the machine models so that it covers 90 %; one
                  for all kinds, so that one family alone does not decide it

Noise, drift and trend_weight are set by hand, from a coarse grid; results hardly depend on
them. ``prediction.py`` learns all parameters again without each family in turn.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from scalewise.analysis.predict.empirical_prior import expected_trend
from scalewise.analysis.predict.forecast import forecast
from scalewise.analysis.predict.learned import LEARNED_FILE, Learned, Prior
from scalewise.analysis.predict.posterior import TERMS, draw_machines, weigh_machines
from scalewise.analysis.predict.published_curves import as_series
from scalewise.analysis.predict.series import KINDS, Floats, Kind, Series
from scalewise.catalog.curves import load_published_curves

Shown = NDArray[np.bool_]
ROUNDS = 5
DRAWS = 8192
IMAGINED = 2.0
"""How many curves the start of a prior counts for."""
PREFIXES_SEE = 2
"""How many points beyond a prefix its loss is compared with."""
PROTOCOLS = ("largest", "node", "three")
START = {
    "weak": {
        "ring": Prior(0.5, math.log(0.08), 1.0), "host": Prior(0.5, math.log(0.1), 1.0),
        "network": Prior(0.5, math.log(0.1), 1.0), "flat": Prior(0.4, math.log(0.05), 1.0),
        "latency": Prior(0.4, math.log(0.01), 1.0), "growth": Prior(0.3, math.log(0.05), 1.2),
        "power": Prior(0.3, 0.02, 0.03),
    },
    "other": {
        "ring": Prior(0.4, math.log(0.1), 1.0), "host": Prior(0.3, math.log(0.1), 1.0),
        "network": Prior(0.4, math.log(0.1), 1.0), "flat": Prior(0.3, math.log(0.05), 1.0),
        "latency": Prior(0.4, math.log(0.05), 1.0), "growth": Prior(0.6, math.log(0.3), 1.5),
        "power": Prior(0.5, 0.1, 0.1),
    },
}  # fmt: skip
NOISE = {"weak": 0.015, "other": 0.03}
DRIFT = 1.5
TREND_WEIGHT = {"weak": 1 / 2, "other": 1 / 3}


def hidden(points: Series, protocol: str) -> Shown | None:
    """Say which points are shown under a protocol, or nothing where it does not apply.

    ``largest`` hides the largest of four counts, or two of more; ``node`` shows one
    node alone, ``two nodes`` one point more, and ``three`` the three smallest.
    """
    counts = points.devices
    places = np.arange(len(counts))
    if protocol == "node":
        shown = counts <= (points.per_node or 0)
        return shown if shown.sum() >= 2 and not shown.all() else None
    if protocol == "two nodes":
        shown = hidden(points, "node")
        if shown is None:
            return None
        shown = places <= shown.sum()
        return None if shown.all() else shown
    if len(counts) < 4:
        return None
    if protocol == "three":
        return places < 3
    return places < len(counts) - (1 if len(counts) == 4 else 2)


def learn(curves: Sequence[Series]) -> dict[Kind, Learned]:
    """Return what these curves teach, for each kind."""
    by_kind = {kind: [each for each in curves if each.kind == kind] for kind in KINDS}
    found = {kind: _learn(kind, of_kind) for kind, of_kind in by_kind.items()}
    widen = _widen([(found[kind], of_kind) for kind, of_kind in by_kind.items()])
    return {kind: replace(known, interval_factor=widen) for kind, known in found.items()}


def _learn(kind: Kind, curves: Sequence[Series]) -> Learned:
    usual, own, leaving = _loss_per_doubling(kind, curves)
    return Learned(
        typical_loss=usual, own_weight=own, leave_node_loss=leaving, priors=_priors(kind, curves),
        noise=NOISE[kind], drift=DRIFT, trend_weight=TREND_WEIGHT[kind], interval_factor=1.0,
    )  # fmt: skip


def _loss_per_doubling(kind: Kind, curves: Sequence[Series]) -> tuple[float, float, float]:
    """Return typical_loss, own_weight, leave_node_loss; the last from weak scaling alone."""
    rows, losses = [], []
    blank = Learned(0, 0, 0, {}, 0, 0, 0, 0)
    for points in curves:
        count = len(points.devices)
        for shown in range(2, count):
            prefix = points.select(np.arange(count) < shown)
            for place in range(shown, min(shown + PREFIXES_SEE, count)):
                at = points.devices[place : place + 1]
                grown = math.log2(at[0] / prefix.last)
                gone = float(prefix.leaves_node(at)[0]) if kind == "weak" else 0.0
                rows.append([1.0, expected_trend(prefix, blank).measured_loss, gone / grown])
                losses.append(math.log(points.cost[place] / prefix.cost[-1]) / grown)
    found = _least_absolute(np.array(rows), np.array(losses))
    return float(found[0]), float(found[1]), float(found[2])


def _least_absolute(rows: Floats, wanted: Floats) -> Floats:
    """Return coefficients of least absolute deviation, by reweighted least squares."""
    weights = np.ones(len(wanted))
    found = np.zeros(rows.shape[1])
    for _ in range(60):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(rows * root[:, None], wanted * root, rcond=None)[0]
        weights = 1 / np.maximum(np.abs(wanted - rows @ found), 0.003)
    return found


def _priors(kind: Kind, curves: Sequence[Series]) -> dict[str, Prior]:
    """Return priors under which whole curves are likely."""
    start, priors = START[kind], dict(START[kind])
    known = Learned(0, 0, 0, {}, NOISE[kind], DRIFT, 0, 0)
    seen = [points for points in curves if len(points.devices) >= 3]
    for _ in range(ROUNDS):
        machines = draw_machines(priors, count=DRAWS)
        there = machines != 0
        sizes = np.where(there, machines, 1.0)
        sizes = np.column_stack([np.log(sizes[:, :-1]), machines[:, -1]]) * there
        moments = np.zeros((3, len(TERMS)))
        for points in seen:
            weights, _, _ = weigh_machines(
                points, points.devices[-1:], machines, known.noise, known.drift
            )
            moments += weights @ there, weights @ sizes, weights @ sizes**2
        for column, name in enumerate(TERMS):
            priors[name] = _updated(start[name], len(seen), *moments[:, column])
    return priors


def _updated(start: Prior, curves: int, count: float, total: float, squares: float) -> Prior:
    """Return a prior from the moments of its term over all curves, and of the imagined ones."""
    middle = (total + IMAGINED * start.middle) / (count + IMAGINED)
    around = squares - 2 * middle * total + middle**2 * count
    imagined = IMAGINED * (start.spread**2 + (start.middle - middle) ** 2)
    return Prior(
        probability=float((count + IMAGINED * start.probability) / (curves + IMAGINED)),
        middle=float(middle),
        spread=math.sqrt((around + imagined) / (count + IMAGINED)),
    )


def _widen(learned: Sequence[tuple[Learned, Sequence[Series]]]) -> float:
    """Return what the machines' interval is multiplied with to hold 9 of 10."""
    found = [
        missed(known, points, shown)
        for known, curves in learned
        for points in curves
        for protocol in PROTOCOLS
        if (shown := hidden(points, protocol)) is not None
    ]
    return float(np.quantile(np.concatenate(found), 0.9))


def missed(known: Learned, points: Series, shown: Shown) -> Floats:
    """Return what the machines' interval must be multiplied with to hold the hidden points."""
    truth = np.log(points.cost[~shown])
    made = forecast(points.select(shown), points.devices[~shown], known, draws=DRAWS)
    half = np.where(truth > made.middle, made.high - made.middle, made.middle - made.low)
    disagreement = np.abs(made.by_trend - made.by_machines) / 2
    beyond = np.maximum((truth - made.middle) ** 2 - disagreement**2, 0)
    return np.asarray(np.sqrt(beyond / (half**2 - disagreement**2)))


def rounded(known: Learned) -> dict[str, object]:
    """Return it as data, to three figures."""

    def short(value: object) -> object:
        if isinstance(value, dict):
            return {key: short(each) for key, each in value.items()}
        return float(f"{value:.3g}")

    return {key: short(value) for key, value in asdict(known).items()}


def main() -> None:
    """Learn from all curves; print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="into the package")
    asked = parser.parse_args()
    curves = [each for each in load_published_curves() if not each.suspect]
    found = learn([as_series(each) for each in curves])
    families = sorted({each.family for each in curves})
    told = {
        "how": "benchmarks/learn.py --write, from all published curves of the catalog",
        "curves": len(curves),
        "families": families,
        **{kind: rounded(known) for kind, known in found.items()},
    }
    text = json.dumps(told, indent=1) + "\n"
    print(text, end="")
    if asked.write:
        LEARNED_FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
