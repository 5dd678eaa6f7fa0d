"""Check this machine's resources: cores, threads, memory, open files, shared memory."""

import os
import platform
import resource
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from scalewise.doctor import cgroups
from scalewise.doctor.finding import Finding, Remark, format_bytes, make_finding

MIN_OPEN_FILES = 4096
"""If fewer files may be open, that is a note: many ranks with many loaders open more."""
FAULTY_OPEN_FILES = 256
"""If fewer files may be open, that is a fault: even a few ranks open more."""
TINY_SHARED_MEMORY_BYTES = 64 * 2**20
"""Docker's default shared memory, which a single data loader can fill."""


def check_python() -> Finding:
    """Report the Python version."""
    version, system = platform.python_version(), platform.platform()
    return Finding("python", f"{version} on {system}", evidence={"version": version})


def check_container(env: Mapping[str, str], membership: str, root: Path = Path("/")) -> Finding:
    """Report signs of a container; not every container has one. ``membership``: see cgroups."""
    files = {".dockerenv": "docker", "run/.containerenv": "podman"}
    prefixes = {f"{kind.upper()}_": kind for kind in ("apptainer", "singularity", "kubernetes")}
    group_names = {"docker": "docker", "libpod": "podman", "kubepods": "kubernetes", "/lxc/": "lxc"}
    signs = {f"/{file}": kind for file, kind in files.items() if (root / file).exists()}
    for prefix, kind in prefixes.items():
        signs |= {variable: kind for variable in sorted(env) if variable.startswith(prefix)}
    for group, kind in group_names.items():
        if group in membership:
            signs[f"control group {group}"] = kind
    kinds = list(dict.fromkeys(signs.values()))
    says = f"signs of {' and '.join(kinds)}: {', '.join(list(signs)[:3])}"
    return Finding("container", says if kinds else "no sign of one", evidence={"signs": signs})


def affinity() -> list[int]:
    """Return the ids of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def usable_cores(cores: Sequence[int], quota: float | None) -> int:
    """Return how many threads can run at once, at least one."""
    return max(1, min(len(cores), int(quota) if quota else len(cores)))


def check_cores(
    cores: Sequence[int], quota: float | None, ranks: int, load: float, env: Mapping[str, str]
) -> Finding:
    """Report the usable cores, and what reduces them; ``quota`` is in cores."""
    total = os.cpu_count() or len(cores)
    usable = usable_cores(cores, quota)
    remarks = []
    if load > total / 2:
        remarks.append(Remark("fault", "busy", "wait or end other work: times will be noisy"))
    if quota is not None and quota < len(cores):
        says = f"a control group limits CPU time to that of {quota:g} cores"
        remarks.append(Remark("note", says, "threads beyond that are throttled: use fewer"))
    if len(cores) < total:
        remarks.append(Remark("note", f"bound to {_format_ranges(cores)}"))
    if usable < ranks:
        more = "ask for more cores"
        if "SLURM_JOB_ID" in env:
            more = "give srun --cpus-per-task too (it does not inherit sbatch's)"
        hint = f"{more}, or use fewer ranks"
        remarks.append(Remark("note", f"{ranks} ranks share {usable}", hint))
    says = f"{usable} usable of {total}, load {load:.1f}"
    evidence = {"usable": usable, "all": total, "affinity": list(cores)}
    return make_finding("cores", says, remarks, {**evidence, "quota": quota, "load": load})


def _format_ranges(numbers: Sequence[int]) -> str:
    """Return numbers as ranges: ``0-3,8``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else f"{p[0]}" for p in parts)


def check_threads(env: Mapping[str, str], usable: int, ranks: int) -> Finding:
    """Report whether the threads of all ranks fit on the ``usable`` cores."""
    per_rank = max(1, usable // ranks)
    remarks = [
        remark
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
        if name in env and (remark := _thread_problem(name, env[name], usable, ranks))
    ]
    variables = {name: env.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    texts = [f"{name}={value}" for name, value in variables.items() if value is not None]
    if not env.get("OMP_NUM_THREADS", "").strip():
        says = f"a rank started by hand takes all {usable} cores, or 1 under torchrun"
        hint = f"export OMP_NUM_THREADS={per_rank} for your own scripts; studies set theirs"
        remarks = [Remark("note", says, hint), *remarks]
        texts = ["OMP_NUM_THREADS is not set", *(text for text in texts if "OMP" not in text)]
    says = f"{', '.join(texts)}; {_count(ranks, 'rank')} on {_count(usable, 'core')}"
    return make_finding("threads", says, remarks, {**variables, "ranks": ranks, "fair": per_rank})


def _thread_problem(name: str, value: str, usable: int, ranks: int) -> Remark | None:
    """Return what is wrong with a thread count; None if it fits."""
    per_rank = max(1, usable // ranks)
    remedy = f"export {name}={per_rank}"
    if name.startswith("MKL"):
        remedy = f"unset {name}: it overrides a study's threads"
    count = value.strip().split(",")[0]  # OpenMP takes a list: one number per nesting level.
    if not count:
        return None
    if not count.isascii() or not count.isdigit():
        return Remark("fault", f"{name}={value} is not a number", remedy)
    cores = _count(usable, "core")
    if int(count) == 0:
        return Remark("fault", f"{name}={value} is not a thread count", remedy)
    if int(count) > usable:
        return Remark("fault", f"{name}={value} is more than the {cores}", remedy)
    if int(count) > per_rank:
        says = f"{ranks} ranks with {count} threads each are more than the {cores}"
        return Remark("fault", says, remedy)
    return None


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def check_memory(limit: cgroups.MemoryLimit | None) -> Finding:
    """Report the free memory of this machine, or of this process's control group."""
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    free, total = memory.available, memory.total
    remarks = []
    if limit and limit.bytes < total:
        free, total = min(free, limit.bytes - limit.used), limit.bytes
        hint = f"using more ends the job, although the machine has {format_bytes(memory.total)}"
        remarks.append(Remark("note", "a control group's limit", hint))
    if free <= 2**30:
        remarks.append(Remark("fault", "too little for a rank", "end other work, or ask for more"))
    if swap.used > 2**30:
        hint = "end other work: swapped-out memory slows steps at random"
        remarks.append(Remark("note", f"{format_bytes(swap.used)} are swapped out", hint))
    swapping = (
        f"swap {format_bytes(swap.used)} of {format_bytes(swap.total)}" if swap.total else "no swap"
    )
    evidence = {
        "free": free, "total": total, "machine": memory.total,
        "limit": limit.bytes if limit else None, "swap": swap.total, "swap_used": swap.used,
    }  # fmt: skip
    says = f"{format_bytes(free)} free of {format_bytes(total)}, {swapping}"
    return make_finding("memory", says, remarks, evidence)


def check_open_files(soft: int, hard: int) -> Finding:
    """Report how many files and connections a process may open."""
    unlimited = resource.RLIM_INFINITY
    texts = [str(count) if count != unlimited else "any number" for count in (soft, hard)]
    says = f"{texts[0]} open at once, can be raised to {texts[1]}"
    limits = {"soft": soft, "hard": hard}
    evidence = {name: limit if limit != unlimited else None for name, limit in limits.items()}
    if soft == unlimited or soft >= MIN_OPEN_FILES:
        return Finding("open-files", says, evidence=evidence)
    remedy = f"ulimit -n {MIN_OPEN_FILES if hard == unlimited else min(hard, 65536)}"
    if soft == hard:
        remedy = "ask an administrator for more, or use fewer loader workers"
    problem = "too few for many ranks with data loaders"
    remark = Remark("fault" if soft < FAULTY_OPEN_FILES else "note", problem, remedy)
    return make_finding("open-files", says, [remark], evidence)


def check_shared_memory(folder: Path) -> Finding:
    """Report whether data loaders can pass batches through ``folder``."""
    need = "loaders hand over batches there: workers x 2 x the bytes of a batch, for every rank"
    remedy = f"docker run --shm-size=8g or --ipc=host; {need}; else workers = 0"
    name, evidence = "shared-memory", {"folder": str(folder)}
    try:
        usage = shutil.disk_usage(folder)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
    except OSError as error:
        says = f"{folder} cannot be used: {error.strerror}"
        return Finding(name, says, remedy, "fault", evidence)
    remarks = []
    if usage.total <= TINY_SHARED_MEMORY_BYTES:
        remarks.append(Remark("fault", "too small", remedy))
    elif usage.free <= TINY_SHARED_MEMORY_BYTES:
        remarks.append(Remark("fault", "nearly full", f"remove what is left in {folder}; {need}"))
    says = f"{format_bytes(usage.free)} free of {format_bytes(usage.total)} in {folder}"
    return make_finding(name, says, remarks, {**evidence, "total": usage.total, "free": usage.free})
