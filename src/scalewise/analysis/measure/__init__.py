"""Throughput, time, efficiency and all other metrics of a study, each declared once.

estimate      a number with its interval
doubt         a reason to trust a result less
window        the steady part of one run, and the parts of its lifetime
ledger        the phases of every rank in each steady step
metrics       one function per metric, from the repeats of one topology
point         all metrics of one number of devices, and their columns in tables
intervals     set operations on time intervals
energy        joules and watts, by the counters of devices and hosts
mfu           the share of a device's peak that the model's operations reach
host_load     doubts about hosts that other processes overloaded
curve         points compared with the baseline and with each other
acceleration  compares points on different kinds of device
summary       curves from the records of a study
run_values    the metrics and series of one run alone
curve_numbers  curves from (devices, value) pairs measured elsewhere
csv_table     curves from tables that people wrote; table_* read their text:
table_lines   encodings, delimiters and cells
table_header  the meaning of titles
table_numbers numbers with units, times, spreads, decimal commas
table_layout  where header and rows stand
table_columns which columns are used, and their decimal marks
table_reading rows, and the record of how they were read
"""

from scalewise.analysis.measure.csv_table import curve_from_csv
from scalewise.analysis.measure.curve import ScalingCurve, condition_differences
from scalewise.analysis.measure.curve_numbers import curve_from_numbers
from scalewise.analysis.measure.doubt import Doubt
from scalewise.analysis.measure.estimate import Estimate
from scalewise.analysis.measure.point import Point
from scalewise.analysis.measure.summary import scaling_curves

__all__ = [
    "Doubt",
    "Estimate",
    "Point",
    "ScalingCurve",
    "condition_differences",
    "curve_from_csv",
    "curve_from_numbers",
    "scaling_curves",
]
