"""A deep look at a few steps, with PyTorch's own profiler.

Profiling slows the steps it looks at, so it is asked for, short, and never
part of what is measured: from the profiler's start to the step after its end
all steps are flagged ``traced``, and the whole stretch is a span ``trace``. The
step before the traced ones lets the profiler warm up, the one after them lets
the ranks meet again. What the watching itself saw of the traced steps is
written beside the trace, so that the two can be compared.
"""

import gzip
import json
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from scalewise.record.write import marks_file, operators_file, trace_file, write_bytes, write_json
from scalewise.watch.guest import Guest
from scalewise.watch.torch import private_api
from scalewise.watch.torch.event_buffer import Tape

FIRST = 20
"""Steps before the profiler starts."""
AROUND = 2
"""Steps around the traced ones that are left out too."""
LARGEST = 20
"""Operators that are listed."""
LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
ORIGIN = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')

Lap = dict[str, Any]
"""What one lap was: its step, its name, its start and end by the monotonic and the wall clock."""


def first_step(count: int, stop_after: int) -> int:
    """Return after how many steps the profiler starts: the same on every rank.

    >>> first_step(5, 0), first_step(5, 300), first_step(5, 20)
    (20, 20, 13)
    """
    return min(FIRST, max(1, stop_after - count - AROUND)) if stop_after else FIRST


class Trace:
    """Profiles some steps of one rank, where that is asked for."""

    def __init__(self, guest: Guest, tape: Tape, rank: Callable[[], int]) -> None:
        self._guest, self._tape, self._observer, self._rank = guest, tape, tape.observer, rank
        self._count: int = guest.settings.get("trace") or 0
        self._first = first_step(self._count, guest.settings.get("stop_after") or 0)
        self._profiler: Any = None
        self._ranges: Ranges | None = None
        self._began = self._wall = 0.0
        self._seen = -1
        """Steps at the last look: an optimizer's step is not always the end of one."""
        self._past = 0
        """Steps since the profiler started."""
        self._laps: list[Lap] = []
        self.on = self._count > 0
        """Whether there is anything left to do."""

    def stepped(self, device: torch.device) -> None:
        """A step has ended; a problem here ends the looking, and nothing else."""
        if self._guest.steps == self._seen:
            return
        self._seen = self._guest.steps
        try:
            self._stepped(device)
        except Exception as problem:
            self._give_up(problem)

    def finish(self) -> None:
        """The program ends: keep what there is."""
        if not self.on:
            return
        try:
            if not self._laps:
                raise RuntimeError(f"the program ended after {self._guest.steps} steps")
            self._stop_profiler()
            self._end()
        except Exception as problem:
            self._give_up(problem)

    def _stop_profiler(self) -> None:
        """Stop the profiler if it is at work: a process that ends with it crashes."""
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()

    def _stepped(self, device: torch.device) -> None:
        if self._guest.steps < self._first:
            return None
        if self._past < 2 and private_api.profiled():
            raise RuntimeError("the program's own profiler is at work")
        if not self._past:
            self._start(device)
        elif self._past <= self._count + 1:
            if self._past > 1:
                self._note_laps()
            elif device.type == "cuda":  # What is still to be done is of the step before.
                torch.cuda.synchronize(device)
            self._profiler.step()
            if self._past == 1:
                self._wall = time.time() - time.perf_counter()
            elif self._past == self._count + 1:
                self._profiler = None
        else:
            return self._end()
        self._past += 1
        self._tape.skip()
        return self._observer.side(traced=1)

    def _start(self, device: torch.device) -> None:
        self._began = time.perf_counter()
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
            self._ranges = Ranges()
            self._tape.follow(self._ranges.enter)
        self._profiler = torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=self._count, repeat=1),
            on_trace_ready=self._save,
        )
        self._profiler.start()

    def _note_laps(self) -> None:
        names, times = self._observer.last_row
        self._laps += [
            {"step": self._guest.steps - 1, "name": name, "start": start, "end": end}
            for name, start, end in zip(names, times, times[1:])
        ]

    def _save(self, profiler: Any) -> None:
        """Write the trace, its largest operators and our own laps."""
        self._stop_ranges()
        folder, rank = self._guest.folder, self._rank()
        wall = self._wall or time.time() - time.perf_counter()
        for lap in self._laps:
            lap["at"], lap["until"] = wall + lap["start"], wall + lap["end"]
        draft = folder / f".trace-{rank:05d}.{os.getpid()}.json"
        try:
            profiler.export_chrome_trace(str(draft))
            text = with_laps(draft.read_bytes(), self._laps)
        finally:
            draft.unlink(missing_ok=True)
        write_bytes(trace_file(folder, rank), gzip.compress(text, compresslevel=3))
        write_json(operators_file(folder, rank), {"operators": largest(profiler.key_averages())})
        write_json(marks_file(folder, rank), {"rank": rank, "laps": self._laps})

    def _end(self) -> None:
        self.on = False
        self._guest.span("trace", self._began, time.perf_counter())

    def _give_up(self, problem: Exception) -> None:
        self.on = False
        self._stop_ranges()
        with suppress(Exception):
            self._stop_profiler()
        print(f"scalewise: no trace: {problem!r}; the program goes on", file=sys.stderr)
        self._guest.note(untraced=str(problem))
        if self._began:
            self._guest.span("trace", self._began, time.perf_counter())

    def _stop_ranges(self) -> None:
        self._tape.follow(None)
        if self._ranges is not None:
            self._ranges.enter("")
            self._ranges = None


class Ranges:
    """Shows what the training does as ranges in Nsight; those of any thread may end them."""

    def __init__(self) -> None:
        self._open: Any = None

    def enter(self, activity: str) -> None:
        """End the range before, and begin one for this activity, if it has a name."""
        if self._open is not None:
            torch.cuda.nvtx.range_end(self._open)
        self._open = torch.cuda.nvtx.range_start(f"scalewise: {activity}") if activity else None


def largest(averages: Any) -> list[dict[str, Any]]:
    """Return the operators that took most time of their own, on the device where there is one."""
    found = [
        {
            "name": each.key,
            "calls": each.count,
            "cpu": each.self_cpu_time_total / 1e6,
            "device": each.self_device_time_total / 1e6,
        }
        for each in averages
        if not each.key.startswith("ProfilerStep")
    ]
    where = "device" if any(each["device"] for each in found) else "cpu"
    return sorted(found, key=lambda each: -each[where])[:LARGEST]


def with_laps(trace: bytes, laps: list[Lap]) -> bytes:
    """Return a Chrome trace with our laps in it, as a track of their own.

    It may be large, so they are put in as text.
    """
    place = LIST.search(trace)
    if place is None or not laps:
        return trace
    said = ORIGIN.search(trace)
    origin = int(said.group(1)) / 1e3 if said else 0.0
    process = os.getpid()
    common = {"pid": process, "tid": "scalewise"}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", **common, "args": {"name": "scalewise: phases"}}
    ]
    for lap in laps:
        start, end = 1e6 * lap["at"] - origin, 1e6 * lap["until"] - origin
        name = f"scalewise: {lap['name']}"
        events.append(
            {"ph": "X", "cat": "scalewise", "name": name, **common, "ts": start,
             "dur": end - start, "args": {"step": lap["step"]}}
        )  # fmt: skip
    inserted = json.dumps(events)[1:-1].encode() + b","
    return trace[: place.end()] + inserted + trace[place.end() :]
