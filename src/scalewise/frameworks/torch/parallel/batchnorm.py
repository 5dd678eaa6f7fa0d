"""Synchronized batch normalization: statistics over the batches of all replicas."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from scalewise.errors import SpecError
from scalewise.frameworks.torch.parallel.mesh import axis_size
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


@torch.no_grad()
def share_statistics(model: nn.Module, mesh: DeviceMesh) -> None:
    """Give all replicas the running statistics of the first, which are those that are saved.

    Each replica has statistics of its own batches. DDP does the same before each step's forward.
    """
    modules = [module for module in model.modules() if isinstance(module, BATCHNORM_CLASSES)]
    statistics = [buffer for module in modules for buffer in module.buffers()]
    for axis in ("shard", "replicate"):
        if statistics and axis_size(mesh, axis) > 1:
            group = mesh.get_group(axis)
            for buffer in statistics:
                dist.broadcast(buffer, dist.get_global_rank(group, 0), group=group)
