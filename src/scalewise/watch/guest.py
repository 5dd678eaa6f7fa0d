"""Measure inside somebody else's program, and never get in its way.

A ``Guest`` writes one rank's file from within a process that we did not write.
It opens the file at the first step, because agents, loaders and compilers load
the same modules and have nothing to say. It takes no signal and starts no
thread: what is not written yet when a process is killed is at most a second.
Whatever goes wrong switches it off, with one line on stderr, and the program
goes on.
"""

import atexit
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewise.probe import HostClock, Probe, Row
from scalewise.probe.rank_identity import rank_and_world
from scalewise.record.close import first_launch, last_word, rivals
from scalewise.record.spans import EARLIER
from scalewise.record.write import SCHEMA, RankFile, rank_file
from scalewise.spec import RunSpec

EVERY = 1.0
"""Seconds between two writes."""
EACH = 10
"""Steps at the beginning that are written one by one."""
FAREWELL = 10.0
"""Seconds a rank waits for the others before it leaves."""

Place = tuple[int, int]
"""A rank, and the number of ranks."""


def place() -> Place:
    """Return this process's rank and world, as its launcher has set them."""
    return rank_and_world(os.environ)


def spec_of(folder: Path) -> RunSpec:
    """Return the run that a folder is of."""
    values = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
    values.pop("schema", None)
    return RunSpec.from_dict(values)


class Guest:
    """One rank's measurements inside a program of somebody else."""

    def __init__(self, folder: Path, where: Callable[[], Place] = place) -> None:
        self.folder = folder
        self.settings = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
        self.on = True
        self.switched: Callable[[], None] = lambda: None
        """Is called when the watching goes on or off."""
        self.explicit = False
        """Whether the program tells of its steps itself: then nothing else does."""
        self.stretch: tuple[float, float] | None = None
        """When the first of its own steps began and the last one ended, if it tells of them."""
        self.steps = 0
        self.devices: int | None = None
        """On how many devices all ranks train, where somebody sees it: not always one for each."""
        self.alone = False
        self.done = False
        """Whether the program has done what was asked of it, and should leave."""
        self.catch_up: Callable[[], None] = lambda: None
        """Has everything told that somebody has kept back."""
        self.clock: Any = HostClock()
        self.launched = float(os.environ.get("SCALEWISE_LAUNCHED", time.time()))
        self._began = self.launched
        """When the first attempt of the same job was launched."""
        self._where = where
        self._probe: Probe | None = None
        self._file: RankFile | None = None
        self._early: list[dict[str, Any]] = []
        """Lines from before the first step."""
        self._at_end: list[Callable[[], dict[str, Any]]] = []
        self._wrote = time.monotonic()
        self.anchor = time.time() - time.perf_counter()
        """What makes a moment of the host's clock wall-clock time."""
        self._built_from = time.perf_counter()
        self._meetings: list[tuple[float, float]] = []
        self.span("launch", self.launched - self.anchor, self._built_from)
        self._samples = 0
        self._world = 1
        self._failed = ""
        self._ended = False
        self._pid = os.getpid()
        self._attempt = int(os.environ.get("SCALEWISE_ATTEMPT", "1"))
        self._stop: int = self.settings.get("stop_after") or 0
        self._said: int = self.settings.get("samples_per_step") or 0
        self._main = multiprocessing.parent_process() is None
        os.register_at_fork(after_in_child=self._leave_the_child)
        atexit.register(self._say_goodbye)
        self._hook, sys.excepthook = sys.excepthook, self._mourn

    def wall(self, moment: float) -> float:
        """Return the wall-clock time of a moment of the host's clock."""
        return round(self.anchor + moment, 6)

    def note(self, **values: Any) -> None:
        """Write one line of facts, or keep it until there is a file."""
        if self._probe is None:
            self._early.append(values)
        else:
            self._probe.note(**values)

    def span(self, name: str, start: float, end: float, **facts: Any) -> None:
        """Tell of a part of the rank's life, in moments of the host's clock."""
        if name == "train":
            self.stretch = None  # Somebody has seen it who knows of pauses too.
        self.note(span=name, start=self.wall(start), end=self.wall(end), **facts)

    def built(self, moment: float) -> None:
        """Tell that the job's first step begins; what was before is building it."""
        for start, end in _between(self._built_from, moment, self._meetings):
            self.span("build", start, end)

    def met(self, start: float, end: float) -> None:
        """Tell that the ranks met: a rendezvous."""
        self.span("rendezvous", start, end)
        self._meetings.append((start, end))

    def at_end(self, facts: Callable[[], dict[str, Any]]) -> None:
        """Ask for facts when the program ends."""
        self._at_end.append(facts)

    def take(self, rows: list[Row]) -> None:
        """Take some steps."""
        if self._said:
            rows = [(self._said, *row[1:]) for row in rows]
        probe = self._probe
        if probe is None:
            rank, self._world = self._where()
            self.alone = (self.devices or self._world) < self._asked()
            if not self._is_first(rank):
                return self._stand_aside(rank)
            probe = self._open()
            if not self._is_first(rank):  # Two began at the same time.
                return self._stand_aside(rank)
        probe.add_rows(rows)
        self.steps += len(rows)
        self._samples += sum(row[0] for row in rows)
        now = time.monotonic()
        if now - self._wrote > EVERY or self.steps <= EACH:
            probe.flush()
            self._wrote = now
        self.done = self.alone or 0 < self._stop <= self.steps
        return None

    @property
    def wanted(self) -> int:
        """The step of which it must be told at once, and not some time later."""
        if self.steps < EACH:
            return self.steps + 1
        return self._stop or sys.maxsize

    def switch(self, *, on: bool) -> None:
        """Watch, or watch no more."""
        self.on = on
        self.switched()

    def switch_off(self, problem: BaseException) -> None:
        """Stop watching for good; the program goes on."""
        if not self.on:
            return
        self.switch(on=False)
        print(f"scalewise: watching stopped: {problem!r}; the program goes on", file=sys.stderr)
        try:
            self.note(unwatched=repr(problem))
        except Exception:
            return

    def _is_first(self, rank: int) -> bool:
        """Say whether no other process has begun to train as this rank."""
        if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
            return True  # The other one has failed, and this one takes its place.
        lines = last_word(self.folder, rank, self._attempt).lines
        return not lines or lines[-1].get("pid", self._pid) == self._pid

    def _stand_aside(self, rank: int) -> None:
        """Let the other process be the rank that is measured, and tell that there were two."""
        rivals(self.folder, self._attempt).mkdir(parents=True, exist_ok=True)
        (rivals(self.folder, self._attempt) / f"{rank}-{self._pid}").touch()
        self._probe, self._ended = None, True
        self.switch(on=False)
        self.done = self.alone or self._stop > 0

    def _open(self) -> Probe:
        """Begin this rank's file: now it is known that this process trains."""
        rank, world = self._where()
        self._world = world
        self._file = RankFile(self.folder, rank, self._attempt)
        self._probe = Probe(self._file, self.clock)
        self._probe.steps_planned = self._stop or None
        self._probe.note(
            schema=SCHEMA,
            rank=rank,
            world=world,
            host=os.uname().nodename,
            pid=self._pid,
            guest=True,
            arguments=sys.argv,
            launched=self.launched,
        )
        first = int(os.environ.get("SCALEWISE_FIRST", self._attempt))
        self._began = min(self.launched, first_launch(self.folder, rank, first))
        if self._began < self.launched:  # The job was put back into the queue.
            self._probe.note(span=EARLIER, start=self._began, end=self.launched)
        for values in self._early:
            self._probe.note(**values)
        return self._probe

    def _asked(self) -> int:
        """Return how many devices were asked for; ranks, where nobody sees the devices."""
        spec = spec_of(self.folder)
        return spec.topology.world if self.devices else spec.ranks

    def leave(self) -> None:
        """Wait a little until every rank is here too, then end the program."""
        if self._probe is not None:
            self._probe.flush()
            if not self.alone:
                self._wait_for_the_others()
        raise SystemExit(0)

    def _wait_for_the_others(self) -> None:
        rank, world = self._where()
        meeting = self.folder / "stop" / str(self._attempt)
        meeting.mkdir(parents=True, exist_ok=True)
        (meeting / str(rank)).touch()
        late = time.monotonic() + FAREWELL
        while len(list(meeting.iterdir())) < world and time.monotonic() < late:
            time.sleep(0.02)

    def _leave_the_child(self) -> None:
        """A forked process is not this rank."""
        self.switch(on=False)
        self._ended = True

    def _mourn(self, kind: Any, problem: Any, trace: Any) -> None:
        """Keep the program's last words, then let it say them itself."""
        if os.getpid() == self._pid and not issubclass(kind, KeyboardInterrupt):
            self._failed = f"{kind.__name__}: {problem}"
        self._hook(kind, problem, trace)

    def _say_goodbye(self) -> None:
        """Write the last lines of this rank, when the interpreter ends."""
        if self._ended or os.getpid() != self._pid:
            return
        self._ended = True
        if self._probe is None and not (self._main and "RANK" in os.environ):
            return  # An agent, a loader, a compiler: somebody who does not train.
        try:
            if self._probe is None:
                if rank_file(self.folder, self._where()[0]).exists():
                    return  # Its children are the ranks.
                self._open()
            self._close()
        except Exception as problem:
            print(f"scalewise: the end was not recorded: {problem!r}", file=sys.stderr)

    def _close(self) -> None:
        probe = self._probe
        assert probe is not None
        if self._failed:
            with suppress(Exception):
                self.catch_up()
            return probe.record_failure(self._failed, kind="error")
        memory = None
        for facts in self._at_end:
            try:
                found = facts()
                memory = found.pop("memory", memory)
                if found:
                    probe.note(**found)
            except Exception as problem:
                print(f"scalewise: a fact is missing: {problem!r}", file=sys.stderr)
        probe.flush()
        if self.stretch:
            self.span("train", *self.stretch)
        probe.note(
            outline={
                "epochs": None,
                "steps": self.steps,
                "samples": None,
                "seen": self._samples,
                "unit": "samples",
                "parameters": None,
                "validation": 0,
            }
        )
        return probe.note(
            ended=probe.wall(),
            launched=self._began,
            simulated=False,
            memory=memory,
            flush=round(probe.flush_seconds, 6),
            guest=True,
            world=self._world,
            devices=self.devices,
            asked=self._asked(),
            taken=self.steps,
            alone=self.alone,
        )


class Explicit:
    """Steps that a program tells of itself."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._names: list[str] = []
        self._marks = [time.perf_counter()]

    def lap(self, phase: str) -> None:
        """Say what the time since the last mark went to."""
        self._names.append(phase)
        self._marks.append(time.perf_counter())

    def step(self, samples: int) -> None:
        """End a step here."""
        guest, marks = self._guest, self._marks
        self.lap("other")
        names, self._names, self._marks = self._names, [], [marks[-1]]
        if guest.on:
            guest.stretch = (guest.stretch or marks)[0], marks[-1]
            began = {"at": guest.wall(marks[0])}
            try:
                guest.take([(samples, names, marks, began)])
            except Exception as problem:
                guest.switch_off(problem)
            if guest.done:
                guest.leave()


class _Nobody:
    """Takes steps and laps when nobody measures."""

    def lap(self, phase: str) -> None: ...
    def step(self, samples: int) -> None: ...


def _between(
    start: float, end: float, parts: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return the stretches from start to end that lie outside these parts.

    >>> _between(0.0, 9.0, [(2.0, 3.0), (5.0, 6.0)])
    [(0.0, 2.0), (3.0, 5.0), (6.0, 9.0)]
    """
    found = []
    for begin, stop in [*sorted(parts), (end, end)]:
        if begin > start:
            found.append((start, min(begin, end)))
        start = max(start, stop)
    return found


def the_guest(folder: Path, where: Callable[[], Place] = place) -> Guest:
    """Return this process's one guest."""
    global _only
    if _only is None:
        _only = Guest(folder, where)
    return _only


def explicit() -> Any:
    """Return who takes this program's own words: a guest, or nobody."""
    folder = os.environ.get("SCALEWISE_RUN")
    if not folder:
        return _Nobody()
    try:
        guest = the_guest(Path(folder))
    except (OSError, ValueError) as problem:
        print(f"scalewise: not watching: {problem!r}", file=sys.stderr)
        return _Nobody()
    guest.explicit = True
    return Explicit(guest)


_only: Guest | None = None
