"""FSDP and HSDP: parameters, gradients and optimizer state are sharded.

Each block is gathered just before it is used. ``fsdp`` shards over all devices, ``hsdp`` over
those of a node, with replicas across nodes.
"""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from scalewise.frameworks.torch.models.parts import blocks_of
from scalewise.frameworks.torch.parallel.assemble import assemble
from scalewise.frameworks.torch.parallel.mesh import axis_size, data_axes
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.spec import RunSpec


def parallelize(task: Task, mesh: DeviceMesh, spec: RunSpec, *, reshard: bool = True) -> Parallel:
    """Shard the model; without ``reshard`` gathered parameters stay until backward (ZeRO-2)."""
    return assemble(task, mesh, spec, lambda part: shard_model(part, mesh, reshard=reshard))


def shard_model(model: nn.Module, mesh: DeviceMesh, *, reshard: bool = True) -> nn.Module:
    """Shard a model, or a stage of it, in place."""
    if axis_size(mesh, "replicate") * axis_size(mesh, "shard") == 1:
        return model
    fully_shard = _fully_shard()
    axes = data_axes(mesh)
    for block in blocks_of(model):
        fully_shard(block, mesh=axes, reshard_after_forward=reshard)
    fully_shard(model, mesh=axes, reshard_after_forward=reshard)
    return model


def _fully_shard() -> Callable[..., Any]:
    """Return PyTorch's function; up to version 2.5 it is private."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import (  # type: ignore[attr-defined]  # Old.
            fully_shard,
        )
    return fully_shard
