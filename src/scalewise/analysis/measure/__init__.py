"""How fast, how well, how much of it is lost: every measurement, each defined once.

estimate   a number with its interval
window     the steady part of one run, and the parts of its whole life
ledger     what every rank did in each steady step, side by side
energy     what a run took, by the counters of its devices and hosts
neighbours whether others used the machines of a run
operations what a model's own operations reach of a device's peak
curve      points against devices, and what follows from comparing them
acceleration  points on another kind of device than the baseline's
summary    curves from the records of a study
table      curves from numbers that somebody measured elsewhere
"""

from scalewise.analysis.measure.csv_table import curve_from_csv, curve_from_numbers
from scalewise.analysis.measure.curve import Point, ScalingCurve, condition_differences
from scalewise.analysis.measure.estimate import Estimate
from scalewise.analysis.measure.summary import scaling_curves

__all__ = [
    "Estimate",
    "Point",
    "ScalingCurve",
    "condition_differences",
    "curve_from_csv",
    "curve_from_numbers",
    "scaling_curves",
]
