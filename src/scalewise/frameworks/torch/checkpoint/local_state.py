"""The part of a model, an optimizer or a tensor that this rank holds, and the bytes of it."""

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def local_tensor(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor, which may be a DTensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def local_stages(model: nn.Module) -> Iterable[nn.Module]:
    """Return this rank's pipeline stages. Their parameters have the serial model's names."""
    return cast(Iterable[nn.Module], model) if isinstance(model, nn.ModuleList) else [model]


def local_optimizer(optimizer: Optimizer) -> Any:
    """Return the optimizer of this rank's parameters. ZeroRedundancyOptimizer has it inside."""
    return getattr(optimizer, "optim", optimizer)


def optimizer_parameters(optimizer: Optimizer) -> list[Tensor]:
    """Return all parameters that an optimizer updates."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def state_bytes(optimizer: Optimizer) -> dict[str, int]:
    """Return the bytes of this rank's parameters, gradients and optimizer state."""
    if hasattr(optimizer, "state_bytes"):  # DeepSpeed's optimizer counts its own memory.
        sizes: dict[str, int] = optimizer.state_bytes()
        return sizes
    parameters = optimizer_parameters(optimizer)
    states = local_optimizer(optimizer).state.values()
    values = [value for state in states for value in state.values()]
    return {
        "parameters": _total_bytes(parameters),
        "gradients": _total_bytes(p.grad for p in parameters if p.grad is not None),
        "optimizer": _total_bytes(value for value in values if isinstance(value, Tensor)),
    }


def _total_bytes(tensors: Iterable[Tensor]) -> int:
    with torch.no_grad():
        return sum(local.numel() * local.element_size() for local in map(local_tensor, tensors))
