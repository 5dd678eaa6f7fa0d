"""Check the frameworks, their devices, and whether ranks can exchange data."""

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalewise.doctor.finding import Finding, Remark, make_finding
from scalewise.doctor.interfaces import INTERFACE_VARIABLES
from scalewise.errors import FrameworkMissing, LaunchError
from scalewise.launch.command_output import run_command
from scalewise.launch.interpreters import Interpreters
from scalewise.launch.processes import run_ranks

QUICK_SWEEP = {"operations": ["all-reduce"], "sizes": [4, 16 * 2**20], "patience": 20}
"""Two messages: one shows the latency, one the bandwidth."""
TIMEOUT_SECONDS = 45.0
"""Seconds that the two ranks may take to exchange these messages."""


def framework_facts(name: str) -> dict[str, Any]:
    """Return a framework's facts; without an answer, why it is ``absent`` or its ``problem``."""
    try:
        return dict(Interpreters.load({}).ask(name, "about", name))
    except FrameworkMissing as error:
        return {"absent": str(error), "hint": error.hint}
    except LaunchError as error:
        return {"problem": str(error)}


def check_framework(name: str, facts: Mapping[str, Any]) -> Finding:
    """Report the version and the facts of a framework."""
    if problem := facts.get("problem"):
        return Finding(name, problem, level="fault")
    if absent := facts.get("absent"):
        return Finding(name, absent, facts["hint"], "note")
    texts = {
        key: " ".join(map(str, value)) if isinstance(value, list) else str(value)
        for key, value in facts.items()
        if key != "name" and value
    }
    return Finding(name, ", ".join(f"{key} {text}" for key, text in texts.items()), evidence=facts)


def accelerators(facts: Mapping[str, Any]) -> list[str]:
    """Return the names of the devices that a framework sees beside the CPU."""
    return [name for name in facts.get("devices") or [] if name != "cpu"]


def check_devices(facts: Mapping[str, Any], env: Mapping[str, str]) -> Finding:
    """Report the GPUs that torch sees, or why it does not see those that the driver lists."""
    if problem := facts.get("problem"):
        return Finding("devices", f"unknown: torch does not answer ({problem})", "", "note")
    visible = accelerators(facts)
    driver_gpus = driver_devices()
    evidence: dict[str, Any] = {"devices": visible, "driver": driver_gpus, "links": None}
    if visible:
        names = [f"{visible.count(name)} x {name}" for name in dict.fromkeys(visible)]
        matrix = read_links() if driver_gpus else None
        evidence["links"] = matrix
        says = ", ".join(names)
        if matrix and len(visible) > 1:
            says += f"; linked by {', '.join(link_kinds(matrix)) or 'an unknown link'}"
        return Finding("devices", says, evidence=evidence)
    if not driver_gpus:
        says = "no GPU: torch computes on the CPU"
        return Finding("devices", says, "", "note", evidence)
    if not facts.get("cuda"):
        problem = f"torch {facts.get('version')} is built for the CPU only"
        hint = "install a CUDA build: https://pytorch.org/get-started"
    elif "CUDA_VISIBLE_DEVICES" in env:
        problem = f"CUDA_VISIBLE_DEVICES={env['CUDA_VISIBLE_DEVICES']} lets torch see none"
        hint = "unset CUDA_VISIBLE_DEVICES"
    else:
        problem = f"torch for CUDA {facts['cuda']} sees none"
        hint = "the driver may be too old for it: compare with nvidia-smi"
    says = f"the driver has {len(driver_gpus)} GPU{'s' if len(driver_gpus) > 1 else ''}"
    return make_finding("devices", says, [Remark("fault", problem, hint)], evidence)


def driver_devices() -> list[str] | None:
    """Return the GPUs that NVIDIA's driver lists; None if it does not answer."""
    answer = run_command("nvidia-smi", "-L")
    if not answer.ok:
        return None
    return re.findall(r"^GPU \d+: (.+?)(?: \(UUID.*)?$", answer.stdout, re.M) or None


def read_links() -> str | None:
    """Return the matrix of links between devices, as nvidia-smi prints it."""
    answer = run_command("nvidia-smi", "topo", "-m")
    return answer.stdout if answer.ok else None


def link_kinds(matrix: str) -> list[str]:
    """Return the kinds of links between GPUs, from the matrix that ``read_links`` returns.

    >>> link_kinds("      GPU0  GPU1  NIC0\\nGPU0   X   NV18  SYS\\nGPU1  NV18   X   SYS")
    ['NV18']
    """
    rows = [line.split() for line in matrix.splitlines() if line.startswith("GPU")]
    # The first columns after a GPU's name are the other GPUs; network adapters follow.
    return sorted({kind for row in rows for kind in row[1 : len(rows) + 1]} - {"X"})


def check_backend(facts: Mapping[str, Any], env: Mapping[str, str]) -> Finding:
    """Let two ranks exchange data, and report latency and bandwidth."""
    if facts.get("problem"):
        return Finding("backend", "not tried: torch does not answer", level="note")
    set_variables = [f"{key}={env[key]}" for key in INTERFACE_VARIABLES if env.get(key)]
    try:
        with tempfile.TemporaryDirectory(prefix="scalewise-") as temporary:
            file = Path(temporary, "collectives.json")
            file.write_text(json.dumps({"ask": QUICK_SWEEP}), encoding="utf-8")
            result = run_ranks("collectives", file, ranks=2, timeout=TIMEOUT_SECONDS)
    except LaunchError as error:
        hint = "see the checks host and interfaces"
        if set_variables:
            hint = f"{', '.join(set_variables)} was set: see the check interfaces"
        says = f"two ranks could not exchange data: {error}"
        return Finding("backend", says, hint, "fault", {"words": str(error), "set": set_variables})
    small, large = result["rows"]
    says = (
        f"{result['backend']} works between two ranks on {result['device']}: "
        f"{small['bytes']} bytes in {small['seconds']['value'] * 1e6:.0f} µs, "
        f"{large['bytes'] // 2**20} MiB at {large['bus_bandwidth'] / 1e9:.2g} GB/s"
    )
    remarks = []
    if result["backend"] == "gloo" and len(accelerators(facts)) == 1:
        problem = "they share one GPU, so NCCL was not tried"
        remarks.append(Remark("note", problem, "NCCL needs a GPU for each rank"))
    evidence = {key: result[key] for key in ("backend", "device", "hosts", "rows", "versions")}
    return make_finding("backend", says, remarks, {**evidence, "set": set_variables})
