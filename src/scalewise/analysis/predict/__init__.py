"""Predict throughput and time on more devices, with a 90 % interval, and textbook laws.

series            device-seconds per unit of work at each device count; all fits use these
empirical_prior   first estimate: the loss per doubling that is typical of published curves
posterior         second estimate: many random cost formulas, weighted by how well they fit
forecast          the default: both estimates averaged, with a calibrated interval
learned           parameters of the default, learned from published curves
laws/             Amdahl, Gustafson, Gunther and others: one plugin each, with its formula
complete_time     the time of a job from launch to end, span by span
next_measurement  the measurement that would narrow the interval most
outliers          measured points that the other points do not predict
published_curves  how published curves went on after the device growth measured here
prediction        calls the modules above; their results as one `Prediction`
"""

from scalewise.analysis.predict.prediction import PredictedPoint, Prediction, predict

__all__ = ["PredictedPoint", "Prediction", "predict"]
