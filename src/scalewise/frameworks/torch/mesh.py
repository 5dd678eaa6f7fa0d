"""Where this rank stands among the others: one axis for each way to split."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from scalewise.spec import RunSpec

AXES = ("pipeline", "replicate", "shard", "tensor")
"""The innermost last: neighbours, which are in one node, share a layer."""


def mesh_of(spec: RunSpec, device: torch.device) -> DeviceMesh:
    """Return all devices of the run, along four axes of which most have length one."""
    split, world = spec.degrees, dist.get_world_size()
    sizes = (split.pipeline, world // split.degree, split.shard, split.tensor)
    return init_device_mesh(device.type, sizes, mesh_dim_names=AXES)


def replica(mesh: DeviceMesh) -> int:
    """Return which data-parallel replica this rank belongs to: those see the same samples."""
    return mesh.get_local_rank("replicate") * mesh["shard"].size() + mesh.get_local_rank("shard")


def place_in_model(mesh: DeviceMesh) -> int:
    """Return which of the devices this rank is that hold one replica's layers together."""
    return mesh.get_local_rank("pipeline") * mesh["tensor"].size() + mesh.get_local_rank("tensor")


def data_axes(mesh: DeviceMesh) -> DeviceMesh:
    """Return the axes over which gradients are averaged, without needless ones."""
    if mesh["replicate"].size() == 1:
        return mesh["shard"]
    return mesh["replicate", "shard"]
