"""Start, find and end processes.

Every process of a run carries the run's folder in ``SCALEWISE_RUN``, and so do
its children: torchrun puts its workers into sessions of their own, where no
process group finds them, but the variable does.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from scalewise.errors import LaunchError

RUN_VARIABLE = "SCALEWISE_RUN"
TOKEN_VARIABLE = "SCALEWISE_TOKEN"
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""What keeps ``python -m`` from importing scalewise, or what it needs, from the current folder.

Python 3.11 and later read it; for Python 3.10 see ``watch/inject.py``. A user's own program is
started without it.
"""
GRACE_SECONDS = 5.0
"""Seconds between asking a process to end and ending it."""


CLEANUP_SECONDS = 60.0
"""Seconds in which a process may remove what it has half made."""


def start(argv: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, its output appended to ``log``."""
    try:
        with log.open("ab") as output:
            return subprocess.Popen(
                argv,
                env={**_without_rank_variables(os.environ), **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as why:
        raise LaunchError(f"cannot start {argv[0]}: {why.strerror or why}") from why


def start_sampler(folder: Path, pid: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the sampler of this node: it ends by itself when process ``pid`` is gone.

    ``env`` is what the run's own processes got: the sampler takes the attempt
    and the visible devices from it. Once per node, never per rank.
    """
    argv = [sys.executable, "-m", "scalewise.probe.node_sampler", str(folder), str(pid)]
    return start(argv, {**env, **SAFE_PATH, RUN_VARIABLE: str(folder)}, Path(os.devnull))


def wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    """Let a process that is about to end do so, and end it if it does not."""
    try:
        process.wait(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _without_rank_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out what tells a process its rank: that is the starter's to say."""
    told = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return {
        key: value
        for key, value in environment.items()
        if key not in told and not key.startswith(("TORCHELASTIC_", "PET_"))
    }


def machine_id() -> str:
    """Return an id of the machine and the process namespace whose processes we can see.

    Two containers or two hosts with the same name differ; so does one host before and after a
    reboot. A process id means something only where this id is the same.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # Not Linux.
        return os.uname().nodename


def identity(pid: int) -> dict[str, Any]:
    """Return what tells a process from a later one with the same id."""
    return {"pid": pid, "created": psutil.Process(pid).create_time()}


@dataclass(frozen=True, slots=True)
class ProcessFilter:
    """How the processes of a run are found: by their environment, or by who started them."""

    variables: Mapping[str, str]
    """Any of these in a process's environment will do."""
    started: Sequence[Mapping[str, Any]] = ()
    """The processes that were started for the run, each the leader of a session."""

    def processes(self) -> list[psutil.Process]:
        """Return every living process of the run.

        The environment finds those in sessions of their own, as torchrun makes them; the session
        finds those that have cleared their environment.
        """
        sessions = {each["pid"] for each in self.started if not _pid_reused(**each)}
        members = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and (
                    _session_id(process.pid) in sessions or self._in_environment(process)
                ):
                    members.append(process)
            except psutil.Error:
                continue
        return members

    def outermost(self) -> list[dict[str, Any]]:
        """Return those of the processes whose parents are not among them."""
        living = self.processes()
        pids = {process.pid for process in living}
        outer = []
        for process in living:
            try:
                if process.ppid() not in pids:
                    outer.append(identity(process.pid))
            except psutil.Error:
                continue
        return outer

    def _in_environment(self, process: psutil.Process) -> bool:
        environment = process.environ()
        return any(environment.get(name) == value for name, value in self.variables.items())


def _session_id(pid: int) -> int:
    """Return the leader of a process's session; 0 where that is not known."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _pid_reused(pid: int, created: float) -> bool:
    """Say whether another process has this id now. While its session lives, none can."""
    try:
        return abs(psutil.Process(pid).create_time() - created) >= 1.0
    except psutil.Error:
        return False


def run_processes(folder: Path) -> list[psutil.Process]:
    """Return every living process whose environment names the run in ``folder``."""
    return ProcessFilter({RUN_VARIABLE: str(folder)}).processes()


def has_argument(argument: str) -> bool:
    """Say whether a living process was started with this argument."""
    for process in psutil.process_iter():
        try:
            if argument in process.cmdline():
                return True
        except psutil.Error:
            continue
    return False


def end(mark: ProcessFilter) -> None:
    """End every process of a run: ask, wait a little, then insist."""
    living = mark.processes()
    for process in living:
        _ignore_gone(process.terminate)
    try:
        _, stubborn = psutil.wait_procs(living, timeout=GRACE_SECONDS)
    finally:
        # Also when a second Ctrl-C cuts the waiting short.
        for process in mark.processes():
            _ignore_gone(process.kill)
    psutil.wait_procs(stubborn, timeout=GRACE_SECONDS)


def show_stacks(mark: ProcessFilter, pids: set[int]) -> None:
    """Ask ranks to print their stacks into the log; other processes would die of it."""
    for process in mark.processes():
        if process.pid in pids:
            _ignore_gone(lambda process=process: process.send_signal(signal.SIGUSR1))


def _ignore_gone(send: Any) -> None:
    try:
        send()
    except psutil.Error:
        return


def alive(pid: int, created: float) -> bool:
    """Say whether the process that had this id at that time still lives.

    Where a machine hides other users' processes, one with this id is taken for it.
    """
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < 1.0
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        try:
            os.kill(pid, 0)  # Sends nothing.
        except PermissionError:
            return True
        except (OSError, OverflowError):
            return False
        return False


def ask_worker(
    verb: str,
    argument: str,
    *,
    timeout: float = 120.0,
    python: str = sys.executable,
    paths: Sequence[str] = (),
) -> Any:
    """Start one of the worker's verbs in a child process and return its answer.

    Another ``python`` than this one finds the worker on these ``paths``.
    """
    argv = [python, "-m", "scalewise.frameworks", verb, argument]
    env = {**os.environ, **SAFE_PATH, "SCALEWISE_UNWATCHED": "1"}
    if paths:
        env["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [env.get("PYTHONPATH")])])
    began = time.monotonic()
    try:
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=timeout, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired as slow:
        waited = time.monotonic() - began
        raise LaunchError(f"no answer to {verb} {argument} after {waited:.0f} s") from slow
    except subprocess.CalledProcessError as bad:
        words = bad.stderr.strip() or f"{python} says nothing (code {bad.returncode})"
        raise LaunchError(f"{verb} {argument} failed: {words.splitlines()[-1]}") from bad
    except (OSError, ValueError, IndexError) as bad:
        raise LaunchError(f"{python} is no Python that works") from bad


def stream_worker(verb: str, asked: Mapping[str, Any], heard: Callable[[Any], None]) -> Any:
    """Start a worker's verb with a request; pass on what it says on its way, return its answer.

    It may take as long as it takes. Whatever happens here, Ctrl-C included, it is asked
    to end and given time to tidy up, and no process is left; where this process is ended
    without a chance to ask, the verb sees that by itself.
    """
    with tempfile.TemporaryDirectory(prefix="scalewise-") as home:
        request, log = Path(home, "request.json"), Path(home, "log.txt")
        request.write_text(json.dumps(asked), encoding="utf-8")
        argv = [sys.executable, "-m", "scalewise.frameworks", verb, str(request)]
        with log.open("wb") as errors:
            child = subprocess.Popen(
                argv,
                env={
                    **_without_rank_variables(os.environ),
                    **SAFE_PATH,
                    RUN_VARIABLE: home,
                    "SCALEWISE_ASKER": str(os.getpid()),
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        try:
            answer = _read_messages(child, heard)
            child.wait()
            if answer is None:
                killed = child.returncode == -signal.SIGKILL
                words = (
                    _last_log_line(log) if log.stat().st_size else f"exit code {child.returncode}"
                )
                raise LaunchError(
                    f"{verb} ended without an answer: {'it was killed' if killed else words}",
                    hint="most often the system ran out of memory" if killed else "",
                )
            return answer
        finally:
            try:
                if child.poll() is None:
                    child.terminate()
                    child.wait(CLEANUP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:  # Also when a second Ctrl-C cuts the waiting short.
                if child.poll() is None:
                    end(ProcessFilter({RUN_VARIABLE: home}))
                    child.wait()


def _read_messages(child: subprocess.Popen[bytes], heard: Callable[[Any], None]) -> Any:
    """Pass on what a child says, line by line; return its answer, or nothing."""
    assert child.stdout is not None
    answer = None
    with child.stdout as lines:
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError as bad:
                raise LaunchError(f"the worker said what cannot be read: {line!r}") from bad
            if "answer" in said:
                answer = said["answer"]
            else:
                heard(said)
    return answer


def run_ranks(verb: str, file: Path, *, ranks: int, timeout: float = 60.0) -> Any:
    """Start a worker's verb on ranks that meet on this machine; return what they left in ``file``.

    Whatever happens, no process is left: after ``timeout`` seconds all are ended.
    """
    argv = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=localhost",
        f"--nproc-per-node={ranks}", "-m", "scalewise.frameworks", verb, str(file),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="scalewise-") as home:
        log = Path(home, "log.txt")
        agent = start(argv, {**SAFE_PATH, RUN_VARIABLE: home, "OMP_NUM_THREADS": "1"}, log)
        try:
            code = agent.wait(timeout)
        except subprocess.TimeoutExpired as slow:
            problem = f"{ranks} ranks gave no answer to {verb} within {timeout:.0f} s"
            raise LaunchError(f"{problem}: {_last_log_line(log)}") from slow
        finally:
            end(ProcessFilter({RUN_VARIABLE: home}))
            agent.wait(GRACE_SECONDS)
        if code:
            raise LaunchError(_last_log_line(log))
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as bad:
        raise LaunchError(f"{verb} left no answer in {file}: {bad}") from bad


def _last_log_line(log: Path) -> str:
    """Return the first failed rank's own sentence, or the last line there is."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip(" =-")]
    own = [line for line in lines if line.startswith("rank ") and " failed: " in line]
    return (own or lines[-1:] or ["nothing was said"])[0]
