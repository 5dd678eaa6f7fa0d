"""The norm of all gradients together, wherever their parts lie."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from scalewise.frameworks.torch.parallel.mesh import axis_size


def clip_gradients(parameters: Iterable[Tensor], most: float, mesh: DeviceMesh) -> Tensor:
    """Scale gradients down to a norm of ``most`` at the largest; return the norm they had."""
    from torch.nn.utils import clip_grads_with_norm_, get_total_norm  # From version 2.6 on.

    groups: dict[object, list[Tensor]] = {}
    for each in parameters:
        if each.grad is not None:
            groups.setdefault(getattr(each, "device_mesh", None), []).append(each)
    squares = []
    for group in groups.values():
        norm = get_total_norm([each.grad for each in group if each.grad is not None])
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        squares.append(norm.square())
    total = torch.stack(squares).sum()
    if axis_size(mesh, "pipeline") > 1:
        dist.all_reduce(total, group=mesh.get_group("pipeline"))
    norm = total.sqrt()
    for group in groups.values():
        clip_grads_with_norm_(group, most, norm)
    return norm
