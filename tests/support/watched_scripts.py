"""What each script does, by arithmetic: the truth that an observer of it must find.

A script is started in an empty folder of its own, for it writes its checkpoints where it stands.
``steps`` are those a user would count; ``optimizers`` holds the calls of each optimizer's step that
updated something. Where ranks differ, a value holds one number per rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parents[1] / "scripts"
TRAINING = frozenset({"forward", "backward", "optimizer"})
LOADED = TRAINING | {"input"}

Start = Literal["file", "module", "command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """One run: all of it on every rank, unless said otherwise."""

    world: int
    step_samples: tuple[tuple[int, ...], ...]
    """For each rank the samples of each step, over all micro-batches of that step."""
    micro: tuple[tuple[int, ...], ...]
    """For each rank the micro-batches of each step."""
    epochs: int | None
    """Passes over the training data; None where the script knows no epochs."""
    optimizers: tuple[tuple[int, ...], ...]
    """For each rank the updates of each optimizer, in the order of their first update."""
    validations: tuple[int, ...]
    """For each rank the passes over validation data."""
    checkpoints: int = 0
    """Checkpoints saved by all ranks together; one of many files, or of many ranks, counts once."""
    distributed: bool = True
    """Whether the ranks train one model."""
    phases: frozenset[str] = LOADED
    """The phases that take time on at least one rank."""
    skipped: tuple[int, ...] = ()
    """Steps, from 0, whose update the gradient scaler left out."""
    forwards: int = 1
    """Forward passes of a micro-batch: more than one with closures."""
    exit: int = 0
    """What torchrun, or the command, exits with."""
    recognised: bool = True
    """Whether an observer can find the steps at all."""

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(len(of_rank) for of_rank in self.step_samples)

    @property
    def samples(self) -> tuple[int, ...]:
        return tuple(sum(of_rank) for of_rank in self.step_samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script, its arguments, and how it is started on a number of devices."""

    path: str
    """Below this folder; of a module, its dotted name."""
    args: tuple[str, ...] = ()
    start: Start = "file"
    """One process per device of a file or of a module (from this folder), or a whole command."""
    truth: Callable[[int], Truth] = field(repr=False)
    needs: str = ""
    """The package that has to be installed beside torch."""
    slow: bool = False
    """Whether it is left to a long campaign: another of its style is tested each time, or its
    style is tested without a process, in test_observer."""

    @property
    def name(self) -> str:
        return " ".join((self.path, *self.args))

    def command(self, devices: int, python: str = "python") -> list[str]:
        """The plain start, without anyone watching."""
        if self.start == "command":
            filled = [arg.format(devices=devices) for arg in self.args]
            return [python, str(HERE / self.path), *filled]
        what = ["-m", self.path] if self.start == "module" else [str(HERE / self.path)]
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={devices}"]
        return [python, *torchrun, *what, *self.args]


def batches(samples: int, batch: int, *, drop_last: bool = False) -> list[int]:
    """The sizes of a loader's batches.

    >>> batches(10, 4), batches(10, 4, drop_last=True)
    ([4, 4, 2], [4, 4])
    """
    whole, rest = divmod(samples, batch)
    return [batch] * whole + [rest] * (rest > 0 and not drop_last)


def run(
    world: int,
    sizes: Sequence[int] | Sequence[Sequence[int]],
    *,
    micro: int | Sequence[int] = 1,
    validations: int | Sequence[int] = 0,
    epochs: int | None = None,
    **more: object,
) -> Truth:
    """The truth of a run whose ranks take steps of these sizes (one list, or one per rank)."""
    ranks = (
        [tuple(s) for s in sizes]
        if sizes and not isinstance(sizes[0], int)
        else [tuple(sizes)] * world
    )
    micros = [tuple(micro) if not isinstance(micro, int) else (micro,) * len(r) for r in ranks]
    checks = (validations,) * world if isinstance(validations, int) else tuple(validations)
    skipped = len(more.get("skipped", ()))
    more.setdefault("optimizers", tuple((len(r) - skipped,) for r in ranks))
    return Truth(
        world=world,
        step_samples=tuple(ranks),
        micro=tuple(micros),
        validations=checks,
        epochs=epochs,
        **more,
    )


def grouped(sizes: Sequence[int], count: int) -> tuple[list[int], list[int]]:
    """Steps of ``count`` accumulated batches each: their samples and their micro-batches."""
    groups = [sizes[i : i + count] for i in range(0, len(sizes), count)]
    return [sum(g) for g in groups], [len(g) for g in groups]


def plain(world: int) -> Truth:
    return run(world, batches(640, 32) * 2, epochs=2, distributed=False)


def config_locals(world: int) -> Truth:
    return run(world, [16] * 12, distributed=False, phases=TRAINING)


def stages(world: int) -> Truth:
    return run(
        world,
        batches(640, 32) * 4,
        epochs=4,
        validations=4,
        optimizers=((40, 40),) * world,
        distributed=False,
        phases=LOADED | {"validate"},
    )


def ddp(world: int, *, everyone: bool = True) -> Truth:
    return run(
        world,
        batches(640 // world, 16) * 2,
        epochs=2,
        validations=2 if everyone else (2,) + (0,) * (world - 1),
        checkpoints=2,
        phases=LOADED | {"validate", "checkpoint"},
    )


def wrapped(world: int) -> Truth:
    return run(world, batches(320 // world, 16) * 2, epochs=2, phases=LOADED | {"sync"})


def mnist(world: int, *, epochs: int = 3, dry: bool = False, save: bool = False) -> Truth:
    sizes = batches(ceil(600 / world), 32, drop_last=True)
    return run(
        world,
        (sizes[:1] if dry else sizes) * epochs,
        epochs=epochs,
        validations=epochs,
        checkpoints=int(save),
        phases=LOADED | {"validate"} | ({"checkpoint"} if save else set()),
    )


def imagenet(world: int) -> Truth:
    return run(
        world,
        batches(640 // world, 64 // world) * 2,
        epochs=2,
        validations=2,
        checkpoints=2,
        phases=LOADED | {"validate", "checkpoint"},
    )


def imagenet_evaluate(world: int) -> Truth:
    return run(
        world,
        [[]] * world,
        epochs=0,
        validations=1,
        optimizers=((),) * world,
        phases=frozenset({"validate"}),
    )


def nanogpt(world: int, *, last: int = 15, accumulate: int = 4) -> Truth:
    """It counts from 0 and ends once the number is above max_iters: one step more than that."""
    evaluations = last // 5 + 1
    micro = accumulate // world
    return run(
        world,
        [4 * micro] * (last + 1),
        micro=micro,
        validations=(evaluations,) + (0,) * (world - 1),
        checkpoints=evaluations - 1,
        phases=TRAINING | {"validate", "checkpoint"},
    )


def scaler(world: int) -> Truth:
    return run(world, [8] * 20, skipped=(6,), phases=TRAINING)


def no_sync(world: int) -> Truth:
    sizes, micro = grouped(batches(300 // world, 16), 3)
    return run(world, sizes * 3, micro=micro * 3, epochs=3)


def fsdp2(world: int) -> Truth:
    """The optimizer's first step, which makes room for its state, is a checkpoint's."""
    return run(world, [8] * 12, checkpoints=2, phases=TRAINING | {"checkpoint"})


def compiled(world: int) -> Truth:
    return run(world, [16] * 15, phases=TRAINING)


def compiled_step(world: int) -> Truth:
    """Hooks of the optimizer are traced into the graph: a guarded one sees only zero_grad."""
    return run(world, [16] * 15, phases=frozenset({"forward", "backward"}))


def gan(world: int) -> Truth:
    """Samples are real ones; three passes of the critic and one of the generator are a step."""
    sizes = batches(400 // world, 20) * 2
    return run(world, sizes, epochs=2, optimizers=((len(sizes),) * 2,) * world)


def lbfgs(world: int) -> Truth:
    """The whole data in each step, evaluated max_iter times; then one look without gradients."""
    return run(
        world,
        [100] * 15,
        forwards=4,
        validations=15,
        distributed=False,
        phases=TRAINING | {"validate"},
    )


def trainer(world: int) -> Truth:
    """Each epoch takes one batch more than it trains on, to print its size."""
    return run(
        world,
        batches(512 // world, 32) * 4,
        epochs=4,
        checkpoints=2,
        phases=LOADED | {"checkpoint"},
    )


def spawn(world: int) -> Truth:
    return run(world, [20] * 25, checkpoints=1, phases=TRAINING | {"checkpoint"})


def package(world: int) -> Truth:
    return run(world, batches(256 // world, 16, drop_last=True) * 2, epochs=2)


def workers(world: int) -> Truth:
    """Each of two workers makes its own batches, and the loader alternates between them."""
    each = batches(480 // (2 * world), 12)
    return run(world, [size for size in each for _ in range(2)] * 2, epochs=2)


def uneven(world: int) -> Truth:
    sizes = [batches(len(range(rank, 205, world)), 10) * 2 for rank in range(world)]
    return run(world, sizes, epochs=2)


def uneven_join(world: int) -> Truth:
    """All but the last rank have 45 samples; the last has what is left."""
    shares = [45] * (world - 1) + [205 - 45 * (world - 1)]
    return run(world, [batches(share, 10) * 2 for share in shares], epochs=2)


def surroundings(world: int) -> Truth:
    return run(
        world,
        [4] * 10,
        checkpoints=world,
        distributed=False,
        phases=TRAINING | {"checkpoint"},
    )


def endings(world: int, steps: int, code: int) -> Truth:
    """After a crash torchrun ends the other ranks, which wait inside their backward."""
    none = {} if steps else {"optimizers": ((),) * world}
    sizes = [[8] * steps] * world
    return run(world, sizes, exit=code, phases=TRAINING if steps else frozenset(), **none)


def allreduce(world: int) -> Truth:
    return run(world, batches(512 // world, 64 // world) * 3, epochs=3)


def wgan(world: int) -> Truth:
    """A step is one of the critic; every fifth is followed by one of the generator."""
    sizes = batches(800 // world, 16)
    both = (2 * len(sizes), 2 * (len(sizes) // 5))
    return run(world, sizes * 2, epochs=2, optimizers=(both,) * world)


def in_backward(world: int) -> Truth:
    return run(
        world,
        [16] * 20,
        optimizers=((20,) * 4,) * world,
        distributed=False,
        phases=TRAINING,
    )


def by_hand(world: int) -> Truth:
    """Neither a model nor a loader: what is seen are the gradients, and that weights change."""
    return run(
        world,
        [0] * 30,
        optimizers=((),) * world,
        distributed=False,
        phases=frozenset({"forward", "backward"}),
    )


def language(world: int, accumulate: int = 1) -> Truth:
    sizes, micro = grouped([16] * 12, accumulate)
    return run(
        world,
        sizes * 2,
        micro=micro * 2,
        optimizers=((),) * world,
        validations=2,
        checkpoints=2,
        epochs=2,
        distributed=False,
        phases=TRAINING,
    )


def agent(world: int) -> Truth:
    sizes = [5 + episode for episode in range(12)]
    return run(world, sizes, micro=sizes, distributed=False, phases=TRAINING)


def lightning(world: int, accumulate: int = 1) -> Truth:
    """A sanity pass before the first step, then a pass at the end of each of two epochs."""
    sizes, micro = grouped(batches(320 // world, 16), accumulate)
    return run(
        world,
        sizes * 2,
        micro=micro * 2,
        epochs=2,
        validations=3,
        checkpoints=2,
        phases=LOADED | {"validate", "checkpoint"},
    )


def accelerate(world: int, accumulate: int = 2) -> Truth:
    sizes, micro = grouped(batches(320 // world, 16), accumulate)
    return run(
        world,
        sizes * 2,
        micro=micro * 2,
        epochs=2,
        validations=2,
        checkpoints=2,
        phases=LOADED | {"validate", "checkpoint"},
    )


def transformers(world: int) -> Truth:
    sizes, micro = grouped(batches(320 // world, 8), 2)
    return run(
        world,
        sizes * 2,
        micro=micro * 2,
        epochs=2,
        validations=2,
        checkpoints=2,
        phases=LOADED | {"validate", "checkpoint"},
    )


def _ending(how: str, steps: int, code: int) -> Script:
    """The script that ends in this way."""
    return Script(
        path="endings.py",
        args=("--end", how),
        truth=lambda world: endings(world, steps=steps, code=code),
        slow=how == "stdin",
    )


SCRIPTS = (
    Script(path="plain.py", truth=plain),
    Script(path="config_locals.py", truth=config_locals),
    Script(path="stages.py", truth=stages, slow=True),
    Script(path="ddp.py", truth=ddp),
    Script(path="wrapped.py", truth=wrapped, slow=True),
    Script(
        path="ddp.py",
        args=("--validate-on", "rank0"),
        truth=lambda world: ddp(world, everyone=False),
        slow=True,
    ),
    Script(path="mnist.py", truth=mnist, slow=True),
    Script(
        path="mnist.py",
        args=("--save-model", "--epochs", "1"),
        truth=lambda world: mnist(world, epochs=1, save=True),
        slow=True,
    ),
    Script(
        path="mnist.py",
        args=("--dry-run",),
        truth=lambda world: mnist(world, dry=True),
        slow=True,
    ),
    Script(path="imagenet.py", truth=imagenet, slow=True),
    Script(path="imagenet.py", args=("--evaluate",), truth=imagenet_evaluate),
    Script(path="nanogpt.py", truth=nanogpt),
    Script(
        path="nanogpt.py",
        args=("--max_iters=8", "--gradient_accumulation_steps=2", "--dtype='float32'"),
        truth=lambda world: nanogpt(world, last=8, accumulate=2),
        slow=True,
    ),
    Script(path="nanogpt.py", args=("--compile=True",), truth=nanogpt, slow=True),
    Script(path="scaler.py", truth=scaler, slow=True),
    Script(path="no_sync.py", truth=no_sync, slow=True),
    Script(path="fsdp2.py", truth=fsdp2),
    Script(path="compiled.py", args=("--where", "outside"), truth=compiled),
    Script(path="compiled.py", args=("--where", "inside"), truth=compiled, slow=True),
    Script(path="compiled.py", args=("--where", "method"), truth=compiled, slow=True),
    Script(path="compiled.py", args=("--where", "step"), truth=compiled_step, slow=True),
    Script(path="gan.py", truth=gan, slow=True),
    Script(path="lbfgs.py", truth=lbfgs, slow=True),
    Script(path="trainer.py", args=("4", "2"), truth=trainer, slow=True),
    Script(path="spawn.py", args=("--world-size", "{devices}"), start="command", truth=spawn),
    Script(path="package.train", start="module", truth=package),
    Script(path="workers.py", truth=workers, slow=True),
    Script(path="uneven.py", truth=uneven, slow=True),
    Script(path="uneven.py", args=("--join",), truth=uneven_join, slow=True),
    Script(
        path="surroundings.py",
        args=("my first run", 'it\'s "quoted" $HOME *'),
        truth=surroundings,
    ),
    _ending("crash", steps=7, code=1),
    _ending("killed", steps=7, code=1),
    _ending("exit", steps=7, code=1),
    _ending("no-step", steps=0, code=0),
    _ending("stdin", steps=20, code=0),
    Script(path="allreduce.py", truth=allreduce, slow=True),
    Script(path="wgan.py", truth=wgan, slow=True),
    Script(path="in_backward.py", truth=in_backward, slow=True),
    Script(path="by_hand.py", truth=by_hand),
    Script(path="language.py", truth=language, slow=True),
    Script(
        path="language.py",
        args=("--accumulate", "3"),
        truth=lambda world: language(world, accumulate=3),
    ),
    Script(path="agent.py", truth=agent, slow=True),
    Script(
        path="engines/with_lightning.py",
        args=("--devices", "{devices}"),
        start="command",
        truth=lightning,
        needs="lightning",
    ),
    Script(
        path="engines/with_lightning.py",
        args=("--devices", "{devices}", "--accumulate", "2"),
        start="command",
        truth=lambda world: lightning(world, accumulate=2),
        needs="lightning",
        slow=True,
    ),
    Script(path="engines/with_lightning.py", truth=lightning, needs="lightning", slow=True),
    Script(path="engines/with_accelerate.py", truth=accelerate, needs="accelerate", slow=True),
    Script(path="engines/with_transformers.py", truth=transformers, needs="transformers"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A script with one fault, and the same script with that fault mended."""

    name: str
    faulty: Script
    mended: Script
    cuda: bool = False
    """Whether it needs an accelerator to run at all."""
    shows: Literal["data", "weights", "batch", "rate", "steps", "speed"]
    """Where the fault can be seen."""
    world: int = 2
    """The smallest number of devices at which it shows."""


def _fault(
    name: str,
    shows: str,
    sizes: Callable[[int], Sequence[int] | Sequence[Sequence[int]]],
    mended: Callable[[int], Sequence[int] | Sequence[Sequence[int]]] | None = None,
    *,
    world: int = 2,
    **truth: object,
) -> Fault:
    """The pair of scripts of this name, whose steps have these sizes at a number of devices."""
    cuda, slow = bool(truth.pop("cuda", False)), bool(truth.pop("slow", False))
    healthy = {**truth, **truth.pop("healed", {})}
    healthy.pop("healed", None)
    return Fault(
        name=name,
        shows=shows,
        world=world,
        cuda=cuda,
        faulty=Script(
            path=f"faults/{name}.py", truth=lambda world: run(world, sizes(world), **truth)
        ),
        mended=Script(
            path=f"faults/{name}_mended.py",
            truth=lambda world: run(world, (mended or sizes)(world), **healthy),
            slow=slow,
        ),
    )


def _shared(batch: int, epochs: int = 2) -> Callable[[int], list[int]]:
    """Steps of loaders that share out 640 samples."""
    return lambda world: batches(640 // world, batch) * epochs


ALONE = {"distributed": False, "phases": TRAINING}
FAULTS = (
    _fault("same_samples", "data", lambda _: batches(640, 16) * 2, _shared(16), epochs=2),
    _fault("no_set_epoch", "data", _shared(16, epochs=3), epochs=3),
    _fault(
        "drifting_replicas",
        "weights",
        _shared(16),
        epochs=2,
        distributed=False,
        healed={"distributed": True},
    ),
    _fault("different_init", "weights", lambda _: [16] * 40, phases=TRAINING),
    _fault(
        "global_batch", "batch", _shared(32), lambda world: _shared(32 // world)(world), epochs=2
    ),
    _fault("fixed_lr", "rate", _shared(16), epochs=2),
    _fault(
        "step_counts",
        "steps",
        lambda world: [[16] * (20 + 10 * rank) for rank in range(world)],
        lambda _: [16] * 20,
        epochs=1,
    ),
    _fault("unused_parameters", "speed", lambda _: [16] * 60, phases=TRAINING, world=1),
    _fault("no_workers", "speed", _shared(16), epochs=2, world=1),
    _fault("empty_cache", "speed", lambda _: [64] * 60, world=1, **ALONE),
    _fault("one_thread", "speed", lambda _: [128] * 60, world=1, **ALONE),
    _fault("eager", "speed", lambda _: [256] * 60, world=1, slow=True, **ALONE),
    _fault("item_each_step", "speed", lambda _: [32] * 150, world=1, **ALONE),
    _fault("same_device", "speed", lambda _: [64] * 60, cuda=True, phases=TRAINING),
    _fault("fp32", "speed", lambda _: [2048] * 60, cuda=True, world=1, **ALONE),
    Fault(
        name="data_parallel",
        shows="speed",
        faulty=Script(
            path="faults/data_parallel.py",
            start="command",
            truth=lambda _: run(1, batches(640, 32) * 2, epochs=2, distributed=False),
        ),
        mended=Script(
            path="faults/data_parallel_mended.py",
            truth=lambda world: run(world, batches(640 // world, 32 // world) * 2, epochs=2),
        ),
    ),
)
