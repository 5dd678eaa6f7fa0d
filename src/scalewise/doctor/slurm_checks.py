"""Slurm, asked at its controller: a program on the PATH is not a cluster."""

import re
import shutil
from collections.abc import Mapping
from typing import Any

from scalewise.doctor.finding import CommandResult, Finding, Remark, make_finding, run_command

PROGRAMS = ("srun", "sbatch", "scontrol", "sinfo")
ALLOCATION_KEYS = (
    "NumNodes",
    "NumTasks",
    "CPUs/Task",
    "NumCPUs",
    "TresPerNode",
    "TRES",
    "NodeList",
)
"""What an allocation says of itself."""


def check_slurm(env: Mapping[str, str]) -> Finding:
    """Say whether jobs can be submitted here, and what this allocation holds."""
    installed = [name for name in PROGRAMS if shutil.which(name)]
    evidence: dict[str, Any] = {"installed": installed, "controller": False}
    local = "studies still run on this machine"
    if not installed:
        return Finding("slurm", "not installed", local, "note", evidence)
    ping = run_command("scontrol", "ping")
    if not ping or not controller_is_up(ping):
        why = ping.words if ping else "there is no scontrol to ask it with"
        says = f"{', '.join(installed)} installed, but no controller answers: {why}"
        hint = f"ask on a login node, or start slurmctld; {local}"
        return Finding("slurm", says, hint, "note", {**evidence, "ping": why})
    evidence["controller"] = True
    remarks, says = [], "the controller answers"
    sinfo = run_command("sinfo", "--noheader", "--format=%P|%a|%D|%G")
    if sinfo and sinfo.well:
        evidence["partitions"] = parse_partitions(sinfo.said)
        names = [f"{each['name']} ({each['nodes']} nodes)" for each in evidence["partitions"]]
        says += f"; partitions: {', '.join(names) or 'none'}"
    else:
        why = sinfo.words if sinfo else "it is not installed"
        remarks.append(Remark("note", f"sinfo tells no partitions: {why}"))
    if job := env.get("SLURM_JOB_ID"):
        shown = run_command("scontrol", "show", "job", job)
        evidence["job"] = parse_allocation(shown.said) if shown and shown.well else None
        if evidence["job"]:
            told = [f"{key} {value}" for key, value in evidence["job"].items()]
            says += f"; in job {job}: {', '.join(told)}"
        else:
            why = shown.words if shown else "no scontrol"
            remarks.append(Remark("note", f"in job {job}, of which nothing is told: {why}"))
    return make_finding("slurm", says, remarks, evidence)


def controller_is_up(ping: CommandResult) -> bool:
    """Say whether a controller is up, from the words of ``scontrol ping``."""
    return bool(re.search(r"\bis UP\b", ping.said))


def parse_partitions(text: str) -> list[dict[str, str]]:
    """Return name, state, nodes and devices of each line of ``sinfo``.

    >>> partitions("gpu*|up|2|gpu:4")
    [{'name': 'gpu', 'state': 'up', 'nodes': '2', 'devices': 'gpu:4'}]
    """
    keys = ("name", "state", "nodes", "devices")
    rows = [line.strip().split("|") for line in text.splitlines() if line.count("|") == 3]
    return [dict(zip(keys, [row[0].rstrip("*"), *row[1:]])) for row in rows]


def parse_allocation(text: str) -> dict[str, str]:
    """Return what a job holds, from the words of ``scontrol show job``.

    >>> allocation("JobId=7 JobName=a\\n NumNodes=2 NumTasks=8 CPUs/Task=4\\n NodeList=n[1-2]")
    {'NumNodes': '2', 'NumTasks': '8', 'CPUs/Task': '4', 'NodeList': 'n[1-2]'}
    """
    said = dict(re.findall(r"(?:^|\s)([\w/]+)=(\S+)", text))
    return {key: said[key] for key in ALLOCATION_KEYS if said.get(key, "(null)") != "(null)"}
