"""Find what a script does not say: its model and its batch."""

import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from scalewise.watch.torch import private_api

WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel)
"""Models around models, which are watched by themselves."""
DEPTH = 4
"""How deep a batch is looked into."""


def batch_of(
    values: Any, drawn: int | None = None, depth: int = DEPTH
) -> tuple[int | None, torch.Tensor | None]:
    """Return the samples in a batch and its first tensor: the size of that one's first side.

    Where a part is a list with an entry for each sample, such as images of
    unlike sizes, and the other parts have as many, that number. A list alone
    does not tell which of the two it is. ``drawn`` samples are what a loader put
    together: where the first tensor has their tokens or nodes in a row, and
    another part an entry for each of them, that many.

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
            return _inside(values, drawn, depth)
        values = inner.values()
    if (samples := _samples_of_list(values, drawn)) is not None:
        return samples, batch_of(values[0], depth=depth - 1)[1]
    listed = isinstance(values, (list, tuple))
    sizes = [each for each in map(_sizes, values) if each] if listed or drawn else []
    entries = _entries(sizes) if listed else None
    for each in values:
        samples, found = batch_of(each, drawn, depth - 1)
        if samples is not None:
            unclear = listed and len(sizes) == 1 and len(sizes[0]) > 1
            if entries is None and drawn and _agree(drawn, samples, found, sizes):
                entries = drawn
            if entries is None and listed:
                entries = _sequences(values)
            return None if unclear else entries or samples, found
    return entries, None


def _samples_of_list(values: Any, drawn: int | None) -> int | None:
    """Return how many samples a list holds, if each entry must be one.

    Such as a mapping for each image, or as many images as a loader drew.

    >>> _samples_of_list([{"image": torch.zeros(3, 9, 9)}] * 4, None)
    4
    """
    if type(values) is not list or not values:
        return None
    if all(isinstance(each, Mapping) for each in values):
        return len(values)
    single = all(not isinstance(each, torch.Tensor) or each.ndim == 3 for each in values)
    return drawn if drawn and drawn > 2 and len(values) == drawn and single else None


def _inside(batch: Any, drawn: int | None, depth: int) -> tuple[int | None, torch.Tensor | None]:
    """Look into an object of which nothing is known, if that can tell how many samples it has."""
    try:
        graphs = getattr(batch, "num_graphs", None)  # PyTorch Geometric's word for its samples.
    except Exception:
        graphs = None
    if not isinstance(graphs, int) and drawn is None:
        return None, None
    samples, found = batch_of(getattr(batch, "__dict__", {}), drawn, depth - 1)
    if isinstance(graphs, int):
        return graphs, found
    return (drawn, found) if samples == drawn else (None, None)


def _agree(drawn: int, samples: int, first: torch.Tensor | None, sizes: list[list[int]]) -> bool:
    """Say whether a part of a batch has an entry for each sample that was drawn.

    One of one says nothing. Fewer rows than were drawn are samples put together, and
    a multiple of images may be several views of each: those are samples of their own.
    """
    if samples == drawn:
        return True
    parts = first is not None and (first.ndim < 3 or samples % drawn > 0)
    return 1 < drawn < samples and parts and any(drawn in each for each in sizes)


def _entries(sizes: list[list[int]]) -> int | None:
    """Return how many entries all parts of a batch have, if that is another than their rows."""
    common = set(sizes[0]).intersection(*sizes[1:]) if len(sizes) > 1 else set()
    return next((size for size in sizes[0] if size in common), None) if common else None


def _sequences(parts: list[Any] | tuple[Any, ...]) -> int | None:
    """Return how many sequences of unlike lengths these are, each a sample.

    Two may be an input and its answer. Where most of a tuple are of one length,
    that is the batch: labels, offsets, and the tokens of all samples in a row.
    """
    if len(parts) < 3 or not all(isinstance(each, torch.Tensor) and each.ndim for each in parts):
        return None
    rows = Counter(each.shape[0] for each in parts)
    if len(rows) < 2 or len({(each.dtype, each.shape[1:]) for each in parts}) > 1:
        return None
    size, times = rows.most_common(1)[0]
    return size if isinstance(parts, tuple) and 2 * times > len(parts) else len(parts)


def _sizes(part: Any) -> list[int]:
    """Return what a part of a batch may have as many of as there are samples, likeliest first."""
    if isinstance(part, torch.Tensor):
        return [part.shape[0]] if part.ndim else []
    if not isinstance(part, (list, tuple)) or not part:
        return []
    rows = {
        each.shape[0] if isinstance(each, torch.Tensor) and each.ndim else None for each in part
    }
    row = rows.pop()
    return [len(part)] if rows or row is None else [row, len(part)][: len(part)]


def is_one_sample(model: nn.Module, value: torch.Tensor) -> bool:
    """Say whether a model is given a single sample, and no batch.

    A list of numbers may be either. It is one sample where the model's first
    linear layer wants so many numbers of each, as with what an agent sees.

    >>> is_one_sample(nn.Linear(4, 2), torch.zeros(4))
    True
    >>> is_one_sample(nn.Linear(1, 2), torch.zeros(4))
    False
    """
    if value.dim() != 1 or not value.is_floating_point():
        return False
    first = next((each for each in model.modules() if isinstance(each, nn.Linear)), None)
    return first is not None and first.in_features == value.shape[0]


def when_gone(model: nn.Module, call: Callable[..., Any], *words: Any) -> None:
    """Call a function when a model is no more: what is known of it must not keep it."""
    weakref.finalize(model, call, *words).atexit = False


class Discovery:
    """Watches all modules for two steps, then only the outermost ones that learn.

    Hooks on every module cost a few percent, so they go as soon as they can.
    After that the classes of the models found have their ``__call__`` wrapped.
    """

    def __init__(
        self,
        begin: Callable[..., None],
        end: Callable[[], None],
        around: Callable[..., Callable[..., Any]],
    ) -> None:
        self._begin, self._end, self._around = begin, end, around
        self._handles: list[Any] = []
        self._inside: list[tuple[nn.Module, bool]] = []
        """The outermost model that is being called, and whether we tell of it."""
        self._models: set[int] = set()
        self._alive: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._kinds: set[type] = set()
        self._wrapped: set[type] = set()
        self._enough = False
        """Whether to settle as soon as the model that is called just now has answered."""

    @property
    def on(self) -> bool:
        """Whether it still looks at every module."""
        return bool(self._handles)

    def install(self) -> None:
        """Look at every module from here on."""
        self._inside, self._enough = [], False
        self._handles = [
            register_module_forward_pre_hook(self._enters),
            register_module_forward_hook(self._leaves, always_call=True),
        ]

    def remove(self) -> None:
        """Look at modules no more."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def knows(self, parameters: list[torch.Tensor]) -> bool:
        """Say whether all of these belong to models that were found."""
        known = {id(each) for model in self._alive for each in model.parameters()}
        return all(id(each) in known for each in parameters)

    def know(self, model: nn.Module) -> None:
        """Take this model as found: it is about to be compiled in place."""
        self._found(model)
        self._wrap(type(model))

    def settle(self) -> None:
        """Watch only the models that were found, by their classes."""
        if self._inside:
            self._enough = True
            return
        self.remove()
        for kind in self._kinds:
            if not issubclass(kind, WRAPPERS):
                self._wrap(kind)

    def _enters(self, module: nn.Module, words: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if not self._inside and not private_api.in_backward() and self._learns(module):
            known = id(module) in self._models and type(module) in self._wrapped
            ours = not known and not isinstance(module, WRAPPERS)
            self._inside.append((module, ours))
            self._found(module)
            if ours:
                self._begin((module, *words), {})

    def _leaves(self, module: nn.Module, words: Any, answer: Any) -> None:
        if self._inside and self._inside[-1][0] is module:
            _, ours = self._inside.pop()
            if ours:
                self._end()
            if self._enough and not self._inside:
                self.settle()

    def _found(self, model: nn.Module) -> None:
        if id(model) not in self._models:
            self._models.add(id(model))
            self._alive.add(model)
            self._kinds.add(type(model))
            if isinstance(model, WRAPPERS):  # What is inside may be called to validate.
                self._kinds.add(type(model.module))
            when_gone(model, self._models.discard, id(model))

    def _learns(self, module: nn.Module) -> bool:
        """Say whether a module has parameters to learn: a loss has none."""
        return any(each.requires_grad for each in module.parameters())

    def _wrap(self, kind: type) -> None:
        """Wrap the calls of a class, for the models that were found."""
        if kind in self._wrapped or "OptimizedModule" in kind.__name__:
            return
        self._wrapped.add(kind)
        watched = self._around(kind.__call__, self._models)
        setattr(kind, "__call__", watched)
