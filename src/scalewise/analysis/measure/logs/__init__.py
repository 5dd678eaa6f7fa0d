"""Logs of runs that other programs made: lines, MLPerf, TensorBoard, CSV → runs with a rate.

``line_formats`` is the table of lines that are read from plain text: add yours there. The other
formats have a module each. All of them give a ``Log``; ``log_run`` makes one measured run of it.
"""

from scalewise.analysis.measure.logs.log import DeviceCount, Log, Observation
from scalewise.analysis.measure.logs.log_run import LogOptions, LogRun, summarize_log
from scalewise.analysis.measure.logs.read_log import NotALog, looks_like_log, read_log

__all__ = [
    "DeviceCount",
    "Log",
    "LogOptions",
    "LogRun",
    "NotALog",
    "Observation",
    "looks_like_log",
    "read_log",
    "summarize_log",
]
