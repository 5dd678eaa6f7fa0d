"""The whole model's weights, wherever their parts lie."""

from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from scalewise.frameworks.torch.mesh import place, replica, size


def whole_weights(model: nn.Module, mesh: DeviceMesh) -> dict[str, Tensor] | None:
    """Return every weight under the serial model's own name; nothing but on rank 0."""
    first = replica(mesh) == 0 and place(mesh, "tensor") == 0
    mine: dict[str, Tensor] = {}
    stages = model if isinstance(model, nn.ModuleList) else [model]
    for stage in stages:
        for name, value in stage.state_dict().items():
            whole = _whole(value)
            if first:
                mine[name] = whole.cpu()
    if size(mesh, "pipeline") == 1:
        return mine if dist.get_rank() == 0 else None
    found: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(mine, found)
    if found is None:
        return None
    return {name: value for part in found for name, value in part.items()}


def _whole(value: Any) -> Tensor:
    """Return a tensor that may be spread over devices; all of those must ask."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value  # type: ignore[no-any-return]
