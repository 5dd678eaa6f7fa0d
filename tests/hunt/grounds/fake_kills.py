"""Kill what belongs to a run of the fake machine, whose ranks are processes; run it again.

Whatever ends (a rank, the sampler, scalewise, the folder): scalewise ends with the documented exit
code and names the cause, no process is left, finished runs stay as they are, and the same command
again completes exactly what is missing.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import scalewise
from run_processes import kill_left, left, living, read_proc
from scalewise.record.rank_tail import parse_lines
from scalewise.record.write import rank_file
from scalewise.spec import RunSpec, StudySpec

LIMIT = 240.0
PATIENCE = 6.0
STEP_SECONDS = 0.02
LAW = {
    "compute": STEP_SECONDS, "host": 0.0, "ring": 0.0, "network": 0.0, "latency": 0.0,
    "launch": 0.0, "rendezvous": 0.0, "data": 0.05, "build": 0.05, "validate": 0.0,
    "shutdown": 0.02,
}  # fmt: skip
DEADLY = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGSEGV", "SIGABRT", "SIGRTMIN+3")
LOST_SECONDS = 1.0
"""A rank writes its steps once a second."""
SLACK = 1.5
"""More seconds on a machine that does other work too."""
COMMAND = Path(sys.executable).parent / "scalewise"


def draw(random: Random) -> Any:
    world = random.choice((1, 2, 2, 3))
    kinds = ("rank",) * 6 + ("scalewise",) * 3 + ("stopped rank", "paused rank", "sampler")
    kinds += ("paused scalewise", "killed scalewise", "folder", "run's folder", "two ranks")
    kind = random.choice(kinds)
    kill: dict[str, Any] = {
        "run": random.choice((0, 1, 1)),
        "rank": random.randrange(world),
        "signal": random.choice(DEADLY if "rank" in kind else ("SIGINT", "SIGTERM", "SIGHUP")),
        "delay": round(random.choice((0.0, 1.0, 1.0)) * random.uniform(0.0, 1.5), 3),
        "again_after": random.choice((None, 0.0, 0.05, 0.3)) if kind == "scalewise" else None,
    }
    return {
        "kind": kind,
        "world": max(world, 2) if kind == "two ranks" else world,
        "baseline": random.random() < 0.4,  # A run on one device comes first.
        "steps": random.randrange(10, 80),
        "kill": kill,
        "twice": random.random() < 0.2,  # The second attempt is killed too.
        "repeat": random.random() < 0.1,  # The finished study is repeated, and killed once more.
    }


def try_case(case: Any, folder: Path) -> str | None:
    return _Trial(case, folder).wrong()


class _Trial:
    """One study, its kills, and what was found wrong."""

    def __init__(self, case: Any, folder: Path) -> None:
        self.case, self.folder = case, folder.resolve()
        self.home = self.folder / "runs" / "kills"
        run = {"framework": "fake", "start": "plain", "batch": 1, "steps": case["steps"]}
        topologies = ["1x1"] * case["baseline"] + [f"1x{case['world']}"]
        topologies = list(dict.fromkeys(topologies))
        values = {
            "name": "kills", "run": {**run, "options": LAW}, "vary": {"topology": topologies},
            "launcher": {"patience": PATIENCE},
        }  # fmt: skip
        self.study = StudySpec.from_dict(values)
        self.runs: list[RunSpec] = list(self.study.runs())
        options = ", ".join(f"{key} = {value}" for key, value in LAW.items())
        lines = [f"{key} = {json.dumps(value)}" for key, value in run.items()]
        text = (
            f'name = "kills"\n[launcher]\npatience = {PATIENCE}\n[run]\n'
            + "\n".join(lines)
            + f"\noptions = {{{options}}}\n[vary]\ntopology = {json.dumps(topologies)}\n"
        )
        (self.folder / "s.toml").write_text(text)

    def wrong(self) -> str | None:
        try:
            found = self._kill_and_check()
            if not found and self.case["twice"]:
                found = self._kill_and_check()
            found = found or self._complete()
            if not found and self.case["repeat"]:
                found = self._kill_and_check("--again") or self._complete()
            return found
        finally:
            kill_left(self.folder)

    def _kill_and_check(self, *options: str) -> str | None:
        """Start the study, kill something, and return what went wrong."""
        kind, kill = self.case["kind"], self.case["kill"]
        run = self.runs[min(kill["run"], len(self.runs) - 1)]
        rank = kill["rank"] % run.topology.world
        finished = self._finished()
        started = self._start(*options)
        target = self._wait_for(started, run, "sampler" if kind == "sampler" else rank)
        code, killed, number = None, False, signal.SIGKILL
        if target is not None:
            time.sleep(kill["delay"])
            number = _number(kill["signal"])
            killed = self._do_kill(kind, started, target, number, run)
        try:
            code = started.wait(60.0)
        except subprocess.TimeoutExpired:
            started.kill()
            return f"scalewise did not end within 60 s after a kill of {kind}"
        error = (self.folder / "err.txt").read_text(errors="replace")
        if "Traceback" in error:
            return f"a traceback: {error[-600:]}"
        if kind != "killed scalewise" and (remains := left(self.folder)):
            return f"processes are left after {kind}: {remains}; code {code}: {error[-300:]}"
        if "folder" not in kind:
            for path, content in finished.items():
                now = path.read_bytes() if path.exists() else b""
                # A repeated run has more lines, and another outcome.
                may_differ = options and (now.startswith(content) or path.name == "outcome.json")
                if now != content and not may_differ:
                    return f"{path.name} of a finished run was changed"
        return self._check_end(kind if killed else "nothing", code, error, run, rank, number)

    def _check_end(
        self, kind: str, code: int, error: str, run: RunSpec, rank: int, number: int
    ) -> str | None:
        """Return what is wrong with the exit code or the message."""
        name = _name(number)
        said = f"code {code}: {error[-500:]}"
        if kind in ("nothing", "sampler", "paused rank", "paused scalewise"):
            return None if code == 0 else f"{kind}: the study did not end well: {said}"
        if kind == "scalewise":
            if code == 0 and self._all_ended():
                return None
            return None if code == 130 else f"{kind} {name}: {said}"
        if kind == "killed scalewise":
            return None if code in (-signal.SIGKILL, 0) else f"{kind}: {said}"
        if kind in ("folder", "run's folder"):
            if code == 0:
                return None if self._all_ended() else f"{kind}: {said}"
            named = str(self.home) in error or run.id in error
            return None if code in (1, 3) and "error: " in error and named else f"{kind}: {said}"
        if code == 0 and self._all_ended():  # The rank had done its work already.
            return None
        if code != 3:
            return f"{kind} {name}: {said}"
        ranks = f"rank {rank}\\b" if kind != "two ranks" else r"rank \d"
        if not re.search(ranks, error):
            return f"{kind} {name}: rank {rank} is not named: {said}"
        cause = "SIGSTOP" if kind == "stopped rank" else name
        if cause not in error:
            return f"{kind} {name}: the cause is not named: {said}"
        return self._lost_steps(run, rank)

    def _lost_steps(self, run: RunSpec, rank: int) -> str | None:
        """Compare the steps of a killed rank with those of another, which could write its last."""
        home = self.home / run.id
        lines = {other: _newest_attempt(home, other) for other in range(run.topology.world)}
        seconds = {
            other: [s for line in found if "steps" in line for s in line["each"]["seconds"]]
            for other, found in lines.items()
        }
        complete = max(seconds.values(), key=len)
        missing = sum(complete[len(seconds[rank]) :])
        if missing > LOST_SECONDS + SLACK:
            return f"rank {rank} lost {missing:.1f} s of steps"
        return None

    def _complete(self) -> str | None:
        """Run the study again, and return what is not as after a run without a kill."""
        finished = self._finished()
        started = self._start()
        try:
            code = started.wait(90.0)
        except subprocess.TimeoutExpired:
            started.kill()
            return "running again did not end within 90 s"
        error = (self.folder / "err.txt").read_text(errors="replace")
        if code or "Traceback" in error:
            return f"running again: code {code}: {error[-600:]}"
        if remains := left(self.folder):
            return f"processes are left after running again: {remains}"
        for path, content in finished.items():
            if path.read_bytes() != content:
                return f"running again changed {path.name} of a finished run"
        for run in self.runs:
            for rank in range(run.topology.world):
                if wrong := self._wrong_rank(run, rank):
                    return wrong
        points = scalewise.measure(self.home).points
        if [point.devices for point in points] != [run.topology.world for run in self.runs]:
            return f"measure shows {[point.devices for point in points]}"
        return None

    def _wrong_rank(self, run: RunSpec, rank: int) -> str | None:
        """Return what is wrong with the file of a rank, after all of its attempts."""
        path = rank_file(self.home / run.id, rank)
        lines = list(parse_lines(path.read_bytes().splitlines()))
        numbers = [line["attempt"] for line in lines]
        begun = [line["attempt"] for line in lines if "schema" in line]
        if numbers != sorted(numbers):
            return f"{path.name}: two attempts wrote at the same time"
        if len(begun) != len(set(begun)):
            return f"{path.name}: an attempt was started twice: {begun}"
        last = [line for line in lines if line["attempt"] == numbers[-1]]
        done = max((line["steps"][1] for line in last if "steps" in line), default=0)
        return None if done == run.steps else f"{path.name} has {done} of {run.steps} steps"

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        with (self.folder / "err.txt").open("wb") as error:
            return subprocess.Popen(
                [COMMAND, "run", "s.toml", *options], cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=error, start_new_session=True,
                # The hunt ignores Ctrl-C, which its children would inherit.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                env={**os.environ, "COLUMNS": "2000"},
            )  # fmt: skip

    def _wait_for(
        self, started: subprocess.Popen[bytes], run: RunSpec, what: int | str
    ) -> int | None:
        """Return the id of a rank's or the sampler's process as soon as it lives; None if never."""
        while started.poll() is None:
            for pid in living(self.home, f"/{run.id}"):
                words, environment = read_proc(pid, "cmdline"), read_proc(pid, "environ")
                is_sampler = b"node_sampler" in words
                if what == "sampler" and is_sampler:
                    return pid
                if f"\0RANK={what}\0".encode() in environment and not is_sampler:
                    return pid
            time.sleep(0.03)
        return None

    def _do_kill(
        self, kind: str, started: subprocess.Popen[bytes], pid: int, number: int, run: RunSpec
    ) -> bool:
        """Do what the case says; return False if what it kills had ended."""
        try:
            if kind in ("rank", "sampler"):
                os.kill(pid, number if kind == "rank" else signal.SIGKILL)
            elif kind == "two ranks":
                os.kill(pid, number)
                others = [other for other in living(self.home, f"/{run.id}") if other != pid]
                for other in others[:1]:
                    with suppress(OSError):
                        os.kill(other, number)
            elif kind in ("stopped rank", "paused rank"):
                os.kill(pid, signal.SIGSTOP)
                if kind == "paused rank":
                    time.sleep(0.5)
                    os.kill(pid, signal.SIGCONT)
            elif "scalewise" in kind:
                if started.poll() is not None:
                    return False
                self._signal_scalewise(kind, started.pid, number)
            else:
                shutil.rmtree(self.home if kind == "folder" else self.home / run.id)
        except ProcessLookupError:
            return False
        except OSError:  # The run wrote into the folder while it was removed.
            shutil.rmtree(self.home if kind == "folder" else self.home / run.id, ignore_errors=True)
        return True

    def _signal_scalewise(self, kind: str, pid: int, number: int) -> None:
        if kind == "killed scalewise":
            os.kill(pid, signal.SIGKILL)
        elif kind == "paused scalewise":
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.5)
            os.kill(pid, signal.SIGCONT)
        else:
            os.kill(pid, number)
            if (later := self.case["kill"]["again_after"]) is not None:
                time.sleep(later)
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _finished(self) -> dict[Path, bytes]:
        """Return the rank files and outcomes of finished runs."""
        homes = [self.home / run.id for run in self.runs]
        return {
            path: path.read_bytes()
            for home in homes
            if (home / "outcome.json").exists()
            for path in [home / "outcome.json", *home.glob("rank-*.jsonl")]
        }

    def _all_ended(self) -> bool:
        """Return whether every rank of every run has recorded its end."""
        return all(
            any("ended" in line for line in _newest_attempt(self.home / run.id, rank))
            for run in self.runs
            for rank in range(run.topology.world)
        )


def _number(name: str) -> int:
    base, _, more = name.partition("+")
    return int(getattr(signal, base)) + int(more or 0)


def _name(number: int) -> str:
    if number > signal.SIGRTMIN:
        return f"signal {number}"
    return signal.Signals(number).name


def _newest_attempt(home: Path, rank: int) -> list[Any]:
    path = rank_file(home, rank)
    lines = list(parse_lines(path.read_bytes().splitlines())) if path.exists() else []
    return [line for line in lines if line["attempt"] == lines[-1]["attempt"]]
