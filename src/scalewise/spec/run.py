"""All settings of one training run, with a check for each."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import partial
from hashlib import blake2b
from typing import Any, Literal, get_args

from scalewise.errors import MAX_SHOWN, SpecError, shown
from scalewise.spec.strategy_traits import Start, StrategyTraits, default_strategy, traits_of
from scalewise.spec.topology import Parallelism, Topology
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

Remainder = Literal["drop", "pad", "short"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
LrRule = Literal["none", "linear", "sqrt"]
Schedule = Literal["constant", "cosine", "linear"]
Optimizer = Literal["sgd", "adam", "adamw"]
OptimizerStep = Literal["auto", "loop", "foreach", "fused"]
DeviceKind = Literal["cpu", "cuda", "xpu"]
Backend = Literal["auto", "gloo", "nccl", "xccl", "mpi"]
Recompute = Literal["none", "full", "selective"]
PipelineSchedule = Literal["gpipe", "1f1b", "interleaved"]
Augment = Literal["none", "flip", "crop"]
Broken = Literal["skip", "refuse"]
CertifyOrder = Literal["usual", "reversed"]


Check = Callable[[str, Any], None]
"""A function of a field's name and value that raises ``SpecError`` for a wrong value."""


def _setting(
    default: Any, check: Check | None = None, *, only: Literal["workload", "program"] | None = None
) -> Any:
    """Declare a field; ``only`` is the kind of run that may set it, None if both kinds may."""
    return field(default=default, metadata={"check": check, "only": only})


_of_workload = partial(_setting, only="workload")
_of_program = partial(_setting, only="program")


def _at_least(minimum: int, **bounds: int) -> Check:
    return lambda name, value: check_integer(name, value, minimum=minimum, **bounds)


def _above_zero(example: float) -> Check:
    return lambda name, value: check_positive(name, value, example=example)


def _one_of(literal: Any) -> Check:
    return lambda name, value: check_choice(name, value, get_args(literal))


def _check_flag(name: str, value: Any) -> None:
    check_type(name, value, bool, "true or false")


def _check_text(name: str, value: Any) -> None:
    check_type(name, value, str, "a name in quotes")
    if not value.strip():
        hint = 'for example workload = "mlp"' if name == "workload" else f"leave {name} out"
        raise SpecError(f"{name} must not be empty", hint=hint)


def _check_compile_mode(name: str, value: Any) -> None:
    modes = ("blocks", "graphs")
    if not isinstance(value, bool) and value not in modes:
        raise SpecError(
            f'compile must be true, false, "blocks" or "graphs", got {shown(value)}',
            hint=suggest_name(str(value), modes) or 'for example compile = "blocks"',
        )


def _check_device_kind(name: str, value: Any) -> None:
    if value == "tpu":
        hint = 'leave device out, and write framework = "jax"'
        raise SpecError("TPUs need JAX, which finds them by itself", hint=hint)
    check_choice(name, value, get_args(DeviceKind))


def _check_environment(name: str, value: Any) -> None:
    check_type(name, value, Mapping, 'a table, for example {OMP_NUM_THREADS = "1"}')
    for key, text in value.items():
        check_environment_name(name, key)
        if not isinstance(text, str):
            example = str(text) if len(repr(text)) <= MAX_SHOWN else "text"
            hint = f'write {key} = "{example}"'
            raise SpecError(f"env {key} must be text, got {shown(text)}", hint=hint)
        check_process_text(f"env {key}", text)


def _check_json_table(name: str, value: Any) -> None:
    check_type(name, value, Mapping, "a table, for example {dropout = 0.0}")
    for key, item in value.items():
        try:
            json.dumps(item, allow_nan=False)
        except (TypeError, ValueError):
            hint = "write a number, text in quotes, true, false, a list or a table"
            raise SpecError(f"options cannot hold {key} = {item}", hint=hint) from None


MAX_JPEG_SIDE = 65_535
"""Pixels of the longest side that the JPEG format allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """All settings of one training run; equal specs are the same run, and have the same ``id``.

    A run trains a workload (a model by name, with its data) or starts a user's program.
    """

    topology: Topology
    batch: int | None = _of_workload(None, _at_least(1))
    """Samples per micro-step on one data-parallel replica; a program's batch is observed."""
    workload: str | None = _of_workload(None, _check_text)
    """The name of a model with its data and loss; the fake framework needs none."""
    program: tuple[str, ...] | None = None
    """The arguments that start a user's own script, instead of a workload."""
    digest: str | None = _of_program(None)
    """The hash of the script's file, so that an edited script is a different run."""
    stop_after: int | None = _of_program(None, _at_least(1))
    """Stop all ranks of a program after this many optimizer steps."""
    samples_per_step: int | None = _of_program(None, _at_least(1))
    """Samples of one rank in one optimizer step of a program whose batch cannot be observed."""
    trace: int = _of_program(0, _at_least(0))
    """Steps of a program to record with the framework's profiler; 0: none."""
    loaders_alone: bool = _of_program(False, _check_flag)
    """Whether a program's data loader is also timed without training, afterwards."""
    framework: str = _setting("torch", _check_text)
    strategy: str = _of_workload(default_strategy("torch"), _check_text)
    parallelism: Parallelism = field(default_factory=Parallelism, metadata={"only": "workload"})
    pipeline_schedule: PipelineSchedule = _of_workload("1f1b", _one_of(PipelineSchedule))
    """The order of forward and backward passes; interleaved: each device has two stages."""
    micro_batches: int | None = _of_workload(None, _at_least(1))
    """Micro-batches of a pipeline; None: chosen by ``pipeline_micro_batches``."""
    data: str | None = _of_workload(None, _check_text)
    """A folder, ``synthetic:SAMPLES``, or None for the embedded data set."""
    edge: int | None = _of_workload(None, _at_least(1, maximum=MAX_JPEG_SIDE, example=224))
    """Pixels of a side of resized images; None: 224 for image files, else the data set's own."""
    augment: Augment = _of_workload("none", _one_of(Augment))
    """Random changes to training images; flip: mirror; crop: cut out a part and mirror it."""
    broken: Broken = _of_workload("skip", _one_of(Broken))
    """Treatment of unreadable image files; skip: leave out with a warning; refuse: end the run."""
    length: int | None = _of_workload(None, _at_least(1))
    """Tokens per sample, if the data are a text or a token file; None: 64."""
    workers: int = _of_workload(0, _at_least(0))
    """Processes per rank that load data; 0 loads inside the rank itself."""
    threads: int = _setting(1, _at_least(1))
    """CPU threads per rank."""
    device: DeviceKind | None = _of_workload(None, _check_device_kind)
    """The kind of device to compute on; None: an accelerator, or the CPU if there is none."""
    backend: Backend | None = _of_workload(None, _one_of(Backend))
    """The communication library; auto or None: the one that fits the device."""
    remainder: Remainder = _of_workload("drop", _one_of(Remainder))
    """What to do with an incomplete last global batch of an epoch; drop: leave it out, unless it is
    the only one; pad: fill it up with samples of the same epoch; short: train on it as it is.
    """
    optimizer: Optimizer = _of_workload("sgd", _one_of(Optimizer))
    optimizer_step: OptimizerStep = _of_workload("auto", _one_of(OptimizerStep))
    """How parameters are updated; loop: one after another; foreach: many per kernel; fused: with
    all arithmetic in one kernel; auto: the framework decides.
    """
    lr: float = _of_workload(0.01, _above_zero(0.01))
    lr_rule: LrRule = _of_workload("none", _one_of(LrRule))
    """Multiply ``lr``; linear: by global batch / ``base_batch``; sqrt: by the root of that."""
    base_batch: int | None = _of_workload(None, _at_least(1))
    """The global batch that ``lr`` was tuned for."""
    warmup_steps: int = _of_workload(0, _at_least(0))
    warmup_epochs: float = _of_workload(0.0)
    """How long the learning rate warms up, in optimizer steps or in epochs."""
    schedule: Schedule = _of_workload("constant", _one_of(Schedule))
    """The learning rate after the warm-up; cosine, linear: it falls to 0 at the last step."""
    clip: float | None = _of_workload(None, _above_zero(1.0))
    """If the norm of all gradients together exceeds this, they are scaled down to it."""
    noise_every: int = _of_workload(0, _at_least(0))
    """Steps between two estimates of the gradient noise; 0: no estimates."""
    accumulate: int = _of_workload(1, _at_least(1))
    """Micro-steps per optimizer step."""
    precision: Precision = _of_workload("fp32", _one_of(Precision))
    compile: bool | Literal["blocks", "graphs"] = _of_workload(False, _check_compile_mode)
    """What torch.compile compiles; true: the whole model; blocks: each repeated block, in less
    time; graphs: the whole model, replayed as CUDA graphs with fewer kernel launches.
    """
    recompute: Recompute = _of_workload("none", _one_of(Recompute))
    """Activation checkpointing of blocks; full: recompute everything in the backward pass;
    selective: keep the results of costly operations, recompute the others.
    """
    ema: float | None = _of_workload(None, _above_zero(0.999))
    """Decay of a moving average of the weights, which is validated and saved; None: no average."""
    sync_batchnorm: bool = _of_workload(False, _check_flag)
    """Whether batch normalization uses the batches of all replicas together."""
    epochs: int | None = _of_workload(None, _at_least(1))
    steps: int | None = _of_workload(None, _at_least(1))
    """Optimizer steps in total, warm-up included."""
    samples: int | None = _of_workload(None, _at_least(1))
    """Samples per device in total, rounded up to whole steps."""
    validate_every: int = _of_workload(1, _at_least(1))
    """Epochs between two validations; the last epoch is always followed by one."""
    save: bool = _of_workload(False, _check_flag)
    """Keep the trained weights in the run folder."""
    checkpoint_every: int | None = _of_workload(None, _at_least(1))
    """Optimizer steps between checkpoints; the last step has one too. None: no checkpoints."""
    checkpoint_keep: int = _of_workload(2, _at_least(1))
    """How many of the newest checkpoints are kept."""
    resume: str | None = _of_workload(None, _check_text)
    """Folder of a run (its last checkpoint is loaded), or of one checkpoint."""
    seed: int = _setting(0, _at_least(0))
    repeat: int = _setting(0, _at_least(0))
    """Which repetition this is; it trains from ``seed + repeat``."""
    certify: bool = _setting(False, _check_flag)
    """Whether this is a run of a certificate: its seed and order of samples are known, dropout is
    off, and sketches of its gradients and updates are recorded.
    """
    certify_order: CertifyOrder = _setting("usual", _one_of(CertifyOrder))
    """The order of samples inside each global batch of a certificate's run."""
    launcher: str = _setting("local", _check_text)
    start: Start | None = _setting(None, _one_of(Start))
    """What starts the processes.

    torchrun, srun, mpirun, horovodrun: this tool starts one process per device
    plain: the launcher starts one process per device in its own way
    node: one process per node, which uses all its devices
    direct: one process in total
    command: the program's own command, once per node
    None: the default of the strategy, the first of ``StrategyTraits.starts``
    """
    env: Mapping[str, str] = field(default_factory=dict, metadata={"check": _check_environment})
    """Environment variables of every rank."""
    options: Mapping[str, Any] = field(
        default_factory=dict, metadata={"check": _check_json_table, "only": "workload"}
    )
    """Settings that only this framework, strategy or workload has."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value, check = getattr(self, item.name), item.metadata.get("check")
            if check and not (value is None and item.default is None):
                check(item.name, value)
        # Beside its own steps a trace needs three: the run's first, a profiler warm-up, a last one.
        if self.trace and self.stop_after is not None and self.stop_after < self.trace + 3:
            raise SpecError(
                f"stop_after {self.stop_after} leaves no room for trace {self.trace}",
                hint=f"for example stop_after {self.trace + 20}: the profiler warms up first",
            )
        if self.certify_order != "usual" and not self.certify:
            hint = "write certify = true too, or leave certify_order out"
            raise SpecError(f"certify_order = {shown(self.certify_order)} needs certify", hint=hint)
        self._check_learning()
        if self.program is not None:
            self._check_program()
        else:
            self._check_training()
        object.__setattr__(self, "lr", float(self.lr))
        if self.backend == "auto":
            object.__setattr__(self, "backend", None)
        # A workload's id is the same whether its default start is written or left out.
        if self.start == self.traits.starts[0] and not self.program:
            object.__setattr__(self, "start", None)
        self.degrees.replicas(self.topology.world)  # Refuses degrees that do not fit.

    def _check_training(self) -> None:
        """Refuse a workload's run unless it has a batch, one length and no field of a program."""
        if self.batch is None:
            raise SpecError("a run needs a batch", hint="for example batch = 64")
        lengths = [name for name in ("epochs", "steps", "samples") if getattr(self, name)]
        if len(lengths) != 1:
            got = f"got {' and '.join(lengths)}" if lengths else "got none"
            raise SpecError(
                f"a run needs exactly one of epochs, steps and samples, {got}",
                hint="for example epochs = 3",
            )
        if name := self._first_set_field("program"):
            raise SpecError(f"{name} is for a program, and this run has none", hint="leave it out")
        if self.start == "command":
            raise SpecError(
                'start = "command" is for a program, and this run has none', hint="leave start out"
            )

    def _check_learning(self) -> None:
        """Refuse lr_rule without base_batch, two warm-up lengths, and an EMA that never changes."""
        if self.ema is not None and self.ema >= 1:
            raise SpecError(f"ema must be below 1, got {self.ema}", hint="for example 0.999")
        if (self.lr_rule == "none") != (self.base_batch is None):
            raise SpecError(
                f"lr_rule = {shown(self.lr_rule)} with base_batch = {shown(self.base_batch)}",
                hint="give both or neither; base_batch is the global batch that lr was tuned for",
            )
        if self.warmup_epochs:
            check_positive("warmup_epochs", self.warmup_epochs, example=5)
            if self.warmup_steps:
                raise SpecError(
                    "a warm-up has one length, and this run has warmup_steps and warmup_epochs",
                    hint="leave one of them out",
                )

    def _check_program(self) -> None:
        """Refuse a program without arguments, and fields that the program sets itself."""
        args = self.program
        is_list = isinstance(args, Sequence) and not isinstance(args, str)
        is_texts = is_list and all(isinstance(arg, str) for arg in args or ())
        if not is_texts or not args or not args[0]:  # A later argument may be empty: --resume ''.
            hint = 'for example program = ["train.py", "--epochs", "3"]'
            raise SpecError(f"program must be a list of texts, got {shown(args)}", hint=hint)
        for arg in args:
            check_process_text("a program's argument", arg)
        object.__setattr__(self, "program", tuple(args))
        if name := self._first_set_field("workload"):
            raise SpecError(
                f"{name} cannot be set for a program: the program sets it itself",
                hint=f"leave {name} out, or give it in the program's own arguments",
            )

    def _first_set_field(self, kind: Literal["workload", "program"]) -> str:
        """Return the first field that is set and that only this kind of run may set; else empty."""
        candidates = (item for item in fields(self) if item.metadata.get("only") == kind)
        return next((i.name for i in candidates if getattr(self, i.name) != _default(i)), "")

    @property
    def traits(self) -> StrategyTraits:
        """What the run's strategy declares about itself."""
        return traits_of(self.framework, self.strategy)

    @property
    def degrees(self) -> Parallelism:
        """How one model is split; unset degrees come from the strategy."""
        return self.parallelism.filled(self.traits, self.topology)

    @property
    def rounds(self) -> int:
        """Pipeline stages of each device, which is how often a micro-batch visits the device."""
        return 2 if self.pipeline_schedule == "interleaved" else 1

    @property
    def pipeline_micro_batches(self) -> int:
        """Into how many micro-batches a pipeline splits the batch of one micro-step."""
        assert self.batch is not None
        stages = self.degrees.pipeline
        # Unless set: of the batch's divisors up to 4 x stages, take the largest multiple of
        # ``stages``; if none of them is a multiple, take the largest divisor.
        divisors = [n for n in range(1, min(self.batch, 4 * stages) + 1) if self.batch % n == 0]
        multiples = [n for n in divisors if n % stages == 0]
        return self.micro_batches or (multiples or divisors)[-1]

    @property
    def bubble(self) -> float | None:
        """The share of a step in which a pipeline fills and drains, in theory; else None."""
        stages = self.degrees.pipeline
        if stages == 1 or self.batch is None:
            return None
        return (stages - 1) / (self.rounds * self.pipeline_micro_batches + stages - 1)

    @property
    def replicas(self) -> int:
        """The number of data-parallel replicas."""
        return self.degrees.replicas(self.topology.world)

    @property
    def global_batch(self) -> int:
        """Samples per optimizer step, over all replicas."""
        assert self.batch is not None  # Not for a program: its batch is observed, not set.
        return self.batch * self.accumulate * self.replicas

    def validates(self, epoch: int) -> bool:
        """Return whether an epoch, counted from 0, is followed by a validation."""
        return (epoch + 1) % self.validate_every == 0 or epoch + 1 == (self.epochs or 1)

    @property
    def lr_factor(self) -> float:
        """The factor by which ``lr_rule`` multiplies ``lr`` at this global batch.

        >>> run = {"topology": "1x4", "batch": 64, "epochs": 1, "workload": "mlp"}
        >>> RunSpec.from_dict({**run, "lr_rule": "sqrt", "base_batch": 64}).lr_factor
        2.0
        """
        if self.base_batch is None:
            return 1.0
        growth = self.global_batch / self.base_batch
        return float(growth if self.lr_rule == "linear" else growth**0.5)

    @property
    def total_steps(self) -> int | None:
        """Optimizer steps in total, derived from ``samples`` if set; None if ``epochs`` is set."""
        if self.samples and self.batch:
            return -(-self.samples // (self.batch * self.accumulate))  # Rounded up.
        return self.steps

    @property
    def title(self) -> str:
        """The run's name in messages."""
        return f"run {self.id} ({self.label})"

    @property
    def label(self) -> str:
        """What is trained and where, for a short line."""
        args = self.program or (self.workload or self.framework,)
        name = args[1] if args[0] == "-m" else args[0].rpartition("/")[2]
        items = [item for item in fields(self) if item.name in _TITLE_FIELDS]
        values = [(getattr(self, item.name), _default(item)) for item in items]
        settings = [value for value, default in values if value not in (default, name)]
        settings += [f"{key}={value}" for key, value in self.env.items()]
        suffix = "".join(f", {setting}" for setting in settings)
        return f"{name} on {self.topology}{suffix}, repeat {self.repeat + 1}"

    @property
    def started_by(self) -> Start:
        """``start``, or the default of the strategy."""
        return self.start or self.traits.starts[0]

    @property
    def ranks(self) -> int:
        """The number of ranks: one per device, or one per node if ``started_by`` is node."""
        return self.topology.nodes if self.started_by == "node" else self.topology.world

    @property
    def id(self) -> str:
        """A hash of the fields that are not at their default, so a new field changes no old id."""
        canonical = json.dumps(self.changed_values(), sort_keys=True, separators=(",", ":"))
        return blake2b(canonical.encode(), digest_size=6).hexdigest()

    def changed_values(self) -> dict[str, Any]:
        """Return the fields that are not at their default, as plain JSON values."""
        values = self.to_dict()
        return {
            item.name: values[item.name]
            for item in fields(self)
            if getattr(self, item.name) != _default(item)
        }

    def __hash__(self) -> int:
        return hash(self.id)

    def to_dict(self) -> dict[str, Any]:
        """Return every field as plain JSON values."""
        return {**asdict(self), "topology": str(self.topology)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RunSpec":
        """Build a spec from JSON or TOML values; refuse unknown keys."""
        values = dict(data)
        refuse_unknown_keys("run", values, RUN_KEYS)
        if "topology" not in values:
            raise SpecError("a run needs a topology", hint='for example topology = "1x2"')
        values["topology"] = Topology.parse(values["topology"])
        _split_strategy(values)
        if not values.get("program"):
            values.setdefault("strategy", default_strategy(values.get("framework", "torch")))
        values["parallelism"] = Parallelism.parse(values.get("parallelism", {}))
        if isinstance(args := values.get("program"), list):
            values["program"] = tuple(args)
        if args is None and ("batch" in values) == ("global_batch" in values):
            hint = "batch is per replica, global_batch is over all of them"
            raise SpecError("a run needs exactly one of batch and global_batch", hint=hint)
        if "global_batch" in values:
            values["batch"] = _take_replica_batch(values)
        return cls(**values)


def _split_strategy(values: dict[str, Any]) -> None:
    """Split a strategy such as ``tensorflow.mirrored`` into framework and strategy, in place."""
    framework, dot, strategy = str(values.get("strategy", "")).partition(".")
    if not dot:
        return
    if values.setdefault("framework", framework) != framework:
        raise SpecError(
            f"strategy {shown(values['strategy'])} is not one of framework "
            f"{shown(values['framework'])}",
            hint="leave framework out: the strategy names it",
        )
    values["strategy"] = strategy


def _take_replica_batch(values: dict[str, Any]) -> int:
    """Remove ``global_batch`` from ``values`` and return the batch of one replica."""
    global_batch: int = values.pop("global_batch")
    check_integer("global_batch", global_batch, minimum=1)
    accumulate = values.get("accumulate", 1)
    check_integer("accumulate", accumulate, minimum=1)
    framework = values.get("framework", "torch")
    check_type("framework", framework, str, "text")
    strategy = values.get("strategy", default_strategy(framework))
    check_type("strategy", strategy, str, "text")
    degrees = values["parallelism"].filled(traits_of(framework, strategy), values["topology"])
    replicas = degrees.replicas(values["topology"].world)
    batch, remainder = divmod(global_batch, int(replicas * accumulate))
    if remainder or not batch:
        parts = f"{replicas} replicas" + (f" x {accumulate} micro-steps" if accumulate > 1 else "")
        raise SpecError(
            f"global_batch {global_batch} does not divide over {parts} ({values['topology']})",
            hint=f"for example global_batch = {max(batch, 1) * replicas * accumulate}",
        )
    return batch


_TITLE_FIELDS = ("framework", "strategy", "start", "device", "precision")
"""Fields that a run's title shows if they are not at their default."""
RUN_KEYS = [item.name for item in fields(RunSpec)] + ["global_batch"]


def _default(item: Any) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()
