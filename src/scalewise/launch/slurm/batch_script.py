"""Render runs as batch scripts that a person can read, edit and submit."""

import math
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from scalewise.errors import SpecError, shown
from scalewise.launch import processes, worker_zip
from scalewise.launch.program import parse_program
from scalewise.launch.slurm.settings import Settings, parse_time_limit
from scalewise.record.attempts import ALLOCATION_LINE, ALLOCATION_LOG
from scalewise.record.checkpoints import LEAVE
from scalewise.record.log import BEGINS, JOB_BEGINS, SHARED_LOG
from scalewise.spec import RunSpec
from scalewise.validate import check_environment_name


def run_script(
    run: RunSpec, folder: Path, settings: Settings, *, attempt: int, shared: bool = False
) -> str:
    """Return the batch script of one run; ``shared``: a job of several runs executes it."""
    name, log = f"{folder.name}-{run.topology}", folder / run.id / "log.txt"
    software = [f"module load {quote(module)}" for module in settings.modules]
    if settings.venv:
        software.append(f"source {quote(str(Path(settings.venv) / 'bin' / 'activate'))}")
    rendezvous = [
        "# The ranks rendezvous on the first node, at a port derived from the job's id.",
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))",
        "export MASTER_ADDR MASTER_PORT",
    ]
    if settings.interface:
        interface = quote(settings.interface)
        rendezvous.append(f"export NCCL_SOCKET_IFNAME={interface} GLOO_SOCKET_IFNAME={interface}")
    return _join_blocks(
        _header(run.title, name, log, ResourceRequest.of([run], settings), settings),
        software,
        rendezvous,
        _variable_lines(run, folder, settings, attempt),
        _rank_lines(run, folder, settings, shared=shared),
    )


def sequential_script(runs: Sequence[RunSpec], folder: Path, settings: Settings) -> str:
    """Return the script of one job that executes all runs, one after another."""
    request = ResourceRequest.of(runs, settings)
    title = f"{len(runs)} runs of {folder.name}, one after another in one allocation"
    return _join_blocks(
        _header(title, folder.name, folder / SHARED_LOG, request, settings),
        [f'echo "{JOB_BEGINS.format("$SLURM_JOB_ID")}"'],
        _homes(runs, folder),
        [f"devices=({' '.join(str(run.topology.world) for run in runs)})"],
        [
            "# Pass a warning on to the active run, and start no other run after it.",
            "run='' warned=''",
            "trap 'warned=yes; kill -USR1 \"$run\" 2>/dev/null' USR1 TERM",
        ],
        [
            'for index in "${!homes[@]}"; do',
            "    home=${homes[index]} began=$(date +%s.%N)",
            '    bash "$home/plan/job.sh" >>"$home/log.txt" 2>&1 &',
            "    run=$!",
            '    wait "$run"',
            '    while kill -0 "$run" 2>/dev/null; do wait "$run"; done',
            "    # Record the time for the bill, which includes devices that this run left idle.",
            f"    printf '{ALLOCATION_LINE}\\n' \\",
            '        "$SLURM_JOB_ID" "${home##*/}" "${devices[index]}" '
            f'"$((SLURM_JOB_NUM_NODES * {request.devices_per_node}))" \\',
            f'        "$began" "$(date +%s.%N)" >>{quote(str(folder / ALLOCATION_LOG))}',
            '    [ -z "$warned" ] || break',
            "done",
        ],
    )


def array_script(runs: Sequence[RunSpec], folder: Path, settings: Settings) -> str:
    """Return the script of a job array with a task for each run; runs have equal requests."""
    request = ResourceRequest.of(runs, settings)
    throttle = f"%{settings.throttle}" if settings.throttle else ""
    name = f"{folder.name}-{request.nodes}x{request.devices_per_node}"
    title = f"{len(runs)} runs of {folder.name}, a task of this array for each"
    header = _header(title, name, folder / f"{name}.txt", request, settings)
    header.insert(2, f"#SBATCH --array=0-{len(runs) - 1}{throttle}")  # After #!/bin/bash and title.
    task = [
        "home=${homes[SLURM_ARRAY_TASK_ID]}",
        'exec bash "$home/plan/job.sh" >>"$home/log.txt" 2>&1',
    ]
    return _join_blocks(header, _homes(runs, folder), task)


def _homes(runs: Sequence[RunSpec], folder: Path) -> list[str]:
    """Return a bash array of the runs' folders."""
    return ["homes=(", *(f"    {quote(str(folder / run.id))}" for run in runs), ")"]


def _join_blocks(*blocks: Sequence[str]) -> str:
    return "\n".join("\n".join(block) + "\n" for block in blocks if block)


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """The resources of a job; for several runs, enough for each of them."""

    nodes: int
    devices_per_node: int
    tasks_per_node: int
    cpus_per_task: int
    requeue: bool
    """Whether Slurm may requeue the job."""
    gets_warning: bool
    """Whether Slurm sends a signal before the time limit, so that ranks write a checkpoint."""

    @classmethod
    def of(cls, runs: Sequence[RunSpec], settings: Settings) -> "ResourceRequest":
        """Return the resources that are enough for each of these runs."""
        max_tasks = max(tasks_per_node(run) for run in runs)
        cores_per_node = max(tasks_per_node(run) * cpus_per_task(run, settings) for run in runs)
        return cls(
            nodes=max(run.topology.nodes for run in runs),
            devices_per_node=max(run.topology.devices for run in runs),
            tasks_per_node=max_tasks,
            cpus_per_task=math.ceil(cores_per_node / max_tasks),  # Enough cores for any run.
            requeue=any(may_requeue(run, settings) for run in runs),
            gets_warning=bool(settings.warning) and any(run.checkpoint_every for run in runs),
        )


def _header(
    title: str, name: str, log: Path, request: ResourceRequest, settings: Settings
) -> list[str]:
    """Return the first lines of a script, with the job's sbatch options."""
    options = [
        f"--job-name={quote_directive(name)}",
        f"--chdir={quote_directive(os.getcwd())}",
        f"--output={quote_directive(escape_pattern(str(log)))}",
        "--open-mode=append",
        f"--nodes={request.nodes}",
        f"--ntasks-per-node={request.tasks_per_node}",
        f"--cpus-per-task={request.cpus_per_task}",
    ]
    if settings.gpus_per_node:
        options.append(f"--gpus-per-node={request.devices_per_node}")
    elif settings.gres:
        options.append(f"--gres={quote_directive(f'{settings.gres}:{request.devices_per_node}')}")
    names = ("time", "account", "partition", "qos", "constraint", "reservation")
    values = {**{name: getattr(settings, name) for name in names}, "mem": settings.memory}
    options += [f"--{name}={quote_directive(value)}" for name, value in values.items() if value]
    options += ["--exclusive"] if settings.exclusive else []
    options.append("--requeue" if request.requeue else "--no-requeue")
    if request.gets_warning:  # Warn at the earliest in the last quarter of the time.
        quarter = parse_time_limit(settings.time) // 4 if settings.time else math.inf
        options.append(f"--signal=B:USR1@{min(settings.warning, quarter)}")
    options += [quote_directive(option) for option in settings.sbatch]
    printable_title = "".join(letter if letter.isprintable() else "?" for letter in title)
    directives = [f"#SBATCH {option}" for option in options]
    return ["#!/bin/bash", f"# scalewise: {printable_title}", *directives, "set -u"]


def tasks_per_node(run: RunSpec) -> int:
    """Return the tasks per node: a task is a rank, or an agent that starts all ranks of a node."""
    return run.topology.devices if run.started_by in ("srun", "mpirun", "plain") else 1


def cpus_per_task(run: RunSpec, settings: Settings) -> int:
    """Return the cores of a task: the setting, else one per thread and data loader worker."""
    ranks_per_task = run.topology.devices // tasks_per_node(run)
    return settings.cpus_per_task or ranks_per_task * (run.threads + run.workers)


def may_requeue(run: RunSpec, settings: Settings) -> bool:
    """Return the setting ``requeue``; if unset, whether checkpoints let the run continue."""
    return bool(run.checkpoint_every) if settings.requeue is None else settings.requeue


def _variable_lines(run: RunSpec, folder: Path, settings: Settings, attempt: int) -> list[str]:
    """Return the lines that export the variables of every rank."""
    zip_path = quote(str(folder / worker_zip.FILE_NAME))
    # Each start by Slurm uses an attempt number for itself and for each restart by torchrun.
    per_start = settings.max_restarts + 1
    earlier_attempts = "${SLURM_RESTART_COUNT:-0}" + (f" * {per_start}" if per_start > 1 else "")
    variables = {
        "OMP_NUM_THREADS": str(run.threads),
        **settings.env,
        **run.env,
        "SCALEWISE_RUN": str(folder / run.id),
        "SCALEWISE_PATIENCE": f"{settings.patience:g}",
    }
    if not run.program:
        variables |= {"SCALEWISE_UNWATCHED": "1", **processes.SAFE_PATH}
    if settings.max_restarts:
        # Restarted ranks would read the address of the dead ones (pytorch#135712).
        variables["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    for name in variables:  # An invalid name could contain commands for the shell.
        check_environment_name("env", name)
    return [
        "# srun does not pass --cpus-per-task on by itself.",
        f"export SRUN_CPUS_PER_TASK={cpus_per_task(run, settings)}",
        *(f"export {name}={quote(value)}" for name, value in variables.items()),
        f"export PYTHONPATH={zip_path}${{PYTHONPATH:+:$PYTHONPATH}}",
        f"export SCALEWISE_FIRST={attempt} SCALEWISE_ATTEMPT=$(({attempt} + {earlier_attempts}))",
        "SCALEWISE_LAUNCHED=$(date +%s.%N)",
        "export SCALEWISE_LAUNCHED",
        *_claim_run(run, attempt),
        f'echo "{BEGINS}$SCALEWISE_ATTEMPT on $SLURM_JOB_NODELIST"',
        *settings.lines,
    ]


def _claim_run(run: RunSpec, attempt: int) -> list[str]:
    """Return the lines that claim the run for one job, and write ``job.json`` if missing."""
    job = '"${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}"'
    job_json = f'{{"schema": 1, "attempt": {attempt}, "world": {run.ranks}, '
    job_json += '"launcher": "slurm", "log": 0, "job": "%s"}\\n'
    return [
        "# Do not train a finished run again if this script was submitted twice. A script of",
        "# `scalewise run --again` has a higher attempt number.",
        'finished=$(sed -n \'s/.*"attempt": \\([0-9]*\\).*/\\1/p\' "$SCALEWISE_RUN/outcome.json" '
        "2>/dev/null)",
        'if [ "${finished:-0}" -ge "$SCALEWISE_FIRST" ]; then',
        '    echo "this run is finished already"',
        "    exit 0",
        "fi",
        "# Only one job at a time may train the run: the one that can create this link to its id.",
        'holder="$SCALEWISE_RUN/holder"',
        'until ln -sn "$SLURM_JOB_ID" "$holder" 2>/dev/null; do',
        '    other=$(readlink "$holder" || cat "$holder")',
        '    [ "$other" != "$SLURM_JOB_ID" ] || break  # This job was requeued.',
        '    if squeue --noheader --jobs="$other" --states=RUNNING 2>/dev/null | grep -q .; then',
        '        echo "job $other trains this run already"',
        "        exit 1",
        "    fi",
        "    # That job has ended. Of the jobs that may follow it, one can create the next link.",
        '    holder="$SCALEWISE_RUN/holder-after-$other"',
        "done",
        "# A job that was submitted by hand has no job.json yet: scalewise status needs it.",
        f"job={job}",
        '[ -e "$SCALEWISE_RUN/job.json" ] ||',
        f'    printf \'{job_json}\' "${{job:-$SLURM_JOB_ID}}" >"$SCALEWISE_RUN/job.json"',
    ]


def _rank_lines(run: RunSpec, folder: Path, settings: Settings, *, shared: bool) -> list[str]:
    """Return the lines that start the ranks, wait for them and write the run's outcome."""
    container = f"{_container_command(settings)} " if settings.container else ""
    python = f"{container}{quote(settings.interpreter)} -m"
    # SAFE_PATH would change a user's program: here set it only for our own commands.
    safe_path = processes.SAFE_PATH.items() if run.program else ()
    safe_prefix = "".join(f"{key}={value} " for key, value in safe_path)
    node_options = _node_options(run.topology.nodes, 1, shared=shared)
    sampler = f"{safe_prefix}srun --overlap {node_options} --cpus-per-task=1"
    lines = [
        f'leave="$SCALEWISE_RUN/{LEAVE}"',
        'rm -f "$leave"',
        "# Shortly before the time limit, or on SIGTERM, create the file that makes ranks stop.",
        "trap 'touch \"$leave\"' USR1 TERM",
        "",
        "# One more process on each node samples how busy the node is.",
        f'{sampler} {python} scalewise.probe.node_sampler "$SCALEWISE_RUN" 1 >/dev/null 2>&1 &',
        "sampler=$!",
        f"{_rank_command(run, folder, settings, shared=shared)} &",
        "ranks=$!",
        'wait "$ranks"; code=$?',
        "# A signal interrupts the wait but does not end the ranks: wait again.",
        'while [ "$code" -gt 128 ] && kill -0 "$ranks" 2>/dev/null',
        'do wait "$ranks"; code=$?; done',
        'kill "$sampler" 2>/dev/null; wait "$sampler"',
    ]
    if may_requeue(run, settings):
        lines += [
            "# If the ranks stopped early with a checkpoint, requeue the job to continue from it.",
            'if tail -n 1 "$SCALEWISE_RUN/rank-00000.jsonl" 2>/dev/null | grep -q \'"left":\'',
            "then",
            '    scontrol requeue "$SLURM_JOB_ID" && exit 0',
            "fi",
        ]
    if shared:
        lines += [
            "# If the script that started this one was killed, Slurm knows more about the end.",
            'kill -0 "$PPID" 2>/dev/null || exit 1',
        ]
    return [
        *lines,
        "# Write how the run ended: outcome.json, or the cause of its failure.",
        f'{safe_prefix}{python} scalewise.frameworks close "$SCALEWISE_RUN"',
        'exit "$code"',
    ]


def _node_options(nodes: int, tasks: int, *, shared: bool) -> str:
    """Return srun's options for ``tasks`` on each of a job's first ``nodes`` nodes."""
    first_nodes = f" --ntasks-per-node={tasks} --relative=0" if shared else ""
    return f"--nodes={nodes} --ntasks={nodes * tasks}{first_nodes}"


def _rank_command(run: RunSpec, folder: Path, settings: Settings, *, shared: bool) -> str:
    """Return the command that starts the ranks on all nodes, over several lines."""
    srun = ("srun", "--kill-on-bad-exit=1", *settings.srun)
    starter = _mpirun(run, settings) if run.started_by == "mpirun" else shlex.join(srun)
    if run.started_by == "direct" and not run.program:
        starter += " --nodes=1 --ntasks=1"
    elif shared and run.started_by != "mpirun":
        starter += f" {_node_options(run.topology.nodes, tasks_per_node(run), shared=True)}"
    container = [_container_command(settings)] if settings.container else []
    worker = f"-m scalewise.frameworks train {quote(str(folder / run.id))}"
    python = quote(settings.python_of(run.framework))
    # ``task`` is what srun or mpirun starts: an agent on each node, or a rank.
    if run.program:
        task = [_program_line(run, settings)]
    elif run.started_by != "torchrun":
        task = [f"{python} {worker}"]
    else:
        agent = _agent_options(run, settings)
        agent = agent.replace(" --rdzv-backend", " \\\n        --rdzv-backend")
        task = [f"{python} -m torch.distributed.run {agent}", worker]
    return " \\\n    ".join([starter, *container, *task])


def _program_line(run: RunSpec, settings: Settings) -> str:
    """Return the shell line of a user's program, under torchrun's agent if it needs one."""
    assert run.program
    topology, python = run.topology, settings.interpreter
    if run.started_by == "node":
        python = settings.python_of(run.framework)
    user_program = parse_program(run.program).with_python(python)
    values = {"devices": topology.devices, "world": topology.world, "nodes": topology.nodes}
    if run.started_by in ("srun", "mpirun", "node"):
        arguments = user_program.direct_command(values)
    else:
        arguments = list(user_program.agent_command([AGENT_PLACEHOLDER], values))
    # Placeholders are replaced only in a complete command.
    quote_argument = _shell_argument if user_program.is_command else quote
    line = " ".join(
        _agent_options(run, settings) if argument == AGENT_PLACEHOLDER else quote_argument(argument)
        for argument in arguments
    )
    # Variables that differ between nodes are expanded on the node, by its own shell.
    return f"bash -c {quote(f'exec {line}')}" if user_program.is_command else line


AGENT_PLACEHOLDER = "\0agent\0"
"""Stands for torchrun's options among arguments; real arguments hold no null character."""
SHELL_VARIABLES = {
    "{master}": '"$MASTER_ADDR"',
    "{port}": '"$MASTER_PORT"',
    "{node_rank}": '"$SLURM_NODEID"',
}
"""Shell variables for placeholders whose values are known only in the job."""


def _shell_argument(argument: str) -> str:
    """Return a quoted shell argument, with variables for its placeholders.

    >>> print(_shell_argument("--at={master}:1"), _shell_argument("a b"))
    --at="$MASTER_ADDR":1 'a b'
    """
    parts = re.split("({master}|{port}|{node_rank})", argument)
    quoted = "".join(SHELL_VARIABLES.get(part) or quote(part) for part in parts if part)
    return quoted or quote(argument)


def _mpirun(run: RunSpec, settings: Settings) -> str:
    """Return the mpirun command, with -x for each variable that ranks must inherit."""
    topology = run.topology
    names = ["MASTER_ADDR", "MASTER_PORT", "PYTHONPATH", "OMP_NUM_THREADS"]
    names += [f"SCALEWISE_{key}" for key in ("RUN", "FIRST", "ATTEMPT", "LAUNCHED", "PATIENCE")]
    names += [] if run.program else ["SCALEWISE_UNWATCHED", *processes.SAFE_PATH]
    names += [key for key in (*settings.env, *run.env) if key not in names]
    arguments = [
        "mpirun", "-np", str(topology.world), "--map-by", f"ppr:{topology.devices}:node",
        "--bind-to", "none", *(argument for key in names for argument in ("-x", key)),
    ]  # fmt: skip
    return shlex.join(arguments)


def _agent_options(run: RunSpec, settings: Settings) -> str:
    """Return the options of torchrun's agent on one node, with shell variables."""
    topology = run.topology
    options = [f"--nnodes={topology.nodes}", f"--nproc-per-node={topology.devices}"]
    if settings.max_restarts:
        options.append(f"--max-restarts={settings.max_restarts}")
    return " ".join(options) + (
        ' --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --rdzv-id="$SLURM_JOB_ID"'
    )


def _container_command(settings: Settings) -> str:
    """Return the command prefix that runs a command inside the container."""
    container = settings.container
    assert container
    has_gpus = bool(settings.gres or settings.gpus_per_node)
    if container.runtime == "podman":
        arguments = ["podman", "run", "--rm", "--network=host", "--ipc=host", "--env-host"]
        arguments += ["--device=nvidia.com/gpu=all"] if has_gpus else []
        bind_option = "--volume"
    else:
        arguments = [container.runtime, "exec", *(["--nv"] if has_gpus else [])]
        bind_option = "--bind"
    for folder in container.binds:
        arguments += [bind_option, folder]
    return shlex.join([*arguments, *container.options, container.image])


def quote_directive(value: str) -> str:
    r"""Return a value quoted for a line that begins with #SBATCH.

    >>> print(quote_directive("plain/path-1"), quote_directive('a "b" \\ c'))
    plain/path-1 "a \"b\" \\ c"
    """
    if not value.isprintable():
        raise SpecError(
            f"Slurm cannot take {shown(value)}", hint="leave out line breaks and control characters"
        )
    if re.fullmatch(r"[\w@%+=:,./-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def escape_pattern(path: str) -> str:
    """Return a path escaped for Slurm's file name patterns, in which % is special.

    >>> escape_pattern("/data/100%job/log.txt")
    '/data/100%%job/log.txt'
    """
    if "\\" in path:  # If a path has a backslash, Slurm takes its % literally.
        return path.replace("\\", "\\\\")
    return path.replace("%", "%%")
