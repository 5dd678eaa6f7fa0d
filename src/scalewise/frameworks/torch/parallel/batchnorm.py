"""Synchronized batch normalization: statistics over the batches of all replicas."""

from typing import Any

import torch
from torch import nn

from scalewise.errors import SpecError
from scalewise.spec import RunSpec

BATCHNORM_CLASSES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def has_batchnorm(model: nn.Module) -> bool:
    """Return whether a model has batch normalization layers."""
    return any(isinstance(module, BATCHNORM_CLASSES) for module in model.modules())


def convert_sync_batchnorm(model: nn.Module, spec: RunSpec, device: torch.device) -> nn.Module:
    """Return the model; if the run has ``sync_batchnorm``, its batch norms are synchronized."""
    if not spec.sync_batchnorm:
        return model
    if device.type == "cpu":
        hint = "leave sync_batchnorm out"
        raise SpecError("sync_batchnorm needs accelerators, and this rank has cpu", hint=hint)
    if spec.replicas == 1:
        return model
    convert: Any = nn.SyncBatchNorm.convert_sync_batchnorm
    converted: nn.Module = convert(model)
    return converted
