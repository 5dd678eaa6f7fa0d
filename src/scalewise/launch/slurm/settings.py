"""Slurm settings: the ``[launcher]`` table of a study or a site."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from scalewise.errors import SpecError, shown
from scalewise.user_config import load_user_config, user_config_path
from scalewise.validate import (
    check_choice,
    check_environment_name,
    check_integer,
    check_positive,
    check_process_text,
    check_type,
    refuse_unknown_keys,
    suggest_name,
)

Runtime = Literal["singularity", "apptainer", "podman"]
Jobs = Literal["each", "array", "one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The image that ranks run in."""

    image: str
    runtime: Runtime = "singularity"
    binds: tuple[str, ...] = ()
    """Folders to bind into the container: HOST, or HOST:CONTAINER."""
    options: tuple[str, ...] = ()
    """Further options of the container runtime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What jobs request beside nodes and devices, and how their scripts start the ranks."""

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    exclusive: bool = False
    time: str | None = None
    """The time limit, as Slurm writes it: 30 (minutes), 00:30:00 or 1-12:00:00."""
    memory: str | None = None
    """Memory of each node, for example 64G."""
    cpus_per_task: int | None = None
    """None: one core for each thread and data loader worker of a task's ranks."""
    gres: str | None = None
    """What Slurm calls a device here: gpu, or gpu:a100. None: a device is a CPU core."""
    gpus_per_node: bool = False
    """Request devices with --gpus-per-node instead of --gres."""
    modules: tuple[str, ...] = ()
    venv: str | None = None
    """A virtual environment to activate."""
    python: str | None = None
    """The Python of the ranks; None: that of the container or virtual environment, else ours."""
    engines: Mapping[str, str] = field(default_factory=dict)
    """Pythons by framework, for frameworks with a separate environment."""
    container: Container | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    interface: str | None = None
    """The network interface for NCCL and Gloo."""
    lines: tuple[str, ...] = ()
    """Further lines of the script, before the ranks start."""
    sbatch: tuple[str, ...] = ()
    """Further options of the job, for example --mail-type=END."""
    srun: tuple[str, ...] = ()
    """Further options of srun, which starts the ranks."""
    jobs: Jobs = "each"
    """each: a job per run; array: a job array for runs with equal requests; one: a job for all."""
    throttle: int | None = None
    """How many jobs of the study may run at once; None: all."""
    warning: int = 120
    """Seconds before its end at which a job is warned: it then writes a checkpoint."""
    requeue: bool | None = None
    """Whether a job may be requeued; None: only if it writes checkpoints."""
    max_restarts: int = 0
    """How often torchrun's agent may restart its ranks."""
    max_device_hours: float | None = None
    """Device-hours that a study may request at most."""
    patience: float = 300.0
    """Seconds without any progress after which a run counts as hung."""

    def __post_init__(self) -> None:
        for name in (
            "account", "partition", "qos", "constraint", "reservation", "time", "memory",
            "gres", "venv", "python", "interface",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None:
                check_type(f"[launcher] {name}", value, str, "text in quotes")
                refuse_unprintable(f"[launcher] {name}", value)
        for name in ("modules", "lines", "sbatch", "srun"):
            object.__setattr__(self, name, check_strings(f"[launcher] {name}", getattr(self, name)))
        for name in ("exclusive", "gpus_per_node"):
            check_type(f"[launcher] {name}", getattr(self, name), bool, "true or false")
        check_type("[launcher] requeue", self.requeue, (bool, type(None)), "true or false")
        check_choice("[launcher] jobs", self.jobs, get_args(Jobs))
        if self.jobs == "one" and self.throttle:
            raise SpecError('throttle has no effect with jobs = "one"', hint="leave it out")
        for name in ("cpus_per_task", "throttle"):
            if getattr(self, name) is not None:
                check_integer(f"[launcher] {name}", getattr(self, name), minimum=1)
        check_integer("[launcher] warning", self.warning, minimum=0)
        check_integer("[launcher] max_restarts", self.max_restarts, minimum=0)
        check_positive("patience", self.patience, example=300.0)
        if self.time is not None:
            parse_time_limit(self.time)
        if self.gres is not None and self.gres.rpartition(":")[2].isdecimal():
            raise SpecError(
                f"[launcher] gres names a kind of device without a number, got {shown(self.gres)}",
                hint=f'write gres = "{self.gres.rpartition(":")[0] or "gpu"}": '
                "the topology says how many devices of a node",
            )
        if self.max_device_hours is not None:
            check_positive("max_device_hours", self.max_device_hours, example=100.0)
        self._check_tables()
        if self.container is not None and not isinstance(self.container, Container):
            what = 'a table, for example {image = "torch.sif"}'
            check_type("[launcher] container", self.container, Mapping, what)
            object.__setattr__(self, "container", _parse_container(self.container))

    def _check_tables(self) -> None:
        """Refuse bad entries of ``env`` and ``engines``."""
        check_type(
            "[launcher] env", self.env, Mapping, 'a table, for example {NCCL_DEBUG = "INFO"}'
        )
        for key, value in self.env.items():
            check_environment_name("[launcher] env", key)
            if not isinstance(value, str):
                raise SpecError(
                    f"[launcher] env cannot hold {key} = {shown(value)}", hint='write NAME = "text"'
                )
            check_process_text(f"[launcher] env {key}", value)
        check_type("[launcher] engines", self.engines, Mapping, "a table of Pythons by framework")
        for name, python in self.engines.items():
            check_type(f"[launcher] engines: {name}", python, str, "the path of a Python")
            refuse_unprintable(f"[launcher] engines: {name}", python)

    @classmethod
    def of(cls, launcher_table: Mapping[str, Any]) -> "Settings":
        """Return the settings of a ``[launcher]`` table; those it leaves out are its site's."""
        keys = [field.name for field in fields(cls)]
        table = {**_load_site(launcher_table.get("site"), keys), **launcher_table}
        refuse_unknown_keys("the slurm [launcher]", table, ["name", "site", *keys])
        return cls(**{key: value for key, value in table.items() if key in keys})

    @property
    def interpreter(self) -> str:
        """The Python of ranks, unless ``engines`` names another one for their framework."""
        if self.python:
            return self.python
        return "python3" if self.container or self.venv else sys.executable

    def python_of(self, framework: str) -> str:
        """Return the Python that ranks of a framework start with."""
        return self.engines.get(framework, self.interpreter)


def check_strings(name: str, value: Any) -> tuple[str, ...]:
    """Return a list of strings as a tuple; refuse anything else."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not all(isinstance(text, str) for text in value):
        raise SpecError(
            f"{name} must be a list of texts, got {shown(value)}",
            hint=f'for example {name.split()[-1]} = ["text"]',
        )
    for text in value:
        refuse_unprintable(name, text)
    return tuple(value)


def refuse_unprintable(name: str, value: str) -> None:
    """Refuse an empty text, or one with characters that break a line of a script."""
    if not value or not value.isprintable():
        raise SpecError(
            f"{name} cannot be {shown(value)}", hint="leave out line breaks and control characters"
        )


def parse_time_limit(time: str) -> int:
    """Return a time limit in seconds, as Slurm reads it.

    >>> [parse_time_limit(text) for text in ("30", "1:30", "02:00:00", "1-12", "1-00:30")]
    [1800, 90, 7200, 129600, 88200]
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", time)
    if not match:
        raise SpecError(f"not a time limit: {shown(time)}", hint='for example time = "00:30:00"')
    days, *clock = match.groups()
    parts = [int(part) for part in clock if part is not None]
    if not any(int(part or 0) for part in (days, *clock)):
        raise SpecError("for Slurm 0 means no limit", hint='for example time = "00:30:00"')
    if days is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return ((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(parts) == 1:  # Without days, a single number is minutes, two are minutes:seconds.
        return parts[0] * 60
    return sum(part * 60**power for power, part in enumerate(reversed(parts)))  # h:min:s


def format_time_limit(seconds: int) -> str:
    """Return a time limit as Slurm writes it.

    >>> format_time_limit(600), format_time_limit(90000)
    ('00:10:00', '1-01:00:00')
    """
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def _load_site(name: Any, keys: Sequence[str]) -> dict[str, Any]:
    """Return a site's settings; ``name`` None: those of the site "default", if it exists."""
    path = user_config_path("sites.toml")
    sites = load_user_config(path)
    if name is None and "default" not in sites:
        return {}
    name = "default" if name is None else name
    if name not in sites:
        choices = f"there are: {', '.join(sites)}" if sites else "there are none"
        hint = suggest_name(name, sites) or "docs/guides/slurm.md shows some"
        raise SpecError(f"{path} has no site {shown(name)}; {choices}", hint=hint)
    check_type(f"site {name} in {path}", sites[name], dict, "a table")
    refuse_unknown_keys(f"site {name} in {path}", sites[name], keys)
    return dict(sites[name])


def _parse_container(table: Mapping[str, Any]) -> Container:
    keys = [field.name for field in fields(Container)]
    refuse_unknown_keys("[launcher.container]", table, keys)
    if not isinstance(table.get("image"), str):
        raise SpecError("a container needs an image", hint='for example image = "torch.sif"')
    refuse_unprintable("[launcher.container] image", table["image"])
    check_choice(
        "[launcher.container] runtime", table.get("runtime", "singularity"), get_args(Runtime)
    )
    lists = {
        key: check_strings(f"[launcher.container] {key}", table.get(key, ()))
        for key in ("binds", "options")
    }
    return Container(**{**table, **lists})
