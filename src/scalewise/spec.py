"""What to run: frozen values, checked when they are made.

A ``RunSpec`` is one run, a ``StudySpec`` the runs that answer one question.
Both come from plain JSON or TOML values, go back to them, and refuse what
means nothing with a sentence that holds the value. Identity is content: two
equal run specs have the same ``id`` and so the same folder.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from hashlib import blake2b
from itertools import product
from math import prod
from typing import Any, Literal, get_args

from scalewise.checks import choice, positive, refuse_unknown, typed, whole
from scalewise.errors import SpecError

Remainder = Literal["drop", "pad", "short"]
Precision = Literal["fp32", "bf16"]
Optimizer = Literal["sgd", "adam", "adamw"]
Backend = Literal["gloo", "nccl", "xccl", "mpi"]
Start = Literal["torchrun", "direct", "command"]
Scaling = Literal["weak", "strong"]

MOST_RUNS = 10_000
LONGEST_NAME = 200
"""Bytes; file systems take 255 for a folder's name."""


@dataclass(frozen=True, slots=True, order=True)
class Topology:
    """``nodes`` machines with ``devices`` accelerators each, written ``2x8``."""

    nodes: int
    devices: int

    def __post_init__(self) -> None:
        whole("topology nodes", self.nodes, least=1)
        whole("topology devices", self.devices, least=1)

    @property
    def world(self) -> int:
        """The number of devices in total."""
        return self.nodes * self.devices

    @classmethod
    def parse(cls, given: Any) -> "Topology":
        """Read ``"2x8"``, or ``8`` for a single node.

        >>> Topology.parse("2x8").world
        16
        """
        words = not isinstance(given, bool) and isinstance(given, (str, int))
        found = re.fullmatch(r"(?:([0-9]+)x)?([0-9]+)", str(given)) if words else None
        if not found:
            hint = "write NODESxDEVICES, for example 2x8"
            raise SpecError(f"not a topology: {given!r}", hint=hint)
        counts = int(found[1] or 1), int(found[2])
        if min(counts) < 1:
            raise SpecError(f"a topology needs at least 1x1, got {given!r}")
        return cls(*counts)

    def __str__(self) -> str:
        return f"{self.nodes}x{self.devices}"


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How many devices hold one model together, by kind of split."""

    shard: int = 1
    tensor: int = 1
    pipeline: int = 1

    def __post_init__(self) -> None:
        for each in fields(self):
            whole(f"parallelism {each.name}", getattr(self, each.name), least=1)

    @classmethod
    def parse(cls, given: Any) -> "Parallelism":
        """Read a table such as ``{tensor = 2}``."""
        if not isinstance(given, Mapping):
            raise SpecError(
                f"parallelism must be a table, got {given!r}",
                hint="for example parallelism = {tensor = 2}",
            )
        refuse_unknown("parallelism", given, [each.name for each in fields(cls)])
        return cls(**given)

    def replicas(self, world: int) -> int:
        """Return how many data-parallel replicas ``world`` devices make.

        >>> Parallelism(tensor=2).replicas(8)
        4
        """
        degree = self.shard * self.tensor * self.pipeline
        if world % degree:
            raise SpecError(
                f"shard {self.shard} x tensor {self.tensor} x pipeline {self.pipeline} "
                f"= {degree} does not divide {world} devices",
                hint="choose degrees whose product divides the number of devices",
            )
        return world // (self.tensor * self.pipeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One training run, complete and comparable."""

    topology: Topology
    batch: int | None = None
    """Samples per micro-step on one data-parallel replica; a program's own is observed."""
    workload: str | None = None
    """Model, data and loss by name; the fake framework needs none."""
    program: tuple[str, ...] | None = None
    """The words that start a user's own script, instead of a workload."""
    digest: str | None = None
    """The hash of the script's file: another content is another run."""
    stop_after: int | None = None
    """Let all ranks of a program leave after this many optimizer steps."""
    samples_per_step: int | None = None
    """Samples of one rank in one optimizer step of a program whose batch cannot be seen."""
    trace: int = 0
    """Steps of a program to look at deeply, with the engine's own profiler."""
    loaders_alone: bool = False
    """Whether a program's loader is timed alone, after the training."""
    framework: str = "torch"
    strategy: str = "ddp"
    parallelism: Parallelism = field(default_factory=Parallelism)
    data: str | None = None
    """A folder, ``synthetic:SAMPLES``, or nothing for the embedded data set."""
    workers: int = 0
    """Processes per rank that load data; 0 loads inside the rank itself."""
    threads: int = 1
    """Threads per rank. One, or scaling on a CPU measures the threads instead."""
    backend: Backend | None = None
    """The communication library; nothing means the one that fits the device."""
    remainder: Remainder = "drop"
    """What happens to the ragged last global batch of an epoch."""
    optimizer: Optimizer = "sgd"
    lr: float = 0.01
    accumulate: int = 1
    """Micro-steps per optimizer step."""
    precision: Precision = "fp32"
    compile: bool = False
    epochs: int | None = None
    steps: int | None = None
    """Optimizer steps in total, warm-up included."""
    samples: int | None = None
    """Samples per device in total, rounded up to whole steps."""
    save: bool = False
    """Keep the trained weights in the run folder."""
    seed: int = 0
    repeat: int = 0
    """Which repetition this is; it trains from ``seed + repeat``."""
    launcher: str = "local"
    start: Start | None = None
    """What makes the processes: torchrun, one per device; direct, one in all;
    command, the program's own words, once per node; nothing means what fits."""
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings that only this framework, strategy or workload knows."""

    def __post_init__(self) -> None:
        for name in ("accumulate", "threads"):
            whole(name, getattr(self, name), least=1)
        for name in ("workers", "seed", "repeat", "trace"):
            whole(name, getattr(self, name), least=0)
        for name in ("batch", "epochs", "steps", "samples", "stop_after", "samples_per_step"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least=1)
        for name in ("compile", "save", "loaders_alone"):
            typed(name, getattr(self, name), bool, "true or false")
        for name in ("framework", "strategy", "launcher", "workload", "data"):
            if getattr(self, name) is not None:
                typed(name, getattr(self, name), str, "a name in quotes")
                if not getattr(self, name).strip():
                    raise SpecError(f"{name} must not be empty", hint=f"leave {name} out")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) is not None or name not in ("backend", "start"):
                choice(name, getattr(self, name), allowed)
        if self.trace and self.stop_after is not None and self.stop_after < self.trace + 3:
            raise SpecError(
                f"stop_after {self.stop_after} leaves no room for trace {self.trace}",
                hint=f"for example stop_after {self.trace + 20}: the profiler warms up first",
            )
        positive("lr", self.lr, example=0.01)
        _check_env(self.env)
        typed("options", self.options, Mapping, "a table, for example {dropout = 0.0}")
        _refuse_unspeakable(self.options)
        if self.program is not None:
            self._check_program()
        else:
            self._check_training()
        object.__setattr__(self, "lr", float(self.lr))
        if self.start == _STARTS.get(self.framework, "direct") and not self.program:
            object.__setattr__(self, "start", None)
        self.parallelism.replicas(self.topology.world)

    def _check_training(self) -> None:
        """Refuse a run of ours that does not say its batch and its length."""
        if self.batch is None:
            raise SpecError("a run needs a batch", hint="for example batch = 64")
        given = [n for n in ("epochs", "steps", "samples") if getattr(self, n)]
        if len(given) != 1:
            said = f"got {' and '.join(given)}" if given else "got none"
            raise SpecError(
                f"a run needs exactly one of epochs, steps and samples, {said}",
                hint="for example epochs = 3",
            )
        for name in _OF_PROGRAMS:
            if getattr(self, name) not in (None, 0, False):
                raise SpecError(f"{name} is for a program, and this run names none")
        if self.start == "command":
            raise SpecError('start = "command" is for a program, and this run names none')

    def _check_program(self) -> None:
        """Refuse a program without words, and what only the program itself can say."""
        words = self.program
        listed = isinstance(words, Sequence) and not isinstance(words, str)
        if not listed or not words or not all(isinstance(word, str) and word for word in words):
            raise SpecError(
                f"program must be a list of words, got {words!r}",
                hint='for example program = ["train.py", "--epochs", "3"]',
            )
        if any("\0" in word for word in words):
            raise SpecError("a program's words cannot hold a null character")
        object.__setattr__(self, "program", tuple(words))
        for each in fields(self):
            if each.name in _NOT_OF_PROGRAMS and getattr(self, each.name) != _default(each):
                raise SpecError(
                    f"{each.name} cannot be said of a program: it decides that itself",
                    hint=f"leave {each.name} out, or give it in the program's own arguments",
                )

    @property
    def replicas(self) -> int:
        """The number of data-parallel replicas."""
        return self.parallelism.replicas(self.topology.world)

    @property
    def global_batch(self) -> int:
        """Samples per optimizer step, over all replicas."""
        assert self.batch is not None  # A program's is observed, not said.
        return self.batch * self.accumulate * self.replicas

    @property
    def budget(self) -> int | None:
        """Optimizer steps in total, or nothing where epochs decide."""
        if self.samples and self.batch:
            return -(-self.samples // (self.batch * self.accumulate))
        return self.steps

    @property
    def started_by(self) -> Start:
        """What makes the processes of this run."""
        return self.start or _STARTS.get(self.framework, "direct")

    @property
    def id(self) -> str:
        """A short name that only this experiment has.

        Fields at their default are left out, so that a field added later
        renames no run that was measured before.
        """
        mine = self.to_dict()
        told = {
            each.name: mine[each.name]
            for each in fields(self)
            if getattr(self, each.name) != _default(each)
        }
        return blake2b(_canonical(told).encode(), digest_size=6).hexdigest()

    def __hash__(self) -> int:
        return hash(self.id)

    def to_dict(self) -> dict[str, Any]:
        """Return every field as plain JSON values."""
        return {**asdict(self), "topology": str(self.topology)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RunSpec":
        """Build a spec from JSON or TOML values; refuse keys that mean nothing."""
        given = dict(data)
        refuse_unknown("run", given, RUN_KEYS)
        if "topology" not in given:
            raise SpecError("a run needs a topology", hint='for example topology = "1x2"')
        given["topology"] = Topology.parse(given["topology"])
        given["parallelism"] = Parallelism.parse(given.get("parallelism", {}))
        if isinstance(words := given.get("program"), list):
            given["program"] = tuple(words)
        if words is None or "global_batch" in given:
            _share_batch(given)
        return cls(**given)


def _share_batch(given: dict[str, Any]) -> None:
    """Settle on one of ``batch`` and ``global_batch``: a run keeps the former."""
    if ("batch" in given) == ("global_batch" in given):
        raise SpecError(
            "a run needs exactly one of batch and global_batch",
            hint="batch is per replica, global_batch is over all of them",
        )
    if "global_batch" in given:
        given["batch"] = _share(given)


def _share(given: dict[str, Any]) -> int:
    """Take ``global_batch`` out of ``given`` and return the batch of one replica."""
    together: int = given.pop("global_batch")
    whole("global_batch", together, least=1)
    accumulate = given.get("accumulate", 1)
    whole("accumulate", accumulate, least=1)
    replicas = given["parallelism"].replicas(given["topology"].world)
    batch, ragged = divmod(together, int(replicas * accumulate))
    if ragged or not batch:
        over = f"{replicas} replicas" + (f" x {accumulate} micro-steps" if accumulate > 1 else "")
        raise SpecError(
            f"global_batch {together} does not divide over {over} ({given['topology']})",
            hint=f"for example global_batch = {max(batch, 1) * replicas * accumulate}",
        )
    return batch


_OF_PROGRAMS = ("digest", "stop_after", "samples_per_step", "trace", "loaders_alone")
_NOT_OF_PROGRAMS = (
    "batch", "workload", "strategy", "parallelism", "data", "workers", "backend", "remainder",
    "optimizer", "lr", "accumulate", "precision", "compile", "epochs", "steps", "samples", "save",
    "options",
)  # fmt: skip
RUN_KEYS = [each.name for each in fields(RunSpec)] + ["global_batch"]
_CHOICES: dict[str, tuple[str, ...]] = {
    "remainder": get_args(Remainder),
    "precision": get_args(Precision),
    "optimizer": get_args(Optimizer),
    "backend": get_args(Backend),
    "start": get_args(Start),
}
_STARTS: dict[str, Start] = {"torch": "torchrun"}
"""How a framework's processes are made unless the study says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySpec:
    """One question: a base run, what varies, and what is held fixed meanwhile."""

    name: str
    run: Mapping[str, Any]
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    scaling: Scaling | None = "weak"
    """How the batch grows with devices; nothing where a program decides, and is observed."""
    repeats: int = 1
    launcher: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.scaling is not None or not self._of_programs:
            choice("scaling", self.scaling, get_args(Scaling))
        whole("repeats", self.repeats, least=1)
        typed("run", self.run, Mapping, "a table")
        typed("vary", self.vary, Mapping, "a table of lists")
        typed("launcher", self.launcher, Mapping, "a table")
        keys = [*RUN_KEYS, "options.NAME"]
        refuse_unknown("[run]", self.run, RUN_KEYS)
        for key in [*self.run, *self.vary]:
            if key in ("repeat", "launcher"):
                hint = "write repeats = 3" if key == "repeat" else "write a [launcher] table"
                raise SpecError(f"{key} cannot be said of a run", hint=hint)
        typed("options", self.run.get("options", {}), Mapping, "a table")
        for axis, values in self.vary.items():
            if not axis.startswith("options."):
                refuse_unknown("[vary]", [axis], keys)
            if isinstance(values, (str, Mapping)) or not isinstance(values, Sequence) or not values:
                raise SpecError(
                    f"an axis needs a list of values, got {axis} = {values!r}",
                    hint=f"for example {axis} = [{_example(values)}]",
                )
        self._check_scaling()
        count = prod(len(values) for values in self.vary.values()) * self.repeats
        if count > MOST_RUNS:
            raise SpecError(
                f"a study of {count:,} runs", hint=f"ask for at most {MOST_RUNS:,} at a time"
            )
        _refuse_twins(list(self.runs()))

    @property
    def _of_programs(self) -> bool:
        return "program" in {*self.run, *self.vary}

    def _check_scaling(self) -> None:
        if self.scaling is None:
            return
        if self._of_programs:
            raise SpecError(
                "a program decides how its batch grows with devices",
                hint="leave scaling out: it is observed",
            )
        needed, other = ("batch", "global_batch")[:: 1 if self.scaling == "weak" else -1]
        said = {*self.run, *self.vary}
        if other in said or needed not in said:
            gives = " and ".join(key for key in (needed, other) if key in said) or "none"
            raise SpecError(
                f"{self.scaling} scaling holds {needed} fixed, and this study gives {gives}",
                hint=f'write {needed}, or scaling = "{_OTHER[self.scaling]}"',
            )

    @property
    def launcher_name(self) -> str:
        """The launcher's registered name."""
        return str(self.launcher.get("name", "local"))

    def runs(self) -> tuple[RunSpec, ...]:
        """Return every run of this study, smallest first."""
        found = [
            (run.topology.world, run.topology, position, run)
            for position, choice in enumerate(self._choices())
            for run in [RunSpec.from_dict({"launcher": self.launcher_name, **choice})]
        ]
        ordered = [run for *_, run in sorted(found, key=lambda each: each[:3])]
        return tuple(replace(run, repeat=n) for run in ordered for n in range(self.repeats))

    def _choices(self) -> Iterator[dict[str, Any]]:
        for values in product(*self.vary.values()):
            choice = dict(self.run)
            for axis, value in zip(self.vary, values):
                table, dot, key = axis.partition(".")
                choice[table] = {**choice.get(table, {}), key: value} if dot else value
            yield choice

    def where(self, run: RunSpec) -> dict[str, Any]:
        """Return what sets this run's curve apart from the study's other curves."""
        mine = run.to_dict()
        apart = [a for a in self.vary if a not in ("topology", "global_batch")]
        found = {axis: _at(mine, axis) for axis in apart}
        if "global_batch" in self.vary:
            found["global_batch"] = run.global_batch
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return every field as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "StudySpec":
        """Build a study from JSON or TOML values; refuse keys that mean nothing."""
        refuse_unknown("study", data, STUDY_KEYS)
        for key in ("name", "run"):
            if key not in data:
                raise SpecError(f"a study needs {key}", hint="`scalewise init` writes an example")
        typed("run", data["run"], Mapping, "a table")
        typed("vary", data.get("vary", {}), Mapping, "a table of lists")
        vary = _flat(data.get("vary", {}))
        said = {*data["run"], *vary}
        rule = "strong" if "global_batch" in said else None if "program" in said else "weak"
        return cls(**{"scaling": rule, **data, "vary": vary})


STUDY_KEYS = [each.name for each in fields(StudySpec)]
_OTHER = {"weak": "strong", "strong": "weak"}


def _flat(vary: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``options = {compute = […]}`` as ``"options.compute" = […]``: both mean the axis."""
    flat = dict(vary)
    if isinstance(options := flat.get("options"), Mapping):
        del flat["options"]
        flat |= {f"options.{key}": values for key, values in options.items()}
    return flat


def _at(values: Mapping[str, Any], dotted: str) -> Any:
    table, dot, key = dotted.partition(".")
    return values[table].get(key) if dot else values[table]


def _canonical(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def _default(each: Any) -> Any:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return each.default


def _refuse_twins(runs: Sequence[RunSpec]) -> None:
    seen: set[str] = set()
    for run in runs:
        if run.id in seen:
            raise SpecError(
                f"the study asks for the same run twice: {run.topology}, batch {run.batch}",
                hint="remove the value that is listed twice",
            )
        seen.add(run.id)


def _check_name(name: Any) -> None:
    typed("name", name, str, "text in quotes")
    if not name.strip() or name[0] in ".-" or "/" in name or "\\" in name or not name.isprintable():
        raise SpecError(
            f"a study cannot be named {name!r}: it also names a folder",
            hint="leave out slashes, control characters and a leading dot or dash",
        )
    if len(name.encode()) > LONGEST_NAME:
        raise SpecError(
            f"a study's name is too long for a folder: {name!r}",
            hint=f"use at most {LONGEST_NAME} bytes",
        )


def _refuse_unspeakable(options: Mapping[str, Any]) -> None:
    for key, value in options.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            hint = "write a number, text in quotes, true, false, a list or a table"
            raise SpecError(f"options cannot hold {key} = {value}", hint=hint) from None


def _example(values: Any) -> str:
    return json.dumps(values) if isinstance(values, (str, int, float)) and values else "1, 2"


def _check_env(env: Any) -> None:
    typed("env", env, Mapping, 'a table, for example {OMP_NUM_THREADS = "1"}')
    for key, value in env.items():
        if not key or "=" in key or "\0" in f"{key}{value}":
            raise SpecError(f"env cannot hold {key!r} = {value!r}", hint='write NAME = "text"')
        if not isinstance(value, str):
            raise SpecError(
                f"env {key} must be text, got {value!r}", hint=f'write {key} = "{value}"'
            )
