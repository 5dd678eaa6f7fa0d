"""Predict throughput and time on more devices, with a 90 % interval, and textbook laws.

series            device-seconds per unit of work at each device count; all fits use these
downsample        fewer points of a series with many, for all fits
empirical_prior   first estimate: the loss per doubling that is typical of published curves
posterior         second estimate: many random cost formulas, weighted by how well they fit
forecast          the default: both estimates averaged, with a calibrated interval
learned           parameters of the default, learned from published curves
laws/             Amdahl, Gustafson, Gunther and others: one plugin each, with its formula
complete_time     the time of a job from launch to end, span by span
next_measurement  the measurement that would narrow the interval most
fixed_cost        seconds of a table's jobs that more devices do not shorten
hold_out          measured points predicted from smaller ones, as a check of the prediction
law_disagreement  where the prediction is outside all laws that fit, and why
outliers          measured points that the other points do not predict
published_curves  how published curves went on after the device growth measured here
prediction        calls the modules above; their results as one `Prediction`
"""

from scalewise.analysis.predict.fixed_cost import below_fixed_cost, fit_fixed_cost
from scalewise.analysis.predict.hold_out import predict_and_check
from scalewise.analysis.predict.law_disagreement import LawDisagreement, law_disagreements
from scalewise.analysis.predict.prediction import HoldOutCheck, PredictedPoint, Prediction, predict

__all__ = [
    "HoldOutCheck",
    "LawDisagreement",
    "PredictedPoint",
    "Prediction",
    "below_fixed_cost",
    "fit_fixed_cost",
    "law_disagreements",
    "predict",
    "predict_and_check",
]
