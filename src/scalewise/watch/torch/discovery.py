"""Find the models that a program trains, and the size of its batches."""

import copy
import functools
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Container, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from scalewise.watch.torch import private_api

WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel)
"""Wrappers around a user's model; their ``forward`` is hooked separately."""
MAX_DEPTH = 4
"""How many levels of containers in a batch are searched."""

SamplesAndTensor = tuple[int | None, torch.Tensor | None]
"""The number of samples in a batch, if known, and its first tensor."""


def samples_and_tensor(
    values: Any, drawn: int | None = None, depth: int = MAX_DEPTH
) -> SamplesAndTensor:
    """Return the number of samples in a batch, None if unclear, and its first tensor.

    The number is usually that tensor's first dimension. A list may have one entry per sample: its
    length is the number if the other parts of the batch are as long. A list alone is unclear.
    ``drawn`` is how many samples the loader's sampler drew. It is the number if the tensor
    concatenates the samples and another part of the batch has ``drawn`` entries.

    >>> samples_and_tensor({"x": torch.zeros(8, 3), "y": 1})[0]
    8
    >>> samples_and_tensor(([torch.zeros(3, 9, 9), torch.zeros(3, 7, 7)], [{}, {}]))[0]
    2
    >>> samples_and_tensor((torch.zeros(500), torch.zeros(64)), drawn=64)[0]
    64
    """
    if isinstance(values, torch.Tensor):
        return first_size(values), values
    if isinstance(values, nn.utils.rnn.PackedSequence):
        return int(values.batch_sizes[0]), values.data
    if depth == 0:
        return None, None
    if isinstance(values, Mapping):
        values = values.values()
    elif not isinstance(values, (list, tuple)):
        inner = getattr(values, "data", None)  # Transformers' BatchEncoding has such a mapping.
        if not isinstance(inner, Mapping):
            return _search_attributes(values, drawn, depth)
        values = inner.values()
    if (samples := _samples_of_list(values, drawn)) is not None:
        return samples, samples_and_tensor(values[0], depth=depth - 1)[1]
    return _search_parts(values, drawn, depth)


def first_size(tensor: torch.Tensor) -> int | None:
    """Return a tensor's first size, None if it has none; a nested tensor has no other sizes."""
    return tensor.size(0) if tensor.dim() else None


def samples_rows_and_tensor(
    batch: Any, drawn: int | None, *, exact: bool
) -> tuple[int | None, int | None, torch.Tensor | None]:
    """Return the samples of a loader's batch, None if unclear; its rows, and its first tensor.

    If the sampler drew exactly that many, these count: not rows that concatenate views of them,
    pairs, tokens or nodes. But fewer count if a collate function left some of them out.

    >>> samples_rows_and_tensor(torch.zeros(16, 3), 8, exact=True)[:2]
    (8, 16)
    >>> samples_rows_and_tensor(torch.zeros(7, 3), 8, exact=True)[:2]
    (7, 7)
    """
    rows, tensor = samples_and_tensor(batch, drawn)
    if drawn is None or not exact:
        return rows, rows, tensor
    if drawn < 2 * (total := _rows_of_group(batch)) <= 2 * drawn:
        return total, total, tensor
    if rows is not None and tensor is not None and drawn < 2 * rows < 2 * drawn:
        has_sequences_first = tensor.dim() == 3 and tensor.size(1) == drawn
        if first_size(tensor) == rows and not has_sequences_first:
            return rows, rows, tensor
    return drawn, rows, tensor


def _rows_of_group(batch: Any) -> int:
    """Return the rows of a batch that is a list of ready batches, else 0.

    >>> _rows_of_group([{"x": torch.zeros(4, 3)}, {"x": torch.zeros(3, 3)}])
    7
    >>> _rows_of_group((torch.zeros(4, 3), torch.zeros(4)))
    0
    """
    if not isinstance(batch, (list, tuple)) or len(batch) < 2:
        return 0
    if not all(isinstance(part, (list, tuple, Mapping)) for part in batch):
        return 0
    return sum(samples_and_tensor(part, depth=MAX_DEPTH - 1)[0] or 0 for part in batch)


def input_rows_and_tensor(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], loaded_rows: Container[int]
) -> SamplesAndTensor:
    """Return the rows of a model's input, None if its tensors disagree, and its first tensor.

    A tensor with as many rows as a recent batch of the loader needs no other that agrees.
    """
    rows, tensor = samples_and_tensor(args)
    if tensor is None:
        rows, tensor = samples_and_tensor(kwargs)
    if tensor is None:
        return rows, None
    if isinstance(tensor, nn.Parameter):  # What is trained, such as an image, is no data.
        return None, tensor
    mapped = private_api.unbatched(tensor)[1]
    if mapped > 1:  # Inside ``torch.func.vmap``.
        return mapped * (rows or 1), None
    # A list of two mappings may be the features of pairs, and not two samples.
    size = first_size(tensor) or 0
    if (rows is None or rows < size) and size in loaded_rows:
        rows = size
    return (1 if is_one_sample(model, tensor) else rows), tensor


def _search_parts(parts: Any, drawn: int | None, depth: int) -> SamplesAndTensor:
    is_sequence = isinstance(parts, (list, tuple))
    part_sizes = list(filter(None, map(_possible_sizes, parts))) if is_sequence or drawn else []
    entries = _common_size(part_sizes) if is_sequence else None  # Parts have one entry per sample.
    for part in parts:
        samples, tensor = samples_and_tensor(part, drawn, depth - 1)
        if samples is None:
            continue
        if is_sequence and len(part_sizes) == 1 and len(part_sizes[0]) > 1:
            return None, tensor  # The only part with a size has several possible numbers.
        if entries is None and drawn and _is_drawn_batch(drawn, samples, tensor, part_sizes):
            entries = drawn
        if entries is None and is_sequence:
            entries = _count_sequences(parts)
        if entries is None and drawn is None and _is_contradicted(tensor, parts):
            return None, tensor
        return entries or samples, tensor
    return entries, None


def _is_contradicted(tensor: Any, parts: Any) -> bool:
    """Return whether the other tensors have other first sizes than the first tensor.

    These say nothing: one row that is for all samples, the target of each token in one row, a mask
    or another tensor for each position of a sequence, a recurrent layer's state.
    """
    if tensor is None or tensor.is_nested or not tensor.dim():
        return False
    sizes = list(tensor.shape)
    shapes = [
        list(other.shape) for part in parts for other in _tensors(part) if other is not tensor
    ]
    for shape in shapes:
        if shape[0] == sizes[0] or (len(shape) == 3 and shape[1] == sizes[0]):
            return False
    per_token = {sizes[0] * sizes[1], sizes[1]} if len(sizes) > 1 else set()
    return any(shape[0] not in {1, *per_token} for shape in shapes)


def has_equal_rows(batch: Any, rows: int | None) -> bool:
    """Return whether several tensors of a batch have this first size."""
    parts = batch.values() if isinstance(batch, Mapping) else batch
    if not isinstance(batch, (Mapping, list, tuple)):
        return False
    return sum(first_size(tensor) == rows for part in parts for tensor in _tensors(part)) > 1


def _tensors(part: Any) -> list[torch.Tensor]:
    """Return the tensors in a part of a batch that have sizes."""
    if isinstance(part, nn.utils.rnn.PackedSequence):
        return []
    items = part if isinstance(part, (list, tuple)) else [part]
    tensors = [item for item in items if isinstance(item, torch.Tensor) and item.dim()]
    return [tensor for tensor in tensors if not tensor.is_nested]


def _is_drawn_batch(drawn: int, samples: int, tensor: Any, part_sizes: list[list[int]]) -> bool:
    """Return whether a batch has ``drawn`` samples, although its first tensor has ``samples`` rows.

    Then another part must have ``drawn`` entries. The answer is False if only one sample was drawn,
    which proves nothing, or if there are fewer rows than samples: some were combined into one row.
    """
    if samples == drawn:
        return True
    # A multiple of ``drawn`` images may be several views of each image: views count as samples.
    concatenated = tensor is not None and (tensor.ndim < 3 or samples % drawn > 0)
    return 1 < drawn < samples and concatenated and any(drawn in sizes for sizes in part_sizes)


def _samples_of_list(values: Any, drawn: int | None) -> int | None:
    """Return how many samples a list has if each entry is a mapping or an image; else None."""
    if type(values) is not list or not values:
        return None
    if all(isinstance(value, Mapping) for value in values):
        # Two mappings may be inputs and labels instead of two samples.
        is_parts = drawn not in (None, len(values)) and samples_and_tensor(values[0])[0] == drawn
        return None if is_parts else len(values)
    images = all(not isinstance(value, torch.Tensor) or value.ndim == 3 for value in values)
    # A list of two entries may be inputs and labels instead of two samples.
    return drawn if drawn and drawn > 2 and len(values) == drawn and images else None


def _search_attributes(batch: Any, drawn: int | None, depth: int) -> SamplesAndTensor:
    """Search an unknown object's attributes, if ``num_graphs`` or ``drawn`` confirms the number."""
    try:
        graphs = getattr(batch, "num_graphs", None)  # PyTorch Geometric's number of samples.
    except Exception:
        graphs = None
    if not isinstance(graphs, int) and drawn is None:
        return None, None
    samples, tensor = samples_and_tensor(getattr(batch, "__dict__", {}), drawn, depth - 1)
    if isinstance(graphs, int):
        return graphs, tensor
    return (drawn, tensor) if samples == drawn else (None, None)


def _common_size(part_sizes: list[list[int]]) -> int | None:
    """Return a size that is possible for all parts; None if there is none, or only one part."""
    common = set(part_sizes[0]).intersection(*part_sizes[1:]) if len(part_sizes) > 1 else set()
    return next((size for size in part_sizes[0] if size in common), None) if common else None


def _count_sequences(parts: list[Any] | tuple[Any, ...]) -> int | None:
    """Return the number of samples in a batch of sequences of several lengths; None if unclear.

    Usually each part is one sample. But if most parts of a tuple are equally long, these have one
    entry per sample (labels, offsets), and another part concatenates the tokens of all samples.
    """
    if len(parts) < 3 or not all(isinstance(part, torch.Tensor) and part.ndim for part in parts):
        return None  # Two parts may be an input and its label.
    lengths = Counter(part.shape[0] for part in parts)
    if len(lengths) < 2 or len({(part.dtype, part.shape[1:]) for part in parts}) > 1:
        return None
    length, count = lengths.most_common(1)[0]
    return length if isinstance(parts, tuple) and 2 * count > len(parts) else len(parts)


def _possible_sizes(part: Any) -> list[int]:
    """Return the sizes of a part that may be the number of samples, the likeliest first."""
    if isinstance(part, torch.Tensor):
        return [part.size(0)] if part.ndim else []
    if isinstance(part, nn.utils.rnn.PackedSequence):
        return [int(part.batch_sizes[0])]
    if not isinstance(part, (list, tuple)) or not part:
        return []
    lengths = {
        item.size(0) if isinstance(item, torch.Tensor) and item.ndim else None for item in part
    }
    length = lengths.pop()
    if lengths or length is None:  # The items have several lengths, or none.
        return [len(part)]
    return [length, len(part)] if len(part) > 1 else [length]


def is_one_sample(model: nn.Module, value: torch.Tensor) -> bool:
    """Return whether a vector is one sample: its length is the first linear layer's input size.

    >>> is_one_sample(nn.Linear(4, 2), torch.zeros(4))
    True
    >>> is_one_sample(nn.Linear(1, 2), torch.zeros(4))
    False
    """
    if value.dim() != 1 or not value.is_floating_point():
        return False
    linear = next((layer for layer in model.modules() if isinstance(layer, nn.Linear)), None)
    return linear is not None and linear.in_features == value.shape[0]


def largest_parts(model: nn.Module) -> list[nn.Module]:
    """Return the module inside a model that has most of its weights, and so on, outermost first;
    no single layers of PyTorch's own.

    >>> net = nn.Sequential(nn.Sequential(nn.Linear(2, 9), nn.ReLU()), nn.Linear(9, 1))
    >>> [type(part).__name__ for part in largest_parts(net)]
    ['Sequential']
    """
    parts = []
    size = count_weights(model)
    for child in model.children():
        is_layer = (
            type(child).__module__.startswith("torch.nn") and type(child) is not nn.Sequential
        )
        if not is_layer and 2 * count_weights(child) > size > 0:
            parts = [child, *largest_parts(child)]
    return parts


def count_weights(model: nn.Module) -> int:
    """Return the elements of a model's parameters, without lazy ones, which have no size yet.

    >>> count_weights(nn.Sequential(nn.Linear(2, 9), nn.LazyLinear(1)))
    27
    """
    return sum(weight.numel() for weight in model.parameters() if not nn.parameter.is_lazy(weight))


def on_delete(target: Any, callback: Callable[..., Any], *args: Any) -> None:
    """Have a function called when a model or optimizer is garbage-collected."""
    weakref.finalize(target, callback, *args).atexit = False


class WatchedCall(functools.partial[Any]):
    """A wrapped ``__call__`` that is pickled as the original."""

    def __reduce__(self) -> Any:
        return copy.copy, (self.func.__wrapped__,)  # type: ignore[attr-defined]


def set_call(cls: type, watched: Callable[..., Any]) -> None:
    """Replace a class's ``__call__`` by a wrapper of it. Users may pickle the class by value, or
    trace it with ``torch.fx``, which replaces ``nn.Module.__call__`` meanwhile.
    """
    original, compiling = watched.__wrapped__, torch.compiler.is_compiling  # type: ignore[attr-defined]
    module, watched_call = nn.Module, WatchedCall(watched)
    is_plain = original is module.__call__

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(*args, **kwargs)
        if is_plain and module.__call__ is not original:
            return module.__call__(*args, **kwargs)
        return watched_call(*args, **kwargs)

    setattr(cls, "__call__", call)


class Discovery:
    """Hooks all modules for a few steps, which slows these steps by a few percent.

    Then ``settle`` removes these hooks, and wraps ``__call__`` of the trained models' classes. A
    model here is a module that the program calls, not a module inside another module.
    """

    def __init__(
        self,
        before_call: Callable[..., Any],
        after_call: Callable[..., None],
        safe: Callable[[Callable[..., Any]], Callable[..., None]],
        wrap_call: Callable[..., Callable[..., Any]],
        wrap_inner_call: Callable[..., Callable[..., Any]],
        is_elsewhere: Callable[[nn.Module], bool],
        on_time_first_layer: Callable[[Any], None],
    ) -> None:
        self._before_call, self._after_call, self._wrap_call = before_call, after_call, wrap_call
        self._safe = safe
        self._on_time_first_layer = on_time_first_layer
        """Takes the input of a layer that has the time first, inside a model that is called."""
        self._wrap_inner_call, self._is_elsewhere = wrap_inner_call, is_elsewhere
        self._handles: list[Any] = []
        self._running: tuple[nn.Module, bool] | None = None
        """The model that is being called, and whether these hooks record the call."""
        self._handled: BaseException | None = None
        """The exception that the program was handling when it called this model."""
        self._ids: set[int] = set()
        """Ids of the models found so far; the wrapped ``__call__`` methods read this set."""
        self._models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._classes: set[type] = set()
        self._inner_classes: set[type] = set()
        """Classes of the largest parts of the models, which a method such as ``model.sample`` calls
        instead of the model."""
        self._wrapped: set[type] = set()
        self._originals: dict[type, Callable[..., Any]] = {}
        """By wrapped class: its ``__call__`` before it was wrapped."""
        self._all_instances: set[type] = set()
        """Classes of which all instances are recorded."""
        self._short_lived: set[type] = set()
        """Classes of models that were deleted while every module was hooked: they may be made anew
        for every call. All their instances are recorded."""
        self.found = 0
        """How many models were found."""
        self._settle_after_call = False
        """Whether to settle as soon as the running model has returned."""

    @property
    def active(self) -> bool:
        """Whether every module is hooked."""
        return bool(self._handles)

    def install(self) -> None:
        self._running, self._settle_after_call = None, False
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._safe(self._before_module)),
            module_hooks.register_module_forward_hook(
                self._safe(self._after_module), always_call=True
            ),
        ]

    def interrupt(self) -> None:
        """Settle now: a compiler would trace these hooks. A call that is running ends here."""
        if self._running is not None:
            (_, recorded), self._running = self._running, None
            if recorded:
                self._after_call(has_failed=False)
        self.settle()

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def covers(self, parameters: list[torch.Tensor]) -> bool:
        """Return whether all these parameters belong to models that were found."""
        covered = {id(parameter) for model in self._models for parameter in model.parameters()}
        return all(id(parameter) in covered for parameter in parameters)

    def add_compiled(self, model: nn.Module) -> None:
        """Add a model that is about to be compiled in place."""
        self._add(model)
        self._wrap(type(model))

    def settle(self) -> None:
        """Hook only the models that were found, by their classes."""
        if self._running is not None:
            self._settle_after_call = True
            return
        self.remove()
        for cls in self._classes:
            if not issubclass(cls, WRAPPERS):
                self._wrap(cls)
        for cls in self._inner_classes - self._classes:
            if cls not in self._wrapped and "OptimizedModule" not in cls.__name__:
                self._wrapped.add(cls)
                self._originals[cls] = cls.__call__
                set_call(cls, self._wrap_inner_call(cls.__call__))
        for cls in self._short_lived:
            self._wrap_all_instances(cls)
        self._short_lived = set()

    def _before_module(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or private_api.in_backward():
            return
        if self._running:
            if getattr(module, "batch_first", True) is False and args:
                self._on_time_first_layer(args[0])
            return
        if self._is_elsewhere(module):
            return
        if any(parameter.requires_grad for parameter in module.parameters()):  # Not in a loss.
            # A wrapped ``__call__`` or ``forward`` records the call itself.
            wrapped = id(module) in self._ids and type(module) in self._wrapped
            wrapped |= type(module) in self._all_instances
            recorded = not wrapped and not isinstance(module, WRAPPERS)
            self._running, self._handled = (module, recorded), sys.exc_info()[1]
            self._add(module)
            if recorded:
                self._before_call((module, *args), {})

    def _after_module(self, module: nn.Module, args: Any, result: Any) -> None:
        if self._running is not None and self._running[0] is module:
            (_, recorded), self._running = self._running, None
            if recorded:
                has_failed = result is None and sys.exc_info()[1] is not self._handled
                self._after_call(has_failed=has_failed)
            self._handled = None
            if self._settle_after_call:
                self.settle()

    def _add(self, model: nn.Module) -> None:
        if id(model) not in self._ids:
            self._ids.add(id(model))
            self._models.add(model)
            self._classes.add(type(model))
            if isinstance(model, WRAPPERS):  # Validation may call the inner model directly.
                self._classes.add(type(model.module))
            self._inner_classes.update(map(type, largest_parts(model)))
            self.found += 1
            on_delete(model, self._forget, id(model), type(model))

    def _forget(self, model_id: int, cls: type) -> None:
        self._ids.discard(model_id)
        if self.active and not issubclass(cls, WRAPPERS):
            self._short_lived.add(cls)

    def _wrap_all_instances(self, cls: type) -> None:
        """Record the calls of all instances of a class, not only of the models that were found."""
        if cls not in self._all_instances and "OptimizedModule" not in cls.__name__:
            self._all_instances.add(cls)
            set_call(cls, self._wrap_call(self._originals.get(cls, cls.__call__)))

    def _wrap(self, cls: type) -> None:
        """Wrap the ``__call__`` of a class, for the models that were found."""
        if cls in self._wrapped or "OptimizedModule" in cls.__name__:
            return  # Wrapped already, here or by ``Hooks.wrap_compiled``.
        self._wrapped.add(cls)
        self._originals[cls] = cls.__call__
        set_call(cls, self._wrap_call(cls.__call__, self._ids))
