"""Record the steps of a user's program from inside its process, without disturbing it.

A ``Watcher`` opens its rank's file only at the first step, because torchrun's agent, loader workers
and compiler workers import the same modules but never train. It handles no signal and starts no
thread; if the process is killed, the last second may be lost. An error ends only the watching.
"""

import atexit
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from scalewise.probe import HostClock, Probe, Row, Unwatched
from scalewise.probe.rank_identity import rank_and_world
from scalewise.record.close import LATER, rivals_folder
from scalewise.record.json_files import read_json
from scalewise.record.rank_tail import first_launch, read_tail
from scalewise.record.run_clock import run_clock
from scalewise.record.schema import EARLIER, PAUSES
from scalewise.record.write import SCHEMA, RankFile, rank_file
from scalewise.spec import RunSpec

FLUSH_SECONDS = 1.0
UNBUFFERED_STEPS = 10
"""So many first steps are each written immediately."""
STOP_WAIT_SECONDS = 10.0
"""How long a rank waits for the other ranks before it stops the program."""


def load_spec(folder: Path) -> RunSpec:
    """Return the spec of the run in this folder."""
    return RunSpec.from_dict(read_json(folder / "spec.json"))


class Watcher:
    """One rank's measurements inside a user's program."""

    def __init__(
        self, folder: Path, get_rank_and_world: Callable[[], tuple[int, int]] = rank_and_world
    ) -> None:
        self.folder = folder
        self.rank_and_world = get_rank_and_world
        self.spec = load_spec(folder)
        self.enabled = True
        self.on_switch: Callable[[], None] = lambda: None
        """Called when watching is enabled or disabled."""
        self.explicit = False
        """Whether the program calls ``probe.step`` itself; then hooks record no steps."""
        self.explicit_span: tuple[float, float] | None = None
        """Start of the first and end of the last step reported by ``probe.step``."""
        self.steps = 0
        self.devices: int | None = None
        """The number of devices that all ranks use together, if known; a rank may use several."""
        self.too_few_ranks = False
        """Whether fewer ranks or devices train than the run requested."""
        self.done = False
        """Whether to stop the program: the requested steps are recorded, or too few ranks train."""
        self.flush_events: Callable[[], None] = lambda: None
        """Turns buffered hook events into steps; called before a failure is recorded."""
        self.clock: Any = HostClock()
        self.launched = float(os.environ.get("SCALEWISE_LAUNCHED", run_clock().now()))
        self._first_launched = self.launched
        """When the first attempt of the same job was launched."""
        self._probe: Probe | None = None
        self._early_notes: list[dict[str, Any]] = []
        """Lines from before the first step."""
        self.end_facts: list[Callable[[], dict[str, Any]]] = []
        """Functions that are called when the program ends, and return further facts."""
        self._last_flush = time.monotonic()
        self.wall_offset = run_clock().now() - time.perf_counter()
        """Wall-clock time minus host clock."""
        self._build_start = time.perf_counter()
        self._rendezvous: list[tuple[float, float]] = []
        self._span_seconds: dict[str, float] = {}
        self._pauses = 0
        self.span("launch", self.launched - self.wall_offset, self._build_start)
        self.samples = 0
        self.first_samples = self.most_later_samples = 0
        """Samples of the first step, and the most of any later one."""
        """Samples of all recorded steps."""
        self._world = 1
        """The number of ranks; ``spec.topology.world`` counts devices."""
        self._closed = False  # Whether this process has nothing more to write.
        self._pid = os.getpid()
        self._attempt = int(os.environ.get("SCALEWISE_ATTEMPT", "1"))
        self._stop_after = self.spec.stop_after or 0
        self._is_main_process = multiprocessing.parent_process() is None
        # A forked child is not this rank, so it must record nothing.
        os.register_at_fork(after_in_child=partial(self.set_enabled, enabled=False))
        atexit.register(self._close_at_exit)
        self._exit = os._exit
        os._exit = self._close_and_exit  # It calls no function of ``atexit``.

    def wall(self, moment: float) -> float:
        """Return the wall-clock time of a moment of the host's clock."""
        return round(self.wall_offset + moment, 6)

    def note(self, **values: Any) -> None:
        """Write one line of facts; before the first step, only buffer the line."""
        if self._probe is None:
            self._early_notes.append(values)
        else:
            self._probe.note(**values)

    def span(self, name: str, start: float, end: float, **facts: Any) -> None:
        """Record a part of the job's time, from ``start`` to ``end`` of the host's clock."""
        if name == "train":
            self.explicit_span = None  # Hooks record a better one: without evaluation and saving.
        self._span_seconds[name] = self._span_seconds.get(name, 0.0) + end - start
        self._pauses += name in PAUSES
        self.note(span=name, start=self.wall(start), end=self.wall(end), **facts)

    def time_ledger(self) -> dict[str, Any]:
        """Return how long this rank has lived since its launch, and the seconds of its spans."""
        life = time.perf_counter() + self.wall_offset - self.launched
        spans = {name: round(seconds, 6) for name, seconds in self._span_seconds.items()}
        return {"life": round(life, 6), "spans": spans, "pauses": self._pauses}

    def record_build(self, moment: float) -> None:
        """Record the time until the first step, at ``moment``, as ``build``, except rendezvous."""
        start = self._build_start
        for begin, end in [*sorted(self._rendezvous), (moment, moment)]:
            if begin > start:
                self.span("build", start, min(begin, moment))
            start = max(start, end)

    def record_rendezvous(self, start: float, end: float) -> None:
        """Record the time in which the ranks connected."""
        self.span("rendezvous", start, end)
        self._rendezvous.append((start, end))

    def add_steps(self, rows: list[Row]) -> None:
        """Record steps; the first call opens the rank file."""
        if self.spec.samples_per_step:
            rows = [(self.spec.samples_per_step, *row[1:]) for row in rows]
        probe = self._probe
        if probe is None:
            rank, self._world = self.rank_and_world()
            self.too_few_ranks = (self.devices or self._world) < self._requested_count()
            if not self._is_first(rank):
                return self._yield_to_other_process(rank)
            probe = self._open_file()
            if not self._is_first(rank):  # Two processes began at the same time.
                return self._yield_to_other_process(rank)
        probe.add_rows(rows)
        samples = [row[0] for row in rows]
        self.samples += sum(samples)
        if not self.steps and samples:
            self.first_samples = samples.pop(0)
        self.most_later_samples = max(self.most_later_samples, *samples, 0)
        self.steps += len(rows)
        now = time.monotonic()
        if now - self._last_flush > FLUSH_SECONDS or self.steps <= UNBUFFERED_STEPS:
            probe.flush()
            self._last_flush = now
        self.done = self.too_few_ranks or 0 < self._stop_after <= self.steps
        return None

    @property
    def next_urgent_step(self) -> int:
        """The next step that must be recorded immediately, without buffering its hook events."""
        if self.steps < UNBUFFERED_STEPS:
            return self.steps + 1
        return self._stop_after or sys.maxsize

    def set_enabled(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.on_switch()

    def disable(self, problem: BaseException) -> None:
        """Stop watching after a problem; the program continues."""
        if not self.enabled:
            return
        self.set_enabled(enabled=False)
        print(f"scalewise: watching stopped: {problem!r}; the program continues", file=sys.stderr)
        with suppress(Exception):
            self.note(unwatched=repr(problem))

    def stop_program(self) -> None:
        """Wait up to ``STOP_WAIT_SECONDS`` for the other ranks, then exit the program."""
        if self._probe is not None:
            self._probe.flush()
            if not self.too_few_ranks:
                rank, world = self.rank_and_world()
                arrivals = self.folder / "stop" / str(self._attempt)
                arrivals.mkdir(parents=True, exist_ok=True)
                (arrivals / str(rank)).touch()
                deadline = time.monotonic() + STOP_WAIT_SECONDS
                while len(list(arrivals.iterdir())) < world and time.monotonic() < deadline:
                    time.sleep(0.02)
        raise SystemExit(0)

    def _is_first(self, rank: int) -> bool:
        """Return whether no other process of this attempt has begun to train as this rank."""
        if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
            return True  # An earlier process of this rank failed, and torchrun started this one.
        lines = read_tail(self.folder, rank, self._attempt).lines
        # Lines come newest first: the last one was written first and has its process id.
        return not lines or lines[-1].get("pid", self._pid) == self._pid

    def _yield_to_other_process(self, rank: int) -> None:
        """Leave the rank file to the other process, and record that there were two processes."""
        rivals_folder(self.folder, self._attempt).mkdir(parents=True, exist_ok=True)
        # With too few ranks, the first process was stopped after a step: its training is not over.
        is_later = (
            bool(read_tail(self.folder, rank, self._attempt).ended) and not self.too_few_ranks
        )
        name = f"{rank}-{self._pid}{LATER if is_later else ''}"
        (rivals_folder(self.folder, self._attempt) / name).touch()
        self._probe, self._closed = None, True
        self.set_enabled(enabled=False)
        # This process records no steps, so it would never reach a limit of steps: stop it now.
        self.done = self.too_few_ranks or self._stop_after > 0

    def _open_file(self) -> Probe:
        """Open this rank's file; called when it is certain that this process trains."""
        rank, world = self.rank_and_world()
        self._world = world
        self._probe = Probe(RankFile(self.folder, rank, self._attempt), self.clock)
        self._probe.steps_planned = self._stop_after or None
        self._probe.note(
            schema=SCHEMA,
            rank=rank,
            world=world,
            host=os.uname().nodename,
            pid=self._pid,
            guest=True,  # This rank runs a user's program; read as ``RankStart.watched``.
            arguments=sys.argv,
            launched=self.launched,
        )
        # A requeued job has several attempts; SCALEWISE_FIRST is the number of its first attempt.
        # The span EARLIER is the time from the first attempt's launch to this attempt's launch.
        first_attempt = int(os.environ.get("SCALEWISE_FIRST", self._attempt))
        self._first_launched = min(self.launched, first_launch(self.folder, rank, first_attempt))
        if self._first_launched < self.launched:
            self._probe.note(span=EARLIER, start=self._first_launched, end=self.launched)
        for values in self._early_notes:
            self._probe.note(**values)
        return self._probe

    def _requested_count(self) -> int:
        """Return the requested number of devices, or of ranks if ``devices`` is unknown."""
        return self.spec.topology.world if self.devices else self.spec.ranks

    def _close_and_exit(self, status: int) -> NoReturn:
        """Write the last lines of this rank, then end the process as ``os._exit`` does."""
        if status == 0:
            self._close_at_exit()
        self._exit(status)

    def _close_at_exit(self) -> None:
        """Write the last lines of this rank when the interpreter exits."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        if self._probe is None and not (self._is_main_process and "RANK" in os.environ):
            return  # This process does not train: it is an agent, a loader or a compiler.
        try:
            if self._probe is None and rank_file(self.folder, self.rank_and_world()[0]).exists():
                return  # A child process was this rank, in this attempt or an earlier one.
            self._write_end(self._probe or self._open_file())
        except Exception as problem:
            print(f"scalewise: the end was not recorded: {problem!r}", file=sys.stderr)

    def _write_end(self, probe: Probe) -> None:
        """Write the failure of the program, or its last steps, facts and the final line."""
        problem = getattr(sys, "last_value", None)  # The exception that ended the program.
        if problem is not None and not isinstance(problem, KeyboardInterrupt):
            with suppress(Exception):
                self.flush_events()
            probe.record_failure(f"{type(problem).__name__}: {problem}", kind="error")
            probe.settle()
            return
        memory = None
        for get_facts in self.end_facts:
            try:
                facts = get_facts()
                memory = facts.pop("memory", memory)
                if facts:
                    probe.note(**facts)
            except Exception as problem:
                print(f"scalewise: a fact is missing: {problem!r}", file=sys.stderr)
        probe.flush()
        if self.explicit_span:
            self.span("train", *self.explicit_span)
        # Read as ``Outline`` and ``RankEnd`` of record/schema.py, which say what the keys mean.
        probe.note(
            outline={
                "epochs": None,
                "steps": self.steps,
                "samples": None,  # The size of the data set is unknown.
                "seen": self.samples,  # What this rank has trained on.
                "unit": "samples",
                "parameters": None,
                "validation": 0,
            }
        )
        probe.settle()  # A line about trouble with the disk must come before the last one.
        probe.note(
            ended=probe.wall(),
            launched=self._first_launched,
            simulated=False,
            memory=memory,
            flush=round(probe.flush_seconds, 6),
            guest=True,
            world=self._world,
            devices=self.devices,
            asked=self._requested_count(),
            taken=self.steps,
            alone=self.too_few_ranks,  # True if fewer ranks trained than were requested.
        )
        probe.settle()


class ExplicitSteps:
    """Steps that a program reports itself, with ``probe.step`` and ``probe.lap``."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._names: list[str] = []
        self._marks = [time.perf_counter()]

    def lap(self, phase: str) -> None:
        """Assign the time since the last mark to ``phase``."""
        self._names.append(phase)
        self._marks.append(time.perf_counter())

    def step(self, samples: int) -> None:
        """End a step now."""
        watcher, marks = self._watcher, self._marks
        self.lap("other")
        names, self._names, self._marks = self._names, [], [marks[-1]]
        if watcher.enabled:
            start, _ = watcher.explicit_span or (marks[0], None)
            watcher.explicit_span = start, marks[-1]
            facts = {"at": watcher.wall(marks[0])}
            try:
                watcher.add_steps([(samples, names, marks, facts)])
            except Exception as problem:
                watcher.disable(problem)
            if watcher.done:
                watcher.stop_program()


_watcher: Watcher | None = None


def get_watcher(
    folder: Path, get_rank_and_world: Callable[[], tuple[int, int]] = rank_and_world
) -> Watcher:
    """Return this process's only watcher; create it at the first call."""
    global _watcher
    if _watcher is None:
        _watcher = Watcher(folder, get_rank_and_world)
    return _watcher


def find_watcher() -> Watcher | None:
    """Return this process's only watcher; None if scalewise did not start the program."""
    folder = os.environ.get("SCALEWISE_RUN")
    try:
        return get_watcher(Path(folder)) if folder else None
    except (OSError, ValueError) as problem:
        print(f"scalewise: not watching: {problem!r}", file=sys.stderr)
        return None


def explicit_steps() -> ExplicitSteps | Unwatched:
    """Return the object that records the program's calls of ``probe.step`` and ``probe.lap``."""
    watcher = find_watcher()
    if watcher is None:
        return Unwatched()
    watcher.explicit = True
    return ExplicitSteps(watcher)
