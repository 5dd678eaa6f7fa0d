"""Count the FLOP of a model on a copy on the meta device.

Matrix products and convolutions count, a multiply-add as two. The backward of a product is one
more of the same size for each operand that requires a gradient, so no backward has to run.
Recomputation is not counted, and fusing or compiling kernels does not change the count.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from scalewise.frameworks.data_source import Shape

aten = torch.ops.aten
ADDEND_FIRST = (aten.addmm, aten.baddbmm)
"""Products whose first argument is only added."""


def flops_per_sample(model: nn.Module, shape: Shape, batch: int) -> tuple[int | None, str]:
    """Return the FLOP of one sample and "", or None and the reason why they cannot be counted."""
    try:
        return count_flops(model, shape, batch), ""
    except Exception as error:
        message = str(error).partition("\n")[0].strip()
        return None, ": ".join(filter(None, [type(error).__name__, message]))


def count_flops(model: nn.Module, shape: Shape, batch: int) -> int:
    """Return the FLOP per sample, forward and backward; batch normalization needs a full batch."""
    meta_model = _meta_copy(model).train()
    sides = (batch, shape) if isinstance(shape, int) else (batch, *shape)
    dtype = torch.long if isinstance(shape, int) else torch.float32
    inputs = torch.empty(sides, dtype=dtype, device="meta")
    counter = FlopCounter()
    with sdpa_kernel(SDPBackend.MATH), counter:  # Attention as its plain matrix products.
        meta_model(inputs)
    return round(counter.total / batch)


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's.
    """Sums the FLOP of every product that is dispatched, and of its backward."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch's.
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        operator = func._overloadpacket
        if formula := flop_registry.get(operator):
            first = 1 if operator in ADDEND_FIRST else 0
            gradients = sum(operand.requires_grad for operand in args[first : first + 2])
            self.total += formula(*args, **(kwargs or {}), out_val=out) * (1 + gradients)
        return out


def _meta_copy(model: nn.Module) -> nn.Module:
    """Return a deep copy of a model on the meta device: shapes without values."""
    attributes = [value for module in model.modules() for value in vars(module).values()]
    plain = [value for value in attributes if isinstance(value, Tensor)]
    copies = {id(t): torch.empty_like(t, device="meta") for t in [*plain, *model.buffers()]}
    for parameter in model.parameters():
        meta = torch.empty_like(parameter, device="meta")
        copies[id(parameter)] = nn.Parameter(meta, requires_grad=parameter.requires_grad)
    # deepcopy takes copies that are in its memo instead of making them.
    return copy.deepcopy(model, copies)
