"""What this rank holds of a model's state, counted in its own tensors."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def local_tensor(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor that may be spread over devices."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def optimizer_parameters(optimizer: Optimizer) -> list[Tensor]:
    """Return all that an optimizer updates."""
    return [each for group in optimizer.param_groups for each in group["params"]]


def state_bytes(optimizer: Optimizer) -> dict[str, int]:
    """Return the bytes of parameters, of their gradients, and of what the optimizer remembers."""
    if hasattr(optimizer, "held"):  # An engine's own: it knows where they lie.
        own: dict[str, int] = optimizer.held()
        return own
    parameters = optimizer_parameters(optimizer)
    inner: Any = getattr(optimizer, "optim", optimizer)  # ZeRO keeps its part in another one.
    remembered = [value for each in inner.state.values() for value in each.values()]
    return {
        "parameters": _bytes(parameters),
        "gradients": _bytes(each.grad for each in parameters if each.grad is not None),
        "optimizer": _bytes(each for each in remembered if isinstance(each, Tensor)),
    }


def _bytes(tensors: Iterable[Tensor]) -> int:
    with torch.no_grad():
        return sum(each.numel() * each.element_size() for each in map(local_tensor, tensors))
