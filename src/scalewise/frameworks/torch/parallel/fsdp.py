"""FSDP and HSDP shard parameters, gradients and optimizer state. When a block runs, its parameters
are gathered. ``fsdp`` shards over all devices; ``hsdp`` over the devices of a node, and the nodes
hold replicas.
"""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from scalewise.frameworks.torch.models.parts import blocks_of
from scalewise.frameworks.torch.parallel.assemble import assemble
from scalewise.frameworks.torch.parallel.mesh import axis_size
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.spec import RunSpec


def parallelize(task: Task, mesh: DeviceMesh, spec: RunSpec, *, reshard: bool = True) -> Parallel:
    """Shard the model. Without ``reshard``, parameters stay gathered after forward (ZeRO-2)."""
    return assemble(task, mesh, spec, lambda part: shard_model(part, mesh, reshard=reshard))


def shard_model(model: nn.Module, mesh: DeviceMesh, *, reshard: bool = True) -> nn.Module:
    """Shard a model or a pipeline stage in place; leave it as it is on a single device."""
    if axis_size(mesh, "replicate") * axis_size(mesh, "shard") == 1:
        return model
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # Up to version 2.5 of PyTorch, ``fully_shard`` is private.
        from torch.distributed._composable.fsdp import (  # type: ignore[attr-defined]  # Old.
            fully_shard,
        )
    axes = mesh  # The axes over which gradients are averaged.
    if axis_size(mesh, "replicate") == 1:
        axes = mesh["shard"]
    elif "shard" in (mesh.mesh_dim_names or ()):
        axes = mesh["replicate", "shard"]
    # Blocks first, so that the parameters of each block are gathered separately.
    for part in [*blocks_of(model), model]:
        fully_shard(part, mesh=axes, reshard_after_forward=reshard)
    return model
