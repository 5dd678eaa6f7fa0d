"""The runs of a file, whatever its format."""

import re

from scalewise.analysis.measure.logs.event_file import is_event_file, read_event_file
from scalewise.analysis.measure.logs.json_lines import read_json_lines
from scalewise.analysis.measure.logs.log import Log
from scalewise.analysis.measure.logs.metrics_csv import is_metrics_csv, read_metrics_csv
from scalewise.analysis.measure.logs.mllog import MARK, read_mllog
from scalewise.analysis.measure.logs.openmetrics import is_openmetrics, read_openmetrics
from scalewise.analysis.measure.logs.text_log import clean_terminal, read_text_log
from scalewise.analysis.measure.table_lines import decode_text

CONTROLS = re.compile(r"[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]")
MAX_CONTROLS = 0.01
"""The share of control characters above which a file is not text."""

MARKUP = re.compile(r"\s*<(?:!doctype|html|head|body|\?xml|svg)\b", re.IGNORECASE)
"""How a page or a drawing begins: numbers in it are not lines of a log."""
MAX_SAMPLE = 2**20
"""Bytes that are looked at to tell a log from other files."""


class NotALog(ValueError):
    """A file has no line, tag or column that gives a throughput or a time."""


def read_log(data: bytes) -> list[Log]:
    """Return the runs of a file, at least one; raise NotALog if there are none."""
    if is_event_file(data):
        logs = read_event_file(data)
        if not logs:
            raise NotALog("none of its tags is a throughput or a time")
        return logs
    try:
        text = clean_terminal(decode_text(data))
    except ValueError as error:
        raise NotALog(str(error)) from error
    sample = text[:100_000]
    if len(CONTROLS.findall(sample)) > MAX_CONTROLS * len(sample):
        raise NotALog("it is not text")
    if MARKUP.match(text):
        raise NotALog("it is an HTML or XML document")
    return _read_text(text)


def looks_like_log(data: bytes) -> bool:
    """Say whether the beginning of a file is a log that can be imported."""
    try:
        return bool(read_log(data[:MAX_SAMPLE]))
    except NotALog:
        return False


def _read_text(text: str) -> list[Log]:
    if MARK in text and (logs := read_mllog(text)):
        return logs
    if is_openmetrics(text) and (logs := read_openmetrics(text)):
        return logs
    if re.search(r"^(?:DLLL )?\{\"", text, re.MULTILINE) and (logs := read_json_lines(text)):
        return logs
    if is_metrics_csv(text):
        log = read_metrics_csv(text)
        if log.observations:
            return [log]
        raise NotALog("none of its columns is a throughput or the time of an epoch or step")
    log = read_text_log(text)
    if log.observations:
        return [log]
    if log.bad_values:
        raise NotALog(f"none of its {log.bad_values} rates and times is a number above 0")
    raise NotALog("no line of it gives a throughput or a time")
