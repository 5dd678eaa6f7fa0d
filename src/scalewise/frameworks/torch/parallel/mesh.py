"""The device mesh of a run: one axis for each kind of parallelism."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from scalewise.spec import RunSpec

AXES = ("pipeline", "replicate", "shard", "tensor")
"""From outermost to innermost: tensor parallelism, which communicates most, stays in a node."""


def build_mesh(spec: RunSpec, device: torch.device) -> DeviceMesh:
    """Return the mesh of all devices. Axes of length 1 are left out to save process groups."""
    degrees, world = spec.degrees, dist.get_world_size()
    sizes = {
        "pipeline": degrees.pipeline,
        "replicate": world // degrees.degree,
        "shard": degrees.shard,
        "tensor": degrees.tensor,
    }
    axes = [axis for axis in AXES if sizes[axis] > 1]
    if "tensor" in axes and "replicate" in axes:
        # Then FSDP replaces DDP (see ``ddp.replicate``): it needs "shard", even of length 1.
        axes = [axis for axis in AXES if axis in axes or axis == "shard"]
    axes = axes or ["replicate"]
    lengths = tuple(sizes[axis] for axis in axes)
    return init_device_mesh(device.type, lengths, mesh_dim_names=tuple(axes))


def axis_size(mesh: DeviceMesh, axis: str) -> int:
    """Return the length of an axis, or 1 if the mesh does not have the axis."""
    return mesh[axis].size() if axis in (mesh.mesh_dim_names or ()) else 1


def axis_rank(mesh: DeviceMesh, axis: str) -> int:
    """Return this rank's index along an axis."""
    return mesh.get_local_rank(axis) if axis in (mesh.mesh_dim_names or ()) else 0


def replica_index(mesh: DeviceMesh) -> int:
    """Return the index of this rank's replica. The ranks of a replica train on the same samples."""
    return axis_rank(mesh, "replicate") * axis_size(mesh, "shard") + axis_rank(mesh, "shard")


def rank_in_replica(mesh: DeviceMesh) -> int:
    """Return this rank's index among the ranks of its replica."""
    return axis_rank(mesh, "pipeline") * axis_size(mesh, "tensor") + axis_rank(mesh, "tensor")
