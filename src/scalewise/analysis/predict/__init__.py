"""What more devices would give: laws, a default that is better than any of them, honest bands.

series      what laws are fitted to: the cost of a unit of work
doubling    the first view: what is usually lost with each doubling
machines    the second view: all machines that could have made these points
forecast    the default: both views, averaged, with a calibrated band
learned     what the default knows beforehand, from published curves
laws/       Amdahl, Gustafson, Gunther and others, each a part that prints as its formula
life        the complete time, part by part
worth       the measurement worth making next
odd         measured rows that the others do not explain
words       what a prediction says
others      how published curves went on, beside a prediction
prediction  the whole answer
"""

from scalewise.analysis.predict.prediction import Ahead, Prediction, beyond, counts, predict

__all__ = ["Ahead", "Prediction", "beyond", "counts", "predict"]
