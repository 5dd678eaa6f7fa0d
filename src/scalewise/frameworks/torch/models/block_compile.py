"""Per-block torch.compile and activation checkpointing."""

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
"""Returns the context of the first forward, and that of its recomputation."""
SAVED_OPERATORS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
}
"""Operators whose results selective checkpointing saves: matrix products and attention."""
MULTI_KERNEL_OPTIONS: dict[str, Any] = {"triton.multi_kernel": 1}
"""Lets the compiler benchmark two kernels for reductions over the last axis. Its default reads rows
of more than 1,024 elements twice."""
NO_MULTI_KERNEL_CACHE = "TORCHINDUCTOR_DISABLE_MULTI_KERNEL_CACHE"
"""Variable that makes every process benchmark them itself. Looking up an earlier choice fails for
kernels from the cache, which lack a lock (PyTorch 2.11 to 2.13)."""
CUDA_GRAPH_OPTIONS: dict[str, Any] = {"triton.cudagraphs": True}
"""Record the kernels of a forward, and of a backward, as CUDA graphs."""
GRAPH_WARMUP_STEPS = 3
"""Steps until CUDA graphs are replayed: the first one compiles, the second one records."""


def apply_activation_checkpointing(model: nn.Module, spec: RunSpec) -> None:
    """Let blocks drop activations in forward and recompute them in backward."""
    if spec.recompute == "none":
        return
    contexts = _selective() if spec.recompute == "selective" else None
    for block in blocks_of(model):
        norms = [module for module in block.modules() if isinstance(module, _BatchNorm)]
        block_contexts: Contexts | None = contexts
        if norms and not spec.compile:  # Compiled code updates buffers only once.
            block_contexts = partial(_frozen_norms, norms, contexts or noop_context_fn)
        setattr(block, "forward", _checkpointed(block.forward, block_contexts))


def _checkpointed(forward: Callable[..., Any], contexts: Contexts | None) -> Callable[..., Any]:
    """Return a forward that is recomputed in backward.

    Not a partial: the compiler does not trace into those.
    """
    options: dict[str, Any] = {"context_fn": contexts} if contexts else {}

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **options, **kwargs)

    return checkpointed


def _selective() -> Contexts:
    """Return contexts that save the results of expensive operators only."""
    from torch.utils.checkpoint import (  # From version 2.5 on.
        CheckpointPolicy,
        create_selective_checkpoint_contexts,
    )

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        save = operator in SAVED_OPERATORS
        return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE

    return partial(create_selective_checkpoint_contexts, policy)


def _frozen_norms(norms: Sequence[_BatchNorm], contexts: Contexts) -> Pair:
    first, recomputation = contexts()
    return first, _freeze_statistics(norms, recomputation)


@contextmanager
def _freeze_statistics(norms: Sequence[_BatchNorm], inner: Context) -> Iterator[None]:
    """Keep the running statistics of batch norms while a batch is recomputed."""
    saved = [
        (
            norm,
            norm.momentum,
            None if (count := norm.num_batches_tracked) is None else count.clone(),
        )
        for norm in norms
    ]
    for norm in norms:
        norm.momentum = 0.0
    try:
        with inner:
            yield
    finally:
        for norm, momentum, count in saved:
            norm.momentum = momentum
            if count is not None and norm.num_batches_tracked is not None:
                norm.num_batches_tracked.copy_(count)


def compile_model(model: nn.Module, spec: RunSpec) -> None:
    """Compile a model in place, as a whole or by blocks: equal blocks are compiled once.

    The forward is compiled, not the module: the compiler does not trace into the call of an
    ``nn.Sequential``. Shapes are static, because batches have one size.
    """
    if not spec.compile:
        return
    parts = blocks_of(model) if spec.compile == "blocks" else [model]
    _raise_recompile_limit(len(parts))
    for part in parts:
        # Multi-kernels help layer norms; reductions over images only get slower.
        has_layernorm = any(isinstance(module, nn.LayerNorm) for module in part.modules())
        if has_layernorm:
            os.environ[NO_MULTI_KERNEL_CACHE] = "1"
        options = {
            **(MULTI_KERNEL_OPTIONS if has_layernorm else {}),
            **(CUDA_GRAPH_OPTIONS if spec.compile == "graphs" else {}),
        }
        compiled = torch.compile(part.forward, dynamic=False, options=options or None)
        setattr(part, "forward", compiled)


def _raise_recompile_limit(count: int) -> None:
    """Let the compiler specialize one function ``count`` times: by default it gives up earlier."""
    from torch._dynamo import config  # Takes more than a second to import.

    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, name, max(getattr(config, name), count))


def eager_mode() -> AbstractContextManager[None]:
    """Run compiled functions uncompiled while entered.

    Compiling them again for inference takes longer than most validations. Before version 2.6 of
    PyTorch they are compiled again.
    """
    stance: Any = getattr(torch.compiler, "set_stance", None)
    return stance("force_eager") if stance else nullcontext()
