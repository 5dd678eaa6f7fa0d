"""Tell which forwards a training step uses: others add no samples.

A loop may skip a batch whose loss is not finite, compute a test loss with gradients enabled, or act
with the policy before it trains. Of a program without loaders, the autograd graph says which
forwards a backward uses. With loaders, a batch is skipped if the results of all its forwards were
deleted before the backward of a later batch: a mark in the ``metadata`` of an autograd node is
deleted with the node.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from weakref import ref

import torch

from scalewise.watch.torch.sample_counts import Discarded

MARK = "scalewise"
MAX_FORWARDS = 4096
"""Of a step with more forwards, nothing is said."""
MAX_TENSORS = 8
"""So many tensors of a model's result are examined."""
MAX_NODES = 20_000
"""A search in a larger graph is given up; then all forwards count as used."""


class GraphMark:
    """Lives as long as one of the autograd nodes that it was given to."""

    __slots__ = ("__weakref__",)


class Forward:
    """A call of a model with gradients, since the last step of an optimizer."""

    __slots__ = ("batch", "is_used", "mark", "nodes", "skips_batch")

    def __init__(self, batch: int, result: Any) -> None:
        self.batch = batch
        """How many batches loaders had given before it."""
        self.is_used: bool | None = None
        """None until a backward decides."""
        self.skips_batch = False
        self.nodes: set[int] = set()
        """Sequence numbers of the result's autograd nodes."""
        self.mark: ref[GraphMark] | None = None
        """None if the result has no autograd node."""
        mark = None
        for node in graph_nodes(result):
            self.nodes.add(sequence_number(node))
            mark = mark or GraphMark()
            node.metadata[MARK] = mark
        if mark is not None:
            self.mark = ref(mark)

    @property
    def is_deleted(self) -> bool:
        return self.mark is not None and self.mark() is None


class ForwardUses:
    """The forwards since the last optimizer step, and which of them were used."""

    def __init__(self) -> None:
        self.forwards: list[Forward] = []

    def add(self, batch: int, result: Any) -> None:
        """Note a forward."""
        if len(self.forwards) < MAX_FORWARDS:
            self.forwards.append(Forward(batch, result))

    def backward(self, loss: Any) -> None:
        """Decide which of several forwards a backward uses."""
        undecided = [forward for forward in self.forwards if forward.is_used is None]
        if not undecided:
            return
        last = undecided[-1].batch
        if not last:
            for forward in find_used(undecided, [loss]):
                forward.is_used = True
            return
        used_batches = {forward.batch for forward in undecided if not forward.is_deleted}
        for forward in undecided:
            is_skipped = forward.batch < last and forward.batch not in used_batches
            forward.is_used, forward.skips_batch = not is_skipped, is_skipped

    def differentiate(self, outputs: Any, gradients: Any) -> None:
        """Let gradients of ``torch.autograd.grad`` that have a graph stand for the forwards that
        they were computed from.
        """
        nodes = {sequence_number(node) for node in graph_nodes(gradients)}
        if nodes:
            for forward in find_used(self.forwards, find_tensors(outputs)):
                forward.nodes |= nodes

    def discarded(self) -> tuple[Discarded, ...]:
        """Return the forwards that were not used, when an optimizer's step ends; if none was, the
        gradients were computed in another way.
        """
        if not any(forward.is_used for forward in self.forwards):
            return ()
        return tuple(
            (index, forward.skips_batch)
            for index, forward in enumerate(self.forwards)
            if not forward.is_used and (forward.skips_batch or not forward.batch)
        )


def find_used(forwards: list[Forward], losses: Iterable[Any]) -> list[Forward]:
    """Return the forwards whose results lead to a loss; all of them if that is unclear."""
    targets = {node for forward in forwards for node in forward.nodes}
    unclear = [forward for forward in forwards if not forward.nodes]
    if not targets or -1 in targets:
        return forwards
    first, reached, visited = min(targets), set(), set()
    stack = [node for loss in losses if (node := getattr(loss, "grad_fn", None)) is not None]
    while stack:
        node = stack.pop()
        number = sequence_number(node)
        if node in visited or number < first:  # A graph leads from later nodes to earlier ones.
            continue
        visited.add(node)
        if len(visited) > MAX_NODES:
            return forwards
        reached.add(number)
        stack += [earlier for earlier, _ in node.next_functions if earlier is not None]
    return [*unclear, *(forward for forward in forwards if forward.nodes & reached)]


def sequence_number(node: Any) -> int:
    """Return a number that grows with each autograd node; -1 if this PyTorch has none."""
    return int(getattr(node, "_sequence_nr", lambda: -1)())


def graph_nodes(result: Any) -> Iterator[Any]:
    """Yield the autograd nodes of the first tensors in a model's result."""
    tensors = iter([result]) if isinstance(result, torch.Tensor) else find_tensors(result)
    for tensor, _ in zip(tensors, range(MAX_TENSORS)):
        if tensor.grad_fn is not None:
            yield tensor.grad_fn


def find_tensors(values: Any, depth: int = 3) -> Iterator[torch.Tensor]:
    """Yield the tensors in containers and attributes."""
    if isinstance(values, torch.Tensor):
        yield values
    elif depth:
        if isinstance(values, Mapping):
            values = values.values()
        elif not isinstance(values, (list, tuple)):
            values = getattr(values, "__dict__", {}).values()
        for value in values:
            yield from find_tensors(value, depth - 1)
