"""Start a run on this machine: under torchrun, horovodrun or mpirun, or its ranks directly."""

import math
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from scalewise.errors import LaunchError, OutOfReach, SpecError, parameter, shown
from scalewise.launch import (
    PORT_PLACEHOLDER,
    Command,
    Job,
    Plan,
    State,
    clock_of,
    job_files_written,
    next_attempt,
    processes,
    worker_zip,
    write_job,
    write_plan_files,
)
from scalewise.launch.interpreters import Interpreters
from scalewise.launch.program import parse_program
from scalewise.record.log import read_process_ends, signal_name, usual_reason
from scalewise.record.rank_tail import RankTail, read_last_line
from scalewise.record.run_clock import CLOCK_VARIABLE, SET_SECONDS, RunClock, since_boot
from scalewise.record.write import rank_file
from scalewise.spec import RunSpec
from scalewise.validate import check_positive, refuse_unknown_keys

PATIENCE_SECONDS = 300.0
"""Seconds without any progress after which a run counts as hung."""
MIN_PROCESS_LIMIT = 64
"""A run may have so many processes on any machine, and more if there are many cores."""
PROGRESS_READ_SECONDS = 5.0
"""Seconds between two reads of the rank files, which show progress."""
LINGER_SECONDS = 10.0
"""Seconds that child processes may outlive the processes that we started."""


class LocalLauncher:
    """Starts runs on this machine. Setting: ``patience``, seconds allowed without progress."""

    at_once = 1.0
    """Runs active at a time: several would slow each other down on one machine."""

    def __init__(
        self, settings: Mapping[str, Any] | None = None, interpreters: Interpreters | None = None
    ) -> None:
        settings, self._interpreters = settings or {}, interpreters or Interpreters()
        refuse_unknown_keys("the local [launcher]", settings, ["name", "patience"])
        self._patience = settings.get("patience", PATIENCE_SECONDS)
        check_positive("patience", self._patience, example=PATIENCE_SECONDS)
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        """Processes that this launcher has started, by process id."""
        self._progress_read_at = time.monotonic()
        self._samplers: dict[Path, subprocess.Popen[bytes]] = {}
        """By run folder: the process that samples the load of this node."""
        self._unseen: dict[Path, tuple[float, State]] = {}
        """For runs whose processes we cannot see: when their files were read, and their state."""
        self._written: dict[Path, tuple[float, float]] = {}
        """By rank file: its modification time, and the seconds since boot when it became that."""
        self._ended_at: dict[Path, float] = {}
        """By run folder: when we found that all processes that we started had ended."""

    def request_summary(self, runs: Sequence[RunSpec]) -> str:
        """Return an empty text: no resources are requested from a scheduler."""
        return ""

    def request_warnings(self, runs: Sequence[RunSpec]) -> list[SpecError]:
        """Return an empty list: nothing is requested from a scheduler."""
        return []

    def max_device_hours(self, runs: Sequence[RunSpec]) -> None:
        """Return None: runs on this machine have no time limit."""

    def billed_devices(self, run: RunSpec, among: Sequence[RunSpec]) -> int:
        """Return the run's own devices."""
        return run.topology.world

    def together(self, runs: Sequence[RunSpec]) -> list[list[RunSpec]]:
        """Return a group for each run: they share this machine, so they run one after another."""
        return [[run] for run in runs]

    def plan(self, runs: Sequence[RunSpec], folder: Path) -> Plan:
        """Return what would be executed."""
        (run,) = runs
        cores = os.cpu_count() or 1
        limit = max(MIN_PROCESS_LIMIT, 8 * cores)  # More than 8 per core is likely a mistake.
        if (run.program or run.started_by != "direct") and run.topology.world > limit:
            raise LaunchError(
                f"{run.topology} asks for {run.topology.world:,} processes on a machine with "
                f"{cores} cores",
                hint=f"choose at most {limit} devices on this machine",
            )
        if run.started_by == "srun" or (run.program and run.started_by == "mpirun"):
            hint = f"give {parameter('launcher', 'slurm')}, or leave start out"
            raise LaunchError(f"start = {shown(run.start)} needs a Slurm job", hint=hint)
        home = folder / run.id
        env = {"OMP_NUM_THREADS": str(run.threads), **run.env, processes.RUN_VARIABLE: str(home)}
        if worker_zips := self._worker_zips(run, folder):
            inherited = os.environ.get("PYTHONPATH", "")
            paths = [*worker_zips, run.env.get("PYTHONPATH", ""), inherited]
            env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        if not run.program:
            env |= processes.SAFE_PATH
        if worker_zips and not run.program:
            # The zip would start the watcher, but our own workers measure themselves.
            env["SCALEWISE_UNWATCHED"] = "1"
        python = self._interpreters.python(run.framework)
        commands = tuple(
            Command(argv, {**env, **rank_env}) for argv, rank_env in _commands(run, home, python)
        )
        return Plan((run,), folder, commands, _script_file(run, commands))

    def prepare(self, plan: Plan) -> None:
        """Write the run's commands, its spec and, if it needs one, the worker zip."""
        write_plan_files(plan)
        if any(self._worker_zips(run, plan.folder) for run in plan.runs):
            worker_zip.pack(plan.folder)

    def _worker_zips(self, run: RunSpec, folder: Path) -> list[str]:
        """Return a list with the path of the worker zip; empty if the run does not need it."""
        if run.program:
            return [str(folder / worker_zip.FILE_NAME)]
        return self._interpreters.paths(run.framework, folder)

    def submit(self, plan: Plan) -> list[Job]:
        """Start the run and return at once."""
        (run,) = plan.runs
        home = plan.folder / run.id
        attempt = next_attempt(home)
        with socket.socket() as probe:
            probe.bind(("localhost", 0))  # Port 0: the system chooses a free one.
            port = int(probe.getsockname()[1])
        commands = [command.with_port(port) for command in plan.commands]
        self.prepare(replace(plan, files=_script_file(run, commands)))
        # End processes of an earlier attempt that job.json does not name: they use the same files.
        processes.end(processes.ProcessFilter({processes.RUN_VARIABLE: str(home)}))
        log = home / "log.txt"
        details: dict[str, Any] = {
            "launcher": "local", "token": uuid4().hex, "host": os.uname().nodename,
            "machine": processes.machine_id(), "uid": os.getuid(),
            "starter": processes.identity(os.getpid()), "commands": len(commands), "processes": [],
            "log": log.stat().st_size if log.exists() else 0,  # Where this attempt begins (bytes).
        }  # fmt: skip
        if (ranks := _launched_ranks(run, commands)) is not None:
            details["ranks"] = ranks
        clock = RunClock.start()
        details["clock"] = str(clock)
        if agent := _agent_name(commands[0].argv):
            details["agent"] = agent
        attempt_env = {
            "SCALEWISE_ATTEMPT": str(attempt),
            "SCALEWISE_LAUNCHED": repr(clock.now()),
            CLOCK_VARIABLE: str(clock),
            processes.TOKEN_VARIABLE: details["token"],
        }
        job = Job(home, attempt, run.ranks, details)
        # If we are killed before the process ids are written, a later command finds the processes
        # by the token in their environment.
        with job_files_written([job], undo_on=BaseException):
            try:
                started = []
                for command in commands:
                    child = processes.start(command.argv, {**command.env, **attempt_env}, log)
                    self._children[child.pid] = child
                    started.append(processes.identity(child.pid))
                if run.program or run.started_by != "direct":
                    env = {**commands[0].env, **attempt_env}
                    with suppress(LaunchError):  # The run does not fail without its sampler.
                        self._samplers[home] = processes.start_sampler(home, started[0]["pid"], env)
                return [write_job(replace(job, details={**details, "processes": started}))]
            except BaseException:
                processes.end(_process_filter(job))
                raise

    def poll(self, job: Job) -> State:
        """Return the state of the job, without changing it."""
        if not _is_visible(job):
            return self._poll_unseen(job)
        if not job.folder.exists():
            return State("stuck", f"its folder {job.folder} is gone: it was moved or deleted")
        if not job.details.get("processes"):
            return self._poll_by_token(job)
        codes = [self._exit_code(process) for process in job.details["processes"]]
        # The run is over if all processes have ended, or if one failed: others may wait for it.
        if None not in codes or any(codes):
            killed, exits = _process_ends(job, codes)
            cause = "" if killed else _kill_cause(job, codes)  # ``killed`` explains it already.
            if None in codes:
                return State("stuck", cause, killed, exits)
            if sampler := self._samplers.pop(job.folder, None):
                processes.wait_or_kill(sampler)
            if not exits:  # Child processes may outlive those that we started, for a while.
                ended_at = self._ended_at.setdefault(job.folder, time.monotonic())
                may_linger = time.monotonic() - ended_at < LINGER_SECONDS
                if may_linger and _process_filter(job).processes():
                    return State("running")
            return State("ended", cause, killed, exits)
        read_seconds = min(PROGRESS_READ_SECONDS, self._patience)
        if time.monotonic() - self._progress_read_at > read_seconds:
            self._progress_read_at = time.monotonic()
            seconds = self._seconds_without_progress(job)
            if seconds > self._patience:
                return State("stuck", _hang_cause(job, seconds))
        return State("running")

    def _poll_by_token(self, job: Job) -> State:
        """Return the state of a job whose starter was killed before it wrote the process ids."""
        if "starter" in job.details and processes.alive(**job.details["starter"]):
            return State("running", note="its processes are being started")
        outermost = _process_filter(job).outermost()
        if not outermost:
            return State("ended")
        # A missing process was never started, or has ended; if all ranks wrote, it has ended.
        all_ranks_wrote = all(tail.lines for tail in job.tails())
        if len(outermost) < job.details.get("commands", 1) and not all_ranks_wrote:
            return State("stuck", "not all of its processes were started")
        return State("running", job=replace(job, details={**job.details, "processes": outermost}))

    def _poll_unseen(self, job: Job) -> State:
        """Return the state of a job whose processes we cannot see, from its ranks' files."""
        read_at, state = self._unseen.get(job.folder, (-math.inf, State("running")))
        if time.monotonic() - read_at > min(PROGRESS_READ_SECONDS, self._patience):
            host = job.details["host"]
            ranks = range(job.world)
            if all("ended" in read_last_line(job.folder, rank, job.attempt) for rank in ranks):
                state = State("ended")
            elif (silent_seconds := self._seconds_without_progress(job)) > self._patience:
                state = State("ended", f"{host} wrote no record for {silent_seconds:.0f} s")
            else:
                state = State("running", note=f"on {host}")
            self._unseen[job.folder] = time.monotonic(), state
        return state

    def cancel(self, job: Job, *, stuck: bool = False) -> None:
        """End every process of the run; ``stuck``: print the ranks' stacks first."""
        if not _is_visible(job) and self._poll_unseen(job).phase == "running":
            is_local = job.details.get("machine") == processes.machine_id()
            host = job.details["host"]
            where = "of another user" if is_local else f"on {host}"
            raise OutOfReach(
                f"the run {where} in {job.folder} cannot be ended from here",
                hint=("ask that user to run" if is_local else f"on {host}, run")
                + f" `scalewise cancel {job.folder.parent}`",
            )
        if stuck:
            pids = {tail.notes.pid for tail in job.tails() if tail.notes.pid}
            processes.show_stacks(_process_filter(job), pids)
        processes.end(_process_filter(job))
        for process in job.details.get("processes", ()):
            if _is_visible(job) and processes.alive(**process):
                raise OutOfReach(
                    f"process {process['pid']} of the run in {job.folder} could not be ended",
                    hint=f"`ps -fp {process['pid']}` says whose it is",
                )

    def _seconds_without_progress(self, job: Job) -> float:
        """Return the seconds since the last progress that any rank made."""
        silent_seconds = []
        for rank in range(job.world):
            path = rank_file(job.folder, rank)
            # The rank's file may be of an earlier attempt; job.json is as old as this attempt.
            files = (path, job.folder / "job.json")
            written = max(file.stat().st_mtime for file in files if file.exists())
            # A rank without progress writes lines that say for how long it has stalled.
            stalled = read_last_line(job.folder, rank, job.attempt).get("stalled")
            stalled_seconds = stalled["seconds"] if stalled else 0.0
            silent_seconds.append(self._age(path, written, job) + stalled_seconds)
        return min(silent_seconds)

    def _age(self, path: Path, written: float, job: Job) -> float:
        """Return for how long a file has had this modification time, whoever sets the clock."""
        now = since_boot()
        if path not in self._written:
            clock_is_set = abs(time.time() - clock_of(job).now()) > SET_SECONDS
            age = 0.0 if clock_is_set else max(0.0, time.time() - written)
            self._written[path] = written, now - age
        elif written != self._written[path][0]:
            self._written[path] = written, now
        return now - self._written[path][1]

    def _exit_code(self, process: Mapping[str, Any]) -> int | None:
        """Return a process's exit code; None while it lives."""
        if child := self._children.get(process["pid"]):
            return child.poll()
        # An earlier command started it, so its code is unknown: ranks' records tell a failure.
        return None if processes.alive(process["pid"], process["created"]) else 0


def _is_visible(job: Job) -> bool:
    """Return whether this user can see the job's processes from this machine."""
    if "machine" not in job.details:  # An earlier version of scalewise wrote the file.
        return job.details.get("host") in (None, os.uname().nodename)
    # A machine may hide the processes of other users, or at least their environment.
    may_see = os.getuid() in (job.details["uid"], 0)
    return may_see and bool(job.details["machine"] == processes.machine_id())


def _process_filter(job: Job) -> processes.ProcessFilter:
    """Return a filter for a job's processes; the token matches even if the folder was moved."""
    variables = {processes.RUN_VARIABLE: str(job.folder)}
    if "token" in job.details:
        variables = {processes.TOKEN_VARIABLE: job.details["token"]}
    return processes.ProcessFilter(variables, job.details.get("processes", ()))


def _script_file(run: RunSpec, commands: Sequence[Command]) -> dict[str, str]:
    """Return path and text of a shell script that shows a person how the run was started."""
    text = "#!/bin/sh\n" + "".join(f"{command} &\n" for command in commands) + "wait\n"
    return {f"{run.id}/plan/commands.sh": text}


def _agent_name(argv: Sequence[str]) -> str:
    """Return the name of the agent that a command starts, for messages; empty if it is a rank.

    >>> _agent_name(["python", "-m", "torch.distributed.run", "train.py"]), _agent_name(["train"])
    ("torchrun's agent", '')
    """
    if "torch.distributed.run" in argv[1:3]:
        return "torchrun's agent"
    name = Path(argv[0]).name
    return name if name in ("mpirun", "horovodrun") else ""


def _launched_ranks(run: RunSpec, commands: Sequence[Command]) -> list[int] | None:
    """Return which rank each command is; None if commands are agents, or play several ranks."""
    if run.program:
        return None
    if run.started_by == "direct" and run.ranks == 1:
        return [0]
    ranks = [int(command.env["RANK"]) for command in commands if "RANK" in command.env]
    return ranks if len(ranks) == len(commands) else None


RENDEZVOUS = {"MASTER_ADDR": "localhost", "MASTER_PORT": PORT_PLACEHOLDER}
"""Variables with the rendezvous address of the ranks."""
CommandAndVariables = tuple[tuple[str, ...], dict[str, str]]
"""A command line, and the variables that give the process its rank."""


def _commands(run: RunSpec, home: Path, python: str) -> list[CommandAndVariables]:
    """Return the command lines that start a run, by ``run.started_by``.

    ``direct``: one worker for all devices. ``plain``: one per device, without an agent. ``node``:
    one per node. Otherwise an agent (torchrun, horovodrun, mpirun) starts the ranks. A program
    that is a complete command is started once per node, without an agent of ours.
    """
    topology = run.topology
    if run.program:
        user_program = parse_program(run.program)
        shared_values: dict[str, object] = {
            "devices": topology.devices, "world": topology.world, "nodes": topology.nodes,
            "master": "localhost", "port": PORT_PLACEHOLDER,
        }  # fmt: skip
        node_values = [{**shared_values, "node_rank": node} for node in range(topology.nodes)]
        if run.started_by == "node":
            program = user_program.with_python(python)
            return [
                (tuple(program.direct_command(values)), _rank_variables(node, run.ranks, 1))
                for node, values in enumerate(node_values)
            ]
        options = _agent_options(run)
        return [(user_program.agent_command(options, values), {}) for values in node_values]
    worker = (python, "-m", "scalewise.frameworks", "train", str(home))
    if run.started_by == "direct":
        return [(worker, {})]
    # torchrun's agent takes as long to start as a rank: a single rank starts without it.
    if run.started_by in ("plain", "node") or topology.world == 1:
        per_node = 1 if run.started_by == "node" else topology.devices
        return [(worker, _rank_variables(rank, run.ranks, per_node)) for rank in range(run.ranks)]
    if run.started_by == "horovodrun":
        starter = str(Path(python).parent / "horovodrun")
        options = ("-np", str(topology.world), *_host_options(run), "--gloo")
        return [((starter, *options, *worker), RENDEZVOUS)]
    if run.started_by == "mpirun":  # By default it refuses root, and more ranks than cores.
        for_root = () if os.geteuid() else ("--allow-run-as-root",)
        options = (*for_root, "--oversubscribe", "--bind-to", "none", "-np", str(topology.world))
        return [(("mpirun", *options, *worker), RENDEZVOUS)]
    agent = (python, "-m", "torch.distributed.run", *_agent_options(run))
    return [((*agent, *worker[1:]), {})] * topology.nodes  # Every "node" is this machine.


def _rank_variables(rank: int, ranks: int, per_node: int) -> dict[str, str]:
    """Return the variables that torchrun would set for a rank if a node has ``per_node`` ranks."""
    return {
        "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank % per_node),
        "LOCAL_WORLD_SIZE": str(per_node), **RENDEZVOUS,
    }  # fmt: skip


def _agent_options(run: RunSpec) -> tuple[str, ...]:
    """Return the options of torchrun's agent on one node."""
    options = (f"--nproc-per-node={run.topology.devices}", "--local-addr=localhost")
    if run.topology.nodes == 1:
        return (*options, "--standalone")
    return (
        *options, f"--nnodes={run.topology.nodes}", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=localhost:{PORT_PLACEHOLDER}", f"--rdzv-id={run.id}",
    )  # fmt: skip


def _host_options(run: RunSpec) -> tuple[str, ...]:
    """Return horovodrun's host options, with all ranks on this machine."""
    world, min_ranks = run.topology.world, run.options.get("min_np")
    if not min_ranks:
        return ("-H", f"localhost:{world}")
    # Elastic horovodrun drops a host if a rank on it is lost: give each rank its own host name.
    names = "".join(f"{_localhost_alias(rank)}:1\\n" for rank in range(world))
    return (
        "--min-np", str(min_ranks), "--max-np", str(world), "--network-interface", "lo",
        "--elastic-timeout", "60", "--host-discovery-script", f"printf '{names}'",
    )  # fmt: skip


def _localhost_alias(number: int) -> str:
    """Return ``localhost`` in a different mix of upper and lower case for each number.

    >>> _localhost_alias(0), _localhost_alias(1), _localhost_alias(6)
    ('localhost', 'Localhost', 'lOCalhost')
    """
    letters = enumerate("localhost")
    return "".join(letter.upper() if number >> bit & 1 else letter for bit, letter in letters)


def _kill_cause(job: Job, codes: Sequence[int | None]) -> str:
    """Return a sentence about the first process of the job that a signal killed; else empty."""
    for process, code in zip(job.details["processes"], codes):
        if code is not None and code < 0:
            name = signal_name(-code)
            which = "a process of the run" if len(codes) > 1 else "the run's first process"
            which = job.details.get("agent") or which
            return f"{which} ({process['pid']}) was killed by {name}{usual_reason(name)}"
    return ""


def _hang_cause(job: Job, silent_seconds: float) -> str:
    """Return which ranks of a hung run made the least progress, and where they stopped."""
    ranks = job.tails()
    launched = dict(zip(job.details.get("ranks", ()), job.details.get("processes", ())))
    for rank in ranks:
        pid = rank.notes.pid or launched.get(rank.rank, {}).get("pid")
        if processes.is_stopped(pid):
            return (
                f"rank {rank.rank} (process {pid}) was stopped by SIGSTOP or a debugger "
                f"{rank.position}, and did not go on for {silent_seconds:.0f} s"
            )
    if not any(rank.lines for rank in ranks):
        seconds = f"{silent_seconds:.0f} s"
        return f"no rank has started for {seconds} (raise [launcher] patience to wait longer)"
    stalls = [rank.last.get("stalled") or {} for rank in ranks]
    progress = [  # Steps, then timed parts of the step; -1: the rank wrote nothing.
        (stall.get("steps", _steps_written(rank)), stall.get("laps", 0))
        for rank, stall in zip(ranks, stalls)
    ]
    behind = ranks[progress.index(min(progress))]
    count = progress.count(min(progress))
    slowest = f"all {count} ranks" if count == len(ranks) else f"{count} of {len(ranks)} ranks"
    slowest = f"rank {behind.rank}" if count == 1 else slowest
    return (
        f"no progress for {silent_seconds:.0f} s: {slowest} stopped "
        f"{behind.position} (stacks are in log.txt; raise [launcher] patience to wait longer)"
    )


def _steps_written(rank: RankTail) -> int:
    """Return how many steps a rank has written; -1 if it wrote nothing at all."""
    if rank.notes.steps:
        return rank.notes.steps[1]
    return 0 if rank.lines else -1


def _process_ends(job: Job, codes: Sequence[int | None]) -> tuple[dict[int, str], dict[int, int]]:
    """Return the signals and the exit codes that ended processes, by process id."""
    killed, exits = read_process_ends(job.folder / "log.txt", job.details.get("log", 0))
    command_codes = {p["pid"]: code for p, code in zip(job.details["processes"], codes) if code}
    rank_pids = {tail.notes.pid for tail in job.tails()}
    if "ranks" in job.details:  # Also those that have written nothing yet.
        rank_pids |= {process["pid"] for process in job.details["processes"]}
    # A signal that killed an agent did not kill its ranks: count only signals to ranks.
    signals = {pid: signal_name(-code) for pid, code in command_codes.items() if code < 0}
    killed = {**killed, **{pid: name for pid, name in signals.items() if pid in rank_pids}}
    return killed, exits or command_codes  # The log's exit codes are of ranks, so more exact.
