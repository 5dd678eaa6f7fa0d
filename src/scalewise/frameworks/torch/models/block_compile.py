"""What is done to the blocks of a model one by one: compiled, and not remembered."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint, noop_context_fn

from scalewise.frameworks.torch.models.parts import blocks_of
from scalewise.spec import RunSpec

Context = AbstractContextManager[Any]
Pair = tuple[Context, Context]
Contexts = Callable[[], Pair]
"""What a forward is done in, and what it is done in again."""
SAVED_OPERATORS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
}
"""What costs much to compute again: products of matrices, and attention."""
MULTI_KERNEL_OPTIONS: dict[str, Any] = {"triton.multi_kernel": 1}
"""Has the compiler make sums over the last axis in two ways and keep the faster. By itself it reads
rows of more than 1,024 numbers twice."""
NO_MULTI_KERNEL_CACHE = "TORCHINDUCTOR_DISABLE_MULTI_KERNEL_CACHE"
"""Has every process find the faster one itself. To look an earlier choice up, the compiler asks
kernels for what those lack that come out of its cache (a lock, in PyTorch 2.11 to 2.13)."""
CUDA_GRAPH_OPTIONS: dict[str, Any] = {"triton.cudagraphs": True}
"""Has all kernels of a forward, and of a backward, recorded, and started as one from then on."""
GRAPH_WARMUP_STEPS = 3
"""How often a batch must go through a model until its kernels are replayed: the first compiles,
the second is recorded."""


def apply_activation_checkpointing(model: nn.Module, spec: RunSpec) -> None:
    """Have blocks keep less for backward, which then computes it again."""
    if spec.recompute == "none":
        return
    contexts = _selective() if spec.recompute == "selective" else None
    for block in blocks_of(model):
        norms = [each for each in block.modules() if isinstance(each, _BatchNorm)]
        mine: Contexts | None = contexts
        if norms and not spec.compile:  # The compiler does not repeat what changes a buffer.
            mine = partial(_without_learning, norms, contexts or noop_context_fn)
        setattr(block, "forward", _forgetful(block.forward, mine))


def _forgetful(forward: Callable[..., Any], contexts: Contexts | None) -> Callable[..., Any]:
    """Return a forward that is done again in backward.

    A function of its own: into a partial one the compiler does not look.
    """
    choose: dict[str, Any] = {"context_fn": contexts} if contexts else {}

    def again(*words: Any, **named: Any) -> Any:
        return checkpoint(forward, *words, use_reentrant=False, **choose, **named)

    return again


def _selective() -> Contexts:
    """Return what keeps the results that cost much, and no others."""
    from torch.utils.checkpoint import (  # From version 2.5 on.
        CheckpointPolicy,
        create_selective_checkpoint_contexts,
    )

    def policy(context: Any, operator: Any, *words: Any, **named: Any) -> CheckpointPolicy:
        save = operator in SAVED_OPERATORS
        return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE

    return partial(create_selective_checkpoint_contexts, policy)


def _without_learning(norms: Sequence[_BatchNorm], contexts: Contexts) -> Pair:
    first, again = contexts()
    return first, _unnoticed(norms, again)


@contextmanager
def _unnoticed(norms: Sequence[_BatchNorm], inner: Context) -> Iterator[None]:
    """Have batch norms take no note of a batch, which they have seen before."""
    kept = [(each, each.momentum, each.num_batches_tracked) for each in norms]
    counts = [None if count is None else count.clone() for _, _, count in kept]
    for each in norms:
        each.momentum = 0.0
    try:
        with inner:
            yield
    finally:
        for (each, momentum, count), before in zip(kept, counts):
            each.momentum = momentum
            if count is not None and before is not None:
                count.copy_(before)


def compile_model(model: nn.Module, spec: RunSpec) -> None:
    """Compile a model in place, whole or block by block: alike ones are compiled once.

    Its forward and not its call: into the call of an ``nn.Sequential`` the compiler does not look,
    and a model that is one would not be compiled at all. Batches are of one size, so kernels are
    made for that size; blocks that differ get theirs, each.
    """
    if not spec.compile:
        return
    parts = blocks_of(model) if spec.compile == "blocks" else [model]
    _make_room(len(parts))
    for each in parts:
        # Sums over images, those of batch norms, only get slower by it.
        normed = any(isinstance(part, nn.LayerNorm) for part in each.modules())
        if normed:
            os.environ[NO_MULTI_KERNEL_CACHE] = "1"
        options = {
            **(MULTI_KERNEL_OPTIONS if normed else {}),
            **(CUDA_GRAPH_OPTIONS if spec.compile == "graphs" else {}),
        }
        made = torch.compile(each.forward, dynamic=False, options=options or None)
        setattr(each, "forward", made)


def _make_room(kinds: int) -> None:
    """Let so many forms of one function be compiled, where the compiler would give up before."""
    from torch._dynamo import config  # Takes more than a second.

    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, name, max(getattr(config, name), kinds))


def eager_mode() -> AbstractContextManager[None]:
    """Run what was compiled as it was written: to compile it again, for a validation that does
    without gradients, takes longer than most validations do.

    Before version 2.6 it is compiled again.
    """
    stance: Any = getattr(torch.compiler, "set_stance", None)
    return stance("force_eager") if stance else nullcontext()
