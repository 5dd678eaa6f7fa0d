"""Start, find and end processes. Those of a run inherit SCALEWISE_RUN, which is its folder."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from scalewise.errors import LaunchError, shown

RUN_VARIABLE = "SCALEWISE_RUN"
TOKEN_VARIABLE = "SCALEWISE_TOKEN"
"""The variable whose value, a random text, only the processes of one job have."""
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Makes ``python -m`` skip the current folder; ``watch/inject.py`` does it for Python 3.10."""
START_TIME_TOLERANCE = 1.0
"""Seconds by which two readings of one process's start time may differ."""
MAX_UPTIME_SECONDS = 1e9
GRACE_SECONDS = 5.0
"""Seconds between SIGTERM and SIGKILL."""
CLEANUP_SECONDS = 60.0
"""Seconds that a process may take to remove unfinished files."""


def start(argv: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process in a new session, its output appended to ``log``."""
    try:
        with log.open("ab") as output:
            return subprocess.Popen(
                argv, env={**_without_rank_variables(os.environ), **env}, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
    except OSError as error:
        raise LaunchError(f"cannot start {argv[0]}: {error.strerror or error}") from error


def start_sampler(folder: Path, pid: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the process that samples this node's load; it ends after process ``pid``."""
    argv = [sys.executable, "-m", "scalewise.probe.node_sampler", str(folder), str(pid)]
    return start(argv, {**env, **SAFE_PATH, RUN_VARIABLE: str(folder)}, Path(os.devnull))


def wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that is about to end, and kill it if it does not."""
    try:
        process.wait(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _without_rank_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without rank variables, which would be wrong for a new process."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return {
        key: value
        for key, value in environment.items()
        if key not in names and not key.startswith(("TORCHELASTIC_", "PET_"))
    }


def machine_id() -> str:
    """Return an id of this boot and process namespace: process ids are valid only in these."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # Not Linux.
        return os.uname().nodename


def identity(pid: int) -> dict[str, Any]:
    """Return id and start time of a process: a later process may reuse the id alone."""
    return {"pid": pid, "created": _created(psutil.Process(pid))}


def _created(process: psutil.Process) -> float:
    """Return when a process began, in seconds since the boot: psutil's time moves with the clock.

    Without Linux it is in seconds since 1970.
    """
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return process.create_time()


def _began_at(process: psutil.Process, created: float) -> bool:
    """Return whether ``created`` is of this process, and not of an earlier one with its id."""
    since_1970 = created > MAX_UPTIME_SECONDS  # As an earlier version of scalewise wrote it.
    began = process.create_time() if since_1970 else _created(process)
    return bool(abs(began - created) < START_TIME_TOLERANCE)


@dataclass(frozen=True, slots=True)
class ProcessFilter:
    """Finds the processes of a run: by their environment, or by their session."""

    variables: Mapping[str, str]
    """A process with any of these in its environment matches."""
    session_leaders: Sequence[Mapping[str, Any]] = ()
    """Processes that began a session each; all processes of these sessions match."""

    def processes(self) -> list[psutil.Process]:
        """Return every living process of the run."""
        sessions = {leader["pid"] for leader in self.session_leaders}
        for leader in self.session_leaders:
            # The session of an ended leader may live on. The system reuses the leader's id only
            # after the session's end: then a process with this id has another start time.
            with suppress(psutil.Error):
                if not _began_at(psutil.Process(leader["pid"]), leader["created"]):
                    sessions.discard(leader["pid"])
        members = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                session = None
                with suppress(OSError):
                    session = os.getsid(process.pid)
                # The environment of a process may be hidden: read it only if it is needed.
                is_known = session in sessions or not self.variables
                environment = {} if is_known else process.environ()
                if session in sessions or any(
                    environment.get(name) == value for name, value in self.variables.items()
                ):
                    members.append(process)
        return members

    def outermost(self) -> list[dict[str, Any]]:
        """Return the identities of matching processes whose parents do not match."""
        living = self.processes()
        pids = {process.pid for process in living}
        outer = []
        for process in living:
            with suppress(psutil.Error):
                if process.ppid() not in pids:
                    outer.append(identity(process.pid))
        return outer


def has_argument(argument: str) -> bool:
    """Return whether a living process was started with this argument."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if argument in process.cmdline():
                return True
    return False


def end(process_filter: ProcessFilter) -> None:
    """End every process of a run: SIGTERM, wait, SIGKILL."""
    living = process_filter.processes()
    for process in living:
        with suppress(psutil.Error):
            process.terminate()
    try:
        _, surviving = psutil.wait_procs(living, timeout=GRACE_SECONDS)
    finally:
        # Kill them even if a second Ctrl-C cuts the waiting short.
        for process in process_filter.processes():
            with suppress(psutil.Error):
                process.kill()
    psutil.wait_procs(surviving, timeout=GRACE_SECONDS)


def show_stacks(process_filter: ProcessFilter, pids: set[int]) -> None:
    """Make the ranks ``pids`` print their stacks, by a signal that would kill other processes."""
    for process in process_filter.processes():
        if process.pid in pids:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGUSR1)


def alive(pid: int, created: float) -> bool:
    """Return whether the process with this id and start time still lives."""
    try:
        process = psutil.Process(pid)
        return _began_at(process, created) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        try:
            os.kill(pid, 0)  # Signal 0 only tests whether the process exists.
        except PermissionError:  # Another user's process; its start time is hidden.
            return True
        except (OSError, OverflowError):
            return False
        return False


def is_stopped(pid: int | None) -> bool:
    """Return whether a process was stopped by a signal, and has not gone on."""
    try:
        status = psutil.Process(pid).status() if pid else ""
    except psutil.Error:
        return False
    return status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def ask_worker(
    verb: str,
    argument: str,
    *,
    timeout: float = 120.0,
    python: str = sys.executable,
    paths: Sequence[str] = (),
) -> Any:
    """Return the last line of ``python -m scalewise.frameworks VERB ARGUMENT``, parsed as JSON.

    ``paths`` are added to PYTHONPATH, for a Python in which scalewise is not installed.
    """
    argv = [python, "-m", "scalewise.frameworks", verb, argument]
    env = {**os.environ, **SAFE_PATH, "SCALEWISE_UNWATCHED": "1"}
    if paths:
        env["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [env.get("PYTHONPATH")])])
    began = time.monotonic()
    try:
        result = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=timeout, check=True
        )
        return json.loads(result.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired as error:
        waited = time.monotonic() - began
        raise LaunchError(
            f"no answer to {verb} {argument} after {waited:.0f} s",
            hint="the machine may be overloaded: try again",
        ) from error
    except subprocess.CalledProcessError as error:
        message = error.stderr.strip() or f"{python} printed no error (code {error.returncode})"
        raise LaunchError(
            f"{verb} {argument} failed: {message.splitlines()[-1]}",
            hint=f"{python} -m scalewise.frameworks {verb} shows more",
        ) from error
    except (OSError, ValueError, IndexError) as error:
        raise LaunchError(
            f"{python} is not a working Python", hint="give another one, or repair it"
        ) from error


def stream_worker(verb: str, request: Mapping[str, Any], on_message: Callable[[Any], None]) -> Any:
    """Return a worker's answer, without a time limit; its other messages go to ``on_message``."""
    with tempfile.TemporaryDirectory(prefix="scalewise-") as home:
        request_file, log = Path(home, "request.json"), Path(home, "log.txt")
        request_file.write_text(json.dumps(request), encoding="utf-8")
        argv = [sys.executable, "-m", "scalewise.frameworks", verb, str(request_file)]
        env = {**_without_rank_variables(os.environ), **SAFE_PATH, RUN_VARIABLE: home}
        env["SCALEWISE_ASKER"] = str(os.getpid())  # The worker ends if this process does.
        with log.open("wb") as errors:
            child = subprocess.Popen(
                argv, env=env, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        try:
            answer = _read_messages(child, on_message)
            child.wait()
            if answer is None:
                killed = child.returncode == -signal.SIGKILL
                message = (
                    _failure_message(log) if log.stat().st_size else f"exit code {child.returncode}"
                )
                raise LaunchError(
                    f"{verb} ended without an answer: {'it was killed' if killed else message}",
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
            finally:  # Kill it even if a second Ctrl-C cuts the waiting short.
                if child.poll() is None:
                    end(ProcessFilter({RUN_VARIABLE: home}))
                    child.wait()


def _read_messages(child: subprocess.Popen[bytes], on_message: Callable[[Any], None]) -> Any:
    """Return the child's answer, or None; pass its other messages to ``on_message``."""
    assert child.stdout is not None
    answer = None
    with child.stdout as lines:
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError as error:
                raise LaunchError(
                    f"the worker printed an unreadable message: {shown(line)}"
                ) from error
            if "answer" in message:
                answer = message["answer"]
            else:
                on_message(message)
    return answer


def run_ranks(verb: str, file: Path, *, ranks: int, timeout: float = 60.0) -> Any:
    """Run a worker's verb as ``ranks`` processes here; return the JSON it wrote to ``file``."""
    argv = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=localhost",
        f"--nproc-per-node={ranks}", "-m", "scalewise.frameworks", verb, str(file),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="scalewise-") as home:
        log = Path(home, "log.txt")
        agent = start(argv, {**SAFE_PATH, RUN_VARIABLE: home, "OMP_NUM_THREADS": "1"}, log)
        try:
            code = agent.wait(timeout)
        except subprocess.TimeoutExpired as error:
            problem = f"{ranks} ranks gave no answer to {verb} within {timeout:.0f} s"
            raise LaunchError(f"{problem}: {_failure_message(log)}") from error
        finally:
            end(ProcessFilter({RUN_VARIABLE: home}))
            agent.wait(GRACE_SECONDS)
        if code:
            raise LaunchError(_failure_message(log))
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LaunchError(f"{verb} left no answer in {file}: {error}") from error


def _failure_message(log: Path) -> str:
    """Return the first failed rank's message, else the log's last line that has text."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip(" =-")]
    failures = [line for line in lines if line.startswith("rank ") and " failed: " in line]
    return (failures or lines[-1:] or ["the log is empty"])[0]
