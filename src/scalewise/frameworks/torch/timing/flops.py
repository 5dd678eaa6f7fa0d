"""Count the FLOP of a model, with a forward of its copy on the meta device.

Matrix products and convolutions are counted, a multiply-add as two FLOP. Backward is not run: for
each operand of a product that requires a gradient, it costs as much as the product itself.
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
"""Products whose first argument is added to the product of the next two."""


def flops_per_sample(model: nn.Module, shape: Shape, batch: int) -> tuple[int | None, str]:
    """Return the FLOP of one sample and "", or None and the reason why they cannot be counted."""
    try:
        return count_flops(model, shape, batch), ""
    except Exception as error:
        message = str(error).partition("\n")[0].strip()
        return None, ": ".join(filter(None, [type(error).__name__, message]))


def count_flops(model: nn.Module, shape: Shape, batch: int) -> int:
    """Return the FLOP per sample, forward and backward. Batch norms may refuse a batch of 1."""
    meta_model = _meta_copy(model).train()
    input_shape = (batch, shape) if isinstance(shape, int) else (batch, *shape)
    dtype = torch.long if isinstance(shape, int) else torch.float32
    inputs = torch.empty(input_shape, dtype=dtype, device="meta")
    counter = FlopCounter()
    with sdpa_kernel(SDPBackend.MATH), counter:  # This kernel dispatches plain matrix products.
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
            operands = args[1:3] if operator in ADDEND_FIRST else args[:2]
            backward_products = sum(operand.requires_grad for operand in operands)
            self.total += formula(*args, **(kwargs or {}), out_val=out) * (1 + backward_products)
        return out


def _meta_copy(model: nn.Module) -> nn.Module:
    """Return a deep copy of a model on the meta device: its tensors have shapes but no values."""
    attributes = [value for module in model.modules() for value in vars(module).values()]
    tensors = [value for value in attributes if isinstance(value, Tensor)]
    copies = {id(t): torch.empty_like(t, device="meta") for t in [*tensors, *model.buffers()]}
    for parameter in model.parameters():
        meta = torch.empty_like(parameter, device="meta")
        copies[id(parameter)] = nn.Parameter(meta, requires_grad=parameter.requires_grad)
    # ``copies`` is deepcopy's memo: for these tensors it uses them instead of its own copies.
    return copy.deepcopy(model, copies)
