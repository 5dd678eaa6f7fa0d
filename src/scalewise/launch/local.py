"""Start a run on this machine.

Ranks start under torchrun's agent, one agent per node of the topology, so that a 2x2 run
can be rehearsed on one machine; under horovodrun or mpirun; or by themselves, as their
framework wants it. A single rank needs no agent, which would take as long to start as the
rank does. Everything goes into the run's ``log.txt``.
"""

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

from scalewise.errors import LaunchError, OutOfReach
from scalewise.launch import (
    PORT_PLACEHOLDER,
    Command,
    Job,
    Plan,
    State,
    job_files_written,
    next_attempt,
    processes,
    worker_zip,
    write_job,
    write_plan_files,
)
from scalewise.launch.interpreters import Interpreters
from scalewise.launch.program import parse_program
from scalewise.record.log import ends_in, signal_name, usual_reason
from scalewise.record.rank_tail import RankTail, read_tail
from scalewise.record.write import rank_file
from scalewise.spec import RunSpec
from scalewise.validate import check_positive, refuse_unknown_keys

PATIENCE_SECONDS = 300.0
"""Seconds without any progress after which a run counts as hung."""
MIN_PROCESS_LIMIT = 64
"""Processes of a run that any machine may be asked for."""
LOOK_SECONDS = 5.0
"""Seconds between two looks at what the ranks of a run have written."""
LINGER_SECONDS = 10.0
"""Seconds that processes of a run may outlive the first ones."""


class LocalLauncher:
    """Runs here, now. Settings: ``patience``, seconds without progress allowed."""

    at_once = 1.0

    def __init__(
        self, settings: Mapping[str, Any] | None = None, engines: Interpreters | None = None
    ) -> None:
        given, self._engines = settings or {}, engines or Interpreters()
        refuse_unknown_keys("the local [launcher]", given, ["name", "patience"])
        self._patience = given.get("patience", PATIENCE_SECONDS)
        check_positive("patience", self._patience, example=PATIENCE_SECONDS)
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._looked = time.monotonic()
        self._samplers: dict[Path, subprocess.Popen[bytes]] = {}
        self._unseen: dict[Path, tuple[float, State]] = {}
        """When we last looked at a run whose processes we cannot see, and where it was."""
        self._over: dict[Path, float] = {}
        """When the last process that we started ourselves was seen to have ended."""

    def request_summary(self, runs: Sequence[RunSpec]) -> str:
        """Say nothing: this machine is the user's own."""
        return ""

    def max_device_hours(self, runs: Sequence[RunSpec]) -> None:
        """Say that nothing bounds how long a run may take here."""

    def billed_devices(self, run: RunSpec, among: Sequence[RunSpec]) -> int:
        """Return the run's own devices."""
        return run.topology.world

    def together(self, runs: Sequence[RunSpec]) -> list[list[RunSpec]]:
        """Return every run apart: they share this machine."""
        return [[run] for run in runs]

    def plan(self, runs: Sequence[RunSpec], folder: Path) -> Plan:
        """Say what would be executed."""
        (run,) = runs
        _refuse_too_many_processes(run)
        if run.started_by == "srun" or (run.program and run.started_by == "mpirun"):
            raise LaunchError(
                f"start = {run.start!r} needs a Slurm job", hint="--launcher slurm, or leave it out"
            )
        home = folder / run.id
        env = {"OMP_NUM_THREADS": str(run.threads), **run.env, processes.RUN_VARIABLE: str(home)}
        if parcels := self._parcels(run, folder):
            paths = [*parcels, run.env.get("PYTHONPATH", ""), _python_path()]
            env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        if not run.program:
            env |= processes.SAFE_PATH
        if parcels and not run.program:
            env["SCALEWISE_UNWATCHED"] = "1"  # Nobody watches what we run ourselves.
        python = self._engines.python(run.framework)
        commands = tuple(
            Command(argv, {**env, **place}) for argv, place in _processes(run, home, python)
        )
        return Plan((run,), folder, commands, {_script_path(run): _script(commands)})

    def prepare(self, plan: Plan) -> None:
        """Write the run's commands and its spec."""
        write_plan_files(plan)
        if any(self._parcels(run, plan.folder) for run in plan.runs):
            worker_zip.pack(plan.folder)

    def _parcels(self, run: RunSpec, folder: Path) -> list[str]:
        """Return the parcel that a run needs, if it runs in another environment."""
        if run.program:
            return [str(folder / worker_zip.FILE_NAME)]
        return self._engines.paths(run.framework, folder)

    def submit(self, plan: Plan) -> list[Job]:
        """Start the run and return at once."""
        (run,) = plan.runs
        home = plan.folder / run.id
        attempt = next_attempt(home)
        port = _free_port()
        commands = [command.with_port(port) for command in plan.commands]
        self.prepare(replace(plan, files={_script_path(run): _script(commands)}))
        # What an earlier attempt has left without a trace in job.json would write beside this one.
        processes.end(processes.ProcessFilter({processes.RUN_VARIABLE: str(home)}))
        log = home / "log.txt"
        name: dict[str, Any] = {
            "launcher": "local",
            "token": uuid4().hex,
            "host": os.uname().nodename,
            "machine": processes.machine_id(),
            "uid": os.getuid(),
            "starter": processes.identity(os.getpid()),
            "commands": len(commands),
            "processes": [],
            "log": log.stat().st_size if log.exists() else 0,
        }
        now = {
            "SCALEWISE_ATTEMPT": str(attempt),
            "SCALEWISE_LAUNCHED": repr(time.time()),
            processes.TOKEN_VARIABLE: name["token"],
        }
        job = Job(home, attempt, run.ranks, name)
        # If we are killed before the process ids are written, the processes are found all the
        # same: their environment holds the token.
        with job_files_written([job], undo_on=BaseException):
            try:
                started = [self._start(command, now, log) for command in commands]
                if run.program or run.started_by != "direct":
                    self._sample(home, int(started[0]["pid"]), {**commands[0].env, **now})
                return [write_job(replace(job, name={**name, "processes": started}))]
            except BaseException:
                processes.end(_process_filter(job))
                raise

    def _start(self, command: Command, env: Mapping[str, str], log: Path) -> dict[str, Any]:
        """Start one of the run's processes; return how to find it again."""
        child = processes.start(command.argv, {**command.env, **env}, log)
        self._children[child.pid] = child
        return processes.identity(child.pid)

    def _sample(self, home: Path, pid: int, env: Mapping[str, str]) -> None:
        """Have the machine watched during the run; without it nothing else is lost."""
        with suppress(LaunchError):
            self._samplers[home] = processes.start_sampler(home, pid, env)

    def poll(self, job: Job) -> State:
        """Say where the job is; change nothing."""
        if not _visible(job):
            return self._poll_unseen(job)
        if not job.name.get("processes"):
            return self._find_processes(job)
        codes = [self._code(each) for each in job.name["processes"]]
        if None not in codes or any(codes):  # Where one agent failed, the others wait for ever.
            killed, exits = _process_ends(job, codes)
            if None in codes:
                return State("stuck", "" if killed else _kill_cause(job, codes), killed, exits)
            if sampler := self._samplers.pop(job.folder, None):
                processes.wait_or_kill(sampler)
            if not exits and self._lingers(job):
                return State("running")
            return State("ended", "" if killed else _kill_cause(job, codes), killed, exits)
        if time.monotonic() - self._looked > min(LOOK_SECONDS, self._patience):
            self._looked = time.monotonic()
            if silence(job) > self._patience:
                return State("stuck", _hang_cause(job))
        return State("running")

    def _find_processes(self, job: Job) -> State:
        """Say where a job is whose starter was killed before it wrote the process ids down."""
        if "starter" in job.name and processes.alive(**job.name["starter"]):
            return State("running", note="its processes are being started")
        outermost = _process_filter(job).outermost()
        if not outermost:
            return State("ended")
        # A process that has ended by now was started if its rank has written something.
        begun = all(read_tail(job.folder, rank, job.attempt).lines for rank in range(job.world))
        if len(outermost) < job.name.get("commands", 1) and not begun:
            return State("stuck", "not all of its processes were started")
        return State("running", job=replace(job, name={**job.name, "processes": outermost}))

    def _poll_unseen(self, job: Job) -> State:
        """Say where a job is whose processes we cannot see, by what its ranks have written last."""
        looked, state = self._unseen.get(job.folder, (-math.inf, State("running")))
        if time.monotonic() - looked > min(LOOK_SECONDS, self._patience):
            state = self._state_by_files(job)
            self._unseen[job.folder] = time.monotonic(), state
        return state

    def _state_by_files(self, job: Job) -> State:
        ranks = [read_tail(job.folder, rank, job.attempt) for rank in range(job.world)]
        if all(rank.ended for rank in ranks):
            return State("ended")
        seconds = silence(job)
        if seconds > self._patience:
            return State("ended", f"nothing was heard from {job.name['host']} for {seconds:.0f} s")
        return State("running", note=f"on {job.name['host']}")

    def _lingers(self, job: Job) -> bool:
        """Say whether processes that the first ones made are still leaving, and may."""
        since = self._over.setdefault(job.folder, time.monotonic())
        return time.monotonic() - since < LINGER_SECONDS and bool(_process_filter(job).processes())

    def cancel(self, job: Job, *, stuck: bool = False) -> None:
        """End every process of the run."""
        if not _visible(job) and self._poll_unseen(job).phase == "running":
            same = job.name.get("machine") == processes.machine_id()
            where = "of another user" if same else f"on {job.name['host']}"
            raise OutOfReach(
                f"the run {where} in {job.folder} cannot be ended from here",
                hint=f"`scalewise cancel {job.folder.parent}` "
                + ("by that user ends it" if same else "there ends it"),
            )
        if stuck:
            tails = [read_tail(job.folder, rank, job.attempt) for rank in range(job.world)]
            processes.show_stacks(
                _process_filter(job), {tail.notes.pid for tail in tails if tail.notes.pid}
            )
        processes.end(_process_filter(job))
        for process in job.name.get("processes", ()):
            if _visible(job) and processes.alive(**process):
                raise OutOfReach(
                    f"process {process['pid']} of the run in {job.folder} could not be ended",
                    hint=f"`ps -fp {process['pid']}` says whose it is",
                )

    def _code(self, process: Mapping[str, Any]) -> int | None:
        """Return a process's exit code, or nothing while it lives."""
        if child := self._children.get(process["pid"]):
            return child.poll()
        # Started by an earlier process of ours: its code is lost, its ranks' words are not.
        return None if processes.alive(process["pid"], process["created"]) else 0


def _visible(job: Job) -> bool:
    """Say whether the job's processes can be seen from here, and by us."""
    if "machine" not in job.name:  # An earlier version wrote it.
        return job.name.get("host") in (None, os.uname().nodename)
    # A machine may hide the processes of other users, or at least their environment.
    ours = os.getuid() in (job.name["uid"], 0)
    return ours and bool(job.name["machine"] == processes.machine_id())


def _process_filter(job: Job) -> processes.ProcessFilter:
    """Return how the processes of a job are found, however its folder is spelt or moved since."""
    variables = {processes.RUN_VARIABLE: str(job.folder)}
    if "token" in job.name:
        variables = {processes.TOKEN_VARIABLE: job.name["token"]}
    return processes.ProcessFilter(variables, job.name.get("processes", ()))


def _script_path(run: RunSpec) -> str:
    """Return where the run's commands are kept, relative to the study's folder."""
    return f"{run.id}/plan/commands.sh"


def _script(commands: Sequence[Command]) -> str:
    """Return a shell script that starts the run's commands, for a person to read."""
    return "#!/bin/sh\n" + "".join(f"{command} &\n" for command in commands) + "wait\n"


def _refuse_too_many_processes(run: RunSpec) -> None:
    """Refuse more processes than a rehearsal on this machine can make sense of."""
    cores = os.cpu_count() or 1
    most = max(MIN_PROCESS_LIMIT, 8 * cores)
    if (run.program or run.started_by != "direct") and run.topology.world > most:
        raise LaunchError(
            f"{run.topology} asks for {run.topology.world:,} processes on a machine with "
            f"{cores} cores",
            hint=f"ask for at most {most} here",
        )


Process = tuple[tuple[str, ...], dict[str, str]]
"""A command line, and what tells the process its place."""


def _processes(run: RunSpec, home: Path, python: str) -> list[Process]:
    """Return what is started for a run: its ranks, or those who start them."""
    topology = run.topology
    if run.program:
        taken = parse_program(run.program)
        places: dict[str, object] = {
            "devices": topology.devices, "world": topology.world, "nodes": topology.nodes,
            "master": "localhost", "port": PORT_PLACEHOLDER,
        }  # fmt: skip
        there = [{**places, "node_rank": node} for node in range(topology.nodes)]
        if run.started_by == "node":
            own = taken.by(python)
            return [
                (tuple(own.direct(each)), _rank_variables(node, run.ranks, 1))
                for node, each in enumerate(there)
            ]
        return [(taken.argv(_agent_options(run), each), {}) for each in there]
    worker = (python, "-m", "scalewise.frameworks", "train", str(home))
    if run.started_by == "direct":
        return [(worker, {})]
    if run.started_by in ("plain", "node") or topology.world == 1:
        each = 1 if run.started_by == "node" else topology.devices
        return [(worker, _rank_variables(rank, run.ranks, each)) for rank in range(run.ranks)]
    if run.started_by == "horovodrun":
        starter = str(Path(python).parent / "horovodrun")
        return [
            (
                (starter, "-np", str(topology.world), *_host_options(run), "--gloo", *worker),
                _rendezvous_variables(),
            )
        ]
    if run.started_by == "mpirun":
        return [((*_mpirun(topology.world), *worker), _rendezvous_variables())]
    agent = (python, "-m", "torch.distributed.run", *_agent_options(run))
    return [((*agent, *worker[1:]), {})] * topology.nodes


def _rank_variables(rank: int, ranks: int, each: int) -> dict[str, str]:
    """Return what tells a rank its place, with ``each`` of them on a node, as torchrun would."""
    told = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank % each, "LOCAL_WORLD_SIZE": each}
    return {
        **{name: str(value) for name, value in told.items()},
        **_rendezvous_variables(),
    }


def _rendezvous_variables() -> dict[str, str]:
    """Return where the ranks meet."""
    return {"MASTER_ADDR": "localhost", "MASTER_PORT": PORT_PLACEHOLDER}


def _agent_options(run: RunSpec) -> tuple[str, ...]:
    """Return the options of torchrun's agent on one node."""
    here = (f"--nproc-per-node={run.topology.devices}", "--local-addr=localhost")
    if run.topology.nodes == 1:
        return (*here, "--standalone")
    return (
        *here, f"--nnodes={run.topology.nodes}", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=localhost:{PORT_PLACEHOLDER}", f"--rdzv-id={run.id}",
    )  # fmt: skip


def _host_options(run: RunSpec) -> tuple[str, ...]:
    """Return where horovodrun has its ranks: all here.

    It gives up a whole machine for one rank that is lost. So in an elastic run each has a
    machine of its own, which is this one, its name spelt in another way.
    """
    world, least = run.topology.world, run.options.get("min_np")
    if not least:
        return ("-H", f"localhost:{world}")
    names = "".join(f"{_localhost_alias(rank)}:1\\n" for rank in range(world))
    return (
        "--min-np", str(least), "--max-np", str(world), "--network-interface", "lo",
        "--elastic-timeout", "60", "--host-discovery-script", f"printf '{names}'",
    )  # fmt: skip


def _localhost_alias(number: int) -> str:
    """Return a name of this machine; every number has a spelling of its own.

    >>> _spelt(0), _spelt(1), _spelt(6)
    ('localhost', 'Localhost', 'lOCalhost')
    """
    letters = enumerate("localhost")
    return "".join(each.upper() if number >> place & 1 else each for place, each in letters)


def _mpirun(world: int) -> tuple[str, ...]:
    """Return mpirun, which would not start more ranks than there are cores, nor any for root."""
    for_root = () if os.geteuid() else ("--allow-run-as-root",)
    return ("mpirun", *for_root, "--oversubscribe", "--bind-to", "none", "-np", str(world))


def _python_path() -> str:
    return os.environ.get("PYTHONPATH", "")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def _kill_cause(job: Job, codes: Sequence[int | None]) -> str:
    """Say which of the processes we started was killed from outside, if one was."""
    for process, code in zip(job.name["processes"], codes):
        if code is not None and code < 0:
            name = signal_name(-code)
            which = "a process of the run" if len(codes) > 1 else "the run's first process"
            return f"{which} ({process['pid']}) was killed by {name}{usual_reason(name)}"
    return ""


def silence(job: Job) -> float:
    """Return for how many seconds no rank has made progress."""
    quiet = []
    for rank in range(job.world):
        path = rank_file(job.folder, rank)
        # An earlier attempt may have left the rank's file, long ago.
        signs = (path, job.folder / "job.json")
        since = max(each.stat().st_mtime for each in signs if each.exists())
        stalled = read_tail(job.folder, rank, job.attempt).last.get("stalled")
        quiet.append(time.time() - since + (stalled["seconds"] if stalled else 0.0))
    return min(quiet)


def _hang_cause(job: Job) -> str:
    """Say which rank holds the others up."""
    words = [read_tail(job.folder, rank, job.attempt) for rank in range(job.world)]
    if not any(word.lines for word in words):
        return f"no rank has started for {silence(job):.0f} s ([launcher] patience allows more)"
    behind = min(words, key=_progress)
    alone = sum(_progress(word) == _progress(behind) for word in words) == 1
    who = f"rank {behind.rank}" if alone else f"all {len(words)} ranks"
    return (
        f"no progress for {silence(job):.0f} s: {who} stopped {behind.position} "
        "(stacks are in log.txt; [launcher] patience allows more)"
    )


def _progress(word: RankTail) -> tuple[int, int]:
    """Order ranks by how far they came: whole steps, then laps in the current one."""
    stalled = word.last.get("stalled") or {}
    return stalled.get("steps", -1 if not word.lines else 0), stalled.get("laps", 0)


def _process_ends(job: Job, codes: Sequence[int | None]) -> tuple[dict[int, str], dict[int, int]]:
    """Return the signals and the exit codes that ended processes, by process id.

    The codes of the commands themselves count only where the log tells none, and their signals
    where the command is itself a rank.
    """
    killed, exits = ends_in(job.folder / "log.txt", job.name.get("log", 0))
    own = {p["pid"]: code for p, code in zip(job.name["processes"], codes) if code}
    ranks = {read_tail(job.folder, rank, job.attempt).notes.pid for rank in range(job.world)}
    shot = {pid: signal_name(-code) for pid, code in own.items() if code < 0}
    killed = {**killed, **{pid: name for pid, name in shot.items() if pid in ranks}}
    return killed, exits or own
