"""The run folder as types: what ranks, launchers and samplers write, and what readers get."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, Literal, TypeVar

Value = TypeVar("Value")


def key(name: str, default: Any = None, *, kind: type | None = None) -> Any:
    """Declare a field whose key in the file is ``name``; ``kind`` is the dataclass of its value."""
    return field(default=default, metadata={"key": name, "kind": kind})


def from_json(kind: type[Value], values: Mapping[str, Any]) -> Value:
    """Return ``values`` as a ``kind``. Unknown keys are ignored; absent fields get their default.

    >>> from_json(Stall, {"seconds": 10.0, "span": "train", "steps": 3, "laps": 1, "new": 0})
    Stall(seconds=10.0, span='train', steps=3, laps=1)
    """
    declared = _fields(kind)  # type: ignore[arg-type]  # A class is hashable.
    absent = dict.fromkeys(name for name, key, _, bare in declared if bare and key not in values)
    return kind(**absent, **arguments(kind, values))


def arguments(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields of a ``kind`` that ``values`` has, each as the type of the field."""
    found: dict[str, Any] = {}
    for name, json_key, nested, _ in _fields(kind):
        if json_key in values:
            value = values[json_key]
            if nested and isinstance(value, list):
                value = tuple(from_json(nested, part) for part in value)
            elif nested and value is not None:
                value = from_json(nested, value)
            found[name] = value
    return found


@cache
def _fields(kind: Any) -> tuple[tuple[str, str, type | None, bool], ...]:
    """Return each field of a dataclass: its name, key, nested dataclass, and whether it has no
    default.
    """
    return tuple(
        (
            item.name,
            item.metadata.get("key", item.name),
            item.metadata.get("kind"),
            item.default is MISSING and item.default_factory is MISSING,
        )
        for item in fields(kind)
    )


@dataclass(frozen=True, slots=True)
class Outline:
    """The planned work of a rank; its keys in the file are the names of these fields."""

    epochs: int | None
    """Passes over the data; None if the run has a number of steps instead."""
    steps: int
    """Optimizer steps per epoch, or in total."""
    samples: int | None
    """Training samples in the data set; None for a user's program."""
    seen: int
    """Samples that this rank trains on per epoch, or in total if ``epochs`` is None."""
    together: int | None = None
    """The sum of ``seen`` over ranks. If None, ``seen`` is assumed to be equal on all ranks."""
    unit: str = "samples"
    parameters: int | None = None
    flops: int | None = None
    """FLOP of forward and backward for one sample; rank 0 counts them, if possible."""
    uncounted: str = ""
    """Why rank 0 could not count ``flops``."""
    validation: int = 0
    """Validation samples in the data set."""
    rates: str = ""
    """The learning-rate schedule, in words."""


@dataclass(frozen=True, slots=True)
class Quality:
    """How well the model does on the validation data, over all ranks."""

    accuracy: float
    loss: float
    samples: int


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes that a rank holds of the model's state after the first step."""

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a rank sent and received in one early step."""

    step: int | None = None
    exchanged: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By kind of collective: its ``calls``, ``bytes`` of payload, and bytes ``sent``."""


@dataclass(frozen=True, slots=True)
class Compression:
    """How gradients were compressed for their exchange."""

    kind: str
    sent_bytes: float = key("sent")
    gradient_bytes: float = key("whole")
    relative_error: float | None = key("error")


@dataclass(frozen=True, slots=True)
class GradientNoise:
    """The gradient noise scale (a critical batch size), in samples, with its interval."""

    scale: float | None = None
    low: float | None = None
    high: float | None = None
    estimates: int = 0


@dataclass(frozen=True, slots=True)
class LoaderTiming:
    """A program's data loader, and how fast it loads without training beside it."""

    workers: int = 0
    batch: int | None = None
    batches: int = 0
    """How many batches were loaded for the measurement."""
    rate: float | None = None
    """Samples per second of one rank's loader."""


@dataclass(frozen=True, slots=True)
class WeightSample:
    """For each sampled parameter, the sum of its first elements after a step."""

    step: int
    sums: Sequence[float] = ()
    absolute_sums: Sequence[float] = key("sizes", default=())


@dataclass(frozen=True, slots=True)
class WeightSamples:
    """A fingerprint of a rank's weights, to compare ranks."""

    shapes: str
    """A digest of the parameters' shapes."""
    samples: tuple[WeightSample, ...] = key("seen", default=(), kind=WeightSample)
    averaged: tuple[WeightSample, ...] = key("averaged", default=(), kind=WeightSample)
    """After exchanges between two steps; ``step`` is the number of the exchange."""


@dataclass(frozen=True, slots=True)
class HostWaits:
    """How often a program waited for its accelerator in some early steps."""

    first_step: int = key("from", default=0)
    last_step: int = key("to", default=0)
    count: int = 0
    line: str | None = key("where")
    """The line that waited most often, as ``train.py:12``."""


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """A batch as a program's loader returns it, where the model is on an accelerator."""

    bytes: int = 0
    pageable: bool = False
    """Whether the batch is in host memory that is not pinned."""


@dataclass(frozen=True, slots=True)
class SamplerEpochs:
    """Passes over the data with a shuffling DistributedSampler."""

    passes: int = key("count", default=0)
    orders: int = key("epochs", default=0)
    """How many different values of ``set_epoch``, and so orders of the data, were used."""


@dataclass(frozen=True, slots=True)
class UnusedParameters:
    """Parameters that got no gradient, of DDP models with ``find_unused_parameters``."""

    count: int = key("unused", default=0)


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """What was observed in a user's program beside its times; None means unknown."""

    rank: int | None = None
    backend: str | None = None
    optimizer: str | None = None
    manual_updates: bool = key("by_hand", default=False)
    """Whether weights are updated without an optimizer of PyTorch."""
    first_rate: float | None = key("rate")
    """The learning rate that the first optimizer was created with."""
    highest_rate: float | None = None
    parameters: int = 0
    """Trained parameters that this rank holds."""
    dtype: str | None = None
    """The data type of the first trained parameter."""
    data_parallel: bool = False
    sharded: bool = False
    split: bool = False
    """Whether each rank computes a part of the model, so that ranks must read equal samples."""
    sequence_first: bool = False
    """Whether the first dimension of the model's input may be a sequence, not the batch."""
    autocast: bool = False
    compiled: bool | None = None
    exchanged: bool | None = None
    """Whether gradients or weights were averaged over ranks."""
    batch_digests: Sequence[str | None] | None = key("samples")
    """Digests of the first batches; None for a batch that cannot show whether ranks share data."""
    has_loader: bool = key("loads", default=False)
    """Whether the batches came from a DataLoader."""
    epoch_samples: int | None = None
    """Samples of this rank in an epoch of its training's loader."""
    adds_calls: bool = False
    """Whether, without a loader, several calls of a model before one backward were each counted as
    new samples: wrong if they share a batch, as two views of the same images do.
    """
    rows_unclear: bool = False
    """Whether, without a loader, only some inputs of a model showed how many rows they have."""
    rows_of_one: int = 1
    """Rows that a collate function makes of one drawn sample, if a batch has no other sample; 0 if
    unknown.
    """
    workers: int | None = None
    """Worker processes of the training's loader."""
    loaded_batch: LoadedBatch | None = key("handed", kind=LoadedBatch)
    sampler_epochs: SamplerEpochs | None = key("passes", kind=SamplerEpochs)
    emptied_caches: int | None = key("emptied")
    """Calls of ``torch.cuda.empty_cache``."""
    host_waits: HostWaits | None = key("waits", kind=HostWaits)
    unused_parameters: UnusedParameters | None = key("searched", kind=UnusedParameters)
    weights: WeightSamples | None = key("weights", kind=WeightSamples)
    cores: int | None = None
    core_set: str | None = key("which_cores")
    """A digest of the numbers of the usable cores; ranks with equal digests share cores."""
    accelerator: str | None = None
    """The device's UUID, or another text that identifies the device on its host."""
    capability: Sequence[int] | None = None
    """The device's compute capability: major and minor."""
    matmul_precision: str | None = key("matmul")
    """The result of ``torch.get_float32_matmul_precision``."""
    tf32: bool | None = None
    missing: Sequence[str] = ()
    """Facts that could not be determined, with the error."""


SketchKind = Literal["weight", "gradient", "update", "buffer", "output"]


@dataclass(frozen=True, slots=True)
class LayerSketch:
    """A few numbers that stand for one named parameter, its gradient, its update or a buffer.

    Sketches are linear in the vector: those of the shards of a layer add up to that of the layer.
    """

    sums: tuple[float, ...]
    """Sums of some elements of the vector, each with a sign that depends on the layer's name, the
    element's index in the unsharded tensor and the position of the sum in this tuple.
    """
    squares: float
    """The sum of the squares of these elements."""
    part: Literal["whole", "shard"] = "whole"
    """``shard`` if this rank holds only a part of the layer."""
    shard: tuple[int, int] | None = None
    """Which shard this is, and of how many; several ranks may hold the same one."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """Sketches of all layers that a rank holds, at one step."""

    step: int
    """The optimizer step, counted from 0."""
    kind: SketchKind
    """weight: before the update, of step 0 and of steps right after a sketched one; gradient: as
    the optimizer gets it; update: weight after minus weight before the step; buffer: after the
    step; output: of each layer in step 0, added up over samples and tokens.
    """
    layers: Mapping[str, LayerSketch]
    """By the parameter's name in the model, without the names of wrappers such as DDP; of outputs,
    by the layer's name and its features: ``fc1 48``.
    """
    length: float | None = None
    """Of gradients: the length of the vector of all their elements, also of those that the sketches
    leave out; None if they are sharded.
    """

    @classmethod
    def from_line(cls, values: Mapping[str, Any]) -> "Sketch":
        """Return the value of a line's key ``sketch``."""
        layers = {}
        for name, layer in values["layers"].items():
            shard = layer.get("shard")
            layers[name] = LayerSketch(
                sums=tuple(layer["sums"]),
                squares=layer["squares"],
                part=layer.get("part", "whole"),
                shard=(shard[0], shard[1]) if shard else None,
            )
        return cls(values["step"], values["kind"], layers, values.get("length"))


@dataclass(frozen=True, slots=True)
class SketchSamples:
    """The samples that a rank used in one sketched step."""

    step: int
    count: int
    fingerprints: Sequence[str] = ()
    """A hash of each sample, sorted; equal samples have equal hashes on all ranks and runs."""
    micro_steps: int | None = None
    """Batches that were accumulated in the step."""
    replica: int | None = None
    """The data-parallel replica: ranks of one replica use the same samples. None if unknown."""
    targets: Sequence[int] = ()
    """By micro-step: the targets of the cross-entropy that are not ignored, as padding is; empty if
    unknown.
    """
    rows: int | None = None
    """Rows of the models' inputs in all training calls of the step; None if unknown."""
    unreduced: int = 0
    """Parameters whose newest gradient FSDP has not reduced over ranks when the optimizer steps."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """The conditions under which a rank of a certificate's run trained; None means unknown."""

    seed: int = 0
    order: Literal["usual", "reversed"] = "usual"
    """The order of samples inside a global batch that the rank could arrange."""
    dropout_off: int = 0
    """Layers whose dropout was switched off."""
    layers: int = 0
    """Sketched parameters."""
    batch_norm: Sequence[str] = ()
    """Names of batch normalization layers that use only the samples of their own rank."""
    unsupported: str | None = None
    """Why there are no sketches, or only some."""
    precision: str | None = None
    """The data type of matrix products: that of autocast, else that of the parameters."""
    world: int | None = None
    """The number of ranks."""
    sampler: str | None = None
    """The class of the sampler whose order was set."""
    sampler_seed: int | None = None
    """The seed that the sampler would have used: equal on all ranks, or ranks order differently."""
    epoch_steps: int | None = None
    """Batches of this rank in an epoch of its loader."""
    not_updated: Sequence[str] = ()
    """Layers with a gradient that belong to no optimizer and keep their weights."""


@dataclass(frozen=True, slots=True)
class StepLedger:
    """The recorded steps of a program, and the updates of weights that were counted apart."""

    recorded: int = 0
    updates: int | None = None
    """Rounds of optimizer steps, and updates by hand; None if no update can be seen."""
    optimizers: int = 0
    calls: int = 0
    """Steps of all optimizers."""
    own_batches: int = 0
    """Those of lasting optimizers that a loader gave a batch for, since the optimizer step before.
    """
    scaler_calls: int = key("scaled", default=0)
    """Steps of gradient scalers, of which some skip the optimizer's."""
    manual: int = key("by_hand", default=0)
    """Changes of weights that no optimizer made."""


@dataclass(frozen=True, slots=True)
class SampleLedger:
    """The samples of all recorded steps, and what the loaders gave."""

    credited: int = 0
    least: int = 0
    """What loaders gave for training, at least."""
    most: int = 0
    """What all loaders gave, at most."""
    skipped: int = 0
    """Of these, what the program threw away, such as a batch whose loss is not finite."""
    batches: int = 0
    """Batches for training; ``passes``: iterators over loaders for training."""
    passes: int = 0
    steps_since_fetch: int = 0
    """Optimizer steps after the last batch of a loader."""
    first: int = 0
    """Samples of the first step; ``later``: the most of any later step."""
    later: int = 0


@dataclass(frozen=True, slots=True)
class TimeLedger:
    """The seconds of a rank from its launch to its end, and those of its spans, by name."""

    life: float = 0.0
    spans: Mapping[str, float] = field(default_factory=dict)
    pauses: int = 0
    """Validations and checkpoints between steps."""


@dataclass(frozen=True, slots=True)
class Ledgers:
    """Numbers of a program that must agree, counted in two ways; None if they were not counted."""

    steps: StepLedger | None = key("steps", kind=StepLedger)
    samples: SampleLedger | None = key("samples", kind=SampleLedger)
    time: TimeLedger | None = key("time", kind=TimeLedger)
    threads: int = 1
    """Threads that train at the same time."""


@dataclass(frozen=True, slots=True)
class SkippedFiles:
    """Files of a data set that a rank could not read."""

    count: int
    paths: tuple[str, ...] = ()


def skipped_sentence(by_rank: Iterable[SkippedFiles | None]) -> str:
    """Return how many files the ranks of a run skipped, each counted once; empty if none.

    >>> skipped_sentence([SkippedFiles(2, ("a", "b")), None, SkippedFiles(1, ("a",))])
    'left out: 2 images that cannot be read, the first is a'
    """
    skipped = [files for files in by_rank if files]
    paths = sorted({path for files in skipped for path in files.paths})
    if not paths:
        return ""
    count = max(len(paths), *(files.count for files in skipped))
    if count == 1:
        return f"left out: 1 image that cannot be read, {paths[0]}"
    all_named = all(files.count == len(files.paths) for files in skipped)
    several = f"{count:,}" if all_named else f"at least {count:,}"
    return f"left out: {several} images that cannot be read, the first is {paths[0]}"


@dataclass(frozen=True, slots=True)
class Stall:
    """The position of a rank that has made no progress for ``seconds``."""

    seconds: float
    span: str | None
    steps: int
    """Complete steps done."""
    laps: int = 0
    """Phases done in the current step."""


@dataclass(frozen=True, slots=True)
class DiskTrouble:
    """What kept a rank from writing its lines; all of them are in its file nevertheless."""

    error: str | None = None
    """Why the disk refused lines, as the system says it, the last time."""
    refused: float = 0.0
    """Seconds in which it refused them, in total."""
    blocked: float = 0.0
    """Seconds that single writes took which took longer than a second, in total."""


@dataclass(frozen=True, slots=True)
class RankNotes:
    """The newest value of everything that a rank notes beside its steps and spans."""

    host: str | None = None
    pid: int | None = None
    device: str | None = None
    backend: str | None = None
    threads: int | None = None
    starter: str | None = key("started")
    """The program that started the ranks: torchrun, srun, mpirun …"""
    simulated: bool = False
    """Whether times are those of a simulated clock."""
    compiled_graphs: Mapping[str, int] | None = key("compiled")
    """How many graphs were in the study's cache (``found``), and how many compiled (``made``)."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    watched: bool = key("guest", default=False)
    """Whether this is a rank of a user's program."""
    outline: Outline | None = key("outline", kind=Outline)
    resumed: int | None = None
    """Optimizer steps that the checkpoint had done from which this attempt resumed."""
    damaged: tuple[str, ...] = ()
    """A sentence for each damaged checkpoint that was skipped."""
    steps: tuple[int, int] | None = None
    """The steps of the last line that has steps: the first, and the number after the last."""
    planned_steps: int | None = key("of")
    span: str | None = None
    """The span that ended last."""
    loss: float | None = None
    """Mean training loss of the newest epoch."""
    validation: Quality | None = key("validation", kind=Quality)
    facts: ProgramFacts = key("facts", default=ProgramFacts(), kind=ProgramFacts)
    """Input of the guards, the checks of a user's program; see docs/guides/guards.md."""
    ledgers: Ledgers | None = key("ledgers", kind=Ledgers)
    loader: LoaderTiming | None = key("loader", kind=LoaderTiming)
    skipped_files: SkippedFiles | None = key("left_out", kind=SkippedFiles)
    peak_memory: int | None = key("memory")
    state_bytes: StateBytes | None = key("held", kind=StateBytes)
    compression: Compression | None = key("compression", kind=Compression)
    gradient_noise: GradientNoise | None = key("noise", kind=GradientNoise)
    gradient_arrivals: tuple[tuple[float, float], ...] | None = key("arrivals")
    """Bytes of each gradient, and the share of the backward pass after which it was ready."""
    traffic: Traffic | None = key("traffic", kind=Traffic)
    certificate: CertificateFacts | None = key("certificate", kind=CertificateFacts)
    """Only of a run with ``certify``."""
    unwatched: str | None = None
    """Why watching stopped."""
    untraced: str | None = None
    """Why there is no trace."""
    trains_alone: bool = key("alone", default=False)
    """Whether each process of a program trains a separate model."""
    failed: str | None = None
    """The error that the rank itself reported."""
    stall: Stall | None = key("stalled", kind=Stall)
    disk: DiskTrouble | None = key("disk", kind=DiskTrouble)
    clock_set: tuple[float, ...] = ()
    """By how many seconds the host's wall clock was set while the rank ran, each time."""

    @classmethod
    def from_lines(cls, newest_first: Iterable[Mapping[str, Any]]) -> "RankNotes":
        """Return the newest value of each key in a rank's lines."""
        newest: dict[str, Any] = {}
        for line in newest_first:
            for name, value in line.items():
                newest.setdefault(name, value)
        return from_json(cls, newest)


@dataclass(frozen=True, slots=True)
class RankEnd:
    """The last line of a rank that ended without an error."""

    ended: float | None = None
    """When this rank ended."""
    left_after_step: int | None = key("left")
    """The step after which the rank stopped with a checkpoint, because a stop was requested."""
    launched: float | None = None
    """When the job was launched; for a requeued job, its first launch."""
    simulated: bool = False
    lost_ranks: tuple[int, ...] = key("lost", default=())
    """Ranks of an elastic run that failed while the others continued."""
    watched: bool = key("guest", default=False)
    world: int = 0
    """Ranks that a program started."""
    devices: int | None = None
    """Devices that a program used."""
    requested_devices: int | None = key("asked")
    steps: int = key("taken", default=0)
    """Steps that were observed in a program."""
    trains_alone: bool = key("alone", default=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """outcome.json: the attempt that succeeded."""

    attempt: int
    started: float
    ended: float
    ranks: int
    lost_ranks: tuple[int, ...] = key("lost", default=())
    later_processes: int = key("later", default=0)
    """Processes that began to train as a rank after the first one had ended; not recorded."""


@dataclass(frozen=True, slots=True)
class Failure:
    """failure-<n>.json: why attempt n failed."""

    attempt: int
    cause: str
    rank: int | None
    host: str | None
    closed: float
    """When this file was written."""
    started: float | None
    """When the attempt was launched."""
    ended: float | None
    """When the last process ended; if that was not observed, when a process last wrote a file."""


Recurrence = Literal["once", "every epoch", "every step", "never"]


@dataclass(frozen=True, slots=True)
class SpanKind:
    """A kind of span: one part of a job's time from launch to end."""

    name: str
    meaning: str
    color: str
    """The color in plots of a job's time from launch to end."""
    recurs: Recurrence
    """How often the span occurs in a full run; ``never`` if only a measured run has it."""
    lost_to: str | None
    """A receipt lists bought, useful and lost device-hours. It counts this span as lost under this
    JSON key, such as ``looking`` for time that only the measurement needs. None for training.
    """
    precedence: int
    """If spans overlap (in a user's program), the span with the lowest precedence counts."""
    pauses_training: bool = False
    """Whether the span interrupts training, so that its time belongs to no step."""


@dataclass(frozen=True, slots=True)
class PhaseKind:
    """One part of a step; the times of all phases but ``hidden`` add up to the step time."""

    name: str
    meaning: str
    computes: bool = False
    communicates: bool = False
    """If such a phase was not recorded, its time is unknown; other phases count as 0."""
    stands_for: tuple[str, ...] = ()
    """Phases that this phase replaces in a run that cannot time them separately."""


STEPS = "steps"
"""The unit of work of a program whose samples could not be seen."""
EARLIER, TRAIN, SHUTDOWN = "earlier", "train", "shutdown"
UNEXPLAINED = "unexplained"
"""The part of a job's time that no span covers."""

SPANS = (
    SpanKind(
        EARLIER, "earlier attempts of a requeued job, from its first launch to its last",
        "#882255", "never", "repeated", 11,
    ),
    SpanKind("launch", "from the launcher's start to the rank's", "#999999", "once", "start-up", 8),
    SpanKind("rendezvous", "the ranks find each other", "#CC79A7", "once", "start-up", 3),
    SpanKind("data", "the data set is opened", "#E69F00", "once", "start-up", 5),
    SpanKind("build", "model and optimizer are made", "#56B4E9", "once", "start-up", 7),
    SpanKind("compile", "the step is compiled", "#F0E442", "once", "start-up", 6),
    SpanKind(
        "restore", "a checkpoint is looked for, checked and read", "#44AA99", "once", "start-up", 12
    ),
    SpanKind(TRAIN, "optimizer steps", "#0072B2", "every step", None, 4),
    SpanKind(
        "validate", "the model is validated", "#009E73", "every epoch", "validation", 2,
        pauses_training=True,
    ),
    # ``checkpoint_every`` counts steps, but a full run with equal epochs has as many in each epoch.
    SpanKind(
        "checkpoint", "a checkpoint is written", "#D55E00", "every epoch", "checkpoints", 1,
        pauses_training=True,
    ),
    SpanKind(
        "trace", "steps under a profiler", "#B3B300", "never", "looking", 0, pauses_training=True
    ),
    SpanKind("loaders", "data loaders are timed alone", "#8DA0CB", "never", "looking", 9),
    SpanKind(SHUTDOWN, "from the last step to the end", "#7A5C3E", "once", "shutdown", 10),
)  # fmt: skip
"""Every span that scalewise writes, in the order of a job's life, as in tables and plots."""
PHASES = (
    PhaseKind("input", "waiting for the next batch"),
    PhaseKind("forward", "the model's output, and the loss", computes=True),
    PhaseKind("backward", "the gradients", computes=True),
    PhaseKind(
        "pipeline", "forward and backward of a pipeline's stages", computes=True,
        stands_for=("forward", "backward"),
    ),
    PhaseKind(
        "step", "forward, backward and optimizer in one compiled program", computes=True,
        stands_for=("forward", "backward", "optimizer"),
    ),
    PhaseKind("sync", "communication that computation did not hide", communicates=True),
    PhaseKind("optimizer", "the update of the weights", computes=True),
    PhaseKind("other", "everything else in the loop"),
    PhaseKind(
        "hidden", "communication beside computation: no part of the step's sum", communicates=True
    ),
)  # fmt: skip
"""Every phase that scalewise writes, in the order of a step."""

SPAN_COLORS = {**{span.name: span.color for span in SPANS}, UNEXPLAINED: "#000000"}
PAUSES = tuple(span.name for span in SPANS if span.pauses_training)
COMMUNICATION = tuple(phase.name for phase in PHASES if phase.communicates)
NON_COMPUTE_PHASES = tuple(phase.name for phase in PHASES if not phase.computes)
DEVICE_PHASES = tuple(p.name for p in PHASES if not p.communicates and not p.stands_for)
"""Phases of a step on one device, each timed separately."""
_ORDER = {span.name: index for index, span in enumerate(SPANS)}
_PRECEDENCE = {span.name: span.precedence for span in SPANS}


def in_order_of_life(names: Iterable[str]) -> list[str]:
    """Return span names in the order of a job's life; unknown names, of plugins, come later.

    >>> in_order_of_life(["unexplained", "warm-up", "train", "earlier"])
    ['earlier', 'train', 'warm-up', 'unexplained']
    """
    return sorted(
        dict.fromkeys(names), key=lambda name: (name == UNEXPLAINED, _ORDER.get(name, len(SPANS)))
    )


def by_precedence(names: Iterable[str]) -> list[str]:
    """Return span names by precedence: where spans overlap, the first of them counts."""
    return sorted(dict.fromkeys(names), key=lambda name: _PRECEDENCE.get(name, len(SPANS)))


def recurring(recurrence: Recurrence) -> tuple[str, ...]:
    """Return the names of the spans that recur this often in a longer job."""
    return tuple(span.name for span in SPANS if span.recurs == recurrence)
