"""A Slurm without a controller: its commands start jobs as processes of this machine."""

import shlex
import time

from scalewise.launch.processes import RUN_VARIABLE, ProcessFilter

COMMANDS = {
    "sbatch": """
        for script; do :; done
        number=$(( $(ls jobs | wc -l) + 1 ))
        export SLURM_JOB_ID=$number SLURM_JOB_NODELIST=here SLURM_JOB_NUM_NODES=1
        log=$(sed -n 's/^#SBATCH --output=//p' "$script")
        setsid bash "$script" >>"$log" 2>&1 </dev/null &
        echo $! >jobs/$number; echo $number""",
    "squeue": """
        for job in jobs/*; do
            kill -0 $(cat $job) 2>/dev/null && state=RUNNING || state=COMPLETED
            echo "${job#jobs/}|$state|None|N/A|here"
        done""",
    "scancel": "kill -TERM -$(cat jobs/$1)",
    "srun": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
    "scontrol": "echo here",
    "sacct": "exit 0",
    "sinfo": "exit 1",
    "sacctmgr": "exit 1",
}
"""Slurm's commands as shell scripts: every job starts at once, on this machine."""


def fake_slurm(folder, env, **commands):
    """Put Slurm's commands on the path, with some replaced; return the environment with them."""
    (folder / "bin").mkdir()
    (folder / "jobs").mkdir()
    for name, body in {**COMMANDS, **commands}.items():
        path = folder / "bin" / name
        path.write_text(f"#!/bin/bash\ncd {shlex.quote(str(folder))}\n{body}\n")
        path.chmod(0o755)
    return {**env, "PATH": f"{folder / 'bin'}:{env['PATH']}"}


def wait_for_jobs(study_folder, seconds=30.0):
    """Wait until no process of a study is left: a job ends a moment after it has closed its run."""
    homes = [path for path in study_folder.iterdir() if path.is_dir()]
    runs = [ProcessFilter({RUN_VARIABLE: str(home)}) for home in homes]
    deadline = time.monotonic() + seconds
    while any(run.processes() for run in runs):
        assert time.monotonic() < deadline
        time.sleep(0.1)
