"""The only place that touches PyTorch's private names, each with a public way out.

A name that is gone in some version costs one kind of knowledge, never the
watching: the functions below say so by returning nothing, or fall back to the
nearest public interface.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from scalewise.probe.torch.sync_timer import Patch

LOADER = "_scalewise_loader"
"""The attribute of an iterator that tells its loader's id."""
ONE_WAY = (0, 4, 5, 6, 7, 8, 15)
"""PyTorch's numbers of broadcasts, gathers, scatters and barriers: they serve metrics, random
generators, the first weights, and average nothing."""
SAMPLE_RATES = 10, 100
"""Steps between two of DDP's own timings: in the first hundred steps, and later."""


def wrap_fetch(around: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]) -> list[Patch]:
    """Return what has every fetch of a loader's batch told; ``LOADER`` tells of which."""
    kind: Any = getattr(torch.utils.data.dataloader, "_BaseDataLoaderIter", None)
    if kind is None:
        return _wrap_iterators(around)
    fetch = kind.__next__
    return [(kind, "__new__", _forgetful, _mindful), (kind, "__next__", fetch, around(fetch))]


def _mindful(kind: Any, loader: Any = None, *words: Any, **named: Any) -> Any:
    """Make an iterator that tells its loader.

    Not around ``__init__``: its warnings name whoever calls it, and would name us.
    """
    made = object.__new__(kind)
    setattr(made, LOADER, id(loader))
    return made


def _forgetful(kind: Any, *words: Any, **named: Any) -> Any:
    """Make an iterator as before: a class that once had a ``__new__`` must keep one."""
    return object.__new__(kind)


def _wrap_iterators(around: Callable[..., Callable[[Any], Any]]) -> list[Patch]:
    """The public way: put an iterator around what a loader's ``__iter__`` gives."""
    original = DataLoader.__iter__

    class Batches:
        def __init__(self, loader: Any) -> None:
            setattr(self, LOADER, id(loader))
            self._batches = original(loader)

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            return next(self._batches)

    setattr(Batches, "__next__", around(Batches.__next__))
    return [(DataLoader, "__iter__", original, lambda loader: Batches(loader))]


def drawn(iterator: Any) -> int | None:
    """Return for how many samples the newest batch of a loader was put together, if it says so.

    The last batch of a pass may have fewer; that is told where the sampler has a length.
    """
    try:
        sampler = iterator._index_sampler
        size = int(sampler.batch_size)
    except Exception:
        return None
    try:
        left = len(sampler.sampler) - size * (iterator._num_yielded - 1)
    except Exception:
        return size
    return min(size, left) if left > 0 else size


def buffer_exchange() -> list[tuple[Any, str]]:
    """Return what DDP calls before a forward to make buffers alike; there it waits for the rest."""
    known = hasattr(torch.nn.parallel.DistributedDataParallel, "_sync_buffers")
    return [(torch.nn.parallel.DistributedDataParallel, "_sync_buffers")] if known else []


def may_average(wait: tuple[Any, ...]) -> bool:
    """Say whether what is waited for may make ranks alike: not a barrier, not a broadcast."""
    try:
        return wait[0]._get_op_type() not in ONE_WAY
    except Exception:
        return True


def in_backward() -> bool:
    """Say whether gradients are being computed: what is called then is called once more."""
    try:
        return bool(torch._C._current_graph_task_id() != -1)
    except AttributeError:
        return False


def sample_ddp(model: Any, rate: int) -> None:
    """Ask DDP to time one step in so many."""
    try:
        model._set_ddp_runtime_logging_sample_rate(rate)
    except Exception:
        return


def ddp_seconds(model: Any) -> dict[str, float] | None:
    """Return DDP's own seconds of its last timed step: communication, and what overlapped it."""
    try:
        said = model._get_ddp_logging_data()
        communication = int(said["backward_comm_time"]) / 1e9
        overlap = int(said["backward_compute_comm_overlap_time"]) / 1e9
    except Exception:
        return None
    if communication <= 0:
        return None
    return {"communication": communication, "overlap": overlap}


def ddp_facts(model: Any) -> dict[str, Any]:
    """Return how DDP bundles its gradients, as far as it says."""
    try:
        said = model._get_ddp_logging_data()
        sizes = said.get("rebuilt_bucket_sizes") or said.get("bucket_sizes") or ""
        return {"buckets": [int(size) for size in str(sizes).split(",") if size.strip()]}
    except Exception:
        return {}


def profiled() -> bool:
    """Say whether a profiler is at work already: a second one would end it."""
    try:
        return bool(getattr(torch.autograd, "_profiler_enabled")())  # noqa: B009 - private
    except AttributeError:
        return False
