"""Tensor parallelism: the devices of a group share every layer of a block.

Columns first, rows after them: one exchange for each pair. In between, where a
block works on each position by itself, the group shares the sequence, if it divides.
"""

from dataclasses import replace

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from scalewise.frameworks.torch.models.parts import blocks_of, seams_of

try:
    from torch.distributed.tensor import Replicate, Shard
except ImportError:  # Up to version 2.4 they lie elsewhere.
    from torch.distributed._tensor import Replicate, Shard  # type: ignore[attr-defined]  # Old.


def split_blocks(model: nn.Module, mesh: DeviceMesh) -> None:
    """Split the layers of every block over a group of devices, in place."""
    seams, blocks = seams_of(model), blocks_of(model)
    if seams.length is not None and seams.length % mesh.size():
        # As with a class token: 257 positions. Then every device sees all of them.
        seams = replace(seams, norms=(), joined=())
    whole = Shard(1) if seams.norms else Replicate()
    plan = {
        **{name: ColwiseParallel() for name in seams.columns},
        **{name: RowwiseParallel(output_layouts=whole) for name in seams.rows},
        **{name: SequenceParallel() for name in seams.norms},
        **{
            name: PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            )
            for name in seams.joined
        },
    }
    for block in blocks:
        parallelize_module(block, mesh, {name: plan[name] for name in plan if _has(block, name)})
    if seams.norms:
        # What comes before the first block and after the last one sees whole sequences.
        enter = PrepareModuleInput(
            input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=True
        )
        leave = PrepareModuleOutput(
            output_layouts=(Shard(1),), desired_output_layouts=(Replicate(),), use_local_output=True
        )
        parallelize_module(blocks[0], mesh, enter)
        parallelize_module(blocks[-1], mesh, leave)


def _has(block: nn.Module, name: str) -> bool:
    return any(each == name for each, _ in block.named_modules())
