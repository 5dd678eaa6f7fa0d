"""States of runs as lines: what is printed, and when."""

import io
import re

import pytest
from rich.console import Console

from builders import a_run
from scalewise.cli import status_lines
from scalewise.cli.progress import Bars, Lines, show_until_ended
from scalewise.record.run_progress import RunProgress
from scalewise.study import Status

RUN = a_run()
BAR = "━"


def running(*values, cause=""):
    return Status(RUN, "running", cause, RunProgress(*values))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (running(0, None, None, 5.0), "running, no step yet, 0:00:05"),
        (running(1), "running, 1 step"),
        (running(1204, None, 1830.2, 75.0), "running, 1,204 steps, 1,830 samples/s, 0:01:15"),
        (running(3, 12, 0.25), "running, 3 of 12 steps (25%), 0.25 samples/s"),
        (running(3, cause="on login2"), "running, 3 steps, on login2"),
        (Status(RUN, "queued", "Priority", job="7"), "queued, Priority (job 7)"),
        (Status(RUN, "running", progress=RunProgress(3), job="7"), "running, 3 steps (job 7)"),
        (
            Status(RUN, "queued", "Priority", RunProgress(elapsed=3700.0)),
            "queued for 1:01:40, Priority",
        ),
        (Status(RUN, "failed", "killed", RunProgress(3, 12, None, 5.0)), "failed, killed"),
        (Status(RUN, "finished", progress=RunProgress(12, 12, None, 5.0)), "finished"),
        (Status(RUN, "missing"), "missing"),
    ],
)
def test_a_state_is_a_short_text(status, text):
    assert status_lines.status_text(status) == text


def test_lines_are_printed_for_changes_and_now_and_then(monkeypatch, capsys):
    clock = iter((0.0, 1.0, 1.0, 99.0, 100.0, 100.0, 101.0, 101.0, 102.0, 112.0, 112.0))
    monkeypatch.setattr(status_lines.time, "monotonic", lambda: next(clock))
    queued = Status(RUN, "queued", "Priority")
    watcher = Lines()
    watcher.begin(1, 0, "")
    watcher.started(1, RUN)
    lines = [queued, queued, Status(RUN, "queued", "Resources"), running(0), running(1), running(2)]
    for status in lines:
        watcher.progressed(RUN, status)
    assert capsys.readouterr().err.splitlines()[2:] == [
        "  queued, Priority", "  queued, Resources", "  running, no step yet", "  running, 2 steps",
    ]  # fmt: skip


def shown(status, width=80, **options):
    """Return what a terminal shows of a study with one run in this state."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, **options)
    bars = Bars(console)
    bars.begin(2, 0, "")
    bars.started(1, RUN)
    if status:
        bars.progressed(RUN, status)
    console.print(bars.render())
    return console.file.getvalue()


def test_only_a_known_length_has_a_bar():
    assert "starting" in shown(None)
    for status in (running(120, None, 1830.0, 75.0), Status(RUN, "queued", "Priority")):
        assert BAR not in shown(status).splitlines()[-1]
    line = shown(running(120, 300, 1830.0, 75.0), no_color=True).splitlines()[-1]
    plain = re.sub(r"\x1b\[[\d;]*m", "", line)
    assert BAR in plain and "120 of 300 steps, 1,830 samples/s, 0:01:15" in plain
    assert "\x1b" not in line.replace("\x1b[0m", "")  # NO_COLOR sets no_color.


def test_a_terminal_shows_states_in_place_and_keeps_the_last(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    looks = [running(120, 300, 1830.0, 75.0)], [Status(RUN, "failed", "killed " * 20)]
    assert show_until_ended(iter(looks)) == looks[1]
    plain = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert "120 of 300 steps, 1,830 samples/s, 0:01:15" in plain
    *_, last = plain.rpartition("\x1b[2K")
    assert " ".join(last.split()) == f"{RUN.title}: failed, {'killed ' * 20}".rstrip()
    assert max(map(len, last.splitlines())) <= 80
