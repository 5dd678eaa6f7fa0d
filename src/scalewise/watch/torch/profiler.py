"""Trace a few steps with PyTorch's own profiler, if requested.

The profiler warms up in the step before the traced steps; in the step after them the ranks become
synchronous again. All these steps are slow: they are flagged ``traced``, and their time is a span
``trace``. Our laps (the phases of the traced steps) are written beside the trace.
"""

import gzip
import json
import os
import re
import sys
import time
from contextlib import suppress
from typing import Any

import torch

from scalewise.probe.watcher import Watcher
from scalewise.record.run_clock import run_clock
from scalewise.record.write import laps_file, operators_file, trace_file, write_bytes, write_json
from scalewise.watch.torch import private_api
from scalewise.watch.torch.event_buffer import EventBuffer

FIRST_STEP = 20  # The profiler starts after this step.
UNMEASURED_STEPS = 2
"""The step before and the step after the traced steps; they are not measured either."""
MAX_OPERATORS = 20
EVENTS_START = re.compile(rb'"traceEvents"\s*:\s*\[')
TIME_ORIGIN = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')

Lap = dict[str, Any]
"""Keys: step, name, start and end (host's monotonic clock), at and until (wall clock)."""


class Profile:
    """Profiles some steps of one rank, if requested."""

    def __init__(self, watcher: Watcher, buffer: EventBuffer) -> None:
        self._watcher, self._buffer = watcher, buffer
        self._observer = buffer.observer
        self._trace_steps = watcher.spec.trace
        self._first_step = FIRST_STEP  # The same step on every rank.
        if watcher.spec.stop_after:
            latest_start = watcher.spec.stop_after - self._trace_steps - UNMEASURED_STEPS
            self._first_step = min(FIRST_STEP, max(1, latest_start))
        self._profiler: Any = None
        self._open_range: Any = None
        self._began = self._wall_offset = 0.0
        self._last_steps = -1
        """Steps at the last call of ``after_step``, which may come without a new step."""
        self._profiled = 0
        """Steps since the profiler started, its warm-up included."""
        self._laps: list[Lap] = []
        self.pending = self._trace_steps > 0
        """Whether a trace is still to be made."""

    def after_step(self, device: torch.device) -> None:
        """Advance the profiler after a step; an error ends only the profiling."""
        if self._watcher.steps == self._last_steps:
            return
        self._last_steps = self._watcher.steps
        try:
            self._advance(device)
        except Exception as problem:
            self._end(problem)

    def finish(self) -> None:
        """Write the trace of the steps so far, because the program ends."""
        if not self.pending:
            return
        try:
            if not self._laps:
                raise RuntimeError(f"the program ended after {self._watcher.steps} steps")
            self._stop_profiler()
            self._end()
        except Exception as problem:
            self._end(problem)

    def _stop_profiler(self) -> None:
        """Stop the profiler if it runs: a process that exits while profiling crashes."""
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()

    def _advance(self, device: torch.device) -> None:
        """Start the profiler, step it after its warm-up and each traced step, then end."""
        if self._watcher.steps < self._first_step:
            return
        if self._profiled < 2 and private_api.profiler_is_running():
            raise RuntimeError("the program's own profiler is running")
        if not self._profiled:
            self._start(device)
        elif self._profiled <= self._trace_steps + 1:
            if self._profiled > 1:
                names, times = self._observer.last_laps
                self._laps += [
                    {"step": self._watcher.steps - 1, "name": name, "start": start, "end": end}
                    for name, start, end in zip(names, times, times[1:])
                ]
            elif device.type == "cuda":  # Queued work must not appear in the first traced step.
                torch.cuda.synchronize(device)
            self._profiler.step()
            if self._profiled == 1:
                self._wall_offset = run_clock().now() - time.perf_counter()
            elif self._profiled == self._trace_steps + 1:
                self._profiler = None  # By its schedule it has ended itself and called ``_save``.
        else:
            self._end()
            return
        self._profiled += 1
        self._buffer.skip()
        self._observer.step_facts["traced"] = 1

    def _start(self, device: torch.device) -> None:
        self._began = time.perf_counter()
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
            self._buffer.follow(self._enter_range)
        self._profiler = torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=self._trace_steps, repeat=1),
            on_trace_ready=self._save,
        )
        self._profiler.start()

    def _save(self, profiler: Any) -> None:
        """Write the trace, its slowest operators and our own laps."""
        self._stop_ranges()
        folder, (rank, _) = self._watcher.folder, self._watcher.rank_and_world()
        wall_offset = self._wall_offset or run_clock().now() - time.perf_counter()
        for lap in self._laps:
            lap["at"], lap["until"] = wall_offset + lap["start"], wall_offset + lap["end"]
        draft = folder / f".trace-{rank:05d}.{os.getpid()}.json"
        try:
            profiler.export_chrome_trace(str(draft))
            text = with_laps(draft.read_bytes(), self._laps)
        finally:
            draft.unlink(missing_ok=True)
        write_bytes(trace_file(folder, rank), gzip.compress(text, compresslevel=3))
        write_json(
            operators_file(folder, rank), {"operators": slowest_operators(profiler.key_averages())}
        )
        write_json(laps_file(folder, rank), {"rank": rank, "laps": self._laps})

    def _end(self, problem: Exception | None = None) -> None:
        """End the profiling; a problem is printed and recorded."""
        self.pending = False
        if problem is not None:
            self._stop_ranges()
            with suppress(Exception):
                self._stop_profiler()
            print(f"scalewise: no trace: {problem!r}; the program continues", file=sys.stderr)
            self._watcher.note(untraced=str(problem))
        if self._began:
            self._watcher.span("trace", self._began, time.perf_counter())

    def _enter_range(self, activity: str) -> None:
        """End the NVTX range of the last activity and begin another, for display in Nsight."""
        if self._open_range is not None:
            torch.cuda.nvtx.range_end(self._open_range)
        name = f"scalewise: {activity}"
        self._open_range = torch.cuda.nvtx.range_start(name) if activity else None

    def _stop_ranges(self) -> None:
        self._buffer.follow(None)
        self._enter_range("")


def slowest_operators(averages: Any) -> list[dict[str, Any]]:
    """Return the operators with the most self time, on the device if any ran there."""
    operators = [
        {
            "name": average.key,
            "calls": average.count,
            "cpu": average.self_cpu_time_total / 1e6,
            "device": average.self_device_time_total / 1e6,
        }
        for average in averages
        if not average.key.startswith("ProfilerStep")
    ]
    key = "device" if any(operator["device"] for operator in operators) else "cpu"
    return sorted(operators, key=lambda operator: -operator[key])[:MAX_OPERATORS]


def with_laps(trace: bytes, laps: list[Lap]) -> bytes:
    """Return a Chrome trace with our laps as a track. The trace may be large: it is not parsed."""
    events_start = EVENTS_START.search(trace)
    if events_start is None or not laps:
        return trace
    time_origin = TIME_ORIGIN.search(trace)
    origin = int(time_origin.group(1)) / 1e3 if time_origin else 0.0  # Microseconds.
    common = {"pid": os.getpid(), "tid": "scalewise"}
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
    return trace[: events_start.end()] + inserted + trace[events_start.end() :]
