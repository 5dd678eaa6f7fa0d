"""Check Slurm by querying its controller: a program on the PATH is not a cluster."""

import re
import shutil
from collections.abc import Mapping
from typing import Any

from scalewise.doctor.finding import Finding, Remark, make_finding
from scalewise.launch.command_output import CommandResult, run_command

PROGRAMS = ("srun", "sbatch", "scontrol", "sinfo")
ALLOCATION_KEYS = (
    "NumNodes", "NumTasks", "CPUs/Task", "NumCPUs", "TresPerNode", "TRES", "NodeList",
)  # fmt: skip
"""Keys of ``scontrol show job`` that are reported."""


def check_slurm(env: Mapping[str, str]) -> Finding:
    """Report whether jobs can be submitted here, and what this allocation has."""
    installed = [name for name in PROGRAMS if shutil.which(name)]
    evidence: dict[str, Any] = {"installed": installed, "controller": False}
    local_hint = "studies still run on this machine"
    if not installed:
        return Finding("slurm", "not installed", local_hint, "note", evidence)
    ping = run_command("scontrol", "ping")
    if not controller_is_up(ping):
        says = f"{', '.join(installed)} installed, but no controller answers: {ping.last_line}"
        hint = f"run doctor on a login node, or start slurmctld; {local_hint}"
        return Finding("slurm", says, hint, "note", {**evidence, "ping": ping.last_line})
    evidence["controller"] = True
    remarks, says = [], "the controller answers"
    sinfo = run_command("sinfo", "--noheader", "--format=%P|%a|%D|%G")
    if sinfo.ok:
        evidence["partitions"] = parse_partitions(sinfo.stdout)
        names = [f"{row['name']} ({row['nodes']} nodes)" for row in evidence["partitions"]]
        says += f"; partitions: {', '.join(names) or 'none'}"
    else:
        remarks.append(Remark("note", f"sinfo lists no partitions: {sinfo.last_line}"))
    if job := env.get("SLURM_JOB_ID"):
        result = run_command("scontrol", "show", "job", job)
        evidence["job"] = parse_allocation(result.stdout) if result.ok else None
        if evidence["job"]:
            values = ", ".join(f"{key} {value}" for key, value in evidence["job"].items())
            says += f"; in job {job}: {values}"
        else:
            problem = f"in job {job}, which scontrol does not show: {result.last_line}"
            remarks.append(Remark("note", problem))
    return make_finding("slurm", says, remarks, evidence)


def controller_is_up(ping: CommandResult) -> bool:
    """Return whether a controller is up, from the output of ``scontrol ping``."""
    return bool(re.search(r"\bis UP\b", ping.stdout))


def parse_partitions(text: str) -> list[dict[str, str]]:
    """Return name, state, nodes and devices of each line of ``sinfo``.

    >>> parse_partitions("gpu*|up|2|gpu:4")
    [{'name': 'gpu', 'state': 'up', 'nodes': '2', 'devices': 'gpu:4'}]
    """
    keys = ("name", "state", "nodes", "devices")
    rows = [line.strip().split("|") for line in text.splitlines() if line.count("|") == 3]
    return [dict(zip(keys, [row[0].rstrip("*"), *row[1:]])) for row in rows]


def parse_allocation(text: str) -> dict[str, str]:
    """Return what a job has allocated, from the output of ``scontrol show job``.

    >>> parse_allocation("JobId=7 Name=a\\n NumNodes=2 NumTasks=8 CPUs/Task=4\\n NodeList=n[1-2]")
    {'NumNodes': '2', 'NumTasks': '8', 'CPUs/Task': '4', 'NodeList': 'n[1-2]'}
    """
    values = dict(re.findall(r"(?:^|\s)([\w/]+)=(\S+)", text))
    return {key: values[key] for key in ALLOCATION_KEYS if values.get(key, "(null)") != "(null)"}
