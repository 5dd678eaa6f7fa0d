"""Functions that use PyTorch's private names.

If the installed version lacks a name, a function uses a public interface, or returns "unknown".
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, default_collate

from scalewise.probe.torch.sync_timer import Patch
from scalewise.watch.torch.loader_passes import is_own_sampler, loader_key

LOADER = "_scalewise_loader"
"""The attribute of an iterator that holds its loader's id."""
NOT_AVERAGING = (0, 4, 5, 6, 7, 8, 15)
"""PyTorch's ``OpType`` numbers of broadcasts, gathers, scatters and barriers. Programs use these
for metrics, random seeds and the initial weights, not to average gradients.
"""


def wrap_fetch(around: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]) -> list[Patch]:
    """Return patches that wrap every fetch with ``around``, and set iterators' ``LOADER``."""
    cls: Any = getattr(torch.utils.data.dataloader, "_BaseDataLoaderIter", None)
    if cls is None:
        return _wrap_iterators(around)

    def new_plain(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return object.__new__(cls)

    def new_with_loader(cls: Any, loader: Any = None, *args: Any, **kwargs: Any) -> Any:
        iterator = object.__new__(cls)
        setattr(iterator, LOADER, loader_key(loader))
        return iterator

    # A wrapped ``__init__`` would make its warnings name our line instead of the program's.
    # A replaced ``__new__`` cannot be deleted, so removing the patch sets a plain one.
    fetch = cls.__next__
    return [(cls, "__new__", new_plain, new_with_loader), (cls, "__next__", fetch, around(fetch))]


def _wrap_iterators(around: Callable[..., Callable[[Any], Any]]) -> list[Patch]:
    """Return a patch of the public ``__iter__``, which wraps the iterator that it returns."""
    original = DataLoader.__iter__

    class Batches:
        def __init__(self, loader: Any) -> None:
            setattr(self, LOADER, loader_key(loader))
            self._batches = original(loader)

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            return next(self._batches)

    setattr(Batches, "__next__", around(Batches.__next__))
    return [(DataLoader, "__iter__", original, lambda loader: Batches(loader))]


def drawn_samples(iterator: Any) -> int | None:
    """Return how many samples the sampler drew for an iterator's newest batch, if known."""
    try:
        sampler = iterator._index_sampler
        size = int(sampler.batch_size)
    except Exception:
        return None
    try:  # The last batch of an epoch may have fewer samples.
        length = len(sampler.sampler)
        remaining = length - size * (iterator._num_yielded - 1)
    except Exception:
        return size
    is_small = size * iterator._num_yielded > length
    if is_small and not is_own_sampler(sampler.sampler):
        # A program's sampler may give another length than it draws: the batch shows its samples.
        return None if length < size or not has_own_collate(iterator) else min(size, remaining)
    return min(size, remaining) if remaining > 0 else size


def draws_exactly(iterator: Any) -> bool:
    """Return whether each batch of an iterator has ``drawn_samples``, by PyTorch's own sampler.

    An iterable dataset may end within a batch, and another sampler may draw batches of other sizes.
    """
    try:
        is_stream = isinstance(iterator._dataset, IterableDataset)
        return type(iterator._index_sampler) is BatchSampler and not is_stream
    except Exception:
        return False


def has_own_collate(iterator: Any) -> bool:
    """Return whether a program makes batches of samples by a function of its own."""
    return getattr(iterator, "_collate_fn", default_collate) is not default_collate


def buffer_exchange_methods() -> list[tuple[Any, str]]:
    """Return class and name of the method in which DDP broadcasts buffers and waits for ranks."""
    ddp = torch.nn.parallel.DistributedDataParallel
    return [(ddp, "_sync_buffers")] if hasattr(ddp, "_sync_buffers") else []


def may_average(wait_args: tuple[Any, ...]) -> bool:
    """Return whether the collective that a ``wait`` waits for may average gradients or weights."""
    try:
        return wait_args[0]._get_op_type() not in NOT_AVERAGING
    except Exception:
        return True


def in_backward() -> bool:
    """Return whether a backward is running; a forward then only recomputes activations."""
    return bool(getattr(torch._C, "_current_graph_task_id", lambda: -1)() != -1)


next_sequence_number: Callable[[], int] = getattr(torch.autograd, "_get_sequence_nr", lambda: -1)
"""The number that this thread's next autograd node gets."""


def sequence_number(node: Any) -> int:
    """Return the number of an autograd node; -1 if this PyTorch has none."""
    return int(getattr(node, "_sequence_nr", lambda: -1)())


is_tracing: Callable[[], bool] = getattr(torch._C, "_is_tracing", lambda: False)
"""Whether ``torch.jit.trace`` records a graph; sizes are tensors of that graph then."""


def unbatched(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the tensor inside the wrappers of ``torch.func``, and by how many samples ``vmap`` has
    divided it: inside ``vmap`` a tensor lacks the dimension that is mapped over.
    """
    try:
        functorch, count = torch._C._functorch, 1
        while functorch.is_functorch_wrapped_tensor(tensor):
            inner = functorch.get_unwrapped(tensor)
            if functorch.is_batchedtensor(tensor):
                count *= inner.size(functorch.maybe_get_bdim(tensor))
            tensor = inner
    except AttributeError:
        return tensor, 1
    return tensor, count


def set_timing_interval(model: Any, steps: int) -> None:
    """Let DDP time one step out of ``steps``."""
    with suppress(Exception):
        model._set_ddp_runtime_logging_sample_rate(steps)


def ddp_overlap(model: Any) -> float | None:
    """Return the seconds of communication that overlapped with computing in DDP's timed step."""
    try:
        data = model._get_ddp_logging_data()
        overlap = int(data["backward_compute_comm_overlap_time"]) / 1e9
        return overlap if int(data["backward_comm_time"]) > 0 else None
    except Exception:
        return None


def ddp_facts(model: Any) -> dict[str, Any]:
    """Return the sizes of DDP's gradient buckets as ``buckets``; empty if unknown."""
    try:
        data = model._get_ddp_logging_data()
        sizes = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or ""
        return {"buckets": [int(size) for size in str(sizes).split(",") if size.strip()]}
    except Exception:
        return {}


def unreduced_gradients(model: Any) -> int:
    """Return of how many parameters ``fully_shard`` holds gradients that it did not reduce over
    ranks; 0 if unknown.
    """
    count = 0
    with suppress(Exception):
        for module in model.modules():
            if not hasattr(module, "_get_fsdp_state"):
                continue
            state = module._get_fsdp_state()
            groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
            for parameter in (each for group in filter(None, groups) for each in group.fsdp_params):
                whole = getattr(parameter, "_unsharded_param", None)
                held = (parameter.unsharded_accumulated_grad, getattr(whole, "grad", None))
                count += any(gradient is not None for gradient in held)
    return count


def profiler_is_running() -> bool:
    """Return whether a profiler is running; starting a second profiler would end the first."""
    return bool(getattr(torch.autograd, "_profiler_enabled", lambda: False)())


def wrap_next_index(change: Callable[[Any], Any]) -> list[Patch]:
    """Return a patch that passes the indices of every batch of a loader through ``change``."""
    cls: Any = getattr(torch.utils.data.dataloader, "_BaseDataLoaderIter", None)
    original: Any = getattr(cls, "_next_index", None)
    if original is None:
        return []
    return [(cls, "_next_index", original, lambda iterator: change(original(iterator)))]
