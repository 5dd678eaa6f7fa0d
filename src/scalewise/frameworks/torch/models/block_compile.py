"""Activation checkpointing, and compilation of a model or its blocks with a cache per study."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint, noop_context_fn

from scalewise.frameworks.torch.models.parts import blocks_of
from scalewise.spec import RunSpec

Contexts = Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]]
"""Returns two contexts: one for a block's forward, one for the recomputation of that forward."""
SAVED_OPERATORS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
}
"""Operators whose results selective checkpointing saves: matrix products and attention."""
MULTI_KERNEL_OPTIONS: dict[str, Any] = {"triton.multi_kernel": 1}
"""Let the compiler benchmark two kernels for reductions over the last axis, and use the faster:
its default kernel reads rows of more than 1,024 elements twice."""
NO_MULTI_KERNEL_CACHE = "TORCHINDUCTOR_DISABLE_MULTI_KERNEL_CACHE"
"""Variable with which every process benchmarks these kernels itself. Looking up an earlier choice
fails in PyTorch 2.11 to 2.13, because kernels from the cache have no lock."""
CUDA_GRAPH_OPTIONS: dict[str, Any] = {"triton.cudagraphs": True}
"""Record the kernels of a forward, and of a backward, as CUDA graphs."""
GRAPH_WARMUP_STEPS = 3
"""Steps to prepare CUDA graphs: the first one compiles, the second records, the third replays."""
CACHE_VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
CACHE_FOLDER = ".compiled"


def apply_activation_checkpointing(model: nn.Module, spec: RunSpec) -> None:
    """Make a model's blocks drop activations after forward and recompute them in backward."""
    if spec.recompute == "none":
        return
    contexts = _selective_contexts() if spec.recompute == "selective" else None
    for block in blocks_of(model):
        norms = [module for module in block.modules() if isinstance(module, _BatchNorm)]
        # Without ``_freeze`` a recomputation updates statistics again; compiled code does not.
        must_freeze = bool(norms) and not spec.compile
        block_contexts = _freeze(norms, contexts or noop_context_fn) if must_freeze else contexts
        setattr(block, "forward", _checkpointed(block.forward, block_contexts))


def _checkpointed(forward: Callable[..., Any], contexts: Contexts | None) -> Callable[..., Any]:
    options: dict[str, Any] = {"context_fn": contexts} if contexts else {}

    # Not a ``partial``, because the compiler does not trace into partials.
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **options, **kwargs)

    return checkpointed


def _selective_contexts() -> Contexts:
    """Return contexts that save the results of expensive operators and no others."""
    from torch.utils.checkpoint import (  # From version 2.5 on.
        CheckpointPolicy,
        create_selective_checkpoint_contexts,
    )

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        save = operator in SAVED_OPERATORS
        return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE

    return partial(create_selective_checkpoint_contexts, policy)


def _freeze(norms: Sequence[_BatchNorm], contexts: Contexts) -> Contexts:
    """Return ``contexts`` changed so that recomputation does not update batch norm statistics."""

    @contextmanager
    def frozen(inner: AbstractContextManager[Any]) -> Iterator[None]:
        saved = []
        for norm in norms:
            count = norm.num_batches_tracked
            saved.append((norm, norm.momentum, None if count is None else count.clone()))
            norm.momentum = 0.0  # Then a forward does not change the statistics.
        try:
            with inner:
                yield
        finally:
            for norm, momentum, original in saved:
                norm.momentum = momentum
                if original is not None and norm.num_batches_tracked is not None:
                    norm.num_batches_tracked.copy_(original)

    def frozen_contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        first, recomputation = contexts()
        return first, frozen(recomputation)

    return frozen_contexts


def compile_model(model: nn.Module, spec: RunSpec) -> None:
    """Compile a model or each of its blocks in place. Equal blocks are compiled only once.

    ``forward`` is compiled: the compiler does not trace into the call of an ``nn.Sequential``.
    """
    if not spec.compile:
        return
    from torch._dynamo import config  # Takes more than a second to import.

    parts = blocks_of(model) if spec.compile == "blocks" else [model]
    # If parts differ, each is compiled; the default limit of compilations may be lower.
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, limit, max(getattr(config, limit), len(parts)))
    for part in parts:
        # Multi-kernels make layer norms faster, but reductions over images slower.
        has_layernorm = any(isinstance(module, nn.LayerNorm) for module in part.modules())
        if has_layernorm:
            os.environ[NO_MULTI_KERNEL_CACHE] = "1"
        options = {
            **(MULTI_KERNEL_OPTIONS if has_layernorm else {}),
            **(CUDA_GRAPH_OPTIONS if spec.compile == "graphs" else {}),
        }
        compiled = torch.compile(part.forward, dynamic=False, options=options or None)
        setattr(part, "forward", compiled)


def eager_mode() -> AbstractContextManager[None]:
    """Run compiled functions eagerly in this context: compiling for inference would take longer."""
    stance: Any = getattr(torch.compiler, "set_stance", None)  # From version 2.6 on.
    return stance("force_eager") if stance else nullcontext()


def use_study_cache(study: Path) -> None:
    """Put the compiler's cache into a study's folder; a job's end may delete the default folder."""
    for name, folder in CACHE_VARIABLES.items():
        os.environ.setdefault(name, str((study / CACHE_FOLDER / folder).absolute()))


def skipped_cuda_graphs() -> int:
    """Return the number of graphs that cannot be replayed as CUDA graphs."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["cudagraph_skips"])


def graph_counts() -> dict[str, int] | None:
    """Return the number of graphs "found" in the cache or compiled ("made"); None if unknown."""
    try:
        from torch._dynamo.utils import counters
    except ImportError:
        return None
    counts: Any = counters["inductor"]
    return {
        "found": int(counts["fxgraph_cache_hit"]),
        "made": int(counts["fxgraph_cache_miss"] + counts["fxgraph_cache_bypass"]),
    }
