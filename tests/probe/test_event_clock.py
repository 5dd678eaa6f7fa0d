"""The clock of an accelerator, with events that only note when they were recorded."""

from types import SimpleNamespace

import pytest
import torch

from scalewise.probe.torch import device as devices


class Event:
    """An event of a device whose time passes by a second with each recording."""

    made, time = 0, 0

    def __init__(self, *, enable_timing):
        assert enable_timing
        Event.made += 1

    def record(self, stream):
        Event.time += 1
        self.time, self.stream = Event.time, stream

    def query(self):
        return True

    def elapsed_time(self, end):
        return (end.time - self.time) * 1000.0


@pytest.fixture
def clock(monkeypatch):
    module = SimpleNamespace(
        Event=Event, current_device=lambda: 0, current_stream=lambda index: f"stream of {index}"
    )
    monkeypatch.setattr(devices, "module_of", lambda kind: module)
    monkeypatch.setattr(Event, "made", 0)
    return devices.EventClock(torch.device("cuda"))


def test_an_event_is_recorded_again_only_when_nobody_holds_its_mark(clock):
    first, second = clock.mark(), clock.mark()
    row = [first, second]
    del first, second
    third = clock.mark()
    assert clock.between(row, [row[1], third]) == [1.0, 1.0]
    assert Event.made == 3
    del row
    assert third.event not in (clock.mark().event, clock.mark().event)
    assert Event.made == 3


def test_marks_are_recorded_in_the_current_stream_of_the_clocks_device(clock):
    assert clock.mark().event.stream == "stream of 0"
