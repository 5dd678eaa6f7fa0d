"""Break what a study on a real Slurm consists of; run it again.

Whatever breaks (a rank, its srun, slurmstepd, the batch shell, the sampler, scalewise, a node, its
link, the controller, the disk), and whatever Slurm does with the job (cancel, requeue, end it at a
limit), while it is submitted, when it begins or while it trains: scalewise ends with the documented
exit code and names the cause, no process and no job is left, no run is submitted or started twice,
and the same command again completes exactly what is missing.

One cluster serves all cases of a process. It is made anew if a case leaves it unusable.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import scalewise
import user_python
from run_processes import read_proc
from scalewise.record.rank_tail import parse_lines
from scalewise.record.write import rank_file
from scalewise.spec import RunSpec, StudySpec
from slurm_cluster import Cluster

NEEDS = ("slurm",)
LIMIT = 400.0
ALONE = True
PATIENCE = 12.0
END_SECONDS = 120.0
"""How long a command may take: Slurm itself waits 10 s for a node, and 30 s for a time limit."""
LEFT_SECONDS = 15.0
"""How long after the command a job may be completing: Slurm ends processes after 5 s of SIGTERM."""
STEP_SECONDS = 0.05
LAW = {
    "compute": STEP_SECONDS, "host": 0.0, "ring": 0.0, "network": 0.0, "latency": 0.0,
    "launch": 0.0, "rendezvous": 0.0, "data": 0.05, "build": 0.05, "validate": 0.0,
    "shutdown": 0.02,
}  # fmt: skip
LOST_SECONDS = 1.0
"""A rank writes its steps once a second."""
SLACK = 1.5
"""More seconds on a machine that does other work too."""
DEADLY = ("SIGKILL", "SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGSEGV", "SIGABRT", "SIGUSR2")
KINDS = {
    "rank": 7, "stopped rank": 2, "sampler": 2, "srun": 4, "slurmstepd": 4, "batch shell": 4,
    "scalewise": 5, "killed scalewise": 5, "lost node": 3, "cut node": 4, "slurmd": 3,
    "controller": 4, "stopped controller": 4, "scancel": 4, "requeue": 4, "time limit": 1,
    "full disk": 3, "freed disk": 2,
}  # fmt: skip
NEEDS_RANKS = ("rank", "stopped rank", "sampler", "srun", "slurmstepd", "time limit")
"""Kinds of fault that need ranks, or what started them."""
SURVIVED = ("sampler", "slurmd", "controller", "stopped controller", "freed disk")
"""Kinds of fault that no run may suffer from."""


def draw(random: Random) -> Any:
    kind = random.choice([kind for kind, often in KINDS.items() for _ in range(often)])
    jobs = random.choice(("each", "each", "each", "array", "one", "inside"))
    topologies = random.choice((["1x2"], ["2x1"], ["2x1"], ["1x1", "2x1"], ["2x2"]))
    if kind == "requeue" and jobs == "inside":  # The allocation is its user's.
        jobs = "each"
    if kind in ("lost node", "cut node"):
        jobs = "each" if jobs == "inside" else jobs  # salloc itself waits on the login node.
        topologies = ["2x1"]
    when = ("begin", "steps", "steps") if kind in NEEDS_RANKS else ("submit", "begin", "steps")
    if kind in ("stopped rank", "time limit", "full disk", "freed disk"):
        when = ("steps",)
    return {
        "kind": kind,
        "jobs": jobs,
        "topologies": topologies,
        "steps": random.randrange(30, 90),
        "checkpoints": random.random() < 0.4,
        "at": random.choice(when),
        "delay": round(random.uniform(0.0, 2.0), 2),
        "seconds": round(random.uniform(1.0, 9.0), 1),  # How long something is away.
        "rank": random.randrange(4),
        "node": random.randrange(2),
        "signal": random.choice(("SIGINT", "SIGTERM", "SIGHUP") if kind == "scalewise" else DEADLY),
        "twice": random.random() < 0.1 and kind in (*NEEDS_RANKS[:2], "srun", "scancel"),
    }


_cluster: Cluster | None = None
_number = 0


def _usable_cluster() -> Cluster:
    """Return the cluster of this process, made anew if it is not usable."""
    global _cluster
    if _cluster and not _wait(_cluster.usable, 20.0):
        _end_cluster()
    if _cluster is None:
        python = user_python.ready()
        folder = Path(tempfile.mkdtemp(prefix="scalewise-cluster-"))
        folder.chmod(0o755)
        made = Cluster(folder, nodes=2)
        made.end_with_this_process()
        made.env |= {"PATH": f"{python.parent}:{made.env['PATH']}", "COLUMNS": "2000"}
        _cluster = made.__enter__()
    return _cluster


def _end_cluster() -> None:
    global _cluster
    if _cluster:
        folder = _cluster.folder
        with suppress(RuntimeError, OSError, subprocess.SubprocessError):
            _cluster.__exit__()
        _cluster = None
        shutil.rmtree(folder, ignore_errors=True)


def try_case(case: Any, folder: Path) -> str | None:
    trial = _Trial(case, _usable_cluster())
    try:
        return trial.wrong()
    finally:
        trial.clean()


def _wait(ready: Callable[[], Any], seconds: float) -> Any:
    """Wait until it is so; return what it is at last."""
    until = time.monotonic() + seconds
    while not (found := ready()) and time.monotonic() < until:
        time.sleep(0.1)
    return found


class _Trial:
    """One study, its fault, and what was found wrong."""

    def __init__(self, case: Any, cluster: Cluster) -> None:
        global _number
        _number += 1
        self.case, self.cluster, self.kind = case, cluster, case["kind"]
        self.place = cluster.place(f"case-{_number}")
        disk = cluster.small if "disk" in self.kind else self.place / "runs"
        self.home = disk / "kills"
        self.away: list[str] = []
        """Nodes that were lost or cut off."""
        self.said = ""
        self.target = ""
        """Whom the message must name: a rank and its host."""
        self._write_study()

    def _write_study(self) -> None:
        case = self.case
        run: dict[str, Any] = {
            "framework": "fake", "start": "srun", "batch": 1, "steps": case["steps"],
        }  # fmt: skip
        if case["checkpoints"]:
            run["checkpoint_every"] = 20
        launcher: dict[str, Any] = {"name": "slurm", "time": "00:10:00", "patience": PATIENCE}
        if self.kind == "time limit":
            launcher["patience"] = 120
        if case["jobs"] != "inside":
            launcher["jobs"] = case["jobs"]
        if self.kind == "requeue":
            launcher["requeue"] = True
        if self.kind == "full disk":
            run["env"] = {"SCALEWISE_DISK_PATIENCE": "2"}
        values = {
            "name": "kills", "run": {**run, "options": LAW},
            "vary": {"topology": case["topologies"]}, "launcher": launcher,
        }  # fmt: skip
        self.study = StudySpec.from_dict(values)
        self.runs: list[RunSpec] = list(self.study.runs())
        (self.place / "s.toml").write_text(_toml(values))

    def clean(self) -> None:
        """Make the cluster as it was before; leave an unusable one to the next case."""
        try:
            self.cluster.signal_controller(signal.SIGCONT)
            self._mend()
            for pid in self._pids():
                with suppress(OSError):
                    os.kill(pid, signal.SIGCONT)
            self.cluster.clear()
        except (RuntimeError, OSError, subprocess.SubprocessError):
            _end_cluster()
        else:
            for path in (self.place, self.home, self.cluster.small / "filling"):
                shutil.rmtree(path, ignore_errors=True)
                path.unlink(missing_ok=True)

    # What goes wrong.

    def wrong(self) -> str | None:
        if "disk" in self.kind:  # What is written before the ranks begin is there already.
            done = self.cluster.run(
                "scalewise", "plan", "s.toml", "-o", self.home, "--write", "jobs", cwd=self.place
            )
            if done.returncode:
                return f"plan: {done.stderr}"
        for _ in range(1 + self.case["twice"]):
            if wrong := self._break_and_check():
                return wrong
        return self._complete()

    def _break_and_check(self) -> str | None:
        """Start the study, break something, and return what is wrong with what follows."""
        started = self._start()
        finished = self._finished()
        moment = self._wait_for_moment(started)
        broken = moment and self._break(started)
        if broken and self.kind == "lost node" and self._may_requeue():
            # Slurm puts the job back into the queue, where it waits for the node.
            _wait(lambda: started.poll() is not None or self._is_queued(), END_SECONDS)
            self._mend()
        try:
            code = started.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            started.kill()
            return f"scalewise did not end within {END_SECONDS:.0f} s: {self._error()}"
        self.said = self._error()
        what = f"{self.kind if broken else 'nothing'}, code {code}: {self.said[-900:]}"
        if "Traceback" in self.said:
            return f"a traceback: {what}"
        for path, content in finished.items():
            if path.read_bytes() != content:
                return f"{path} of a finished run was changed; {what}"
        # Whose cause is broken is checked first: what follows takes its time.
        wrong = self._wrong_end(code, what) if broken else None if code == 0 else what
        self._mend()
        if wrong or self._goes_on(code):
            return wrong
        return self._left(what) or (self._lost_steps() if code == 3 else None)

    def _may_requeue(self) -> bool:
        return bool(self.case["checkpoints"] or self.kind == "requeue")

    def _is_queued(self) -> bool:
        with suppress(RuntimeError, subprocess.TimeoutExpired):
            return bool(self._queue("--states=PENDING"))
        return False

    def _goes_on(self, code: int) -> bool:
        """Return whether jobs go on alone, for the next command to join."""
        closed_terminal = self.kind == "scalewise" and self.case["signal"] == "SIGHUP"
        return self.kind == "killed scalewise" or (closed_terminal and code == 130)

    def _wrong_end(self, code: int, what: str) -> str | None:
        """Return what is wrong with the exit code or the message."""
        kind, done = self.kind, self._all_finished()
        if kind == "killed scalewise":
            return None if code in (-signal.SIGKILL, 137) or (code == 0 and done) else what
        if kind == "scalewise":
            return None if code == 130 or (code == 0 and done) else what
        if code == 0:
            may = done and kind not in ("stopped rank", "time limit")
            return None if may else f"the exit code says that all is well: {what}"
        if kind == "requeue" or kind in SURVIVED or code != 3:
            refused = "controller" in kind and self.case["at"] == "submit" and code == 3
            if refused and re.search(r"sbatch (refused|got no answer).*[Cc]ontroller", self.said):
                return None
            return what
        missing = [each for each in self._named() if not re.search(each, self.said)]
        return f"the cause is not named ({missing}): {what}" if missing else None

    def _named(self) -> list[str]:
        """Return what the message must name of the cause."""
        name = self.case["signal"]
        if self.kind == "rank":
            return [self.target, f"{name}|KeyboardInterrupt" if name == "SIGINT" else name]
        if self.kind == "srun":
            asked = ["srun was told"] if name in ("SIGTERM", "SIGHUP") else ["srun", name]
            # srun passes other signals on to the ranks.
            return [r"rank \d", name] if name == "SIGUSR2" else asked
        return {
            "stopped rank": [self.target, "no progress"],
            "slurmstepd": [r"rank \d|srun"],
            "batch shell": ["script", name],
            "lost node": self.away,
            "cut node": ["|".join([*self.away, r"rank \d"])],
            "scancel": ["cancelled"],
            "time limit": ["time limit"],
            "full disk": ["No space left on device"],
        }[self.kind]

    # The fault.

    def _wait_for_moment(self, started: subprocess.Popen[Any]) -> bool:
        """Wait until the case's moment; return False if scalewise has ended before."""
        run, at = self.runs[-1], self.case["at"]
        log = self.home / run.id / "log.txt"

        def is_there() -> bool:
            if started.poll() is not None:
                return True
            if at == "begin":
                return log.exists() and b"scalewise: attempt" in log.read_bytes()
            return any("steps" in line for line in self._newest(run, 0))

        if at != "submit":
            _wait(is_there, 60.0)
        if self.kind in NEEDS_RANKS:
            _wait(lambda: started.poll() is not None or self._find(run) is not None, 60.0)
        fast = 0.2 if at == "begin" else 1.0
        time.sleep(self.case["delay"] * fast)
        return started.poll() is None

    def _break(self, started: subprocess.Popen[Any]) -> bool:
        """Do what the case says; return False if what it breaks had ended."""
        case, kind, run = self.case, self.kind, self.runs[-1]
        number = signal.Signals[case["signal"]]
        pid = self._find(run)
        try:
            if kind in NEEDS_RANKS or kind == "batch shell":
                if pid is None:
                    return False
                rank = case["rank"] % run.topology.world
                host = self.cluster.names[rank // run.topology.devices]
                # A rank that has not written its first line has told nobody where it is.
                self.target = rf"rank {rank}\b" + (
                    rf" on {host}" if self._newest(run, rank) and run.topology.nodes > 1 else ""
                )
                if kind in ("stopped rank", "time limit"):
                    number = signal.SIGSTOP
                os.kill(pid, signal.SIGKILL if kind == "sampler" else number)
                if kind == "time limit":
                    self._ask("scontrol", "update", f"JobId={self._job()}", "TimeLimit=0:01")
            elif kind == "scalewise":
                os.kill(self._scalewise(started), number)
            elif kind == "killed scalewise":
                os.kill(self._scalewise(started), signal.SIGKILL)
            elif kind in ("scancel", "requeue"):
                words = {"scancel": ["scancel"], "requeue": ["scontrol", "requeue"]}[kind]
                return (job := self._job()) is not None and self._ask(*words, job)
            elif "controller" in kind:
                self._break_controller()
            elif "disk" in kind:
                self._fill_disk()
            else:
                self._break_node()
        except ProcessLookupError:
            return False
        return True

    def _break_controller(self) -> None:
        is_stopped = self.kind == "stopped controller"
        self.cluster.signal_controller(signal.SIGSTOP if is_stopped else signal.SIGKILL)
        time.sleep(self.case["seconds"])
        if is_stopped:
            self.cluster.signal_controller(signal.SIGCONT)
        else:
            self.cluster.start_controller()

    def _break_node(self) -> None:
        name = self.cluster.names[self.case["node"]]
        if self.kind == "lost node":
            self.away.append(name)
            self.cluster.kill_node(name)
        elif self.kind == "cut node":
            self.away.append(name)
            self.cluster.cut(name)
            time.sleep(self.case["seconds"])
            self.cluster.mend(name)
        else:
            self.cluster.kill_slurmd(name)
            time.sleep(self.case["seconds"])
            self.cluster.start_node(name)

    def _fill_disk(self) -> None:
        filling = self.cluster.small / "filling"
        with suppress(OSError), filling.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        if self.kind == "freed disk":
            time.sleep(self.case["seconds"] / 2)
            filling.unlink()

    def _mend(self) -> None:
        """Bring everything back that the case took away."""
        (self.cluster.small / "filling").unlink(missing_ok=True)
        for name in self.away:
            if self.kind == "lost node":
                self.cluster.start_node(name)
            else:
                self.cluster.mend(name)
        self.away = []

    # What is there.

    def _start(self) -> subprocess.Popen[Any]:
        # A controller or a node that has just come back takes a moment.
        _wait(self.cluster.usable, 30.0)
        words: list[str | Path] = ["scalewise", "run", "s.toml", "-o", self.home]
        if self.case["jobs"] == "inside":
            nodes = max(run.topology.nodes for run in self.runs)
            devices = max(run.topology.devices for run in self.runs)
            # As many cores as the ranks need, and one for the sampler.
            salloc = ["salloc", "--quiet", f"--nodes={nodes}", f"--ntasks-per-node={devices}"]
            words = [*salloc, "--time=10", *words]
        with (self.place / "err.txt").open("wb") as error:
            return self.cluster.start(
                *words, cwd=self.place, stdout=subprocess.DEVNULL, stderr=error,
                start_new_session=True,
                # The hunt ignores Ctrl-C, which its children would inherit.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip

    def _scalewise(self, started: subprocess.Popen[Any]) -> int:
        """Return the process of ``scalewise run``: what was started, or what salloc has started."""
        if self.case["jobs"] != "inside":
            return started.pid
        for pid in self._pids():
            words = read_proc(pid, "cmdline").split(b"\0")
            if len(words) > 2 and words[1].endswith(b"/scalewise") and words[2] == b"run":
                return pid
        raise ProcessLookupError

    def _find(self, run: RunSpec) -> int | None:
        """Return the process that the case wants to break; None if it does not live."""
        kind = self.kind.removeprefix("stopped ").replace("time limit", "rank")
        tag = f"SCALEWISE_RUN={self.home / run.id}\0".encode()
        rank = f"\0SLURM_PROCID={self.case['rank'] % run.topology.world}\0".encode()
        for pid in self._pids():
            words, environment = read_proc(pid, "cmdline"), read_proc(pid, "environ")
            if kind == "batch shell":
                is_script = words.endswith((b"/slurm_script\0", b"/in-turn.sh\0"))
                if is_script and words.startswith((b"/bin/bash", b"bash")):
                    return pid
            if tag not in environment:
                continue
            is_srun = words.startswith(b"srun\0")
            trains = b"scalewise.frameworks\0train\0" in words
            if kind == "srun" and is_srun and trains:
                return pid
            if is_srun or b"SLURM_STEP_NUM_TASKS=" not in environment:
                continue
            if kind == "sampler" and b"node_sampler" in words:
                return pid
            if kind in ("rank", "slurmstepd") and trains and rank in environment:
                return pid if kind == "rank" else int(_stat(pid)[1])
        return None

    def _pids(self) -> list[int]:
        """Return the user's processes, in the order of their start."""
        found = self.cluster.of_user()
        return sorted(pid for pid in found if _stat(pid)[:1] not in ([], [b"Z"], [b"X"]))

    def _queue(self, *options: str) -> list[list[str]]:
        shown = self.cluster.root("squeue", "--noheader", "--format=%F|%j|%T|%Z", *options).stdout
        rows = [line.strip().split("|") for line in shown.splitlines()]
        return [row for row in rows if row[-1] == str(self.place)]

    def _job(self) -> str | None:
        """Return the id of the job of the last run; None if there is none yet."""
        rows = _wait(lambda: self._queue("--states=PENDING,RUNNING"), 5.0)
        return max((row[0] for row in rows), key=int) if rows else None

    def _ask(self, *words: str) -> bool:
        """Carry out a command of Slurm; return whether it did what was asked."""
        return self.cluster.run(*words).returncode == 0

    def _error(self) -> str:
        return (self.place / "err.txt").read_text(errors="replace")

    def _newest(self, run: RunSpec, rank: int) -> list[Any]:
        """Return the lines of a rank's newest attempt."""
        path = rank_file(self.home / run.id, rank)
        lines = list(parse_lines(path.read_bytes().splitlines())) if path.exists() else []
        return [line for line in lines if line["attempt"] == lines[-1]["attempt"]]

    def _outcomes(self) -> list[Path]:
        paths = (self.home / run.id / "outcome.json" for run in self.runs)
        return [path for path in paths if path.exists()]

    def _all_finished(self) -> bool:
        return len(self._outcomes()) == len(self.runs)

    def _finished(self) -> dict[Path, bytes]:
        """Return the rank files and outcomes of finished runs."""
        return {
            path: path.read_bytes()
            for outcome in self._outcomes()
            for path in [outcome, *outcome.parent.glob("rank-*.jsonl")]
        }

    # What must be so.

    def _left(self, what: str) -> str | None:
        """Return which jobs or processes live on."""
        rows = _wait(lambda: not self._queue("--states=PENDING,RUNNING,SUSPENDED"), LEFT_SECONDS)
        if not rows:
            return f"a job is left: {self._queue()}; {what}"
        if not _wait(lambda: not self._pids(), LEFT_SECONDS):
            left = [read_proc(pid, "cmdline").replace(b"\0", b" ")[:200] for pid in self._pids()]
            return f"processes are left: {left}; {what}"
        return None

    def _lost_steps(self) -> str | None:
        """Compare the last steps that all ranks wrote: they do each step together."""
        for run in self.runs:
            done = []
            for rank in range(run.topology.world):
                lines = [line for line in self._newest(run, rank) if "steps" in line]
                done.append([second for line in lines for second in line["each"]["seconds"]])
            short, long = min(done, key=len), max(done, key=len)
            missing = sum(long[len(short) :])
            if missing > LOST_SECONDS + SLACK and self.kind not in ("lost node", "full disk"):
                return f"{missing:.1f} s of steps are lost: {self.said[-500:]}"
        return None

    def _complete(self) -> str | None:
        """Run the study again, and return what is not as after a run without a fault."""
        finished = self._finished()
        started = self._start()
        try:
            code = started.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            started.kill()
            return f"running again did not end within {END_SECONDS:.0f} s: {self._error()}"
        error = self._error()
        if code or "Traceback" in error:
            return f"running again: code {code}: {error[-900:]}; before: {self.said[-400:]}"
        for path, content in finished.items():
            if path.read_bytes() != content:
                return f"running again changed {path} of a finished run"
        return (
            self._left("after running again")
            or self._twice()
            or next(filter(None, map(self._wrong_run, self.runs)), None)
            or self._wrong_answer()
        )

    def _twice(self) -> str | None:
        """Return whether a run was submitted more often than it failed."""
        if self.case["jobs"] == "inside":
            return None
        failed = [len(list((self.home / run.id).glob("failure-*.json"))) for run in self.runs]
        names: dict[str, set[str]] = {}
        for job, name, *_ in self._queue("--states=all"):
            names.setdefault(name, set()).add(job)
        for name, jobs in names.items():
            if len(jobs) > max(failed) + 1:
                return f"{len(jobs)} jobs {name} were submitted, and {max(failed)} runs failed"
        return None

    def _wrong_run(self, run: RunSpec) -> str | None:
        """Return what is wrong with the files of a run, after all of its attempts."""
        for rank in range(run.topology.world):
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
            resumed = max((line.get("resumed") or 0 for line in last), default=0)
            if done + resumed != run.steps:
                return f"{path.name} has {resumed} + {done} of {run.steps} steps"
        return None

    def _wrong_answer(self) -> str | None:
        found = [point.devices for point in scalewise.measure(self.home).points]
        wanted = sorted(run.topology.world for run in self.runs)
        return None if found == wanted else f"measure shows {found}, not {wanted}"


def _toml(values: dict[str, Any]) -> str:
    """Return a study as TOML: tables of plain values, and in them tables in one line."""

    def lines() -> Iterator[str]:
        for key, value in values.items():
            if isinstance(value, dict):
                yield f"[{key}]"
                yield from (f"{name} = {_inline(one)}" for name, one in value.items())
            else:
                yield f"{key} = {_inline(value)}"

    return "\n".join(lines()) + "\n"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


def _stat(pid: int) -> list[bytes]:
    """Return a process's state, its parent, and so on."""
    return read_proc(pid, "stat").rpartition(b")")[2].split()
