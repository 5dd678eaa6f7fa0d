"""The whole model's weights, wherever their parts lie."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from scalewise.errors import PluginError
from scalewise.frameworks.torch.parallel.mesh import axis_rank, axis_size, replica_index
from scalewise.record.write import cannot_write


def gather_weights(model: nn.Module, mesh: DeviceMesh) -> dict[str, Tensor] | None:
    """Return every weight under the serial model's own name; nothing but on rank 0."""
    first = replica_index(mesh) == 0 and axis_rank(mesh, "tensor") == 0
    mine: dict[str, Tensor] = {}
    once: dict[int, Tensor] = {}
    for stage in local_stages(model):
        for name, value in stage.state_dict(keep_vars=True).items():
            if id(value) not in once:  # A library's model may have two names for one.
                whole = _whole(value.detach())
                once[id(value)] = whole.cpu() if first else whole.new_empty(0)
            if first:
                mine[name] = once[id(value)]
    if axis_size(mesh, "pipeline") == 1:
        return mine if dist.get_rank() == 0 else None
    found: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(mine, found)
    if found is None:
        return None
    return {name: value for part in found for name, value in part.items()}


def export(source: Path, to: Path) -> dict[str, int]:
    """Write the weights of a checkpoint, or of a file of them, for the serial model."""
    from scalewise.frameworks.torch.checkpoint.checkpoint_files import serial_weights
    from scalewise.frameworks.torch.checkpoint.safe_load import read_weights

    weights = read_weights(source) if source.is_file() else serial_weights(source)
    draft = to.with_name(f".{to.name}.part")
    try:
        _write(weights, draft, safe=to.suffix == ".safetensors")
        os.replace(draft, to)
    except OSError as why:
        draft.unlink(missing_ok=True)
        raise cannot_write(to, why) from why
    size = sum(each.numel() * each.element_size() for each in weights.values())
    return {"tensors": len(weights), "bytes": size}


def _write(weights: dict[str, Tensor], path: Path, *, safe: bool) -> None:
    if not safe:
        torch.save(weights, path)
        return
    try:
        from safetensors.torch import save_file
    except ImportError as missing:
        raise PluginError(
            "writing .safetensors needs safetensors, which is not installed",
            hint="pip install safetensors, or write a .pt file",
        ) from missing
    apart: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, each in weights.items():
        place = each.untyped_storage().data_ptr()
        apart[name] = each.clone() if place in seen else each.contiguous()
        seen.add(place)
    save_file(apart, path)


def local_stages(model: nn.Module) -> Iterable[nn.Module]:
    """Return the parts of a model that this rank holds, each under the serial model's names."""
    return cast(Iterable[nn.Module], model) if isinstance(model, nn.ModuleList) else [model]


def _whole(value: Any) -> Tensor:
    """Return a tensor that may be spread over devices; all of those must ask."""
    whole: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return whole
