"""Warn of jobs that lack GPUs, a time limit or an account, before they are submitted."""

import os
import re
from collections.abc import Sequence

from scalewise.analysis.number_format import format_count
from scalewise.errors import SpecError
from scalewise.launch.slurm.cluster_facts import (
    Accounts,
    Partition,
    load_accounts,
    load_partitions,
)
from scalewise.launch.slurm.settings import Settings, format_time_limit
from scalewise.spec import RunSpec

EXAMPLE_SECONDS = 7200
"""The time limit to suggest, unless the partition allows less."""
MAX_ACCOUNTS_SHOWN = 8
GPU_RESOURCE = re.compile(r"\b(?:gpu|mps|shard)\b")
"""A generic resource that is a GPU, or a share of one; ``nvme`` is not."""
GPU_OPTIONS = re.compile(rf"--gpus|-G|(?:--gres|--tres-per).*{GPU_RESOURCE.pattern}")
"""Options of sbatch that request GPUs."""
GPU_VARIABLES = ("SBATCH_GPUS", "SBATCH_GPUS_PER_NODE", "SBATCH_GPUS_PER_TASK")


def missing_settings(settings: Settings, runs: Sequence[RunSpec]) -> list[SpecError]:
    """Return a warning for each setting that these runs need on this cluster and do not have.

    What Slurm does not answer is unknown, and no reason to warn.
    """
    names = _option(settings, "partition", "-p", "SBATCH_PARTITION")
    visible = load_partitions(names) if runs else []
    partitions = [partition for partition in visible if names or partition.is_default]
    if not partitions:
        return []
    warnings = []
    gpu_runs = [run for run in runs if run.framework != "fake" and run.device != "cpu"]
    if gpu_runs and not _requests_gpus(settings):
        elsewhere = [partition for partition in visible if partition not in partitions]
        warnings.append(_gpu_warning(gpu_runs, partitions, elsewhere))
    if not _option(settings, "time", "-t", "SBATCH_TIMELIMIT"):
        warnings.append(_time_warning(settings, partitions))
    if not _option(settings, "account", "-A", "SBATCH_ACCOUNT"):
        warnings.append(_account_warning(load_accounts()))
    return [warning for warning in warnings if warning]


def _gpu_warning(
    runs: Sequence[RunSpec], partitions: Sequence[Partition], elsewhere: Sequence[Partition]
) -> SpecError | None:
    """Warn of runs without GPUs, if their partitions, or else those ``elsewhere``, have GPUs."""
    if with_gpus := [partition for partition in partitions if partition.gpus_per_node]:
        count = format_count(max(partition.gpus_per_node for partition in with_gpus), "GPU")
        problem = f"{_names(with_gpus)} has nodes with up to {count}, and this study requests none"
        problem += ": its jobs would get no GPU"
        lines, others = _gres_line(with_gpus)
    elif with_gpus := [partition for partition in elsewhere if partition.gpus_per_node]:
        problem = f"jobs would go to the default {_names(partitions)}, which has no GPUs"
        lines, others = _gres_line(with_gpus[:1])
        lines = f'partition = "{with_gpus[0].name}" and {lines}'
        others += f"; GPUs are also in {_names(with_gpus[1:])}" if len(with_gpus) > 1 else ""
    else:
        return None
    hint = f"add to [launcher]: {lines} (the topology says how many GPUs of a node){others}"
    if not all(run.program for run in runs):
        hint += '; to train on CPU cores, write device = "cpu" in [run]'
    return SpecError(problem, hint=hint)


def _gres_line(partitions: Sequence[Partition]) -> tuple[str, str]:
    """Return the line that requests GPUs, and a clause with their other types."""
    first, *others = dict.fromkeys(name for part in partitions for name in part.gpu_types) or [""]
    if not others:
        return 'gres = "gpu"', ""
    return f'gres = "gpu:{first}"', f"; other types there: {', '.join(others)}"


def _time_warning(settings: Settings, partitions: Sequence[Partition]) -> SpecError | None:
    """Warn of jobs that Slurm gives a time limit because they have none."""
    limits = [partition.max_seconds for partition in partitions if partition.max_seconds]
    defaults = [partition.default_seconds for partition in partitions if partition.default_seconds]
    if not limits and not defaults:
        return None
    example = format_time_limit(min([EXAMPLE_SECONDS, *limits]))
    needed = "all runs take together" if settings.jobs == "one" else "the longest run takes"
    hint = f'add to [launcher]: time = "{example}", or a little more than {needed}'
    if limits:
        hint += f"; the limit of the partition is {format_time_limit(min(limits))}"
    problem = f"no time limit is set: {_names(partitions)} ends a job after "
    if defaults:
        return SpecError(f"{problem}{format_time_limit(min(defaults))}, its default", hint=hint)
    wait_note = "and jobs that may last so long often wait longer in the queue"
    return SpecError(
        f"{problem}{format_time_limit(min(limits))}, its limit, {wait_note}", hint=hint
    )


def _account_warning(accounts: Accounts | None) -> SpecError | None:
    """Warn of jobs without an account if the user may charge several, or has no default."""
    if not accounts or (accounts.default and len(accounts.names) == 1):
        return None
    first = accounts.default or accounts.names[0]
    others = [name for name in accounts.names if name != first]
    hint = f'add to [launcher]: account = "{first}"'
    if others:
        shown = others[:MAX_ACCOUNTS_SHOWN]
        more = f" and {len(others) - len(shown)} more" if len(others) > len(shown) else ""
        hint += f"; you may also charge {', '.join(shown)}{more}"
    if accounts.default:
        return SpecError(f"no account is set: Slurm charges your default, {first}", hint=hint)
    return SpecError("no account is set, and you have no default account", hint=hint)


def _names(partitions: Sequence[Partition]) -> str:
    return f"partition {', '.join(partition.name for partition in partitions)}"


def _requests_gpus(settings: Settings) -> bool:
    return bool(
        settings.gpus_per_node
        or any(map(GPU_OPTIONS.match, settings.sbatch))
        or GPU_RESOURCE.search(f"{settings.gres} {os.environ.get('SBATCH_GRES')}")
        or any(os.environ.get(variable) for variable in GPU_VARIABLES)
    )


def _option(settings: Settings, name: str, short: str, variable: str) -> str | None:
    """Return an option of the jobs: a variable of sbatch, else ``sbatch = […]``, else a setting."""
    value: str | None = os.environ.get(variable) or getattr(settings, name)
    for option in settings.sbatch if not os.environ.get(variable) else ():
        for start in (f"--{name}=", f"--{name} ", short):
            if option.startswith(start):
                value = option.removeprefix(start).strip()
    return value
