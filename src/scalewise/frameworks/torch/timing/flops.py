"""The operations of a model, counted on a twin of it that has shapes and no numbers.

Products of matrices and convolutions count, forward and backward, a multiply
and an add as two. The backward of a product is one more of the same size for
each of its two operands that has something to learn from; so nothing needs to
go backward, and what a run computes again there is not counted: it is not the
model's work. How kernels are fused or compiled changes nothing either.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
AFTER_ADDEND = (aten.addmm, aten.baddbmm)
"""Products whose first argument is only added."""


def flops_per_sample(
    model: nn.Module, shape: tuple[int, int, int] | int, batch: int
) -> tuple[int | None, str]:
    """Return the operations of one sample, or nothing and why they cannot be counted.

    Whatever a workload does that needs real numbers, its training goes on without a count.
    """
    try:
        return count_flops(model, shape, batch), ""
    except Exception as bad:
        told = str(bad).partition("\n")[0].strip()
        return None, f"{type(bad).__name__}: {told}" if told else type(bad).__name__


def count_flops(model: nn.Module, shape: tuple[int, int, int] | int, batch: int) -> int:
    """Return the operations that a sample of a batch takes, forward and backward.

    Counted in a whole batch, as some models (batch normalization) take no single sample.
    """
    twin = _twin(model).train()
    sides = (batch, shape) if isinstance(shape, int) else (batch, *shape)
    kind = torch.long if isinstance(shape, int) else torch.float32
    inputs = torch.empty(sides, dtype=kind, device="meta")
    counter = FlopCounter()
    with sdpa_kernel(SDPBackend.MATH), counter:  # Attention as its plain products.
        twin(inputs)
    return round(counter.total / batch)


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's.
    """Adds up the operations of every product that is asked for, and of its backward."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch's.
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        kind = func._overloadpacket
        if formula := flop_registry.get(kind):
            first = 1 if kind in AFTER_ADDEND else 0
            learning = sum(each.requires_grad for each in args[first : first + 2])
            self.total += formula(*args, **(kwargs or {}), out_val=out) * (1 + learning)
        return out


def _twin(model: nn.Module) -> nn.Module:
    """Return a copy of a model that shares nothing with it and has no numbers."""
    kept = [each for part in model.modules() for each in vars(part).values()]
    found = [*model.parameters(), *model.buffers(), *(x for x in kept if isinstance(x, Tensor))]
    return copy.deepcopy(model, {id(each): _on_meta(each) for each in found})


def _on_meta(each: Tensor) -> Tensor:
    there = torch.empty_like(each, device="meta")
    if isinstance(each, nn.Parameter):
        return nn.Parameter(there, requires_grad=each.requires_grad)
    return there
