"""Find the models that a program trains, and the size of its batches."""

import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from scalewise.watch.torch import private_api

WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel)
"""Models around models; their ``forward`` is hooked separately."""
MAX_DEPTH = 4
"""How many levels of containers in a batch are searched."""


Batch = tuple[int | None, torch.Tensor | None]
"""The samples of a batch, if known, and its first tensor."""


def batch_of(values: Any, drawn: int | None = None, depth: int = MAX_DEPTH) -> Batch:
    """Return the samples of a batch, and its first tensor.

    The samples are usually that tensor's first dimension. If a part is a list with an entry per
    sample and the other parts are as long, they are its length; a list alone is ambiguous: None.
    If the tensor concatenates the ``drawn`` samples of the loader's sampler, and another part has
    as many entries, they are ``drawn``.

    >>> batch_of({"x": torch.zeros(8, 3), "y": 1})[0]
    8
    >>> batch_of(([torch.zeros(3, 9, 9), torch.zeros(3, 7, 7)], [{}, {}]))[0]
    2
    >>> batch_of((torch.zeros(500), torch.zeros(64)), drawn=64)[0]
    64
    """
    if isinstance(values, torch.Tensor):
        shape = values.shape
        return (shape[0] if shape else None), values
    if depth == 0:
        return None, None
    if isinstance(values, Mapping):
        values = values.values()
    elif not isinstance(values, (list, tuple)):
        inner = getattr(values, "data", None)  # Such as a BatchEncoding.
        if not isinstance(inner, Mapping):
            return _batch_of_object(values, drawn, depth)
        values = inner.values()
    if (samples := _samples_of_list(values, drawn)) is not None:
        return samples, batch_of(values[0], depth=depth - 1)[1]
    return _batch_of_parts(values, drawn, depth)


def _batch_of_parts(parts: Any, drawn: int | None, depth: int) -> Batch:
    """Return the samples and the first tensor of a batch with several parts."""
    is_sequence = isinstance(parts, (list, tuple))
    sizes = list(filter(None, map(_possible_samples, parts))) if is_sequence or drawn else []
    entries = _common_size(sizes) if is_sequence else None
    for part in parts:
        samples, tensor = batch_of(part, drawn, depth - 1)
        if samples is None:
            continue
        if is_sequence and len(sizes) == 1 and len(sizes[0]) > 1:
            return None, tensor  # Ambiguous: a list alone.
        if entries is None and drawn and _has_drawn(drawn, samples, tensor, sizes):
            entries = drawn
        if entries is None and is_sequence:
            entries = _sequences(parts)
        return entries or samples, tensor
    return entries, None


def _has_drawn(drawn: int, samples: int, first: Any, sizes: list[list[int]]) -> bool:
    """Return whether a part of a batch has an entry for each sample that was drawn.

    One drawn sample is no evidence. Fewer rows than drawn mean that samples were combined; a
    multiple of images may be several views of each, which count as samples.
    """
    if samples == drawn:
        return True
    concatenated = first is not None and (first.ndim < 3 or samples % drawn > 0)
    return 1 < drawn < samples and concatenated and any(drawn in size for size in sizes)


def _samples_of_list(values: Any, drawn: int | None) -> int | None:
    """Return how many samples a list holds, if each entry must be one: mappings, or images."""
    if type(values) is not list or not values:
        return None
    if all(isinstance(value, Mapping) for value in values):
        return len(values)
    single = all(not isinstance(value, torch.Tensor) or value.ndim == 3 for value in values)
    return drawn if drawn and drawn > 2 and len(values) == drawn and single else None


def _batch_of_object(batch: Any, drawn: int | None, depth: int) -> Batch:
    """Search the attributes of an object of an unknown class, if its samples can be verified."""
    try:
        graphs = getattr(batch, "num_graphs", None)  # The samples of PyTorch Geometric.
    except Exception:
        graphs = None
    if not isinstance(graphs, int) and drawn is None:
        return None, None
    samples, tensor = batch_of(getattr(batch, "__dict__", {}), drawn, depth - 1)
    if isinstance(graphs, int):
        return graphs, tensor
    return (drawn, tensor) if samples == drawn else (None, None)


def _common_size(sizes: list[list[int]]) -> int | None:
    """Return the size that all parts of a batch have in common, if they have one."""
    common = set(sizes[0]).intersection(*sizes[1:]) if len(sizes) > 1 else set()
    return next((size for size in sizes[0] if size in common), None) if common else None


def _sequences(parts: list[Any] | tuple[Any, ...]) -> int | None:
    """Return the number of sequences of different lengths, each a sample.

    Two may be an input and its label. If most of a tuple have one length, that is the batch:
    labels, offsets, and the concatenated tokens of all samples.
    """
    if len(parts) < 3 or not all(isinstance(part, torch.Tensor) and part.ndim for part in parts):
        return None
    rows = Counter(part.shape[0] for part in parts)
    if len(rows) < 2 or len({(part.dtype, part.shape[1:]) for part in parts}) > 1:
        return None
    size, times = rows.most_common(1)[0]
    return size if isinstance(parts, tuple) and 2 * times > len(parts) else len(parts)


def _possible_samples(part: Any) -> list[int]:
    """Return the sizes of a part that may be the number of samples, likeliest first."""
    if isinstance(part, torch.Tensor):
        return [part.shape[0]] if part.ndim else []
    if not isinstance(part, (list, tuple)) or not part:
        return []
    rows = {
        item.shape[0] if isinstance(item, torch.Tensor) and item.ndim else None for item in part
    }
    row = rows.pop()
    return [len(part)] if rows or row is None else [row, len(part)][: len(part)]


def is_one_sample(model: nn.Module, value: torch.Tensor) -> bool:
    """Return whether a vector is one sample: as long as the model's first linear layer is wide.

    >>> is_one_sample(nn.Linear(4, 2), torch.zeros(4))
    True
    >>> is_one_sample(nn.Linear(1, 2), torch.zeros(4))
    False
    """
    if value.dim() != 1 or not value.is_floating_point():
        return False
    first = next((layer for layer in model.modules() if isinstance(layer, nn.Linear)), None)
    return first is not None and first.in_features == value.shape[0]


def on_delete(target: Any, callback: Callable[..., Any], *args: Any) -> None:
    """Call a function when a model or optimizer is garbage-collected."""
    weakref.finalize(target, callback, *args).atexit = False


class Discovery:
    """Hooks all modules for two steps, which costs a few percent.

    Then it wraps ``__call__`` of the outermost models with trainable parameters, by class.
    """

    def __init__(
        self,
        begin: Callable[..., None],
        end: Callable[[], None],
        around: Callable[..., Callable[..., Any]],
    ) -> None:
        self._begin, self._end, self._around = begin, end, around
        self._handles: list[Any] = []
        self._running: list[tuple[nn.Module, bool]] = []
        """The outermost model that is being called, and whether we record the call."""
        self._ids: set[int] = set()
        """Ids of the models; shared with the wrappers."""
        self._models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._classes: set[type] = set()
        self._wrapped: set[type] = set()
        self._settle_after_call = False
        """Whether to settle as soon as the running model has returned."""

    @property
    def on(self) -> bool:
        """Whether every module is hooked."""
        return bool(self._handles)

    def install(self) -> None:
        """Hook every module."""
        self._running, self._settle_after_call = [], False
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._before_module),
            module_hooks.register_module_forward_hook(self._after_module, always_call=True),
        ]

    def remove(self) -> None:
        """Remove the hooks on every module."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def covers(self, parameters: list[torch.Tensor]) -> bool:
        """Return whether all of these belong to models that were found."""
        covered = {id(parameter) for model in self._models for parameter in model.parameters()}
        return all(id(parameter) in covered for parameter in parameters)

    def add_compiled(self, model: nn.Module) -> None:
        """Add a model that is about to be compiled in place."""
        self._add(model)
        self._wrap(type(model))

    def settle(self) -> None:
        """Hook only the models that were found, by their classes."""
        if self._running:
            self._settle_after_call = True
            return
        self.remove()
        for cls in self._classes:
            if not issubclass(cls, WRAPPERS):
                self._wrap(cls)

    def _before_module(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or self._running or private_api.in_backward():
            return
        if any(parameter.requires_grad for parameter in module.parameters()):  # A loss has none.
            wrapped = id(module) in self._ids and type(module) in self._wrapped
            recorded = not wrapped and not isinstance(module, WRAPPERS)
            self._running.append((module, recorded))
            self._add(module)
            if recorded:
                self._begin((module, *args), {})

    def _after_module(self, module: nn.Module, args: Any, result: Any) -> None:
        if self._running and self._running[-1][0] is module:
            _, recorded = self._running.pop()
            if recorded:
                self._end()
            if self._settle_after_call and not self._running:
                self.settle()

    def _add(self, model: nn.Module) -> None:
        if id(model) not in self._ids:
            self._ids.add(id(model))
            self._models.add(model)
            self._classes.add(type(model))
            if isinstance(model, WRAPPERS):  # The inner model may be called to validate.
                self._classes.add(type(model.module))
            on_delete(model, self._ids.discard, id(model))

    def _wrap(self, cls: type) -> None:
        """Wrap the ``__call__`` of a class, for the models that were found."""
        if cls in self._wrapped or "OptimizedModule" in cls.__name__:
            return
        self._wrapped.add(cls)
        setattr(cls, "__call__", self._around(cls.__call__, self._ids))
