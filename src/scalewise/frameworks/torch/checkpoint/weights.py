"""Gather the full weights of a model, and export them with the serial model's names."""

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from scalewise.errors import PluginError
from scalewise.frameworks.torch.checkpoint.local_state import local_stages
from scalewise.frameworks.torch.parallel.mesh import axis_rank, axis_size, replica_index
from scalewise.record.write import cannot_write, refuse_special


def gather_weights(model: nn.Module, mesh: DeviceMesh) -> dict[str, Tensor] | None:
    """Return all weights by the serial model's names, None except on rank 0. All ranks call it."""
    # One rank of each pipeline stage keeps weights, but ``full_tensor`` needs all ranks.
    keeps_weights = replica_index(mesh) == 0 and axis_rank(mesh, "tensor") == 0
    weights: dict[str, Tensor] = {}
    gathered: dict[int, Tensor] = {}
    for stage in local_stages(model):
        for name, value in stage.state_dict(keep_vars=True).items():
            if id(value) not in gathered:  # Tied weights have several names.
                tensor: Any = value.detach()
                full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
                gathered[id(value)] = full.cpu() if keeps_weights else full.new_empty(0)
            if keeps_weights:
                weights[name] = gathered[id(value)]
    parts: list[Any] | None = [weights] * dist.get_world_size() if dist.get_rank() == 0 else None
    if axis_size(mesh, "pipeline") > 1:
        dist.gather_object(weights, parts)  # Replaces the elements of rank 0's list.
    if parts is None:
        return None
    return {name: value for part in parts for name, value in part.items()}


def export(source: Path, to: Path) -> dict[str, int]:
    """Write the weights of a checkpoint or weights file to ``to``; return their count and bytes."""
    # Imported here: torch.distributed.checkpoint takes a second to import.
    from scalewise.frameworks.torch.checkpoint.checkpoint_files import serial_weights
    from scalewise.frameworks.torch.checkpoint.safe_load import read_weights

    refuse_special(to)
    weights = read_weights(source) if source.is_file() else serial_weights(source)
    draft = to.with_name(f".{to.name}.part")
    try:
        if to.suffix == ".safetensors":
            _write_safetensors(weights, draft)
        else:
            torch.save(weights, draft)
        os.replace(draft, to)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise cannot_write(to, error) from error
    size = sum(weight.numel() * weight.element_size() for weight in weights.values())
    return {"tensors": len(weights), "bytes": size}


def _write_safetensors(weights: dict[str, Tensor], path: Path) -> None:
    try:
        from safetensors.torch import save_file
    except ImportError as missing:
        raise PluginError(
            "writing .safetensors needs safetensors, which is not installed",
            hint="pip install safetensors, or write a .pt file",
        ) from missing
    separate: dict[str, Tensor] = {}
    written_pointers: set[int] = set()
    for name, weight in weights.items():
        pointer = weight.untyped_storage().data_ptr()
        # safetensors refuses tensors that share memory, as tied weights do.
        separate[name] = weight.clone() if pointer in written_pointers else weight.contiguous()
        written_pointers.add(pointer)
    save_file(separate, path)
