"""Predict throughput and time on more devices, with a 90 % interval and the laws beside it.

series            what laws are fitted to: the cost of a unit of work against devices
empirical_prior   first estimate: the loss per doubling that is typical of published curves
posterior         second estimate: many machine models, weighted by how well they fit
forecast          the default: both estimates averaged, with a calibrated interval
learned           parameters of the default, learned from published curves
laws/             Amdahl, Gustafson, Gunther and others: one plugin each, prints as its formula
complete_time     the complete time of a job, span by span
next_measurement  the most informative next measurement
outliers          measured rows that the other rows do not explain
published_curves  how published curves continued beyond the same growth
prediction        all of it as one value
"""

from scalewise.analysis.predict.prediction import PredictedPoint, Prediction, predict

__all__ = ["PredictedPoint", "Prediction", "predict"]
