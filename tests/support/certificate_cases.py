"""Trainings with a known truth for the certificate: planted faults, and clean ones.

The scripts are in ``tests/certify/scripts``. A case is compared with the same script without its
fault on one device, at the same global batch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from paths import TESTS
from scalewise.port import port

SCRIPTS = TESTS / "certify" / "scripts"


@dataclass(frozen=True, slots=True)
class Base:
    """A script and its arguments, without a fault."""

    script: str
    args: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.script, *self.args))


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """A training that learns what one device learns."""

    base: Base
    ranks: int

    def __str__(self) -> str:
        return f"{self.base} on {self.ranks}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFault:
    """A training with one fault, and what a certificate must say about it."""

    name: str
    base: Base
    ranks: int = 2
    causes: frozenset[str]
    """Any of these names the fault."""
    layers: tuple[str, ...] = ()
    """Or any layer whose name begins so; empty if the fault is in no particular layer."""
    step: int = 0
    """The first step that the fault changes."""
    verdict: str = "differs"

    def __str__(self) -> str:
        return f"{self.name}: {self.base} on {self.ranks}"


def _fault(
    script: str, name: str, *causes: str, args: str = "", ranks: int = 2, step: int = 0,
    layers: str = "", verdict: str = "differs",
) -> PlantedFault:  # fmt: skip
    return PlantedFault(
        name=name, base=Base(script, tuple(args.split())), ranks=ranks, causes=frozenset(causes),
        layers=tuple(layers.split()), step=step, verdict=verdict,
    )  # fmt: skip


UNEVEN = "--samples 84 --epochs 8"
"""Two full global batches and one of 20 samples in each epoch."""
FAULTS = (
    _fault("ddp.py", "no_ddp", "not synchronised"),
    _fault("ddp.py", "layer_outside", layers="fc4."),
    _fault("ddp.py", "module_called", "not synchronised", args="--model gpt"),
    _fault("ddp.py", "ignored_layer", layers="fc2."),
    _fault("ddp.py", "no_sync_last", "not synchronised", args="--accumulate 2"),
    _fault("ddp.py", "loss_times_world", "summed", args="--model lstm", ranks=4),
    _fault("ddp.py", "loss_over_world", "averaged twice", args="--precision bf16"),
    _fault("ddp.py", "grads_divided_again", "averaged twice", args="--model conv", ranks=4),
    _fault("ddp.py", "hook_sums", "summed", args="--model gpt"),
    _fault("ddp.py", "hook_local_scale", "not synchronised", args="--model gpt --precision bf16"),
    _fault("ddp.py", "accumulate_undivided", "accumulation", args="--accumulate 4"),
    _fault("ddp.py", "accumulate_off_by_one", "lost samples", args="--accumulate 2"),
    _fault("ddp.py", "no_zero_grad", "kept gradients", step=1),
    _fault("ddp.py", "no_sampler", "same samples", args="--model lstm"),
    _fault("ddp.py", "same_shard", "same samples", args="--model conv", ranks=4),
    _fault("ddp.py", "no_set_epoch", "order repeats", step=8),
    _fault("ddp.py", "drop_last", "lost samples", args=UNEVEN, step=2),
    _fault("ddp.py", "uneven_last_batch", "uneven batch", args=UNEVEN, step=2),
    _fault("ddp.py", "mean_of_token_means", "uneven batch", args="--model gpt --padded", ranks=8),
    _fault("ddp.py", "local_batch_norm", "batch norm", args="--model conv"),
    _fault("ddp.py", "local_buffers", "buffers", args="--model statistics"),
    _fault("ddp.py", "lr_times_world", "learning rate", ranks=4),
    _fault("ddp.py", "optimizer_state_on_rank_0", "updates differ"),
    _fault("ddp.py", "scheduler_on_rank_0", "updates differ", step=1, args="--model lstm"),
    _fault("ddp.py", "unscaled_twice", "scaled", args="--model gpt"),
    _fault("ddp.py", "clip_before_unscale", "scaled", "clipped early", args="--clip 0.5"),
    _fault("ddp.py", "trains_on_ema", "changed weights", step=1),
    _fault("ddp.py", "late_gradients", "late gradients", "no gradient"),
    _fault("by_hand.py", "not_divided", "summed", args="--model gpt", ranks=4),
    _fault("by_hand.py", "divided_twice", "averaged twice", args="--model lstm"),
    _fault("by_hand.py", "weights_only", layers="fc1.bias fc2.bias fc3.bias fc4.bias"),
    _fault("by_hand.py", "one_layer_forgotten", layers="fc3."),
    _fault("by_hand.py", "after_step", "not synchronised", args="--model lstm"),
    _fault("by_hand.py", "clip_before_reduce", "clipped early", args="--clip 0.3"),
    _fault("by_hand.py", "no_broadcast", "start weights", args="--model gpt"),
    _fault("by_hand.py", "decay_on_every_rank", layers="fc1.weight"),
    _fault("by_hand.py", "frozen_on_one_rank", layers="fc2."),
    _fault("fsdp2.py", "sums", "summed", args="--model gpt"),
    _fault("fsdp2.py", "unreduced_parameter", layers="fc3.weight"),
    _fault("fsdp2.py", "same_shard", "same samples", args="--model lstm"),
    _fault("fsdp2.py", "no_sync_last", "not synchronised", "averaged twice", "accumulation",
           args="--accumulate 2"),
    _fault("fsdp2.py", "lr_times_world", "learning rate", args="--model gpt"),
    _fault("tensor.py", "bias_on_every_rank", layers="fc3.bias"),
    _fault("tensor.py", "no_reduce_in_backward", layers="fc1."),
    _fault("tensor.py", "no_reduce_in_forward", "not synchronised", layers="fc3."),
    _fault("tensor.py", "mean_in_forward", layers="fc3."),
    _fault("pipeline.py", "micro_batches_summed", "accumulation", "scaled"),
    _fault("pipeline.py", "micro_batch_dropped", "lost samples"),
    _fault("pipeline.py", "optimizer_of_a_copy", "no gradient", "not updated",
           layers="fc0. fc1. fc2. fc3."),
    _fault("pipeline.py", "scaled_by_stages", layers="fc4. fc5. fc6. fc7."),
    _fault("ported.py", "no_wrap", "not synchronised"),
    _fault("ported.py", "no_set_epoch", "order repeats", step=8),
    _fault("ported.py", "share_of_rank_0", "same samples"),
    _fault("ported.py", "lr_times_world", "learning rate"),
    _fault("ported.py", "batch_undivided", "global batch", verdict="cannot tell"),
)  # fmt: skip

PORTED_EDITS: Mapping[str, tuple[str, str]] = {
    "no_wrap": ("model = DistributedDataParallel(model)", "pass"),
    "no_set_epoch": ("train_loader.sampler.set_epoch(epoch)", "pass"),
    "share_of_rank_0": (
        "DistributedSampler(train_set, WORLD_SIZE, RANK",
        "DistributedSampler(train_set, WORLD_SIZE, 0",
    ),
    "lr_times_world": ("lr=0.1", "lr=0.1 * WORLD_SIZE"),
    "batch_undivided": ("max(1, args.batch_size // WORLD_SIZE)", "args.batch_size"),
}
"""Edits by hand of the script that ``scalewise port`` makes: each plants one fault."""


def clean_cases() -> Iterator[Clean]:
    """Yield trainings without a fault."""
    precisions = ("fp32", "bf16")
    for model, ranks, precision, seed in product(
        ("mlp", "statistics", "conv", "gpt", "lstm"), (2, 4, 8), precisions, (0, 1)
    ):
        yield _clean("ddp.py", ranks, model=model, precision=precision, seed=seed)
    for model, ranks, precision in product(("mlp", "gpt"), (2, 4, 8), precisions):
        yield _clean("ddp.py", ranks, model=model, precision=precision, accumulate=2, seed=2)
        yield _clean("ddp.py", ranks, model=model, precision=precision, clip=0.5, seed=3)
    for model, ranks in product(("mlp", "gpt", "conv"), (2, 4, 8)):
        yield _clean("ddp.py", ranks, model=model, precision="bf16-weights", seed=4)
    for model, ranks, precision in product(("mlp", "gpt", "lstm"), (2, 4, 8), precisions):
        yield _clean("by_hand.py", ranks, model=model, precision=precision, seed=5)
    for model, ranks, precision, seed in product(
        ("mlp", "conv", "gpt", "lstm"), (2, 4, 8), precisions, (6, 7)
    ):
        yield _clean("fsdp2.py", ranks, model=model, precision=precision, seed=seed)
    for model, ranks, precision, seed in product(("mlp", "gpt"), (2, 4, 8), precisions, (8, 9)):
        yield _clean("tensor.py", ranks, model=model, precision=precision, seed=seed)
    for ranks, precision, seed in product((2, 4, 8), precisions, (10, 11)):
        yield _clean("pipeline.py", ranks, precision=precision, seed=seed)
    for ranks, seed in product((2, 4, 8), (12, 13, 14)):
        yield _clean("ported.py", ranks, seed=seed)


def _clean(script: str, ranks: int, **options: object) -> Clean:
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return Clean(base=Base(script, tuple(words)), ranks=ranks)


def program(base: Base, fault: str, folder: Path) -> tuple[str, ...]:
    """Return the arguments that start a script, with its fault; a ported script is written."""
    if base.script != "ported.py":
        return (str(SCRIPTS / base.script), *base.args, *(("--fault", fault) if fault else ()))
    text = port(SCRIPTS / "serial.py").patched_script.decode()
    old, new = PORTED_EDITS[fault] if fault else ("", "")
    assert old in text, f"the ported script has no {old!r}"
    path = folder / f"ported_{fault or 'clean'}.py"
    path.write_text(text.replace(old, new, 1) if fault else text)
    return (str(path), *base.args)


def reference(base: Base) -> tuple[str, ...]:
    """Return the arguments of the script on one device; of a ported one, before it was ported."""
    script = "serial.py" if base.script == "ported.py" else base.script
    return (str(SCRIPTS / script), *base.args)
