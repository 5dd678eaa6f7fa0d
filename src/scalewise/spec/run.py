"""One training run, complete and comparable."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from hashlib import blake2b
from typing import Any, Literal, get_args

from scalewise.errors import SpecError
from scalewise.spec.topology import Parallelism, Topology
from scalewise.validate import (
    choice,
    environment_name,
    nearest,
    positive,
    refuse_unknown,
    typed,
    whole,
)

Remainder = Literal["drop", "pad", "short"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
LrRule = Literal["none", "linear", "sqrt"]
Schedule = Literal["constant", "cosine", "linear"]
Optimizer = Literal["sgd", "adam", "adamw"]
OptimizerStep = Literal["auto", "loop", "foreach", "fused"]
DeviceKind = Literal["cpu", "cuda", "xpu"]
Backend = Literal["auto", "gloo", "nccl", "xccl", "mpi"]
Start = Literal["torchrun", "srun", "mpirun", "horovodrun", "plain", "node", "direct", "command"]
Recompute = Literal["none", "full", "selective"]
PipelineSchedule = Literal["gpipe", "1f1b", "interleaved"]
Augment = Literal["none", "flip", "crop"]
Broken = Literal["skip", "refuse"]


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
    pipeline_schedule: PipelineSchedule = "1f1b"
    """In which order stages do their forwards and backwards; interleaved, a device has two."""
    micro_batches: int | None = None
    """Small batches that a batch passes the stages in; nothing means up to four for each stage."""
    data: str | None = None
    """A folder, ``synthetic:SAMPLES``, or nothing for the embedded data set."""
    edge: int | None = None
    """Pixels of a side that images are brought to; nothing means 224 for files, and leaves sets
    of one size as they are."""
    augment: Augment = "none"
    """What chance does to training images: mirror them, or take a part of them and mirror it."""
    broken: Broken = "skip"
    """What happens to a file that is no whole image: it is told and left out, or ends the run."""
    length: int | None = None
    """Tokens of one sample of a text or a token file; nothing means 64."""
    workers: int = 0
    """Processes per rank that load data; 0 loads inside the rank itself."""
    threads: int = 1
    """Threads per rank. One, or scaling on a CPU measures the threads instead."""
    device: DeviceKind | None = None
    """The kind of device to compute on; nothing means an accelerator where there is one."""
    backend: Backend | None = None
    """The communication library; auto, or nothing, means the one that fits the device."""
    remainder: Remainder = "drop"
    """What happens to the ragged last global batch of an epoch."""
    optimizer: Optimizer = "sgd"
    optimizer_step: OptimizerStep = "auto"
    """How the optimizer goes over parameters: one by one, many in a kernel, or all in a fused one;
    auto leaves it to the engine."""
    lr: float = 0.01
    lr_rule: LrRule = "none"
    """How the rate grows with the global batch, from ``base_batch``, which ``lr`` was found for."""
    base_batch: int | None = None
    warmup_steps: int = 0
    warmup_epochs: float = 0.0
    """How long the rate climbs at first, in optimizer steps or in passes over the data."""
    schedule: Schedule = "constant"
    """What the rate does after that: it stays, or goes to nothing at the last step."""
    clip: float | None = None
    """The largest norm of the gradients, all of them together."""
    noise_every: int = 0
    """Steps between two estimates of the gradient noise; 0 means none."""
    accumulate: int = 1
    """Micro-steps per optimizer step."""
    precision: Precision = "fp32"
    compile: bool | Literal["blocks", "graphs"] = False
    """The whole model; its repeated blocks only, which start several times faster; or the whole,
    recorded once and replayed, so that a device need not wait for its host."""
    recompute: Recompute = "none"
    """What blocks do not keep for backward, which computes it again: nothing, all, or all but
    what costs much."""
    ema: float | None = None
    """The share of the old in a moving average of the weights, which then validates and is saved;
    nothing means none."""
    sync_batchnorm: bool = False
    """Whether batch normalization takes the batches of all replicas together."""
    epochs: int | None = None
    steps: int | None = None
    """Optimizer steps in total, warm-up included."""
    samples: int | None = None
    """Samples per device in total, rounded up to whole steps."""
    validate_every: int = 1
    """Epochs between two validations; the last epoch is always followed by one."""
    save: bool = False
    """Keep the trained weights in the run folder."""
    checkpoint_every: int | None = None
    """Optimizer steps between two checkpoints, and one at the end; nothing means none. A run that
    is started again goes on from its last one."""
    checkpoint_keep: int = 2
    """How many checkpoints stay."""
    resume: str | None = None
    """A run's folder whose last checkpoint to begin with, or one of its checkpoints."""
    seed: int = 0
    repeat: int = 0
    """Which repetition this is; it trains from ``seed + repeat``."""
    launcher: str = "local"
    start: Start | None = None
    """What makes the processes: torchrun, srun, mpirun, horovodrun or, without any of them, plain,
    one per device; node, one per node; direct, one in all; command, the program's own words, once
    per node; nothing means what fits."""
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings that only this framework, strategy or workload knows."""

    def __post_init__(self) -> None:
        for name in ("accumulate", "threads", "checkpoint_keep", "validate_every"):
            whole(name, getattr(self, name), least=1)
        for name in ("workers", "seed", "repeat", "trace", "warmup_steps", "noise_every"):
            whole(name, getattr(self, name), least=0)
        for name in _COUNTS:
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least=1)
        if self.edge is not None:
            whole("edge", self.edge, least=1, most=_WIDEST, example=224)
        ways = ("blocks", "graphs")
        if not isinstance(self.compile, bool) and self.compile not in ways:
            raise SpecError(
                f'compile must be true, false, "blocks" or "graphs", got {self.compile!r}',
                hint=nearest(str(self.compile), ways) or 'for example compile = "blocks"',
            )
        for name in ("save", "loaders_alone", "sync_batchnorm"):
            typed(name, getattr(self, name), bool, "true or false")
        for name in ("framework", "strategy", "launcher", "workload", "data", "resume"):
            if getattr(self, name) is not None:
                typed(name, getattr(self, name), str, "a name in quotes")
                if not getattr(self, name).strip():
                    needed = name == "workload"
                    way = 'for example workload = "mlp"' if needed else f"leave {name} out"
                    raise SpecError(f"{name} must not be empty", hint=way)
        if str(self.device) == "tpu":  # No kind that a run may name.
            raise SpecError(
                "TPUs are JAX's, which finds them by itself",
                hint='leave device out, and write framework = "jax"',
            )
        for name, allowed in _CHOICES.items():
            if getattr(self, name) is not None or name not in ("backend", "start", "device"):
                choice(name, getattr(self, name), allowed)
        if self.trace and self.stop_after is not None and self.stop_after < self.trace + 3:
            raise SpecError(
                f"stop_after {self.stop_after} leaves no room for trace {self.trace}",
                hint=f"for example stop_after {self.trace + 20}: the profiler warms up first",
            )
        positive("lr", self.lr, example=0.01)
        if self.clip is not None:
            positive("clip", self.clip, example=1.0)
        if self.ema is not None:
            positive("ema", self.ema, example=0.999)
            if self.ema >= 1:
                raise SpecError(f"ema must be below 1, got {self.ema}", hint="for example 0.999")
        self._check_learning()
        _check_env(self.env)
        typed("options", self.options, Mapping, "a table, for example {dropout = 0.0}")
        _refuse_unspeakable(self.options)
        if self.program is not None:
            self._check_program()
        else:
            self._check_training()
        object.__setattr__(self, "lr", float(self.lr))
        if self.backend == "auto":
            object.__setattr__(self, "backend", None)
        if self.start == self._usual_start and not self.program:
            object.__setattr__(self, "start", None)
        self.degrees.replicas(self.topology.world)

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

    def _check_learning(self) -> None:
        """Refuse a rule without its base, and two lengths of one warm-up."""
        if (self.lr_rule == "none") != (self.base_batch is None):
            raise SpecError(
                f"lr_rule = {self.lr_rule!r} with base_batch = {self.base_batch!r}",
                hint="a rule needs the global batch that lr was found for, and only a rule does",
            )
        if self.warmup_epochs:
            positive("warmup_epochs", self.warmup_epochs, example=5)
            if self.warmup_steps:
                raise SpecError(
                    "a warm-up has one length, and this run says warmup_steps and warmup_epochs",
                    hint="leave one of them out",
                )

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
    def degrees(self) -> Parallelism:
        """How one model is split: as was said, the rest as the strategy has it."""
        return self.parallelism.filled(self.strategy, self.topology)

    @property
    def rounds(self) -> int:
        """How many stages of a pipeline one device has."""
        return 2 if self.pipeline_schedule == "interleaved" else 1

    @property
    def small_batches(self) -> int:
        """How many small batches pass a pipeline in one micro-step."""
        assert self.batch is not None
        stages = self.degrees.pipeline
        fit = [n for n in range(1, min(self.batch, 4 * stages) + 1) if self.batch % n == 0]
        even = [n for n in fit if n % stages == 0]
        return self.micro_batches or (even or fit)[-1]

    @property
    def bubble(self) -> float | None:
        """The share of a step in which a pipeline fills and empties, as theory computes it."""
        stages = self.degrees.pipeline
        if stages == 1 or self.batch is None:
            return None
        return (stages - 1) / (self.rounds * self.small_batches + stages - 1)

    @property
    def replicas(self) -> int:
        """The number of data-parallel replicas."""
        return self.degrees.replicas(self.topology.world)

    @property
    def global_batch(self) -> int:
        """Samples per optimizer step, over all replicas."""
        assert self.batch is not None  # A program's is observed, not said.
        return self.batch * self.accumulate * self.replicas

    def validates(self, epoch: int) -> bool:
        """Say whether an epoch, counted from 0, is followed by a validation."""
        return (epoch + 1) % self.validate_every == 0 or epoch + 1 == (self.epochs or 1)

    @property
    def lr_factor(self) -> float:
        """What the rule makes of ``lr`` at this global batch.

        >>> given = {"topology": "1x4", "batch": 64, "epochs": 1, "workload": "mlp"}
        >>> RunSpec.from_dict({**given, "lr_rule": "sqrt", "base_batch": 64}).lr_factor
        2.0
        """
        if self.base_batch is None:
            return 1.0
        grown = self.global_batch / self.base_batch
        return float(grown if self.lr_rule == "linear" else grown**0.5)

    @property
    def budget(self) -> int | None:
        """Optimizer steps in total, or nothing where epochs decide."""
        if self.samples and self.batch:
            return -(-self.samples // (self.batch * self.accumulate))
        return self.steps

    @property
    def title(self) -> str:
        """The run's name for people."""
        words = self.program or (self.workload or self.framework,)
        what = words[1] if words[0] == "-m" else words[0].rpartition("/")[2]
        telling = [each for each in fields(self) if each.name in _TELLING]
        own = [(getattr(self, each.name), _default(each)) for each in telling]
        unusual = [value for value, usual in own if value not in (usual, what)]
        unusual += [f"{key}={value}" for key, value in self.env.items()]
        apart = "".join(f", {each}" for each in unusual)
        return f"run {self.id} ({what} on {self.topology}{apart}, repeat {self.repeat + 1})"

    @property
    def started_by(self) -> Start:
        """What makes the processes of this run."""
        return self.start or self._usual_start

    @property
    def _usual_start(self) -> Start:
        own = _STARTS.get(f"{self.framework}.{self.strategy}")
        return own or _STARTS.get(self.framework, "direct")

    @property
    def ranks(self) -> int:
        """How many ranks there are: one per device, or one per node that has all its devices."""
        return self.topology.nodes if self.started_by == "node" else self.topology.world

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
        _name_framework(given)
        if given.get("framework") in _STRATEGIES and not given.get("program"):
            given.setdefault("strategy", _STRATEGIES[given["framework"]])
        given["parallelism"] = Parallelism.parse(given.get("parallelism", {}))
        if isinstance(words := given.get("program"), list):
            given["program"] = tuple(words)
        if words is None or "global_batch" in given:
            _share_batch(given)
        return cls(**given)


def _name_framework(given: dict[str, Any]) -> None:
    """Read ``tensorflow.mirrored``: a strategy by its whole name says whose it is."""
    framework, dot, strategy = str(given.get("strategy", "")).partition(".")
    if not dot:
        return
    if given.setdefault("framework", framework) != framework:
        raise SpecError(
            f"strategy {given['strategy']!r} is not one of framework {given['framework']!r}",
            hint="leave framework out: such a name says both",
        )
    given["strategy"] = strategy


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
    split = given["parallelism"].filled(given.get("strategy", "ddp"), given["topology"])
    replicas = split.replicas(given["topology"].world)
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
    "batch", "workload", "strategy", "parallelism", "data", "edge", "augment", "broken", "length",
    "workers", "device", "backend", "remainder", "optimizer", "lr", "accumulate", "precision",
    "compile", "epochs", "steps", "samples", "save",
    "pipeline_schedule", "micro_batches", "recompute", "lr_rule", "base_batch", "warmup_steps",
    "warmup_epochs", "schedule", "clip", "checkpoint_every", "checkpoint_keep", "resume",
    "noise_every", "validate_every", "optimizer_step", "sync_batchnorm", "ema", "options",
)  # fmt: skip
_TELLING = ("framework", "strategy", "start", "device", "precision")
"""What a run's name tells, where it is not as usual."""
_COUNTS = (
    "batch", "epochs", "steps", "samples", "micro_batches", "base_batch", "stop_after",
    "samples_per_step", "checkpoint_every", "length",
)  # fmt: skip
_WIDEST = 65_535
"""Pixels along the widest JPEG."""
RUN_KEYS = [each.name for each in fields(RunSpec)] + ["global_batch"]
_CHOICES: dict[str, tuple[str, ...]] = {
    "remainder": get_args(Remainder),
    "augment": get_args(Augment),
    "broken": get_args(Broken),
    "precision": get_args(Precision),
    "optimizer": get_args(Optimizer),
    "optimizer_step": get_args(OptimizerStep),
    "device": get_args(DeviceKind),
    "backend": get_args(Backend),
    "start": get_args(Start),
    "pipeline_schedule": get_args(PipelineSchedule),
    "recompute": get_args(Recompute),
    "lr_rule": get_args(LrRule),
    "schedule": get_args(Schedule),
}
_STARTS: dict[str, Start] = {
    "torch": "torchrun",
    "deepspeed": "torchrun",
    "horovod": "horovodrun",
    "tensorflow": "node",
    "tensorflow.multiworker": "plain",
    "jax": "node",
}
"""How the processes of a framework, or of one of its strategies, are made unless the study says
otherwise."""
_STRATEGIES = {
    "deepspeed": "zero1",
    "horovod": "allreduce",
    "tensorflow": "mirrored",
    "jax": "sharded",
}
"""What a framework does unless the study says otherwise, where that is not ddp."""


def _canonical(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def _default(each: Any) -> Any:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return each.default


def _refuse_unspeakable(options: Mapping[str, Any]) -> None:
    for key, value in options.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            hint = "write a number, text in quotes, true, false, a list or a table"
            raise SpecError(f"options cannot hold {key} = {value}", hint=hint) from None


def _check_env(env: Any) -> None:
    typed("env", env, Mapping, 'a table, for example {OMP_NUM_THREADS = "1"}')
    for key, value in env.items():
        environment_name("env", key)
        if not isinstance(value, str):
            raise SpecError(
                f"env {key} must be text, got {value!r}", hint=f'write {key} = "{value}"'
            )
        if "\0" in value:
            raise SpecError(f"env {key} cannot hold a null character, got {value!r}")
